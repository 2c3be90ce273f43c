"""Results of a run per image with its corrections, for the exporters; label files.

A person has said of an image what it shows where it came with a label, or was moved or confirmed by hand.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from holotype.config.schema import VECTOR_PREFIX
from holotype.data.boxes import Box, split_box
from holotype.data.csv import FORMULA, csv_text, escape_formula
from holotype.data.image_files import image_exists
from holotype.errors import InputError
from holotype.results.describe import LABELLED_BY_BURST
from holotype.results.discovery import UNNAMED_PATTERN, Category, Discovery
from holotype.results.edits import CONFIRMED_NOTE, FOLLOWS_NOTE, MOVED_NOTE, REJECTED_NOTE, EditSession
from holotype.utils.atomic import refuse_existing, write_output
from holotype.utils.text import plural

MANUAL = (MOVED_NOTE, CONFIRMED_NOTE)
"""Notes that edits leave."""
KINDS = {"known": "known", "novel": "new"}
"""What other programs are told of the kinds of categories."""
BOM = "\ufeff"
"""By which Excel knows that a CSV file is UTF-8."""


@dataclass(frozen=True)
class ResultsTable:
    """The images of a run, in the order of the collection. Columns are lists of length N."""

    run: Path
    found: Discovery
    path: list[str]
    label: list[str]
    """What the image came with; "" = nothing."""
    category: list[str]
    """Name as it stands now; "" = in none: it could not be read, or was rejected."""
    category_id: list[str]
    probability: list[float]
    doubtful: list[bool]
    problem: list[str]
    note: list[str]
    group: list[str]
    """The burst that an image is a frame of; "" = it is alone."""

    def __len__(self) -> int:
        return len(self.path)

    @cached_property
    def by_hand(self) -> list[bool]:
        """Has a person said what the image shows, or a frame of its burst?"""
        rows = list(zip(self.label, self.note, self.group, strict=True))
        said = [
            note in MANUAL or (label != "" and not {FOLLOWS_NOTE, LABELLED_BY_BURST} & set(note.split("; ")))
            for label, note, _ in rows
        ]
        bursts = {group for (_, _, group), by_hand in zip(rows, said, strict=True) if by_hand} - {""}
        return [
            by_hand or (label != "" and LABELLED_BY_BURST in note and group in bursts)
            for by_hand, (label, note, group) in zip(said, rows, strict=True)
        ]

    @cached_property
    def parts(self) -> list[tuple[str, Box | None]]:
        """The picture of each image, and the box of it that the image is."""
        return [split_box(path) for path in self.path]

    @property
    def title(self) -> str:
        """Name of the collection, or of the run folder."""
        return self.found.facts.title or self.run.name

    def pictures(self, rows: Iterable[int]) -> dict[str, list[int]]:
        """Return the pictures of these rows whose files exist, each with its rows: several where it has boxes."""
        found: dict[str, list[int]] = {}
        for row in rows:
            found.setdefault(self.parts[row][0], []).append(row)
        return {picture: rows for picture, rows in found.items() if image_exists(picture)}

    def below_root(self, path: str) -> str:
        """The path as seen from the folder of the images, with slashes; as it is where it lies elsewhere."""
        root = self.found.facts.root
        start = os.path.join(root, "") if root else ""
        return (path[len(start) :] if start and path.startswith(start) else path).replace(os.sep, "/")


def read_results_table(run: Path, *, need_files: bool = False) -> ResultsTable:
    """Return the results of any finished run: of train, bench or discover.

    need_files: raise InputError where no image is where it was.
    """
    found = Discovery.load(run)
    images = found.images
    if not len(images):
        raise InputError(f"The run in {run} has no images; there is nothing to write.")
    vectors = str(found.facts.backbone.get("name", "")).startswith(VECTOR_PREFIX)
    if need_files and vectors and not any(map(os.path.isfile, images["path"])):
        raise InputError(
            f"The rows of {run} have vectors and no images; --labels is what can be written of them."
        )
    if need_files and not any(image_exists(path) for path in images["path"]):  # mostly the first one is
        raise InputError(
            f"No image of {run} is where it was, such as {images['path'][0]}; bring them back, or discover them anew."
        )
    images = images if "group" in images else images.assign(group="")
    names = ("path", "label", "category", "category_id", "problem", "note", "group")
    texts = {name: images[name].fillna("").astype(str).tolist() for name in names}
    probability = images["probability"].astype(float).tolist()
    doubtful = images["doubtful"].astype(bool).tolist()
    return ResultsTable(run, found, **texts, probability=probability, doubtful=doubtful)


@dataclass(frozen=True)
class LabelsResult:
    """What was written into a file of labels."""

    by_class: Counter[str]
    """Images per class."""
    all: bool

    @property
    def n(self) -> int:
        """Images with a label."""
        return self.by_class.total()

    def summary(self, out: Path) -> str:
        """Describe in lines what was written to `out`."""
        words = f"{plural(self.n, 'label')} of {plural(len(self.by_class), 'class', 'classes')}: {out}"
        return words if self.all else f"{words}\nNext: holotype discover IMAGES --labels {out}"


def write_labels(
    run: Path, file: Path, *, all: bool = False, overwrite: bool = False, progress: bool = False
) -> LabelsResult:
    """Write a CSV file of paths and labels, as `holotype discover --labels` reads it.

    It has the images of which a person has said what they show. Where the images are boxes, or people gave groups, the
    others are in it too, without a label, with boxes and groups: the next run knows them from nowhere else.

    Args:
        run: Folder of the run.
        file: Path of the CSV file.
        all: Label all images that are in a category.
        overwrite: Replace `file` where it exists.
        progress: Nothing to show: this takes no time.

    Returns:
        Counts of what was written.
    """
    refuse_existing(file, overwrite, (".csv",))
    results = read_results_table(run)
    label = label_rows(results, every=all)
    by_class = Counter(name for name in label if name)
    if not by_class:
        raise InputError(f"No image of {run} is labelled, moved or confirmed; confirm some, or add --all.")

    columns = _columns(results, label)
    text = BOM + csv_text([list(columns), *zip(*columns.values(), strict=True)])
    write_output(file, lambda part: part.write_bytes(text.encode()), overwrite=overwrite)
    return LabelsResult(by_class, all)


def label_rows(results: ResultsTable, *, every: bool = False) -> list[str]:
    """(N,) the label of each image in a next run, "" for none.

    It is the name of the category as it stands: what was renamed or moved counts. A labelled image that cannot be read
    keeps its label; one that was rejected has none.
    """
    standing, called = EditSession(results.found), class_names(results.found.categories)
    confirmed = results.found.facts.edits.confirmed
    found = []
    for key, own, id, problem, said in zip(
        standing.key, results.label, results.category_id, results.problem, results.by_hand, strict=True
    ):
        if key in confirmed:
            category = standing.find(confirmed[key])
            found.append(confirmed[key] if category is None else called.get(category.id, category.name))
        elif own and problem and said:
            found.append(called.get(own, own))
        else:
            found.append(called.get(id, "") if said or every else "")
    return found


def class_names(categories: Sequence[Category]) -> dict[str, str]:
    """Id to the name of the class that a category becomes in a next run, where new-01 will mean something else."""
    taken = {category.name for category in categories}
    names = {}
    for category in categories:
        unnamed = category.kind == "novel" and UNNAMED_PATTERN.fullmatch(category.name)
        name = category.suggested if unnamed and category.suggested not in taken else ""
        names[category.id] = name or category.name
        taken.add(names[category.id])
    return names


def _columns(results: ResultsTable, label: Sequence[str]) -> dict[str, list[str]]:
    """Of the images that have a label, of boxes that nobody has rejected, and of those that people have grouped."""
    told = set(results.group) - {"", *map(results.below_root, results.path)}  # found ones are found again
    rows = [
        row
        for row, (_, box) in enumerate(results.parts)
        if label[row] or (box and results.note[row] != REJECTED_NOTE) or (told and results.group[row])
    ]
    below = [results.below_root(results.parts[row][0]) for row in rows]
    columns = {
        # the same file, and no formula
        "path": [f"./{path}" if path.startswith(FORMULA) else path for path in below],
        "label": [escape_formula(label[row]) for row in rows],
    }
    if any(box for _, box in results.parts):
        columns["box"] = [box.text if box else "" for _, box in (results.parts[row] for row in rows)]
    if told:
        columns["group"] = [escape_formula(results.group[row]) for row in rows]
    return columns
