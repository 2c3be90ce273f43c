"""What corrections say to the next round: labels, images that stay out, and names. docs/correct.md says it in words.

Each round is read with its edits, one after the other, and what a later one says counts:

confirmed    a label: the id of the category, or the word that was given
moved        a label: the id of the category that the image was moved to
rejected     no label, and out of the round, until it is moved or confirmed again
merged       the most typical images of each part carry one label, that of the category which took the others in
named        where no classes were known: the most typical images of a group carry its label, unless others were shown
split        the images that were taken out are moved ones; nothing is said of those that stayed
renamed      the id keeps its name

Images are named by their keys (Collection.keys), so that what is said of one holds for its copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holotype.data.duplicates import is_readable
from holotype.data.load import with_readable_classes
from holotype.data.table import Table
from holotype.discovery.collection import Collection
from holotype.discovery.groups import LEAST_CLASSES, METHOD
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import CONFIRMED_NOTE, MOVED_NOTE, REJECTED_NOTE, AppliedEdits, merged_into

if TYPE_CHECKING:
    import pandas as pd

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
        rows, merged = edited_rows(found, applied), applied.discovery.facts.edits.merged
        moved = rows[(rows["note"] == MOVED_NOTE) & (rows["now"] != "")]
        stated = {**dict(zip(moved["key"], moved["now"], strict=True)), **applied.confirmed}
        # what the round left out was rejected before it, and an edit of then that came late may have taken that back
        out = rows["key"][(rows["note"] == REJECTED_NOTE) & (rows["noted"] != REJECTED_NOTE)]
        rejected = (self.rejected | (set(out) - set(rows["key"][rows["now"] != ""]))) - stated.keys()
        earlier = {key: merged_into(label, merged) for key, label in self.labels.items()}
        typical = typical_labels(rows, found.known, self._named_groups(found, applied) - set(stated.values()))
        labels = {**typical, **earlier, **stated}
        labels = {key: label for key, label in labels.items() if key not in rejected}
        follow = (self.follow | (typical.keys() - earlier.keys())) - stated.keys()
        return Constraints(
            labels=labels,
            rejected=frozenset(rejected),
            names={**self.names, **rename_classes(found, applied.discovery)},
            follow=follow & labels.keys(),
        )

    @staticmethod
    def _named_groups(found: Discovery, applied: AppliedEdits) -> Set[str]:
        """Ids of the groups that people gave a name where classes were still to be named (groups.py)."""
        grouped = found.facts.method == METHOD and len(found.known) < LEAST_CLASSES
        return rename_classes(found, applied.discovery).keys() if grouped else set()

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


def without_edit_labels(table: Table, came: np.ndarray) -> Table:
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


def edited_rows(found: Discovery, applied: AppliedEdits) -> pd.DataFrame:
    """A round before and after its edits, row by row. taken: images that have a label of their own, or a copy that has
    one, or cannot be read."""
    import pandas as pd

    before, after = (one.images.fillna({"note": "", "category_id": ""}) for one in (found, applied.discovery))
    rows = pd.DataFrame({"key": found.keys, "path": before["path"].astype(str)})
    rows["was"], rows["noted"] = before["category_id"].astype(str), before["note"]
    rows["now"], rows["note"] = after["category_id"].astype(str), after["note"]
    rows["typicality"] = before["typicality"].fillna(0)
    taken = (before["label"].fillna("") != "") | (before["problem"].fillna("") != "")
    return rows.assign(taken=rows["key"].isin(rows["key"][taken]))


def typical_labels(rows: pd.DataFrame, known: Sequence[str], named: Set[str] = frozenset()) -> dict[str, str]:
    """Labels of the parts of merged categories, and of `named` ones, of images that nobody moved by hand; a known class
    has labels of its own. rows: of `edited_rows`."""
    by_hand = rows["note"].isin((MOVED_NOTE, CONFIRMED_NOTE))
    stayed = rows[(rows["was"] != "") & (rows["now"] != "") & ~by_hand]
    wholes = set(stayed["now"][stayed["was"] != stayed["now"]])
    labels: dict[str, str] = {}
    for (part, whole), images in stayed.groupby(["was", "now"]):
        if whole in wholes | named and part not in known:
            images = images[~images["taken"]].sort_values(["typicality", "path"], ascending=[False, True])
            labels |= dict.fromkeys(images["key"].drop_duplicates()[:TYPICAL_IMAGES], str(whole))
    return labels


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
    if given.binds and not (len(left) if table.features is not None else any(map(is_readable, left))):
        raise InputError(
            f"With the edits every usable image{f' in {table.name}' if table.name else ''} is labelled or rejected, so "
            f"that nothing is left to place until further images come; holotype report {folder} applies the edits, and "
            f"holotype write {folder} --folders DIR takes the result out."
        )


def is_all_labelled(found: Discovery, given: Constraints) -> bool:
    """Is every image of the collection labelled or rejected, so that another round has nothing to place? One frame
    speaks for its burst."""
    images, keys = found.images, found.keys
    label, problem = images["label"].fillna(""), images["problem"].fillna("")
    labelled = [bool(own) or key in given.labels for key, own in zip(keys, label, strict=True)]
    group = images["group"].fillna("") if "group" in images else [""] * len(images)
    bursts = {burst for burst, is_labelled in zip(group, labelled, strict=True) if is_labelled} - {""}
    rows = zip(keys, labelled, problem, group, strict=True)
    return all(done or why or key in given.rejected or burst in bursts for key, done, why, burst in rows)
