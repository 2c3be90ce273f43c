"""k-means at one number of clusters after another, and the search for the number that fits the labels best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.cluster.curve import RUNS, CountEstimate, CountPoint, conclude, informed
from holotype.cluster.kmeans import CHUNK, kmeans
from holotype.errors import InputError
from holotype.utils.console import progress_bar

MAX_ITER = 100
"""Of a k-means run; a curve needs no last digits."""
SAMPLE, SAMPLE_PER_CLASS = 10_000, 100
"""Images beyond the larger of SAMPLE and SAMPLE_PER_CLASS per known class are left out, at random."""
WORK, LEAST_PER_CLASS = 12_000_000, 10
"""Images times known classes, which the time of k-means grows with: beyond WORK the sample is smaller again, down to
LEAST_PER_CLASS per known class."""
LARGEST_K = 1000
"""Of the search, or twice the known classes if that is more, unless it is told otherwise."""
WIDE = 100
"""Beyond this K a search that the silhouette leads goes on only while the silhouette has not clearly fallen."""
STEP = 1.2
"""Ratio of neighbouring K of the grid."""
FALLEN = 0.8
"""The grid ends where the accuracy has twice in a row been below this share of its highest value."""
CLIMB_WORK = 200_000_000
"""K times images of the whole grid, which the time grows with: beyond it the search would take hours. Up to some 1,600
known classes it is never reached."""
LEAST_POINTS = 3
"""Of a curve: where these would take too long already, none is begun with."""
BRENT, FILL = 8, 6
"""Most evaluations of Brent's search, and of the gaps within the range found."""


class TooLong(InputError):
    """The grid would take hours, so that the curve says nothing."""


def estimate_by_curve(
    features: Tensor,
    label: Tensor,
    n_known: int,
    *,
    k_max: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> CountEstimate:
    """How many categories, by the labelled accuracy or the silhouette of k-means; as `estimate_count` takes them.

    TooLong where there are so many known classes that the search would take hours.
    """
    x, label = sample(F.normalize(features.float(), dim=-1), label, n_known, seed)
    low, high = bounds(len(x), int((label < 0).sum()), n_known, k_max)
    grid = _grid(low, high)
    with progress_bar("Counting categories", len(grid) + BRENT + FILL, progress) as advance:
        curve = Curve(x, label, n_known, seed, advance)
        _climb(curve, grid)
        if curve.informed and len(curve.points) > 2:
            _search(curve)
        _fill(curve)
    return conclude(curve.points, n_known, curve.n_labelled, high)


def sample(x: Tensor, label: Tensor, n_known: int, seed: int) -> tuple[Tensor, Tensor]:
    """At most as many rows as k-means on a CPU takes seconds for, in their order."""
    least = max(LEAST_PER_CLASS * n_known, WORK // max(1, n_known))
    most = max(SAMPLE, min(SAMPLE_PER_CLASS * n_known, least))
    return some(x, label, most, seed)


def some(x: Tensor, label: Tensor, most: int, seed: int) -> tuple[Tensor, Tensor]:
    """At most so many rows, drawn at random, in their order."""
    label, rows = label.to(x.device), some_rows(len(x), most, seed).to(x.device)
    return (x, label) if len(x) <= most else (x[rows], label[rows])


def some_rows(n: int, most: int, seed: int) -> Tensor:
    """The rows that `some` draws from n, on the CPU."""
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most].sort().values


def bounds(n: int, n_unlabelled: int, n_known: int, k_max: int | None) -> tuple[int, int]:
    """The least and the largest K to look at, of n images.

    Two images for each category at the largest, or for each new one where the known classes have fewer; and never more
    than there are images, since of a known class perhaps none can be read.
    """
    low = max(n_known, 1)
    if n < low:
        raise InputError(
            f"{n} usable images are fewer than the {low} known classes; add images or leave classes out."
        )
    if k_max is None:
        pairs = max(n // 2, n_known + -(-n_unlabelled // 2))
        return low, max(low, min(pairs, max(LARGEST_K, 2 * n_known), n))
    if k_max < low:
        raise InputError(
            f"--k-max {k_max} is smaller than the {low} known classes, which it counts as well; raise it."
        )
    return low, min(k_max, n)


def _grid(low: int, high: int) -> list[int]:
    """low, high and K between, each STEP times the one before, all different."""
    grid, k = [low], float(low)
    while grid[-1] < high:
        k = max(k * STEP, grid[-1] + 1)
        grid.append(min(int(k), high))
    return grid


class Curve:
    """k-means at every K that is asked for, each computed once."""

    def __init__(
        self,
        x: Tensor,
        label: Tensor,
        n_known: int,
        seed: int,
        advance: Callable[[int], None] = lambda more: None,
    ) -> None:
        """x: (N, D) normalised. label: (N,), -1 = unlabelled. advance: told of every evaluation."""
        self.x, self.n_known, self.seed, self.advance = x, n_known, seed, advance
        self.labelled = (label >= 0).nonzero().flatten().cpu().numpy()
        self.target = label.cpu().numpy()[self.labelled]
        self.n_labelled = len(self.labelled)
        self.informed = informed(n_known, self.n_labelled)
        self._found: dict[int, CountPoint] = {}

    @property
    def points(self) -> tuple[CountPoint, ...]:
        return tuple(self._found[k] for k in sorted(self._found))

    def at(self, k: int) -> CountPoint:
        if k not in self._found:
            self._found[k] = self._evaluate(k)
            self.advance(1)
        return self._found[k]

    def _evaluate(self, k: int) -> CountPoint:
        from holotype.cluster.evaluate import clustering_accuracy

        clusters, accuracy, silhouettes = [], [], []
        generator = torch.Generator().manual_seed(
            (self.seed * LARGEST_K + k) % 2**63
        )  # as far as torch counts
        for _ in range(RUNS):
            found = kmeans(self.x, k, n_init=1, max_iter=MAX_ITER, generator=generator)
            silhouettes.append(centre_silhouette(self.x, found.centres, found.label))
            clusters.append(found.label.cpu().numpy())
            if self.n_labelled:
                accuracy.append(
                    clustering_accuracy(self.target, clusters[-1][self.labelled], self.n_known).all
                )
        return CountPoint(
            k,
            float(np.mean(accuracy)) if accuracy else math.nan,
            float(np.mean(silhouettes)),
            _stability(clusters),
            float(np.std(accuracy, ddof=1)) if accuracy else 0.0,
        )


def centre_silhouette(x: Tensor, centres: Tensor, label: Tensor) -> float:
    """Mean of (b - a) / max(a, b): a to the centre of the other images of the cluster, b to the nearest other centre.

    x: (N, D), centres: (K, D), label: (N,). 0 for an image alone in its cluster; NaN with a single cluster.
    """
    if len(centres) < 2:
        return math.nan
    size = torch.bincount(label, minlength=len(centres))[label].to(x)
    parts = []
    for rows in torch.arange(len(x), device=x.device).split(max(1, CHUNK // len(centres))):
        distance = torch.cdist(x[rows], centres)
        own = label[rows, None]
        # the centre without the image itself lies n / (n - 1) times as far away
        a = distance.gather(1, own)[:, 0] * size[rows] / (size[rows] - 1).clamp_min(1)
        b = distance.scatter(1, own, math.inf).amin(1)
        parts.append(torch.where(size[rows] > 1, (b - a) / torch.maximum(a, b).clamp_min(1e-12), 0.0))
    return float(torch.cat(parts).mean())


def _stability(clusters: Sequence[np.ndarray]) -> float:
    from sklearn.metrics import adjusted_rand_score

    pairs = [(a, b) for i, a in enumerate(clusters) for b in clusters[:i]]
    return float(np.mean([adjusted_rand_score(a, b) for a, b in pairs]))


# -- the search -----------------------------------------------------------------------------------------


def _climb(curve: Curve, grid: Sequence[int]) -> None:
    """Along the grid until the accuracy, or without labels the silhouette, has clearly fallen.

    Large K cost most and tell least. The silhouette often only falls, and is followed up to WIDE all the same.
    """
    best, below = 0.0, 0
    for at, k in enumerate(grid):
        if sum(grid[: max(at + 1, LEAST_POINTS)]) * len(curve.x) > CLIMB_WORK:
            raise TooLong(
                "How many categories there are cannot be told: the labels do not say how large a class is, and with "
                f"{curve.n_known:,} known classes a search by k-means would take hours. Label more images of each "
                "class, or say how many categories there are (--k N of holotype discover and holotype train)."
            )
        point = curve.at(k)
        value = point.labelled_accuracy if curve.informed else point.silhouette
        best = max(best, value)
        below = below + 1 if value < FALLEN * best else 0
        if below >= 2 and (curve.informed or k >= WIDE):
            return


def _search(curve: Curve) -> None:
    """GCD's bounded Brent search for the highest accuracy, between the points two to either side of the best."""
    from scipy.optimize import minimize_scalar

    grid = curve.points
    peak = max(range(len(grid)), key=lambda i: grid[i].labelled_accuracy)
    bounds = (grid[max(peak - 2, 0)].k, grid[min(peak + 2, len(grid) - 1)].k)
    minimize_scalar(
        lambda k: -curve.at(int(k)).labelled_accuracy,
        bounds=bounds,
        method="bounded",
        options={"maxiter": BRENT, "xatol": 0.5},
    )


def _fill(curve: Curve) -> None:
    """A few K in the gaps of the range as it stands, so that its ends do not hang on single points."""
    found = conclude(curve.points, curve.n_known, curve.n_labelled, curve.points[-1].k)
    wanted = np.linspace(found.low, found.high, FILL + 2).round().astype(int).tolist()
    for k in sorted(set(wanted)):
        curve.at(k)
