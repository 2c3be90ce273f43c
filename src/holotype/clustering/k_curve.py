"""Curve over the number of clusters K: k-means at different K, scored by its silhouette.

The silhouette needs no labels: (b - a) / max(a, b), with a the distance of an image to the centre of its cluster and b
that to the nearest other centre. A clear peak within the range decides. The labelled accuracy (GCD, Vaze et
al. 2022: clusters matched to the known classes, labelled images that are then right) is shown beside it. It decides
nothing: from few labels it is flat up to hundreds of clusters.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.clustering.class_size import subsample_rows
from holotype.clustering.kmeans import CHUNK, kmeans
from holotype.clustering.metrics import clustering_accuracy
from holotype.errors import InputError
from holotype.utils.serialization import SchemaError, from_dict

CURVE_RUNS = 4
"""k-means runs per K, each from one greedy k-means++ start."""
EvidenceKind = Literal["class sizes", "communities"]
SILHOUETTE_TOLERANCE = 0.1
"""Silhouettes that differ by less than this share of the highest one are held for equal."""
MAX_ITER = 100
"""Of a k-means run; a curve needs no last digits."""
SAMPLE, SAMPLE_PER_CLASS = 10_000, 100
"""Images beyond the larger of SAMPLE and SAMPLE_PER_CLASS per known class are left out, at random."""
WORK, LEAST_PER_CLASS = 12_000_000, 10
"""Images times known classes, which the time of k-means grows with: beyond WORK the sample is smaller again, down to
LEAST_PER_CLASS per known class."""
LARGEST_K = 1000
"""Of the search, or twice the known classes if that is more, unless it is told otherwise."""


@dataclass(frozen=True)
class CountPoint:
    """What k-means with K clusters looks like: means over the runs. NaN where a criterion says nothing."""

    k: int
    labelled_accuracy: float
    """Share of the labelled images in the cluster matched to their class."""
    silhouette: float
    """Between -1 and 1, higher is better."""
    stability: float
    """Mean adjusted Rand index of two runs: 1 where they agree."""


@dataclass(frozen=True)
class CountEstimate:
    """How many categories there are, known ones included."""

    best: int
    low: int
    high: int
    """The range that holds the true number in 8 of 10 cases."""
    points: tuple[CountPoint, ...]
    """The curve, by K."""
    words: str
    """The same for people."""
    by: EvidenceKind = "class sizes"
    """What decided: how large known classes are, or the communities of neighbours."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN: None instead."""
        points = [{key: None if v != v else v for key, v in vars(point).items()} for point in self.points]
        return {**vars(self), "points": points}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> CountEstimate:
        """The inverse of as_dict."""
        try:
            fields = {field.name: content[field.name] for field in dataclasses.fields(cls)}
            points = [{k: math.nan if v is None else v for k, v in p.items()} for p in content["points"]]
            return from_dict(cls, fields | {"points": points})
        except (KeyError, TypeError, AttributeError, SchemaError) as error:
            raise InputError(
                f"The estimate of the number of categories cannot be read ({error!r}); remove it and estimate again."
            ) from error


def has_labels(n_known: int, n_labelled: int) -> bool:
    """Can the labels say anything? Of a single class any split looks wrong, so that the answer would always be 1."""
    return n_known >= 2 and n_labelled > 0


@dataclass(frozen=True)
class CountProblem:
    """Images of which the categories are counted."""

    features: Tensor
    """(N, D) of images that could be read, from the frozen backbone."""
    label: Tensor
    """(N,) long, -1 = unlabelled."""
    n_known: int
    k_max: int | None = None
    """The largest answer; by default it leaves two images for each category."""
    seed: int = 0
    progress: bool = False
    weight: np.ndarray | None = None
    """(N,) how many images each stands for, where they are a sample; sizes of classes are then those of the whole."""

    @property
    def bounds(self) -> tuple[int, int]:
        return k_bounds(len(self.features), int((self.label < 0).sum()), self.n_known, self.k_max)

    def sampled(self) -> CountProblem:
        """Return at most as many images as k-means on a CPU takes seconds for, with normalised features."""
        rows = subsample_rows(len(self.features), sample_size(self.n_known), self.seed)
        x = F.normalize(self.features.float(), dim=-1)[rows.to(self.features.device)]
        return dataclasses.replace(self, features=x, label=self.label[rows.to(self.label.device)])


def sample_size(n_known: int) -> int:
    """Return how many images k-means sees at most."""
    least = max(LEAST_PER_CLASS * n_known, WORK // max(1, n_known))
    return max(SAMPLE, min(SAMPLE_PER_CLASS * n_known, least))


def k_bounds(n: int, n_unlabelled: int, n_known: int, k_max: int | None) -> tuple[int, int]:
    """The least and the largest K to look at, of n images.

    Two images for each category at the largest, or for each new one where the known classes have fewer; and never more
    than there are images, since of a known class perhaps none can be read.
    """
    low = max(n_known, 1)
    if n < low:
        raise InputError(f"{n} usable images are fewer than the {low} known classes; add images.")
    if k_max is None:
        pairs = max(n // 2, n_known + -(-n_unlabelled // 2))
        return low, max(low, min(pairs, max(LARGEST_K, 2 * n_known), n))
    if k_max < low:
        raise InputError(
            f"--k-max {k_max} is smaller than the {low} known classes, which count too; raise it."
        )
    return low, min(k_max, n)


class Curve:
    """k-means at every K that is asked for, each computed once."""

    def __init__(self, problem: CountProblem, advance: Callable[[int], None] = lambda more: None) -> None:
        """problem: a sampled one. advance: told of every evaluation."""
        self.x, self.n_known, self.seed = problem.features, problem.n_known, problem.seed
        label, self.advance = problem.label, advance
        self.labelled = (label >= 0).nonzero().flatten().cpu().numpy()
        self.target = label.cpu().numpy()[self.labelled]
        self.n_labelled = len(self.labelled)
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
        clusters, accuracy, silhouettes = [], [], []
        generator = torch.Generator()
        generator.manual_seed((self.seed * LARGEST_K + k) % 2**63)  # as far as torch counts
        for _ in range(CURVE_RUNS):
            found = kmeans(self.x, k, n_init=1, max_iter=MAX_ITER, generator=generator)
            silhouettes.append(centre_silhouette(self.x, found.centres, found.label))
            clusters.append(found.label.cpu().numpy())
            if self.n_labelled:
                labelled = clusters[-1][self.labelled]
                accuracy.append(clustering_accuracy(self.target, labelled, self.n_known).all)
        return CountPoint(
            k,
            float(np.mean(accuracy)) if accuracy else math.nan,
            float(np.mean(silhouettes)),
            _stability(clusters),
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


def clear_peak(points: Sequence[CountPoint]) -> CountPoint | None:
    """Where the silhouette is higher than at both ends of the curve by SILHOUETTE_TOLERANCE; None where it is nowhere.

    A silhouette that only falls prefers the smallest K because distances in many dimensions do, and says nothing.
    """
    usable = [p for p in points if not math.isnan(p.silhouette)]
    if len(usable) < 3:
        return None
    top = max(usable, key=lambda p: p.silhouette)
    ends = max(usable[0].silhouette, usable[-1].silhouette)
    return top if top.silhouette - ends > SILHOUETTE_TOLERANCE * abs(top.silhouette) else None


def describe(estimate: CountEstimate, n_known: int, k_max: int, *evidence: str) -> CountEstimate:
    """Return the estimate with its words: the range, the evidence, and what an end of the search in it means."""
    words = [range_words(estimate), *evidence]
    if estimate.low == n_known and estimate.best == n_known:
        words.append(f"That is, perhaps nothing beyond the {n_known} known classes.")
    elif estimate.low == n_known:
        words.append(f"That there is nothing beyond the {n_known} known classes is possible too.")
    if estimate.high >= k_max > n_known:
        words.append(f"The search ended at {k_max}: there may be more, which a larger k_max would show.")
    return dataclasses.replace(estimate, words=" ".join(filter(None, words)))


def range_words(estimate: CountEstimate) -> str:
    if estimate.low == estimate.high:
        return f"{estimate.best} categories, known ones included."
    return f"{estimate.low} to {estimate.high} categories, known ones included, most likely {estimate.best}."
