"""How discovered categories stand to the known classes, and how images stand to their category.

Everything is a cosine between unit features: with the prototype of a known class (mean of its labelled images)
or with the centre of a category (mean of the images placed in it). docs/report.md says how to read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from holotype.categories.found import Category
from holotype.categories.wording import all_words, suggest_names
from holotype.data.bursts import first_frames

CHUNK = 8192
"""Images looked at together: a million of them are never copied at once."""
EXEMPLARS, BORDERLINE = 9, 6
"""Images named per category, at most."""
UNSURE, UNSURE_SHARE = 0.6, 0.21
"""Probability below which an image without a label is doubtful, and share of all images that this may mark."""
WORST = 0.03
"""Share that each of the two other signs of doubt may mark: of the labelled images, and of all."""
FAR = 3.0
"""Deviations (1.4826 times the median one) beyond which an image is far from the centre of its category."""


@dataclass(frozen=True)
class Described:
    """What `describe` found; images keep their order."""

    categories: list[Category]
    """Those with an image in them, in the order of the ids, so known ones first."""
    typicality: np.ndarray
    """(N,) share of the category's images that are no nearer to its centre: 1 for the nearest. NaN if not placed."""
    doubtful: np.ndarray
    """(N,) bool: among the images that somebody should look at first."""


def describe(
    features: np.ndarray,
    category: np.ndarray,
    ids: Sequence[str],
    known: Sequence[str],
    label: Sequence[str],
    probability: np.ndarray,
    path: Sequence[str],
    called: Sequence[str] | None = None,
    burst: np.ndarray | None = None,
) -> Described:
    """Categories with their relations in numbers and in words; typicality and doubt of every image.

    features: (N, D); a row with NaN counts as not placed. category: (N,) index into ids, -1 = not placed.
    ids: the known classes, in the order of `known`, then the others. label: (N,) "" = none.
    probability: (N,), NaN where nothing was said. path: (N,). called: what people call the known classes. burst: (N,)
    equal for the frames of one burst, of which a category shows one.
    """
    readable = finite_rows(features)
    placed = np.where(readable, np.asarray(category), -1).astype(np.int64)
    index = {name: i for i, name in enumerate(known)}
    truth = np.where(readable, [index.get(name, -1) if name else -1 for name in label], -1).astype(np.int64)
    mean, n = means(features, placed, len(ids))
    centres = unit(mean)
    cosine, margin = fits(features, placed, truth, centres, n > 0)
    signs = [
        unsure(np.asarray(probability, dtype=float), placed, truth),
        lowest(margin, (placed >= 0) & (truth >= 0)),
        far_out(cosine, placed),
    ]
    signatures = mean @ known_prototypes(features, truth, centres[: len(known)]).T
    categories = []
    for k in (int(k) for k in np.flatnonzero(n)):
        rows = np.flatnonzero(placed == k)
        exemplars, borderline = shown(rows, cosine[rows], margin[rows], burst)
        separation, nearest = neighbour(k, centres, n > 0)
        found = Category(ids[k], ids[k], "known" if k < len(known) else "novel", len(rows))
        found.exemplars, found.borderline = [path[i] for i in exemplars], [path[i] for i in borderline]
        found.cohesion, found.separation = float(cosine[rows].mean()), separation
        found.nearest = "" if nearest is None else ids[nearest]
        found.signature = [float(value) for value in signatures[k]]
        categories.append(found)
    for found, words in zip(categories, all_words(categories, known, called or known), strict=True):
        found.words = words
    for found, name in zip(categories, suggest_names(categories, called or known), strict=True):
        found.suggested = name
    return Described(categories, typicality(cosine, placed), np.logical_or.reduce(signs))


# -- unit features, centres, prototypes ---------------------------------------------------------------


def chunks(features: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Slices of rows with their unit features in float32; a zero row stays zero."""
    for start in range(0, len(features), CHUNK):
        rows = slice(start, start + CHUNK)
        yield rows, unit(np.asarray(features[rows], dtype=np.float32))


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of length 1; rows of length 0 stay, and rows with NaN become 0."""
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.divide(x, length, out=np.zeros_like(x), where=length > 0)


def finite_rows(features: np.ndarray) -> np.ndarray:
    """(N,) bool: does the row hold numbers only?"""
    parts = [np.isfinite(features[s : s + CHUNK]).all(-1) for s in range(0, len(features), CHUNK)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=bool)


def means(features: np.ndarray, group: np.ndarray, n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """(n_groups, D) mean unit feature of each group and (n_groups,) its number of images; -1 = in no group."""
    total = np.zeros((n_groups, features.shape[1]), dtype=np.float64)
    for rows, f in chunks(features):
        inside = group[rows] >= 0
        member = np.arange(n_groups)[:, None] == group[rows][inside]
        total += member.astype(np.float32) @ f[inside]
    n = np.bincount(group[group >= 0], minlength=n_groups)
    return (total / np.maximum(n, 1)[:, None]).astype(np.float32), n


def known_prototypes(features: np.ndarray, truth: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """(C, D) unit means of the labelled images; where a class has no readable one, the centre of its images."""
    mean, n = means(features, truth, len(centres))
    return np.where((n > 0)[:, None], unit(mean), centres)


# -- how an image fits its category -------------------------------------------------------------------


def fits(
    features: np.ndarray, placed: np.ndarray, truth: np.ndarray, centres: np.ndarray, used: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(N,) cosine with the centre of its category, and (N,) margin: that minus the best of the other centres.

    The margin of a labelled image is that of its label, so a label that the features contradict has a negative
    one. NaN for an image that is not placed; the margin also where there is one category only.
    """
    cosine, margin = np.full(len(features), np.nan), np.full(len(features), np.nan)
    for rows, f in chunks(features):
        inside = np.flatnonzero(placed[rows] >= 0)
        where = inside + rows.start
        every = f[inside] @ centres.T
        own = placed[where]
        cosine[where] = every[np.arange(len(where)), own]
        labelled = truth[where] >= 0
        labelled[labelled] = used[truth[where][labelled]]
        own = np.where(labelled, truth[where], own)
        mine = every[np.arange(len(where)), own]
        every[:, ~used] = -np.inf
        every[np.arange(len(where)), own] = -np.inf
        best = every.max(1, initial=-np.inf)
        margin[where] = np.where(np.isfinite(best), mine - best, np.nan)
    return cosine, margin


def typicality(cosine: np.ndarray, placed: np.ndarray) -> np.ndarray:
    """(N,) share of its category's images (itself included) that are no nearer to the centre than this one."""
    typical = np.full(len(cosine), np.nan)
    for k in np.unique(placed[placed >= 0]):
        rows = np.flatnonzero(placed == k)
        near = np.round(cosine[rows], 6)  # identical images are equally typical, whatever the last bit says
        typical[rows] = np.searchsorted(np.sort(near), near, side="right") / len(rows)
    return typical


def shown(
    rows: np.ndarray, cosine: np.ndarray, margin: np.ndarray, burst: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the most typical images and of the borderline ones (least margin), best and most doubtful first.

    burst: (N,) equal for the frames of one burst, of which one is shown.
    """
    exemplars = first_frames(burst, rows[np.argsort(-np.round(cosine, 6), kind="stable")])[:EXEMPLARS]
    order = first_frames(burst, rows[np.argsort(margin, kind="stable")][: np.isfinite(margin).sum()])
    borderline = order[~np.isin(order, exemplars)][: min(BORDERLINE, len(rows) // 2)]
    return exemplars, borderline


# -- which images are doubtful ------------------------------------------------------------------------


def unsure(probability: np.ndarray, placed: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(N,) bool: unlabelled images with a probability below UNSURE; the lowest UNSURE_SHARE of all where more are."""
    free = (placed >= 0) & (truth < 0)
    share = UNSURE_SHARE * (placed >= 0).sum() / max(free.sum(), 1)
    return lowest(probability, free, min(share, 1.0)) & (np.nan_to_num(probability, nan=1.0) < UNSURE)


def lowest(value: np.ndarray, among: np.ndarray, share: float = WORST) -> np.ndarray:
    """(N,) bool: a share of them by value; fewer where values are equal, none of a handful."""
    among = among & np.isfinite(value)
    if not among.any() or share >= 1:
        return among
    most = np.sort(value[among])[int(share * among.sum())]
    return among & (value < most)


def far_out(cosine: np.ndarray, placed: np.ndarray) -> np.ndarray:
    """(N,) bool: beyond FAR deviations from what is usual in its category, and among the WORST share of those."""
    deviation = np.full(len(cosine), np.nan)
    for k in np.unique(placed[placed >= 0]):
        rows = np.flatnonzero(placed == k)
        middle = np.median(cosine[rows])
        spread = 1.4826 * np.median(np.abs(cosine[rows] - middle))
        if spread > 1e-6:  # one image, or identical ones: nothing is far
            deviation[rows] = (middle - cosine[rows]) / spread
    return lowest(-deviation, placed >= 0) & (np.nan_to_num(deviation) > FAR)


# -- how a category stands to the others --------------------------------------------------------------


def neighbour(k: int, centres: np.ndarray, used: np.ndarray) -> tuple[float, int | None]:
    """1 - cosine with the nearest other centre, and whose it is; (NaN, None) where there is no other."""
    cosine = np.where(used, centres @ centres[k], -np.inf)
    cosine[k] = -np.inf
    nearest = int(cosine.argmax())
    return (float(1 - cosine[nearest]), nearest) if np.isfinite(cosine[nearest]) else (float("nan"), None)
