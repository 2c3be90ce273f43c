"""Estimate the number of categories, with a range.

The neighbours of labelled images say how large the known classes are, unlabelled images included, and so how many
categories there are (class_size.py). Where labels are too few for that, a curve over k-means at different K decides
(k_curve.py).
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.clustering.class_size import NEIGHBOURS, measure_classes, subsample, subsample_rows
from holotype.clustering.k_curve import (
    CountEstimate,
    CountPoint,
    Curve,
    TooLong,
    by_class_size,
    clear_peak,
    combine_estimates,
    estimate_by_curve,
    from_curve_and_size,
    k_bounds,
    midpoint,
    sample_rows,
)
from holotype.data.bursts import one_per_burst
from holotype.utils.atomic import write_text
from holotype.utils.console import progress_bar
from holotype.utils.device import pick_device
from holotype.utils.serialization import dump_json

if TYPE_CHECKING:
    from holotype.data.table import Table

__all__ = ["CountEstimate", "CountPoint", "count_key", "estimate_count", "estimate_table", "write_count"]

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
    """Do the same, with a curve over k-means only where the class sizes are uncertain."""
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
        answer = by_class_size(sized, n, n_known, high)
        note = "They are not sure; the labelled accuracy of k-means, which would have a say too, would take hours."
        return dataclasses.replace(answer, words=f"{answer.words} {note}")
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
