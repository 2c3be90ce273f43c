"""Bursts among categories: how many there are, and frames that the model has put apart from the rest of their burst.

A burst counts once (data/bursts.py finds them); an image that is alone counts as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from holotype.categories.stands_for import whole_sizes
from holotype.categories.wording import BURST_IS_IN

if TYPE_CHECKING:  # pandas takes half a second to import
    import pandas as pd

LABELLED = "has the label of a frame of its burst"
"""What the note of a frame says that has no label of its own."""


def occasions(images: pd.DataFrame) -> Counter[str]:
    """Bursts by the id of their category, an image that is alone being one; a burst in two categories counts in both.

    images: of a Discovery. Empty where it knows of no bursts.
    """
    if "group" not in images.columns:
        return Counter()
    pairs = zip(images["category_id"].fillna(""), images["group"].fillna(""), strict=True)
    seen = {(str(id), str(group) or row) for row, (id, group) in enumerate(pairs) if id}
    return Counter(id for id, _ in seen)


def about(images: pd.DataFrame, ids: Sequence[str]) -> dict[str, list[str]]:
    """Columns of a table of categories, as far as something is known: bursts, images of the collection
    that a sample stands for, the first and the last time, cameras."""
    found: dict[str, list[str]] = {}
    if times := occasions(images):
        found["bursts"] = [str(times[id]) for id in ids]
    if whole := whole_sizes(images):
        found["in_collection"] = [str(whole.get(id, 0)) for id in ids]
    placed = images["category_id"].fillna("")
    for name, ends in (("taken", ("first_taken", "last_taken")), ("camera", ("cameras",))):
        if name not in images.columns:
            continue
        told: dict[str, set[str]] = {id: set() for id in ids}
        for id, value in zip(placed, images[name].fillna(""), strict=True):
            if value and id in told:
                told[id].add(str(value))
        if name == "taken":
            found |= {
                end: [pick(told[id], default="") for id in ids]
                for end, pick in zip(ends, (min, max), strict=True)
            }
        else:
            found["cameras"] = [str(len(told[id])) for id in ids]
    return found


def in_words(group: Iterable[str]) -> str:
    """How many images are frames of bursts: 812 frames of 240 bursts; "" where there are none."""
    size = Counter(name for name in group if name)
    several = [n for n in size.values() if n > 1]
    if not several:
        return ""
    return f"{sum(several):,} frames of {len(several):,} {'burst' if len(several) == 1 else 'bursts'}"


def tell_bursts(
    note: Sequence[str], group: np.ndarray, category: np.ndarray, labelled: np.ndarray, called: Sequence[str]
) -> tuple[list[str], np.ndarray]:
    """Notes with a remark on each frame without a label that lies elsewhere than most of its burst, and (N,) bool: such
    frames. category: (N,) index into `called`, -1 = in none."""
    told, odd = list(note), np.zeros(len(group), dtype=bool)
    for rows in _of_groups(group, category):
        where = Counter(int(category[row]) for row in rows)
        if len(where) < 2:
            continue
        (most, n), (_, next_) = where.most_common(2)
        for row in rows:
            if labelled[row] or (category[row] == most and n > next_):
                continue
            words = (
                f"{BURST_IS_IN}{called[most]}"
                if n > next_
                else "the frames of its burst lie in several categories"
            )
            told[row], odd[row] = "; ".join(part for part in (told[row], words) if part), True
    return told, odd


def _of_groups(group: np.ndarray, category: np.ndarray) -> list[list[int]]:
    """Rows of each group that are in a category."""
    found: dict[str, list[int]] = {}
    for row, name in enumerate(group):
        if name and category[row] >= 0:
            found.setdefault(name, []).append(row)
    return list(found.values())
