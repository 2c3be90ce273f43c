"""Summary of edits and labels that take part in a round, and of those that cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from holotype.data.duplicates import is_readable
from holotype.data.load import check_trainable, with_readable_classes
from holotype.data.paths import relative
from holotype.data.table import Table
from holotype.discovery.collection import shown_names
from holotype.discovery.constraints import Constraints
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import ACTIONS, Edit
from holotype.utils.atomic import write_text

REFUSED_FILE = "refused.txt"
"""In the run folder: a sentence for each edit that cannot take part, as they were told before the last round."""
DONE_WORDS = {
    "rename": "renamed",
    "merge": "merged",
    "move": "moved",
    "reject": "rejected",
    "confirm": "confirmed",
}
"""What each action is called once it is done."""


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
        words = ", ".join(f"{count[action]:,} {DONE_WORDS[action]}" for action in ACTIONS if count[action])
        overruled = self.overruled + len(self.applied) - len(standing)
        by = "edits or labels" if self.overruled else "ones"
        more = f"; {overruled:,} more {_was_or_were(overruled)} overruled by later {by}" if overruled else ""
        labels, out = len(given.labels.keys() & here), len(given.rejected & here)
        return [
            f"Edits that take part in round {number}: {words or 'none'}{more}. They give {labels:,} "
            f"{'label' if labels == 1 else 'labels'} and keep {out:,} {'image' if out == 1 else 'images'} out.",
            *_missing_images([image for image, _ in standing if image and image not in here]),
            *self.left,
        ]


def _missing_images(images: list[str]) -> list[str]:
    """A sentence on the edits of images that are gone; images: that of each edit."""
    if not images:
        return []
    names = list(dict.fromkeys(images))
    which, back = (
        ("an image that is", "it comes")
        if len(names) == 1
        else (f"{len(names):,} images that are", "they come")
    )
    edits = "1 edit" if len(images) == 1 else f"{len(images):,} edits"
    kept = "is kept" if len(images) == 1 else "are kept"
    return [f"{edits} of {which} gone {kept}, and will count again if {back} back: {shown_names(names)}."]


def _was_or_were(n: int) -> str:
    return "was" if n == 1 else "were"


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
        lines = "1 line" if again == 1 else f"{again:,} lines"
        fresh.append(
            f"Told before, and still so: {lines} on edits that cannot take part, in {folder / REFUSED_FILE}."
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
    kept, lost = with_readable_classes(table)
    told = []
    for name in lost:
        n = int((table.label == name).sum())
        why = {
            0: "edits have left it no labelled image",
            1: "its one labelled image cannot be read",
        }.get(n, f"none of its {n} labelled images can be read")
        told.append(f"The known class {names.get(name, name)!r} takes no part in this round: {why}.")
    return kept, told


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
