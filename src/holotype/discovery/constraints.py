"""What corrections say to the next round: labels, images that stay out, and names. docs/correct.md says it in words.

Each round is read with its edits, one after the other, and what a later one says counts:

confirmed    a label: the id of the category, or the word that was given
moved        a label: the id of the category that the image was moved to
rejected     no label, and out of the round, until it is moved or confirmed again
merged       the most typical images of each part carry one label, that of the category which took the others in
split        the images that were taken out are moved ones; nothing is said of those that stayed
renamed      the id keeps its name

Images are named by their keys (Collection.keys), so that what is said of one holds for its copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from holotype.data.duplicates import is_readable
from holotype.data.load import with_readable_classes
from holotype.data.table import Table
from holotype.discovery.collection import Collection
from holotype.errors import InputError
from holotype.results.apply_edits import CONFIRMED_NOTE, MOVED_NOTE, REJECTED_NOTE, AppliedEdits
from holotype.results.discovery import Discovery

TYPICAL_IMAGES = 9
"""Images of a part of a merged category that become labels, at most."""


@dataclass(frozen=True)
class Constraints:
    """Of a round, from all edits before it."""

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

    @property
    def images(self) -> Set[str]:
        """Of which it says anything."""
        return self.labels.keys() | self.rejected

    def after(self, found: Discovery, applied: AppliedEdits) -> Constraints:
        """With what the edits of one more round say. found: as the round left it; applied: with its edits."""
        edited = _EditedLabels(found, applied)
        stated = {**edited.moved(), **applied.confirmed}
        rejected = (self.rejected | edited.rejected()) - stated.keys()
        earlier = {key: edited.end(label) for key, label in self.labels.items()}
        typical = edited.typical()
        labels = {**typical, **earlier, **stated}
        labels = {key: label for key, label in labels.items() if key not in rejected}
        follow = (self.follow | (typical.keys() - earlier.keys())) - stated.keys()
        return Constraints(
            labels=labels,
            rejected=frozenset(rejected),
            names={**self.names, **rename_classes(found, applied.discovery)},
            follow=follow & labels.keys(),
        )

    def of_repaired(self, now: Collection) -> Constraints:
        """With what was said of images before they were repaired, where nothing was said since."""
        labels, rejected, follow = dict(self.labels), set(self.rejected), set(self.follow)
        for key in now.aliases.keys() - self.images:
            old = next((old for old in now.ancestors(key) if old in self.images), "")
            if old in self.labels:
                labels[key] = self.labels[old]
            if old in self.rejected:
                rejected.add(key)
            if old in self.follow:
                follow.add(key)
        return replace(self, labels=labels, rejected=frozenset(rejected), follow=frozenset(follow))

    def without(self, images: Set[str]) -> Constraints:
        """Less what is said of some images."""
        labels = {key: label for key, label in self.labels.items() if key not in images}
        return replace(self, labels=labels, rejected=self.rejected - images)

    def differs(self, later: Constraints, now: Collection) -> bool:
        """Does a later one say something else of the images of today?"""
        here = now.paths.keys()
        return self.of_repaired(now).of_images(here) != later.of_images(here)

    def of_images(self, keys: Set[str]) -> tuple[dict[str, str], frozenset[str]]:
        """Labels and rejections of these images alone."""
        labels = {key: label for key, label in self.labels.items() if key in keys}
        return labels, self.rejected & keys

    def apply(self, table: Table, keys: Sequence[str]) -> Table:
        """The table with these labels; the ids of classes that they name for the first time join the known ones.

        keys: (N,) of the images of the table, here and below."""
        label = [
            "" if key in self.rejected else self.labels.get(key, own)
            for key, own in zip(keys, table.label, strict=True)
        ]
        new = sorted(set(label) - set(table.known) - {""})
        return replace(table, label=np.array(label, dtype=object), known=(*table.known, *new))

    def called(self, table: Table) -> Table:
        """The table with the names of classes in the place of their ids."""
        label = [self.names.get(id, id) for id in table.label]
        known = dict.fromkeys(self.names.get(id, id) for id in table.known)
        return replace(table, label=np.array(label, dtype=object), known=tuple(known))

    def follows(self, keys: Sequence[str]) -> np.ndarray:
        """(N,) bool: images whose label nobody gave them."""
        return np.array([key in self.follow and key in self.labels for key in keys], dtype=bool)

    def out(self, keys: Sequence[str]) -> np.ndarray:
        """(N,) bool: images that stay out of the round."""
        return np.array([key in self.rejected for key in keys], dtype=bool)


def sampled_count(table: Table, came: np.ndarray) -> Table:
    """The table less the labels from edits. came: (N,) the labels that images came with.

    An image that came with a label keeps the one it has now, if it is of a class that others came with too. Frames of a
    burst share a label: they keep it where one of them came with it.
    """
    with_label = came != ""
    if table.group is not None:
        of_burst = table.group != ""
        with_label = with_label | (of_burst & np.isin(table.group, table.group[with_label & of_burst]))
    drawn = with_label & np.isin(table.label, came[came != ""])
    label = np.where(drawn, table.label, "")
    known = tuple(name for name in table.known if (label == name).any())
    return replace(table, label=label, known=known)


def rename_classes(found: Discovery, corrected: Discovery) -> dict[str, str]:
    """Id to name of the categories that people called otherwise than the round did."""
    before = {category.id: category.name for category in found.categories}
    return {c.id: c.name for c in corrected.categories if c.name != before.get(c.id, c.id)}


class _EditedLabels:
    """A round before and after its edits, row by row."""

    def __init__(self, found: Discovery, applied: AppliedEdits) -> None:
        images, corrected = found.images, applied.discovery
        self.key, self.path = found.keys, [str(path) for path in images["path"]]
        self.was = [str(id) for id in images["category_id"].fillna("")]
        self.now = [str(id) for id in corrected.images["category_id"].fillna("")]
        self.note = [str(note) for note in corrected.images["note"].fillna("")]
        self.noted = [str(note) for note in images["note"].fillna("")]
        """Before its edits."""
        self.typicality = images["typicality"].fillna(0).to_numpy(float)
        label, problem = images["label"].fillna(""), images["problem"].fillna("")
        taken = ((label != "") | (problem != "")).to_numpy(bool)
        self.taken = {key for key, is_taken in zip(self.key, taken, strict=True) if is_taken}
        """Images that have a label of their own, or a copy that has one, or cannot be read."""
        self.known = set(found.known)
        self.merged = corrected.facts.edits.merged

    def end(self, id: str) -> str:
        """What a category has been merged into."""
        seen: set[str] = set()
        while id in self.merged and id not in seen:
            seen.add(id)
            id = self.merged[id]
        return id

    def moved(self) -> dict[str, str]:
        rows = zip(self.key, self.now, self.note, strict=True)
        return {key: now for key, now, note in rows if note == MOVED_NOTE and now}

    def rejected(self) -> set[str]:
        """By the edits of this round, copies and all. What the round left out was rejected before it, and an edit of
        then that came late may have taken that back."""
        rows = list(zip(self.key, self.now, self.note, self.noted, strict=True))
        placed = {key for key, now, _, _ in rows if now}
        return {key for key, _, note, before in rows if note == REJECTED_NOTE != before} - placed

    def typical(self) -> dict[str, str]:
        """Labels of the parts of merged categories."""
        labels: dict[str, str] = {}
        for part, whole in sorted(self._joined()):
            rows = [row for row, was, now in self._stayed() if (was, now) == (part, whole)]
            rows.sort(key=lambda row: (-self.typicality[row], self.path[row]))
            keys = dict.fromkeys(self.key[row] for row in rows if self.key[row] not in self.taken)
            labels |= dict.fromkeys(list(keys)[:TYPICAL_IMAGES], whole)
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


# -- what cannot take part ------------------------------------------------------------------------------


def unreadable_labels(table: Table, given: Constraints, images: Collection) -> list[str]:
    """A sentence for each image that edits have labelled and that cannot be read. images: the index of the table."""
    labels = ((path, given.labels.get(images.key(path), "")) for path in images.images)
    return [
        f"The label {given.names.get(label, label)!r} of {path} cannot take part: the image cannot be read."
        for (path, label), problem in zip(labels, table.problem, strict=True)
        if problem and label
    ]


def visible_classes(table: Table, names: Mapping[str, str]) -> tuple[Table, list[str]]:
    """The table without the known classes of which no labelled image can be read, and a sentence for each of them.

    A class without an image to learn from would receive images all the same, by chance.
    """
    readable, lost = with_readable_classes(table)
    lines = []
    for name in lost:
        none = (table.label != name).all()
        why = "edits have left it no labelled image" if none else "no labelled image of it can be read"
        lines.append(f"The known class {names.get(name, name)!r} takes no part in this round: {why}.")
    return readable, lines


def check_images_left(table: Table, given: Constraints, keys: Sequence[str], folder: Path) -> None:
    """Raise InputError where edits have left no image that another round could place. table: with their labels; what
    it does not know to be unreadable is looked at. keys: (N,) of its images."""
    left = table.path[table.usable & ~table.labelled & ~given.out(keys)]
    if given.binds and not any(is_readable(str(path)) for path in left):
        raise InputError(
            f"With the edits every usable image{f' in {table.name}' if table.name else ''} is labelled or rejected, so "
            f"that nothing is left to place until further images come; holotype report {folder} applies the edits, and "
            f"holotype write {folder} --folders DIR takes the result out."
        )


def is_all_reported(found: Discovery, given: Constraints) -> bool:
    """Is every image of the collection labelled or rejected, so that another round has nothing to place? One frame
    speaks for its burst."""
    images, keys = found.images, found.keys
    label, problem = images["label"].fillna(""), images["problem"].fillna("")
    labelled = [bool(own) or key in given.labels for key, own in zip(keys, label, strict=True)]
    group = images["group"].fillna("") if "group" in images else [""] * len(images)
    bursts = {burst for burst, is_labelled in zip(group, labelled, strict=True) if is_labelled} - {""}
    rows = zip(keys, labelled, problem, group, strict=True)
    return all(done or why or key in given.rejected or burst in bursts for key, done, why, burst in rows)
