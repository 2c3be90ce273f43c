"""What corrections say to the next round: labels, images that stay out, and names. docs/correct.md says it in words.

Each round is read with its edits, one after the other, and what a later one says counts:

confirmed    a label: the id of the category, or the word that was given
moved        a label: the id of the category that the image was moved to
rejected     no label, and out of the round, until it is moved or confirmed again
merged       the most typical images of each part carry one label, that of the category which took the others in
split        the images that were taken out are moved ones; nothing is said of those that stayed
renamed      the id keeps its name

A label that follows from a merge gives way to what people have said of a copy of the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

import numpy as np

from holotype.data.paths import relative
from holotype.data.table import Table
from holotype.discovery.collection import Collection
from holotype.results.apply_edits import CONFIRMED_NOTE, MOVED_NOTE, REJECTED_NOTE, AppliedEdits
from holotype.results.discovery import Discovery

TYPICAL_IMAGES = 9
"""Images of a part of a merged category that become labels, at most."""


@dataclass(frozen=True)
class Constraints:
    """Of a round, from all edits before it. Images are named by their path from the root."""

    labels: dict[str, str] = field(default_factory=dict)
    """Image to the id of its class; more than, and instead of, the labels that the images came with."""
    rejected: frozenset[str] = frozenset()
    """Images that are in no category and are not trained on."""
    names: dict[str, str] = field(default_factory=dict)
    """Id of a category to the name that people gave it."""
    follow: frozenset[str] = frozenset()
    """Images with a label that nobody gave them: it follows from a merge."""

    @property
    def binds(self) -> bool:
        """Does it say more than names?"""
        return bool(self.labels or self.rejected)

    def after(self, found: Discovery, applied: AppliedEdits, seen: Collection | None = None) -> Constraints:
        """With what the edits of one more round say. found: as the round left it; applied: with its edits; seen: its
        images, by whose content copies are known."""
        edited = _EditedLabels(found, applied)
        told = {**edited.moved(), **edited.confirmed}
        rejected = (self.rejected | edited.rejected()) - told.keys()
        kept = {path: edited.end(label) for path, label in self.labels.items()}
        by_hand = {path: label for path, label in kept.items() if path not in self.follow} | told
        copies = _DuplicateImages(seen or Collection(), by_hand, rejected)
        kept = {
            path: label
            for path, label in kept.items()
            if path in by_hand or not copies.are_said_otherwise(path, label)
        }
        typical = edited.typical(copies)
        labels = {**typical, **kept, **told}
        labels = {path: label for path, label in labels.items() if path not in rejected}
        follow = (self.follow | (typical.keys() - kept.keys())) - told.keys()
        return Constraints(
            labels=labels,
            rejected=frozenset(rejected),
            names={**self.names, **rename_classes(found, applied.discovery)},
            follow=follow & labels.keys(),
        )

    def moved(self, moves: Mapping[str, str]) -> Constraints:
        """With the paths that images have now. moves: path then to path now, where these differ."""
        labels = {moves.get(path, path): label for path, label in self.labels.items()}
        rejected, follow = (
            frozenset(moves.get(path, path) for path in paths) for paths in (self.rejected, self.follow)
        )
        return replace(self, labels=labels, rejected=rejected, follow=follow)

    def of_images(self, here: Set[str]) -> tuple[dict[str, str], frozenset[str]]:
        """Labels and rejections of these images alone."""
        labels = {path: label for path, label in self.labels.items() if path in here}
        return labels, self.rejected & here

    def apply(self, table: Table) -> Table:
        """The table with these labels; the ids of classes that they name for the first time join the known ones."""
        paths = relative([str(path) for path in table.path], table.root)
        label = [
            "" if path in self.rejected else self.labels.get(path, own)
            for path, own in zip(paths, table.label, strict=True)
        ]
        new = sorted(set(label) - set(table.known) - {""})
        return replace(table, label=np.array(label, dtype=object), known=(*table.known, *new))

    def called(self, table: Table) -> Table:
        """The table with the names of classes in the place of their ids."""
        label = [self.names.get(id, id) for id in table.label]
        known = dict.fromkeys(self.names.get(id, id) for id in table.known)
        return replace(table, label=np.array(label, dtype=object), known=tuple(known))

    def follows(self, table: Table) -> np.ndarray:
        """(N,) bool: images of the table whose label nobody gave them."""
        paths = relative([str(path) for path in table.path], table.root)
        return np.array([path in self.follow and path in self.labels for path in paths], dtype=bool)

    def out(self, table: Table) -> np.ndarray:
        """(N,) bool: images of the table that stay out of the round."""
        paths = relative([str(path) for path in table.path], table.root)
        return np.array([path in self.rejected for path in paths], dtype=bool)


def rename_classes(found: Discovery, corrected: Discovery) -> dict[str, str]:
    """Id to name of the categories that people called otherwise than the round did."""
    before = {category.id: category.name for category in found.categories}
    return {c.id: c.name for c in corrected.categories if c.name != before.get(c.id, c.id)}


class _DuplicateImages:
    """What people have said of images of the same content."""

    def __init__(self, seen: Collection, by_hand: Mapping[str, str], rejected: Set[str]) -> None:
        self.content = {path: one.digest for path, one in seen.images.items() if one.digest}
        self.said: dict[str, set[str]] = {}
        for path, digest in self.content.items():
            label = by_hand.get(path, seen.images[path].label)
            if label or path in rejected:
                self.said.setdefault(digest, set()).add("" if path in rejected else label)

    def are_said_otherwise(self, path: str, label: str) -> bool:
        """Of an image to which this label would only follow: do people say another one of its content, or none?"""
        said = self.said.get(self.content.get(path, ""), set())
        return bool(said) and label not in said


class _EditedLabels:
    """A round before and after its edits, row by row."""

    def __init__(self, found: Discovery, applied: AppliedEdits) -> None:
        images, corrected = found.images, applied.discovery
        self.path = relative([str(path) for path in images["path"]], found.facts.root)
        self.was = [str(id) for id in images["category_id"].fillna("")]
        self.now = [str(id) for id in corrected.images["category_id"].fillna("")]
        self.note = [str(note) for note in corrected.images["note"].fillna("")]
        self.noted = [str(note) for note in images["note"].fillna("")]
        """Before its edits."""
        self.typicality = images["typicality"].fillna(0).to_numpy(float)
        label, problem = images["label"].fillna(""), images["problem"].fillna("")
        self.free = ((label == "") & (problem == "")).to_numpy(bool)
        self.known = set(found.known)
        self.merged = corrected.facts.edits.merged
        names = relative(list(applied.confirmed), found.facts.root)
        self.confirmed = dict(zip(names, applied.confirmed.values(), strict=True))

    def end(self, id: str) -> str:
        """What a category has been merged into."""
        seen: set[str] = set()
        while id in self.merged and id not in seen:
            seen.add(id)
            id = self.merged[id]
        return id

    def moved(self) -> dict[str, str]:
        rows = zip(self.path, self.now, self.note, strict=True)
        return {path: now for path, now, note in rows if note == MOVED_NOTE and now}

    def rejected(self) -> set[str]:
        """By the edits of this round. What the round left out was rejected before it, and an edit of then that came
        late may have taken that back."""
        rows = zip(self.path, self.now, self.note, self.noted, strict=True)
        return {path for path, now, note, before in rows if note == REJECTED_NOTE != before and not now}

    def typical(self, copies: _DuplicateImages) -> dict[str, str]:
        """Labels of the parts of merged categories."""
        labels: dict[str, str] = {}
        for part, whole in sorted(self._joined()):
            rows = [row for row, was, now in self._stayed() if (was, now) == (part, whole) and self.free[row]]
            rows = [row for row in rows if not copies.are_said_otherwise(self.path[row], whole)]
            rows.sort(key=lambda row: (-self.typicality[row], self.path[row]))
            labels |= {self.path[row]: whole for row in rows[:TYPICAL_IMAGES]}
        return labels

    def _stayed(self) -> Iterator[tuple[int, str, str]]:
        """Row, category before and category now of the images that nobody moved by hand."""
        for row, (was, now, note) in enumerate(zip(self.was, self.now, self.note, strict=True)):
            if was and now and note not in (MOVED_NOTE, CONFIRMED_NOTE):
                yield row, was, now

    def _joined(self) -> set[tuple[str, str]]:
        """(part, whole) of the merged categories; a known class has labels of its own."""
        pairs = {(was, now) for _, was, now in self._stayed()}
        wholes = {now for was, now in pairs if was != now}
        return {(was, now) for was, now in pairs if now in wholes and was not in self.known}
