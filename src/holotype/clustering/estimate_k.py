"""Estimate the number of categories, with a range, from k-means sweeps and labelled neighbours.

The neighbours of labelled images say how large the known classes are, unlabelled images included, and so how many
categories there are (class_size.py). Where labels are too few for that, a curve over k-means at different K decides:

- labelled accuracy (GCD, Vaze et al. 2022): cluster all images, match clusters to the known classes over the
  labelled images, count those that are right. Too few clusters mix known classes, too many split them. It is too low
  where most classes are unknown, since merging these costs it nothing.
- silhouette, which needs no labels: (b - a) / max(a, b), with a the distance of an image to the centre of its
  cluster and b that to the nearest other centre. It decides alone where fewer than two classes are known.

Differences from the reference: several runs per K are averaged, so that luck in the start does not decide and its
size is known; a geometric grid finds the region before Brent's search, which local peaks would mislead.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.clustering.class_size import measure_classes
from holotype.clustering.k_curve import (
    CURVE_RUNS,
    CountEstimate,
    CountPoint,
    by_class_size,
    clear_peak,
    combine_estimates,
    from_class_size_only,
    from_curve_and_size,
    has_labels,
    midpoint,
    read_curve,
)
from holotype.clustering.kmeans import CHUNK, kmeans
from holotype.data.bursts import one_per_burst
from holotype.errors import InputError
from holotype.utils.atomic import write_text
from holotype.utils.console import progress_bar
from holotype.utils.device import pick_device
from holotype.utils.serialization import dump_json

if TYPE_CHECKING:
    from holotype.data.table import Table

MAX_ITER = 100
"""Of a k-means run; a curve needs no last digits."""
SAMPLE, SAMPLE_PER_CLASS = 10_000, 100
"""Images beyond the larger of SAMPLE and SAMPLE_PER_CLASS per known class are left out, at random."""
WORK, LEAST_PER_CLASS = 12_000_000, 10
"""Images times known classes, which the time of k-means grows with: beyond WORK the sample is smaller again, down to
LEAST_PER_CLASS per known class."""
LARGEST_K = 1000
"""Of the search, or twice the known classes if that is more, unless it is told otherwise."""
WIDE_RANGE = 100
"""Beyond this K a search that the silhouette leads goes on only while the silhouette has not clearly fallen."""
STEP = 1.2
"""Ratio of neighbouring K of the grid."""
FALLEN_FRACTION = 0.8
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
    x, label = sample_rows(F.normalize(features.float(), dim=-1), label, n_known, seed)
    low, high = k_bounds(len(x), int((label < 0).sum()), n_known, k_max)
    grid = _grid(low, high)
    with progress_bar("Counting categories", len(grid) + BRENT + FILL, progress) as advance:
        curve = Curve(x, label, n_known, seed, advance)
        _climb(curve, grid)
        if curve.informed and len(curve.points) > 2:
            _search(curve)
        _fill(curve)
    return read_curve(curve.points, n_known, curve.n_labelled, high)


def sample_rows(x: Tensor, label: Tensor, n_known: int, seed: int) -> tuple[Tensor, Tensor]:
    """At most as many rows as k-means on a CPU takes seconds for, in their order."""
    least = max(LEAST_PER_CLASS * n_known, WORK // max(1, n_known))
    most = max(SAMPLE, min(SAMPLE_PER_CLASS * n_known, least))
    return subsample(x, label, most, seed)


def subsample(x: Tensor, label: Tensor, most: int, seed: int) -> tuple[Tensor, Tensor]:
    """At most so many rows, drawn at random, in their order."""
    label, rows = label.to(x.device), subsample_rows(len(x), most, seed).to(x.device)
    return (x, label) if len(x) <= most else (x[rows], label[rows])


def subsample_rows(n: int, most: int, seed: int) -> Tensor:
    """The rows that `some` draws from n, on the CPU."""
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most].sort().values


def k_bounds(n: int, n_unlabelled: int, n_known: int, k_max: int | None) -> tuple[int, int]:
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
        self.informed = has_labels(n_known, self.n_labelled)
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
        from holotype.clustering.metrics import clustering_accuracy

        clusters, accuracy, silhouettes = [], [], []
        generator = torch.Generator().manual_seed(
            (self.seed * LARGEST_K + k) % 2**63
        )  # as far as torch counts
        for _ in range(CURVE_RUNS):
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
        below = below + 1 if value < FALLEN_FRACTION * best else 0
        if below >= 2 and (curve.informed or k >= WIDE_RANGE):
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
    found = read_curve(curve.points, curve.n_known, curve.n_labelled, curve.points[-1].k)
    wanted = np.linspace(found.low, found.high, FILL + 2).round().astype(int).tolist()
    for k in sorted(set(wanted)):
        curve.at(k)


__all__ = ["CountEstimate", "CountPoint", "count_key", "estimate_count", "estimate_table", "write_count"]

NEIGHBOURS = 20_000
"""Images beyond these are left out, at random, where neighbours are looked for."""
UNSURE = 0.15
"""Where neighbours leave log K more open than this, the curve over k-means has a say too."""
AROUND_RANGE, MAX_LOOKS = 1.5, 7
"""The curve beside an answer of class sizes goes beyond its range by this factor, with so many K."""
LOOK_WORK, LOOK_STEP = 10_000_000, 50_000_000
"""K times images of all looks together, which the time of k-means grows with; and of one that is taken alone."""
FINER = 8
"""Most rounds in which a clear peak of that curve is looked at more closely."""
ESTIMATOR = 4
"""Raised when the same images give another estimate: those of before are then not taken."""


def estimate_count(
    features: Tensor,
    label: Tensor,
    n_known: int,
    *,
    k_max: int | None = None,
    seed: int = 0,
    progress: bool = False,
    weight: np.ndarray | None = None,
) -> CountEstimate:
    """The number of categories among images, of which some are labelled with one of `n_known` classes.

    features: (N, D) of images that could be read, from the frozen backbone; normalised here. label: (N,) long, -1 =
    unlabelled. The answer is n_known (nothing new) at least, k_max at most; by default k_max leaves two images each.
    weight: (N,) how many images each stands for, where they are a sample; sizes of classes are then those of the whole.
    """
    answer = estimate_adaptive(
        features, label, n_known, k_max=k_max, seed=seed, progress=progress, weight=weight
    )
    if answer.points:
        return answer
    low, high = k_bounds(len(features), int((label < 0).sum()), n_known, k_max)
    x, label = sample_rows(F.normalize(features.float(), dim=-1), label, n_known, seed)
    grid = _probe_neighbours(answer, low, min(high, len(x)), len(x))
    with progress_bar("Counting categories", len(grid), progress and bool(grid)) as advance:
        around = Curve(x, label, n_known, seed, advance)
        for k in grid:
            around.at(k)
        _refine(around)
    return from_curve_and_size(answer, around.points)


def estimate_adaptive(
    features: Tensor,
    label: Tensor,
    n_known: int,
    *,
    k_max: int | None = None,
    seed: int = 0,
    progress: bool = False,
    weight: np.ndarray | None = None,
) -> CountEstimate:
    """The same, with a curve over k-means only where it has a say."""
    _, high = k_bounds(len(features), int((label < 0).sum()), n_known, k_max)
    n, some_weight = len(features), None
    if weight is not None:
        n, some_weight = round(float(weight.sum())), weight[subsample_rows(n, NEIGHBOURS, seed).numpy()]
    sized = measure_classes(*subsample(features, label, NEIGHBOURS, seed), seed, some_weight)
    if sized is not None and sized.spread <= UNSURE:
        return by_class_size(sized, n, n_known, high)
    try:
        curve = estimate_by_curve(features, label, n_known, k_max=k_max, seed=seed, progress=progress)
    except TooLong:
        if sized is None:
            raise
        return from_class_size_only(by_class_size(sized, n, n_known, high))
    return curve if sized is None else combine_estimates(sized, curve, n, n_known, high)


def estimate_table(
    table: Table,
    features: np.ndarray,
    device: str,
    *,
    k_max: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> CountEstimate:
    """The same for the readable images of a table, one of each burst. features: (N, D) of all of its rows; device: as
    in --device."""
    # k-means draws its starts in float64, which MPS does not have
    where = "cuda" if pick_device(device) == "cuda" else "cpu"
    usable = table.usable & one_per_burst(table)
    rows, target = torch.from_numpy(features[usable]).to(where), torch.from_numpy(table.target[usable])
    weight = None if table.weight is None else table.weights[usable]
    return estimate_count(
        rows, target, len(table.known), k_max=k_max, seed=seed, progress=progress, weight=weight
    )


def count_key(table: Table, digest: str, seed: int, k_max: int | None = None) -> dict[str, Any]:
    """All that decides an estimate. digest: of the backbone that the features come from."""
    key: dict[str, Any] = {
        "table": table.fingerprint(),
        "backbone": digest,
        "seed": seed,
        "estimator": ESTIMATOR,
    }
    if table.weight is not None:
        key["weights"] = hashlib.sha256(" ".join(table.weight).encode()).hexdigest()
    return key if k_max is None else key | {"k_max": k_max}


def write_count(path: Path, estimate: CountEstimate, key: dict[str, Any]) -> None:
    """Keep an estimate with what it is of, so that the same need not be estimated again."""
    write_text(path, dump_json(estimate.as_dict() | {"of": key}))


def _refine(curve: Curve) -> None:
    """Halve the gaps beside a clear peak of the silhouette, until its neighbours are next to it."""
    for _ in range(FINER):
        peak = clear_peak(curve.points)
        if peak is None:
            return
        ks = [point.k for point in curve.points]
        at = ks.index(peak.k)
        between = {(peak.k + ks[i]) // 2 for i in (at - 1, at + 1)} - {*ks}
        if not between:
            return
        for k in between:
            curve.at(k)


def _probe_neighbours(answer: CountEstimate, low: int, high: int, n_images: int) -> list[int]:
    """K from below to above the range of an answer, its own among them; that alone where others would take long, and
    none where it would too.

    low, high: the least and the largest.
    """
    best, looks = min(answer.best, high), min(MAX_LOOKS, LOOK_WORK // (answer.best * n_images))
    if looks < 3:
        return [best] if best * n_images <= LOOK_STEP else []
    ends = (max(low, answer.low / AROUND_RANGE), min(high, answer.high * AROUND_RANGE))
    return sorted({*np.geomspace(*ends, looks).round().astype(int).tolist(), best})


def pick_k(estimate: CountEstimate) -> int:
    """The number to train with: the best value, or of a curve of labelled accuracy halfway to the upper end."""
    return midpoint(estimate) if estimate.by == "curve" else estimate.best
