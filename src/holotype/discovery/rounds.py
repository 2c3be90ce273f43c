"""Rounds of a discovery: what each found, which labels it was given, and the edits that lead to the next one.

RUN/rounds/1/       what the first round found, before any edit (discovery.json, assignments, labels.json)
RUN/edits.csv       the log of edits of all rounds, append-only
RUN/discovery.json  what the last round found with the edits of that round applied
"""

from __future__ import annotations

import dataclasses
import json
import logging
import uuid
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from holotype.categories.corrections import apply_edits
from holotype.categories.edits import append_edits, read_edits, read_log
from holotype.categories.found import FILE, Discovery
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.machine.files import write_text

RUN_ID = "run_id.txt"
LABELS = "labels.json"
"""Of a round: the labels that edits had confirmed before it was trained, by path."""
SAME = 0.5
"""Images that two categories of successive rounds must share (of those in either) to be called the same."""

log = logging.getLogger(__name__)


def run_id(folder: Path, number: int) -> str:
    """The name of a round: one for the folder, made at random and kept, and the number of the round."""
    path = folder / RUN_ID
    if not path.is_file():
        write_text(path, uuid.uuid4().hex[:12] + "\n")
    return f"{path.read_text(encoding='utf-8').strip()}-{number}"


def round_folder(folder: Path, number: int) -> Path:
    return folder / "rounds" / str(number)


def finished_rounds(folder: Path) -> int:
    """How many rounds have come to their end."""
    number = 0
    while (round_folder(folder, number + 1) / FILE).is_file():
        number += 1
    return number


def save_round(folder: Path, number: int, found: Discovery, labels: Mapping[str, str]) -> None:
    """Keep what a round found. labels: those that it got from edits."""
    to = round_folder(folder, number)
    write_text(to / LABELS, json.dumps(dict(labels), indent=1, ensure_ascii=False) + "\n")
    found.save(to)


def labels_of_round(folder: Path, number: int) -> dict[str, str]:
    path = round_folder(folder, number) / LABELS
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); run holotype discover with another --out."
        ) from error


# -- edits ----------------------------------------------------------------------------------------------


def take_edits(folder: Path, file: Path) -> None:
    """Add a file of edits to the log; edits of another run are refused."""
    edits = read_edits(file)
    if not finished_rounds(folder):
        raise InputError(
            f"{folder} holds no discovery that {file} could correct; run holotype discover without --edits first."
        )
    new = append_edits(folder, edits)
    log.info(f"{file}: {len(edits):,} edits, {len(new):,} of them new.")


def confirmed_labels(folder: Path) -> dict[str, str]:
    """Labels that edits of all rounds so far have confirmed, by path; later ones win."""
    log_of_edits = read_log(folder)
    labels: dict[str, str] = {}
    for number in range(1, finished_rounds(folder) + 1):
        found = Discovery.load(round_folder(folder, number))
        own = [edit for edit in log_of_edits if edit.run_id == found.run_id]
        labels |= apply_edits(found, own).confirmed if own else {}
    return labels


def corrected(folder: Path) -> tuple[Discovery, list[str]]:
    """What the last round found with its edits, and a sentence for each edit that could not be applied."""
    found = Discovery.load(round_folder(folder, finished_rounds(folder)))
    edits = read_log(folder)
    if not edits:
        return found, []
    applied = apply_edits(found, edits)
    return applied.discovery, applied.problems


def with_labels(table: Table, labels: Mapping[str, str]) -> Table:
    """The table with more labels; classes that they name for the first time are known from now on."""
    if not labels:
        return table
    label = np.array(
        [labels.get(p, own) for p, own in zip(table.path, table.label, strict=True)], dtype=object
    )
    new = sorted(set(labels.values()) - set(table.known) - {""})
    present = set(label)
    known = tuple(name for name in (*table.known, *new) if name in present)
    return dataclasses.replace(table, label=label, known=known)


def carry_names(before: Discovery, found: Discovery) -> None:
    """Give categories of a new round the names that people gave to them in the round before.

    Two categories are the same where they share more than half of their images.
    """
    named = [c for c in before.categories if c.kind == "novel" and c.name != c.id]
    novel = [c for c in found.categories if c.kind == "novel"]
    if not named or not novel:
        return
    earlier = [set(before.images.path[before.images.category == c.name]) for c in named]
    later = [set(found.images.path[found.images.category_id == c.id]) for c in novel]
    overlap = np.array([[len(a & b) / max(len(a | b), 1) for b in later] for a in earlier])
    taken = {c.name for c in found.categories}
    for i, j in zip(*linear_sum_assignment(overlap, maximize=True), strict=True):
        if overlap[i, j] > SAME and named[i].name not in taken:
            rows = found.images.category_id == novel[j].id
            found.images.loc[rows, "category"] = novel[j].name = named[i].name
