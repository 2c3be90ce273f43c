"""A played corrector: somebody who knows the truth makes the edits that a person would make in the report.

What is done, in this order; no image is touched twice, and only images that came without a label are:

merge    a new category whose largest class has a larger category already, or is a known class, joins that one
rename   every other new category gets the name of its largest class, and stands for it
confirm  right images, the most typical of each new category that is left, in turn
move     wrong images, the least sure first, to the category that stands for their class; without one: passed over
split    images of classes for which no category stands, the most typical first, out of the category in which they
         lie together: at least FEWEST of one class, the largest groups first
reject   wrong images, the least sure first, of those that are left, as if nobody knew what they are

`corrections.py` measures what comes of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest

import numpy as np

from holotype.categories.edits import Edit
from holotype.categories.found import Category, Discovery

EACH = 20
"""Corrections of each kind, at most."""
FEWEST = 5
"""Images of one class in one category that are worth a category of their own."""
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
"""Of the first edit. The same round is always corrected by the same file."""


@dataclass(frozen=True)
class Corrections:
    """What was corrected in one report."""

    edits: list[Edit]
    touched: np.ndarray
    """(N,) bool: images that an edit names."""
    counts: dict[str, int]
    """Edits of each kind; `categories` are those that were made by splits."""


class Corrector:
    """One person in front of the report of one round."""

    def __init__(self, found: Discovery, truth: np.ndarray) -> None:
        """truth: (N,) class of each image."""
        self.found, self.truth = found, np.asarray(truth).astype(str)
        images = found.images
        self.path = [str(path) for path in images["path"]]
        self.category = images["category_id"].fillna("").to_numpy(dtype=object)
        """(N,) as it stands after the edits so far."""
        self.probability = images["probability"].fillna(0).to_numpy(float)
        self.typicality = images["typicality"].fillna(0).to_numpy(float)
        self.free = (images["label"].fillna("") == "").to_numpy(bool) & (self.category != "")
        self.touched = np.zeros(len(self.path), dtype=bool)
        self.stands = {name: name for name in found.known}
        """Class to the id of the category that stands for it."""
        self.edits: list[Edit] = []
        self.counts: Counter[str] = Counter()

    def correct(self) -> Corrections:
        self.merge_and_name()
        self.confirm()
        self.move()
        self.split()
        self.reject()
        kinds = ("confirm", "move", "split", "categories", "merge", "reject", "rename")
        return Corrections(self.edits, self.touched, {kind: self.counts[kind] for kind in kinds})

    # -- the edits --------------------------------------------------------------------------------

    def merge_and_name(self) -> None:
        """The largest category of a class stands for it; a known class stands for itself, whatever its size."""
        own = {category.id: self.largest_class(category.id) for category in self.novel()}
        named = []
        for category in self.novel():
            name = own[category.id]
            if name not in self.stands:
                self.stands[name] = category.id
                named.append((category.id, name))
            elif self.counts["merge"] < EACH:
                self.say("merge", category=category.id, value=self.stands[name])
                self.category[self.category == category.id] = self.stands[name]
        for id, name in named:
            if name != self.found.category(id).name:
                self.say("rename", category=id, value=name)

    def confirm(self) -> None:
        new = [id for name, id in self.stands.items() if name not in self.found.known]
        right = self.right & self.open
        each = [ordered(np.flatnonzero(right & (self.category == id)), -self.typicality) for id in new]
        turns = [row for turn in zip_longest(*each) for row in turn if row is not None]
        for row in turns[:EACH]:
            self.say("confirm", row, value=self.category[row])

    def move(self) -> None:
        known_place = np.isin(self.truth, list(self.stands))
        for row in ordered(np.flatnonzero(self.wrong & known_place), self.probability)[:EACH]:
            self.say("move", row, value=self.stands[self.truth[row]])

    def split(self) -> None:
        for name, rows in self.groups():
            left = EACH - self.counts["split"]
            if left < FEWEST:
                return
            self.counts["categories"] += name not in self.stands
            self.stands.setdefault(name, name)
            for row in rows[:left]:
                self.say("move", row, value=name, kind="split")

    def reject(self) -> None:
        for row in ordered(np.flatnonzero(self.wrong), self.probability)[:EACH]:
            self.say("reject", row)

    # -- how things stand -------------------------------------------------------------------------

    @property
    def open(self) -> np.ndarray:
        """(N,) bool: may be touched."""
        return self.free & ~self.touched

    @property
    def right(self) -> np.ndarray:
        """(N,) bool: lies in the category that stands for its class."""
        return np.array([self.stands.get(t) == c for t, c in zip(self.truth, self.category, strict=True)])

    @property
    def wrong(self) -> np.ndarray:
        """(N,) bool: may be touched and lies elsewhere."""
        return self.open & ~self.right

    def novel(self) -> list[Category]:
        """New categories with images, the largest first."""
        there = [c for c in self.found.categories if c.kind == "novel" and c.n]
        return sorted(there, key=lambda category: (-category.n, category.id))

    def largest_class(self, id: str) -> str:
        counts = Counter(self.truth[self.category == id].tolist())
        return min(counts, key=lambda name: (-counts[name], name))

    def groups(self) -> Iterator[tuple[str, list[int]]]:
        """(class, rows) of images of classes without a category that lie together; the largest first."""
        homeless = np.flatnonzero(self.open & ~np.isin(self.truth, list(self.stands)))
        groups: dict[tuple[str, str], list[int]] = {}
        for row in ordered(homeless, -self.typicality):
            groups.setdefault((self.truth[row], self.category[row]), []).append(row)
        for (name, _), rows in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
            if len(rows) >= FEWEST:
                yield name, rows

    def say(
        self, action: str, row: int | None = None, *, category: str = "", value: str = "", kind: str = ""
    ) -> None:
        """One more edit, of an image or of a category. kind: what it is counted as."""
        image = ""
        if row is not None:
            assert self.open[row], "no image is touched twice"
            image, category, self.touched[row] = self.path[row], str(self.category[row]), True
        time = (BEGAN + timedelta(seconds=len(self.edits))).isoformat()
        self.edits.append(Edit(self.found.run_id, time, action, image, category, str(value)))
        self.counts[kind or action] += 1


def ordered(rows: Iterable[int], by: np.ndarray) -> list[int]:
    """The rows with the smallest values first; those of equal value in their order. by: (N,)."""
    return sorted((int(row) for row in rows), key=lambda row: (by[row], row))
