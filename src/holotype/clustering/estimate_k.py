"""Estimate the number of categories, with a range.

The neighbours of labelled images say how large the known classes are, unlabelled images included, and so how many
categories there are (class_size.py). The less sure they are, the more two others count: what is usual, that half of all
classes are known, and the communities of the graph of neighbours (communities.py). Each is weighed by the standard
deviation that its log K has. Where fewer than two classes are known, communities stand alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from holotype.clustering.class_size import COVERAGE, NEIGHBOURS, ClassSize, measure_classes, subsample_rows
from holotype.clustering.communities import communities
from holotype.clustering.k_curve import (
    CountEstimate,
    CountPoint,
    CountProblem,
    Curve,
    clear_peak,
    describe,
    has_labels,
    range_words,
)
from holotype.clustering.knn import neighbour_graph
from holotype.data.bursts import one_per_burst
from holotype.utils.atomic import write_text
from holotype.utils.console import progress_bar
from holotype.utils.device import pick_device
from holotype.utils.serialization import dump_json

if TYPE_CHECKING:
    from holotype.data.table import Table

PRIOR_RATIO, PRIOR_SPREAD = 2.0, 0.35
"""Before anything is measured, known classes are taken for half of all; standard deviation of log K of that."""
COMMUNITY_SPREAD = 0.55
"""Standard deviation of log K of the communities."""
MAX_DEVIATIONS = 2
"""Standard deviations that an opinion may at most lie from that of the class sizes; it is less sure where it is
farther: two known classes of forty do happen."""
AROUND_RANGE, MAX_LOOKS = 1.5, 7
"""The curve beside an answer of class sizes goes beyond its range by this factor, with so many K."""
LOOK_WORK, LOOK_STEP = 10_000_000, 50_000_000
"""K times images of all looks together, which the time of k-means grows with; and of one that is taken alone."""
COMMUNITY_LINKS, LEAST_COMMUNITY = 10, 3
"""Nearest images that an image is linked with; and images of a group that counts."""
COMMUNITY_RANGE = (-0.55, 0.55)
"""Of log K, around the number of communities."""
FINER = 8
"""Most rounds in which a clear peak of that curve is looked at more closely."""
ESTIMATOR = 8
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
    """Estimate the number of categories among images, of which some are labelled with one of `n_known` classes.

    Args:
        features: (N, D) of images that could be read, from the frozen backbone; normalised here.
        label: (N,) long, -1 = unlabelled.
        n_known: number of known classes, the least answer: nothing is new.
        k_max: the largest answer; by default it leaves two images for each category.
        seed: of all draws.
        progress: show a bar.
        weight: (N,) how many images each stands for, where they are a sample.

    Returns:
        The best number with a range, the curve around it, and both in words.
    """
    problem = CountProblem(features, label, n_known, k_max, seed, progress, weight)
    answer = estimate_without_curve(problem)
    (low, high), some = problem.bounds, problem.sampled()
    n = len(some.features)
    grid = _probe_neighbours(answer, low, min(high, n), n)
    with progress_bar("Counting categories", len(grid), progress and bool(grid)) as advance:
        around = Curve(some, advance)
        for k in grid:
            around.at(k)
        _refine(around)
    return from_curve_and_size(answer, around.points)


def estimate_without_curve(problem: CountProblem) -> CountEstimate:
    """Estimate by class sizes, without the curve around the answer; by communities where labels say nothing."""
    n, n_known, weight = len(problem.features), problem.n_known, problem.weight
    rows = subsample_rows(n, NEIGHBOURS, problem.seed)
    x, label = problem.features[rows.to(problem.features.device)], problem.label.cpu()[rows]
    groups = count_communities(x, problem.seed)
    if not has_labels(n_known, int((problem.label >= 0).sum())):
        return by_communities(groups, n_known, *problem.bounds)
    if weight is not None:
        n, weight = round(float(weight.sum())), weight[rows.numpy()]
    sized = measure_classes(x, label, problem.seed, weight)
    return by_class_size(sized, groups, n, n_known, problem.bounds[1])


def count_communities(x: Tensor, seed: int) -> float:
    """Return the effective number of communities of the graph of neighbours: e to the entropy of their sizes.

    Infomap follows a random walk on the graph in which each image is linked with its COMMUNITY_LINKS nearest; where the
    walk stays for long is a group. Of k-means at different K, the silhouette often prefers the smallest K, whatever
    there is.

    Args:
        x: (N, D) features.
        seed: Of the walk.
    """
    if len(x) <= COMMUNITY_LINKS:
        return float(len(x))
    graph = neighbour_graph(
        x.float() - x.float().mean(0), torch.full((len(x),), -1), COMMUNITY_LINKS + 1, 0.0
    )
    size = np.bincount(communities(graph.maximum(graph.T), seed))
    share = size[size >= LEAST_COMMUNITY] / max(size[size >= LEAST_COMMUNITY].sum(), 1)
    return float(np.exp(-(share * np.log(share)).sum()))


def by_communities(groups: float, n_known: int, low: int, high: int) -> CountEstimate:
    """The estimate where labels say nothing. low, high: the least and the largest K allowed."""
    best, least, most = (min(max(round(groups * math.exp(s)), low), high) for s in (0.0, *COMMUNITY_RANGE))
    estimate = CountEstimate(best, least, most, (), "", "communities")
    evidence = (
        "Labels of fewer than two classes cannot help, so this is the number of groups of images that are each other's "
        "neighbours. Take it as a hint."
    )
    return describe(estimate, n_known, high, evidence)


def estimate_table(table: Table, features: np.ndarray, device: str, **settings: Any) -> CountEstimate:
    """Estimate the same for the readable images of a table, one of each burst.

    Args:
        table: the images.
        features: (N, D) of all of its rows.
        device: as in --device.
        settings: k_max, seed and progress of `estimate_count`.
    """
    # k-means draws its starts in float64, which MPS does not have
    where = "cuda" if pick_device(device) == "cuda" else "cpu"
    usable = table.usable & one_per_burst(table)
    rows, target = torch.from_numpy(features[usable]).to(where), torch.from_numpy(table.target[usable])
    weight = None if table.weight is None else table.weights[usable]
    return estimate_count(rows, target, len(table.known), weight=weight, **settings)


def count_key(table: Table, digest: str, seed: int, k_max: int | None = None) -> dict[str, Any]:
    """All that decides an estimate. digest: of the backbone that the features come from."""
    key: dict[str, Any] = {"table": table.fingerprint(), "backbone": digest}
    key |= {"seed": seed, "estimator": ESTIMATOR}
    if table.weight is not None:
        key["weights"] = hashlib.sha256(" ".join(table.weight).encode()).hexdigest()
    return key if k_max is None else key | {"k_max": k_max}


def write_count(path: Path, estimate: CountEstimate, key: dict[str, Any]) -> None:
    """Keep an estimate with what it is of, so that the same need not be estimated again."""
    write_text(path, dump_json(estimate.as_dict() | {"of": key}))


def from_curve_and_size(answer: CountEstimate, points: Sequence[CountPoint]) -> CountEstimate:
    """An answer with the curve around it. Its silhouette decides within the range of class sizes, where it is clear."""
    answer = dataclasses.replace(answer, points=tuple(points))
    top = clear_peak(points)
    if answer.by != "class sizes" or top is None or not answer.low <= top.k <= answer.high:
        return answer
    told = f"The silhouette, which needs no labels, has a clear peak at {top.k} and decides."
    best = dataclasses.replace(answer, best=top.k)
    words = answer.words.replace(range_words(answer), f"{range_words(best)} {told}")
    return dataclasses.replace(best, words=words)


def by_class_size(
    size: ClassSize | None, groups: float, n_images: int, n_known: int, k_max: int
) -> CountEstimate:
    """Join what neighbours say with what is usual and with communities, still without a curve.

    Args:
        size: None where neighbours say nothing.
        groups: Communities.
        k_max: The largest K allowed.
    """

    def fitted(k: float) -> int:
        return min(max(round(k), n_known), k_max)

    usual = ClassSize(PRIOR_RATIO * n_known, PRIOR_SPREAD)
    first = joined = size or usual
    for k, spread in ((usual.k, usual.spread), (groups, COMMUNITY_SPREAD))[size is None :]:
        joined = joined.joined(k, max(spread, abs(math.log(k / first.k)) / MAX_DEVIATIONS))
    estimate = CountEstimate(fitted(joined.k), fitted(joined.low), fitted(joined.high), (), "", "class sizes")
    if size is None:
        evidence = (
            "The labels are too few to say how large a class is, so the known classes are taken for about half of all, "
            "as far as groups of neighbours do not say otherwise."
        )
    else:
        evidence = (
            f"By the neighbours of the labelled images, a known class has about {n_images / size.k:,.0f} images, "
            "labelled or not; the less sure they are, the more it counts that about half of all classes are usually "
            "known, and how many groups of neighbours there are."
        )
    return describe(
        estimate, n_known, k_max, f"{evidence} The range holds the true number in {COVERAGE:.0%} of cases."
    )


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
