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

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from holotype.data.duplicates import is_readable
from holotype.data.load import check_trainable, with_readable_classes
from holotype.data.paths import relative
from holotype.data.table import Table
from holotype.discovery.collection import Collection, shown_names
from holotype.errors import InputError
from holotype.results.apply_edits import CONFIRMED_NOTE, MOVED_NOTE, REJECTED_NOTE, AppliedEdits
from holotype.results.discovery import Discovery
from holotype.results.edits import ACTIONS, Edit
from holotype.utils.atomic import write_text
from holotype.utils.serialization import FileSchema, SchemaError, from_value
from holotype.utils.text import plural

PATH_MAP_SCHEMA = FileSchema(2, "restore it from a copy, or run holotype discover with another --out")
T = TypeVar("T")
LABELS_FILE = "labels.json"
"""Of a round: the labels that edits had given before it was trained, by path from the root."""
REJECTED_FILE = "rejected.json"
"""Of a round: the images that edits keep out of it, by path from the root."""


def write_path_map(path: Path, content: Mapping[str, Any] | Sequence[str]) -> None:
    """content: by path, or paths alone."""
    PATH_MAP_SCHEMA.write(path, {"by_path": content})


def read_path_map(path: Path, kind: type[T]) -> T:
    """The content of a file that there is, of the type `kind`, such as dict[str, str]; else InputError."""
    content = PATH_MAP_SCHEMA.read(path).get("by_path")
    try:
        return from_value(kind, content)
    except SchemaError as problem:
        raise PATH_MAP_SCHEMA.broken(path, problem) from problem


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

    def save(self, folder: Path) -> None:
        """Write labels and rejections into the folder of a round."""
        write_path_map(folder / LABELS_FILE, self.labels)
        write_path_map(folder / REJECTED_FILE, sorted(self.rejected))

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


def read_constraints(folder: Path) -> Constraints:
    """Read what `save` wrote: the labels and rejections that a round was begun with."""
    rejected = read_path_map(folder / REJECTED_FILE, list[str])
    return Constraints(read_path_map(folder / LABELS_FILE, dict[str, str]), frozenset(rejected))


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


# -- which edits take part ------------------------------------------------------------------------------

REFUSED_FILE = "refused.txt"
"""In the run folder: a sentence for each edit that cannot take part, as they were told before the last round."""


@dataclass
class EditSummary:
    """Of the edits of all rounds."""

    applied: list[tuple[str, Edit]] = field(default_factory=list)
    """Path of the image from the root ("" = none) and the edit, in their order."""
    left: list[str] = field(default_factory=list)
    """A sentence for each that could not be applied."""
    overruled: int = 0
    """Edits of images that later came with another label."""

    def without(self, later: Set[str]) -> EditSummary:
        """Less the edits of the images `later`, which came with another label since."""
        kept = [(image, edit) for image, edit in self.applied if image not in later]
        return EditSummary(kept, self.left, self.overruled + len(self.applied) - len(kept))

    def moved(self, moves: Mapping[str, str]) -> EditSummary:
        """With the paths that images have now. moves: path then to path now, where these differ."""
        applied = [(moves.get(image, image), edit) for image, edit in self.applied]
        return replace(self, applied=applied)

    def standing(self, given: Constraints) -> list[tuple[str, Edit]]:
        """Less those that a later one of the same image has overruled."""
        last = {image: place for place, (image, _) in enumerate(self.applied) if image}
        return [
            (image, edit)
            for place, (image, edit) in enumerate(self.applied)
            if not image
            or (last[image] == place and (edit.action == "reject" or image not in given.rejected))
        ]

    def told(self, number: int, given: Constraints, here: Set[str]) -> list[str]:
        """Sentences for before a round is trained. here: the images of the round, by path from the root."""
        if not self.applied and not self.left and not self.overruled:
            return []
        standing = self.standing(given)
        count = Counter(edit.action for image, edit in standing if not image or image in here)
        words = ", ".join(
            f"{count[action]:,} {action.removesuffix('e')}ed" for action in ACTIONS if count[action]
        )
        overruled = self.overruled + len(self.applied) - len(standing)
        by = "edits or labels" if self.overruled else "ones"
        were = "was" if overruled == 1 else "were"
        more = f"; {overruled:,} more {were} overruled by later {by}" if overruled else ""
        labels, out = len(given.labels.keys() & here), len(given.rejected & here)
        lines = [
            f"Edits that take part in round {number}: {words or 'none'}{more}. They give {plural(labels, 'label')} "
            f"and keep {plural(out, 'image')} out."
        ]
        if missing := [image for image, _ in standing if image and image not in here]:
            names = dict.fromkeys(missing)
            lines.append(
                f"{plural(len(missing), 'edit')} of {plural(len(names), 'image')} now gone will count again once the "
                f"images are back: {shown_names(names)}."
            )
        return [*lines, *self.left]


def read_refused(folder: Path) -> list[str]:
    """The sentences that were told before; none where nothing was refused yet."""
    file = folder / REFUSED_FILE
    return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []


def store_refused(folder: Path, left: Sequence[str]) -> None:
    """After they were told: the sentences of all edits that cannot take part."""
    if list(left) != read_refused(folder):
        write_text(folder / REFUSED_FILE, "".join(f"{line}\n" for line in left))


def unreported(folder: Path, left: Sequence[str]) -> list[str]:
    """Of the sentences on edits that cannot take part: those that are new, and how many others there are."""
    before = set(read_refused(folder))
    fresh = [line for line in left if line not in before]
    again = len(left) - len(fresh)
    if again:
        still = "is still" if again == 1 else "are still"
        fresh.append(
            f"{plural(again, 'edit')} {still} not applied (reported earlier; see {folder / REFUSED_FILE})."
        )
    return fresh


def unreadable_labels(table: Table, given: Constraints) -> list[str]:
    """A sentence for each image that edits have labelled and that cannot be read."""
    paths = relative([str(path) for path in table.path], table.root)
    return [
        f"The label {given.names.get(given.labels[path], given.labels[path])!r} of {path} cannot take part: the image "
        "cannot be read."
        for path, problem in zip(paths, table.problem, strict=True)
        if problem and path in given.labels
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


def check_images_left(table: Table, given: Constraints, folder: Path) -> None:
    """Raise InputError where edits have left no image that another round could place. table: with their labels; what
    it does not know to be unreadable is looked at."""
    if not given.binds:
        return
    left = table.path[table.usable & ~table.labelled & ~given.out(table)]
    if not any(is_readable(str(path)) for path in left):
        raise InputError(
            f"With the edits every usable image{f' in {table.name}' if table.name else ''} is labelled or rejected, so "
            f"that nothing is left to place until further images come; holotype report {folder} applies the edits, and "
            f"holotype write {folder} --folders DIR takes the result out."
        )


def check_assignable(table: Table, given: Constraints, folder: Path) -> None:
    """Raise InputError where another round would find no classes to learn, or nothing to place. table: with the labels
    of edits."""
    check_images_left(table, given, folder)
    check_trainable(table.take(~given.out(table)))


def is_all_reported(found: Discovery, given: Constraints) -> bool:
    """Is every image of the collection labelled or rejected, so that another round has nothing to place? One frame
    speaks for its burst."""
    images = found.images
    paths = relative([str(path) for path in images["path"]], found.facts.root)
    label, problem = images["label"].fillna(""), images["problem"].fillna("")
    told = [bool(own) or path in given.labels for path, own in zip(paths, label, strict=True)]
    group = images["group"].fillna("") if "group" in images else [""] * len(images)
    bursts = {burst for burst, said in zip(group, told, strict=True) if said} - {""}
    rows = zip(paths, told, problem, group, strict=True)
    return all(said or why or path in given.rejected or burst in bursts for path, said, why, burst in rows)
