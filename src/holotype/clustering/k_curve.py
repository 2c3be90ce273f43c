"""Read the number of categories off a curve: smoothing, range, and its wording."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from holotype.clustering.class_size import COVERAGE, ClassSize
from holotype.errors import InputError
from holotype.utils.serialization import SchemaError, from_dict

CURVE_RUNS = 4
"""k-means runs per K, each from one greedy k-means++ start."""
BANDWIDTH = 0.2
"""Of the smoothing, in log K."""
CURVE_SPREAD = 0.4
"""Of log K, where the curve speaks beside the neighbours. It speaks with its upper end, which is hardly too low (its
best value is, by half); that spreads by 0.2 to 0.3, but leans to the same side as the neighbours."""
UNCLEAR = 1.15
"""Where the silhouette decides alone and has no clear peak, the range reaches further by this factor, and by one
category at least: without, it held the truth in two thirds of small collections (docs/how-many.md)."""
EvidenceKind = Literal["class sizes", "curve", "silhouette"]
SILHOUETTE_TOLERANCE = 0.1
"""Silhouettes that differ by less than this share of the highest one are held for equal."""


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
    spread: float = 0.0
    """Standard deviation of the accuracy over the runs."""


@dataclass(frozen=True)
class CountEstimate:
    """How many categories there are, known ones included."""

    best: int
    low: int
    high: int
    """By class sizes, the range that holds the true number in 8 of 10 cases; by a curve, the K that the labels cannot
    tell from the best one."""
    points: tuple[CountPoint, ...]
    """The curve, by K."""
    words: str
    """The same for people."""
    by: EvidenceKind = "curve"
    """What decided: how large known classes are, or labelled accuracy or silhouette over k-means."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which knows no NaN: None instead."""
        content = dataclasses.asdict(self)
        content["points"] = [
            {key: None if value != value else value for key, value in dataclasses.asdict(p).items()}
            for p in self.points
        ]
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> CountEstimate:
        """The inverse of as_dict."""
        try:
            points: list[dict[str, Any]] = [
                {key: math.nan if value is None else value for key, value in point.items()}
                for point in content["points"]
            ]
            told = {key: content[key] for key in ("best", "low", "high", "words")}
            told |= {"points": points, "by": content.get("by", "curve")}
            return from_dict(cls, told, every=False)
        except (KeyError, TypeError, AttributeError, SchemaError) as error:
            raise InputError(
                f"The estimate of the number of categories cannot be read ({error!r}); remove it and estimate again."
            ) from error


def has_labels(n_known: int, n_labelled: int) -> bool:
    """Can the labels say anything? Of a single class any split looks wrong, so that the answer would always be 1."""
    return n_known >= 2 and n_labelled > 0


def from_curve_and_size(answer: CountEstimate, points: Sequence[CountPoint]) -> CountEstimate:
    """An answer of class sizes with the curve around it; its silhouette decides within the range where it is clear."""
    answer = dataclasses.replace(answer, points=tuple(points))
    top = clear_peak(points)
    if top is None or not answer.low <= top.k <= answer.high:
        return answer
    told = f"The silhouette, which needs no labels, has a clear peak at {top.k} and decides."
    best = dataclasses.replace(answer, best=top.k)
    return dataclasses.replace(
        best, words=answer.words.replace(_range_words(answer), f"{_range_words(best)} {told}")
    )


def combine_estimates(
    size: ClassSize, curve: CountEstimate, n_images: int, n_known: int, k_max: int
) -> CountEstimate:
    """Neighbours and curve together, where the first alone are not sure. A clear silhouette decides as ever."""
    joined = by_class_size(size.joined(curve.high, CURVE_SPREAD), n_images, n_known, k_max)
    told = (
        f"Neighbours of labelled images alone say {size.k:,.0f}, the labelled accuracy of k-means at most "
        f"{curve.high:,}; each counts by how sure it is."
    )
    return from_curve_and_size(dataclasses.replace(joined, words=f"{joined.words} {told}"), curve.points)


def from_class_size_only(answer: CountEstimate) -> CountEstimate:
    """An answer of class sizes that leaves much open, where the curve would take hours."""
    told = "They are not sure; the labelled accuracy of k-means, which would have a say too, would take hours here."
    return dataclasses.replace(answer, words=f"{answer.words} {told}")


def midpoint(estimate: CountEstimate) -> int:
    """Of a curve: halfway from the best value to the upper end of the range.

    It errs towards too few where most classes are unknown; a category too many can stay empty, and merging two in the
    report is one click, where taking one apart is many.
    """
    return math.ceil((estimate.best + estimate.high) / 2)


def by_class_size(size: ClassSize, n_images: int, n_known: int, k_max: int) -> CountEstimate:
    """The answer of the neighbours of labelled images, still without a curve. k_max: the largest K allowed."""

    def fitted(k: float) -> int:
        return min(max(round(k), n_known), k_max)

    low, best, high = fitted(size.low), fitted(size.k), fitted(size.high)
    estimate = CountEstimate(best, low, high, (), "", "class sizes")
    told = (
        f"By the neighbours of the labelled images, a known class has about {n_images / size.k:,.0f} images, labelled "
        f"or not. If new categories are as large in the mean, the range holds the true number in {COVERAGE:.0%} of "
        "cases."
    )
    words = [_range_words(estimate), told, *_end_words(estimate, n_known, k_max)]
    return dataclasses.replace(estimate, words=_sentences(words))


def read_curve(points: Sequence[CountPoint], n_known: int, n_labelled: int, k_max: int) -> CountEstimate:
    """Read the range off a curve (by K). k_max: where the search had to end.

    The range is where the smoothed accuracy is within one standard error of its highest value.
    """
    if not has_labels(n_known, n_labelled):
        return _by_silhouette(points, n_known, k_max)
    k = np.arange(points[0].k, points[-1].k + 1)
    smooth = smoothed(points, [p.labelled_accuracy for p in points], k)
    peak = int(smooth.argmax())
    sharp = max(points, key=lambda p: p.labelled_accuracy)
    spread = float(np.sqrt(np.mean([p.spread**2 for p in points])))
    tolerance = standard_error(sharp.labelled_accuracy, n_labelled, spread)
    if sharp.labelled_accuracy > smooth[peak] + tolerance:  # no noise: smoothing would hide it
        smooth = np.interp(k, [p.k for p in points], [p.labelled_accuracy for p in points])
        peak = int(smooth.argmax())
    low, high = _around(smooth, peak, smooth[peak] - tolerance)
    labels = CountEstimate(int(k[peak]), int(k[low]), int(k[high]), tuple(points), "")
    estimate, by = _with_silhouette(labels)
    words = [
        _range_words(estimate),
        _accuracy_words(labels, float(smooth[peak]), n_labelled, tolerance),
        by,
        *_end_words(estimate, n_known, k_max),
    ]
    return dataclasses.replace(estimate, words=_sentences(words))


def _by_silhouette(points: Sequence[CountPoint], n_known: int, k_max: int) -> CountEstimate:
    """Without labels of two classes at least, the silhouette is all there is."""
    usable = [p for p in points if not math.isnan(p.silhouette)]
    if not usable:
        only = points[0].k
        told = f"{only} is the only number of categories that so few images allow."
        return CountEstimate(only, only, only, tuple(points), told)
    values = np.array([p.silhouette for p in usable])
    peak = int(values.argmax())
    low, high = _around(values, peak, values[peak] - SILHOUETTE_TOLERANCE * abs(values[peak]))
    estimate = CountEstimate(usable[peak].k, usable[low].k, usable[high].k, tuple(points), "", "silhouette")
    if clear_peak(points) is None:
        wide = (max(2, math.floor(estimate.low / UNCLEAR)), min(k_max, math.ceil(estimate.high * UNCLEAR)))
        estimate = dataclasses.replace(estimate, best=midpoint(estimate), low=wide[0], high=wide[1])
    words = [
        _range_words(estimate),
        f"Labels of fewer than two classes cannot help, so this is the silhouette alone: {values[peak]:.2f} at "
        f"{usable[peak].k}, and within {SILHOUETTE_TOLERANCE:.0%} of it up to {usable[high].k}. Take it as a hint.",
        *_end_words(estimate, n_known, k_max),
    ]
    return dataclasses.replace(estimate, words=_sentences(words))


def standard_error(accuracy: float, n_labelled: int, spread: float) -> float:
    """How far off an accuracy may be: the labelled images are a sample, and so are the runs.

    One more image right and one more wrong, so that a handful of images that are all right proves little (Laplace).
    """
    share = (accuracy * n_labelled + 1) / (n_labelled + 2)
    return math.sqrt(share * (1 - share) / n_labelled + spread**2 / CURVE_RUNS)


def smoothed(points: Sequence[CountPoint], values: Sequence[float], k: np.ndarray) -> np.ndarray:
    """Local linear regression on log K with Gaussian weights. values: one per point; k: (n,) -> (n,)."""
    at, y = np.log([p.k for p in points]), np.asarray(values, dtype=float)
    if len(points) < 4:
        return np.interp(k, [p.k for p in points], y)
    away = at[None] - np.log(k)[:, None]
    weight = np.exp(-0.5 * (away / BANDWIDTH) ** 2)
    w0, w1, w2 = (weight.sum(1), (weight * away).sum(1), (weight * away**2).sum(1))
    y0, y1 = (weight * y).sum(1), (weight * away * y).sum(1)
    flat = w0 * w2 - w1**2
    return np.where(flat > 1e-12, (w2 * y0 - w1 * y1) / np.maximum(flat, 1e-12), y0 / w0)


def _around(values: np.ndarray, peak: int, least: float) -> tuple[int, int]:
    """First and last index of the stretch around `peak` whose values reach `least`."""
    low = high = peak
    while low > 0 and values[low - 1] >= least:
        low -= 1
    while high < len(values) - 1 and values[high + 1] >= least:
        high += 1
    return low, high


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


def _with_silhouette(labels: CountEstimate) -> tuple[CountEstimate, str]:
    """A clear peak of the silhouette decides within what the labels leave open, and widens it where they disagree."""
    usable = [p for p in labels.points if not math.isnan(p.silhouette)]
    if len(usable) < 3:
        return labels, ""
    told = "The silhouette, which needs no labels,"
    top = clear_peak(labels.points)
    if top is None:
        top = max(usable, key=lambda p: p.silhouette)
        trend = "falls from" if top is usable[0] else "rises to" if top is usable[-1] else "is flat around"
        return labels, f"{told} {trend} {top.k} and does not decide."
    both = dataclasses.replace(labels, best=top.k, low=min(labels.low, top.k), high=max(labels.high, top.k))
    agrees = "decides" if labels.low <= top.k <= labels.high else "is clear, so the range covers both"
    return both, f"{told} is highest at {top.k} and {agrees}."


def _sentences(words: Sequence[str]) -> str:
    return " ".join(word for word in words if word)


def _accuracy_words(labels: CountEstimate, accuracy: float, n_labelled: int, tolerance: float) -> str:
    told = f"k-means puts {accuracy:.0%} of the {n_labelled:,} labelled images right at {labels.best}"
    if labels.low == labels.high:
        return f"{told}, and fewer elsewhere."
    apart = f"{labels.low} to {labels.high} apart (one standard error is {tolerance:.1%})"
    return f"{told}; they cannot tell {apart}."


def _range_words(estimate: CountEstimate) -> str:
    if estimate.low == estimate.high:
        return f"{estimate.best} categories, known ones included."
    return f"{estimate.low} to {estimate.high} categories, known ones included, most likely {estimate.best}."


def _end_words(estimate: CountEstimate, n_known: int, k_max: int) -> list[str]:
    """What a range that touches an end of the search means."""
    words = []
    if estimate.low == n_known and estimate.best == n_known:
        words.append(f"That is, perhaps nothing beyond the {n_known} known classes.")
    elif estimate.low == n_known:
        words.append(f"That there is nothing beyond the {n_known} known classes is possible too.")
    if estimate.high >= k_max > n_known:
        words.append(f"The search ended at {k_max}: there may be more, which a larger k_max would show.")
    return words
