"""Describe categories: relations to known classes in words, typical and doubtful images, bursts.

A burst counts once (data/bursts.py finds them); an image that is alone counts as one.

Everything is a cosine between unit features: with the prototype of a known class (mean of its labelled images)
or with the centre of a category (mean of the images placed in it). docs/report.md says how to read it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from holotype.data.table import first_frames
from holotype.results.discovery import Category, Discovery, weighted_sizes
from holotype.results.lda import category_means, finite_rows, placed_chunks, unit_rows

if TYPE_CHECKING:
    import pandas as pd

MODEL_NOTE, BURST_NOTE = "the model would say ", "most frames of its burst are in "
"""What tells of a category at the end of a note."""
MOST_CLOSE = 2
"""Known classes that a category is said to be close to, at most."""


def describe_all(categories: Sequence[Category], known: Sequence[str], called: Sequence[str]) -> list[str]:
    """`in_words` for each category, compared with what is usual among the others. called: names of the known ones."""
    place = {name: i for i, name in enumerate(known)}
    table = np.array([c.signature for c in categories]).reshape(len(categories), len(known))
    for row, c in enumerate(categories):
        if c.id in place:
            table[row, place[c.id]] = np.nan  # a class is like itself: that says nothing, and is not usual
    words = []
    for row in range(len(categories)):
        others = np.delete(table, row, axis=0)
        seen = np.isfinite(others).any(0)
        usual = np.full(len(known), np.nan)
        usual[seen] = np.nanmedian(others[:, seen], axis=0)
        words.append(relation_text(table[row], called, usual))
    return words


LIKE = 0.1
"""Cosine below which nothing is called like anything."""


def relation_text(signature: np.ndarray, known: Sequence[str], usual: np.ndarray) -> str:
    """A signature as a sentence: closest to Sneaker 0.71 and Sandal 0.55; unlike Bag.

    signature: (C,) cosines, NaN = leave this class out. usual: (C,) what other categories have, as no cosine is high
    or low by itself. A further class is named as close while it is nearer to the first than to the middle of the
    signature. The last one is named as unlike where it lies lower in this signature than in the usual one.
    """
    order = [int(i) for i in np.argsort(-signature, kind="stable") if np.isfinite(signature[i])]
    if not order:
        return ""
    first, last = order[0], order[-1]
    # rounded, so that nobody reads of a closeness of -0.00
    values = np.round(signature, 2) + 0.0
    if values[first] < LIKE:
        return "like none of the known classes"
    if values[first] <= usual[first]:
        close = [first]
        text = f"like no known class in particular; nearest {known[first]} {values[first]:.2f}"
    else:
        half_way = (values[first] + np.median(values[order])) / 2
        close = [i for i in order[:MOST_CLOSE] if i == first or values[i] > half_way]
        text = "closest to " + " and ".join(f"{known[i]} {values[i]:.2f}" for i in close)
    lower = values[last] - values[order].mean() < usual[last] - usual[order].mean()
    if len(order) > 2 and last not in close and lower:
        text += f"; unlike {known[last]}"
    return text


def rename_in_texts(categories: Sequence[Category], before: Sequence[Category]) -> None:
    """After edits: words and suggested names name known classes as these are called now. before: the categories with
    the names of then."""
    now = {category.id: category.name for category in categories}
    then = {category.id: category.name for category in before if category.kind == "known"}
    names = {name: now[id] for id, name in then.items() if now[id] != name}
    for category in categories:
        category.words = renamed_words(category.words, names)
        if category.kind == "known":
            category.suggested = category.name if category.suggested else ""
        else:
            category.suggested = renamed_suggestion(category.suggested, names)


def renamed_categories(found: Discovery, names: Mapping[str, str]) -> Discovery:
    """What a round found, with the names that people gave since, by id, in words and notes too."""
    now = found.called(names)
    rename_in_texts(now.categories, found.categories)
    called = {then.name: one.name for then, one in zip(found.categories, now.categories, strict=True)}
    note = [renamed_note(str(note), called) for note in now.images["note"].fillna("")]
    return replace(now, images=now.images.assign(note=note))


def renamed_words(words: str, names: Mapping[str, str]) -> str:
    """What `in_words` said, with known classes as they are called now. names: by those of before."""
    if not names:
        return words
    before = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    place = rf"(closest to |nearest | and |; unlike )({before})(?= -?\d\.\d\d|$| \(before )"
    return re.sub(place, lambda found: found[1] + names[found[2]], words)


def renamed_suggestion(suggested: str, names: Mapping[str, str]) -> str:
    """What `suggest_names` gave a new category, likewise."""
    found = re.fullmatch(r"near (.+), new (\d+)", suggested, re.DOTALL)
    return f"near {names[found[1]]}, new {found[2]}" if found and found[1] in names else suggested


def renamed_note(note: str, names: Mapping[str, str]) -> str:
    """The note of an image, with the category that it ends with as that is called now."""
    for words in (MODEL_NOTE, BURST_NOTE):
        own, _, name = note.rpartition(words)
        if note.endswith(words + name) and name in names:
            return own + words + names[name]
    return note


def suggest_names(categories: Sequence[Category], known: Sequence[str]) -> list[str]:
    """A name for each: its own for a known class, else `near Sneaker, new 1`, numbered per known class; "" where it is
    like none."""
    count: dict[str, int] = {}
    names = []
    for category in categories:
        if category.kind == "known":
            names.append(category.name)
            continue
        values = np.nan_to_num(np.array(category.signature), nan=-np.inf)
        near = known[int(values.argmax())] if values.max(initial=-np.inf) >= LIKE else ""
        count[near] = count.get(near, 0) + 1
        names.append(f"near {near}, new {count[near]}" if near else "")
    return names


LABELLED_BY_BURST = "has the label of a frame of its burst"
"""What the note of a frame says that has no label of its own."""


def burst_events(images: pd.DataFrame) -> Counter[str]:
    """Bursts by the id of their category, an image that is alone being one; a burst in two categories counts in both.

    images: of a Discovery. Empty where it knows of no bursts.
    """
    if "group" not in images.columns:
        return Counter()
    pairs = zip(images["category_id"].fillna(""), images["group"].fillna(""), strict=True)
    seen = {(str(id), str(group) or row) for row, (id, group) in enumerate(pairs) if id}
    return Counter(id for id, _ in seen)


MEASURES = (("first_taken", "taken", "min"), ("last_taken", "taken", "max"), ("cameras", "camera", "nunique"))
"""Columns of a table of categories, and what they are of the images of each."""


def burst_counts(images: pd.DataFrame, ids: Sequence[str]) -> dict[str, list[str]]:
    """Columns of a table of categories, as far as something is known: bursts, images of the collection
    that a sample stands for, the first and the last time, cameras."""
    columns: dict[str, list[str]] = {}
    if times := burst_events(images):
        columns["bursts"] = [str(times[id]) for id in ids]
    if whole := weighted_sizes(images):
        columns["in_collection"] = [str(whole.get(id, 0)) for id in ids]
    for name, column, measure in MEASURES:
        if column in images.columns:
            known = images[images[column].fillna("") != ""].groupby("category_id")[column].agg(measure)
            columns[name] = [str(known.get(id, "0" if measure == "nunique" else "")) for id in ids]
    return columns


def burst_text(group: Iterable[str]) -> str:
    """How many images are frames of bursts: 812 frames of 240 bursts; "" where there are none."""
    size = Counter(name for name in group if name)
    several = [n for n in size.values() if n > 1]
    if not several:
        return ""
    return f"{sum(several):,} frames of {len(several):,} {'burst' if len(several) == 1 else 'bursts'}"


def note_bursts(
    note: Sequence[str], group: np.ndarray, category: np.ndarray, labelled: np.ndarray, called: Sequence[str]
) -> tuple[list[str], np.ndarray]:
    """Notes with a remark on each frame without a label that lies elsewhere than most of its burst, and (N,) bool: such
    frames. category: (N,) index into `called`, -1 = in none."""
    notes, odd = list(note), np.zeros(len(group), dtype=bool)
    bursts: dict[str, list[int]] = {}
    for row, name in enumerate(group):
        if name and category[row] >= 0:
            bursts.setdefault(name, []).append(row)
    for rows in bursts.values():
        where = Counter(int(category[row]) for row in rows)
        if len(where) < 2:
            continue
        (most, n), (_, next_) = where.most_common(2)
        for row in rows:
            if labelled[row] or (category[row] == most and n > next_):
                continue
            words = "the frames of its burst lie in several categories"
            if n > next_:
                words = f"{BURST_NOTE}{called[most]}"
            notes[row], odd[row] = "; ".join(part for part in (notes[row], words) if part), True
    return notes, odd


EXEMPLARS, BORDERLINE = 9, 6
"""Images named per category, at most."""
UNSURE, UNSURE_SHARE = 0.6, 0.21
"""Probability below which an image without a label is doubtful, and share of all images that this may mark."""
WORST_SHARE = 0.03
"""Share that each of the two other signs of doubt may mark: of the labelled images, and of all."""
OUTLIER_DEVIATIONS = 3.0
"""Deviations (1.4826 times the median one) beyond which an image is far from the centre of its category."""


@dataclass(frozen=True)
class Description:
    """What `describe` found; images keep their order."""

    categories: list[Category]
    """Those with an image in them, in the order of the ids, so known ones first."""
    typicality: np.ndarray
    """(N,) share of the category's images that are no nearer to its centre: 1 for the nearest. NaN if not placed."""
    doubtful: np.ndarray
    """(N,) bool: among the images that somebody should look at first."""


def describe_categories(
    features: np.ndarray,
    category: np.ndarray,
    ids: Sequence[str],
    known: Sequence[str],
    label: Sequence[str],
    probability: np.ndarray,
    path: Sequence[str],
    called: Sequence[str] | None = None,
    burst: np.ndarray | None = None,
) -> Description:
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
    mean, n = category_means(features, placed, len(ids))
    centres = unit_rows(mean)
    cosine, margin = fit_scores(features, placed, truth, centres, n > 0)
    signs = [
        doubtful_rows(np.asarray(probability, dtype=float), placed, truth),
        lowest_rows(margin, (placed >= 0) & (truth >= 0)),
        outlier_rows(cosine, placed),
    ]
    labelled_mean, labelled = category_means(features, truth, len(known))
    # unit means of the labelled images; where a class has no readable one, the centre of its images
    prototypes = np.where((labelled > 0)[:, None], unit_rows(labelled_mean), centres[: len(known)])
    signatures = mean @ prototypes.T
    categories = []
    for k in (int(k) for k in np.flatnonzero(n)):
        rows = np.flatnonzero(placed == k)
        exemplars, borderline = typical_and_borderline(rows, cosine[rows], margin[rows], burst)
        separation, nearest = nearest_category(k, centres, n > 0)
        found = Category(ids[k], ids[k], "known" if k < len(known) else "novel", len(rows))
        found.exemplars, found.borderline = [path[i] for i in exemplars], [path[i] for i in borderline]
        found.cohesion, found.separation = float(cosine[rows].mean()), separation
        found.nearest = "" if nearest is None else ids[nearest]
        found.signature = [float(value) for value in signatures[k]]
        categories.append(found)
    for found, words in zip(categories, describe_all(categories, known, called or known), strict=True):
        found.words = words
    for found, name in zip(categories, suggest_names(categories, called or known), strict=True):
        found.suggested = name
    return Description(categories, typicality(cosine, placed), np.logical_or.reduce(signs))


def fit_scores(
    features: np.ndarray, placed: np.ndarray, truth: np.ndarray, centres: np.ndarray, used: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(N,) cosine with the centre of its category, and (N,) margin: that minus the best of the other centres.

    The margin of a labelled image is that of its label, so a label that the features contradict has a negative
    one. NaN for an image that is not placed; the margin also where there is one category only.
    """
    cosine, margin = np.full(len(features), np.nan), np.full(len(features), np.nan)
    for where, f in placed_chunks(features, placed):
        every = f @ centres.T
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


def typical_and_borderline(
    rows: np.ndarray, cosine: np.ndarray, margin: np.ndarray, burst: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the most typical images and of the borderline ones (least margin), best and most doubtful first.

    burst: (N,) equal for the frames of one burst, of which one is shown.
    """
    exemplars = first_frames(burst, rows[np.argsort(-np.round(cosine, 6), kind="stable")])[:EXEMPLARS]
    order = first_frames(burst, rows[np.argsort(margin, kind="stable")][: np.isfinite(margin).sum()])
    borderline = order[~np.isin(order, exemplars)][: min(BORDERLINE, len(rows) // 2)]
    return exemplars, borderline


def doubtful_rows(probability: np.ndarray, placed: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """(N,) bool: unlabelled images with a probability below UNSURE; the lowest UNSURE_SHARE of all where more are."""
    free = (placed >= 0) & (truth < 0)
    share = UNSURE_SHARE * (placed >= 0).sum() / max(free.sum(), 1)
    return lowest_rows(probability, free, min(share, 1.0)) & (np.nan_to_num(probability, nan=1.0) < UNSURE)


def lowest_rows(value: np.ndarray, among: np.ndarray, share: float = WORST_SHARE) -> np.ndarray:
    """(N,) bool: a share of them by value; fewer where values are equal, none of a handful."""
    among = among & np.isfinite(value)
    if not among.any() or share >= 1:
        return among
    most = np.sort(value[among])[int(share * among.sum())]
    return among & (value < most)


def outlier_rows(cosine: np.ndarray, placed: np.ndarray) -> np.ndarray:
    """(N,) bool: beyond FAR deviations from what is usual in its category, and among the WORST share of those."""
    deviation = np.full(len(cosine), np.nan)
    for k in np.unique(placed[placed >= 0]):
        rows = np.flatnonzero(placed == k)
        middle = np.median(cosine[rows])
        spread = 1.4826 * np.median(np.abs(cosine[rows] - middle))
        if spread > 1e-6:  # one image, or identical ones: nothing is far
            deviation[rows] = (middle - cosine[rows]) / spread
    return lowest_rows(-deviation, placed >= 0) & (np.nan_to_num(deviation) > OUTLIER_DEVIATIONS)


def nearest_category(k: int, centres: np.ndarray, used: np.ndarray) -> tuple[float, int | None]:
    """1 - cosine with the nearest other centre, and whose it is; (NaN, None) where there is no other."""
    cosine = np.where(used, centres @ centres[k], -np.inf)
    cosine[k] = -np.inf
    nearest = int(cosine.argmax())
    return (float(1 - cosine[nearest]), nearest) if np.isfinite(cosine[nearest]) else (float("nan"), None)
