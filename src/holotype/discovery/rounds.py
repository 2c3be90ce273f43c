"""Rounds of a discovery: what each found, what it was given, and the edits that lead to the next one.

RUN/rounds/1/       the first round: a run folder like any other, before any edit, with labels.json and stamps.json
RUN/edits.csv       the log of edits of all rounds, append-only
RUN/discovery.json  what the last round found with the edits of that round applied

A round that was begun with other labels or images than there are now is left as it is, and another one is begun.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from holotype.categories.corrections import apply_edits
from holotype.categories.edits import append_edits, read_edits, read_log
from holotype.categories.features import FEATURES
from holotype.categories.found import Discovery
from holotype.data.stamps import stamps
from holotype.data.table import Table
from holotype.discovery.moved import at_home, relative
from holotype.errors import InputError
from holotype.machine.files import write_beside, write_text
from holotype.runs.sheet import FILE as MODEL
from holotype.runs.sheet import WEIGHTS

SCORES = "scores.json"
"""Of a round that has come to its end."""
LABELS = "labels.json"
"""Of a round: the labels that edits had confirmed before it was trained, by path from the root."""
STAMPS = "stamps.json"
"""Of a round: size and time of every image file when it was begun, by path from the root."""
SHARED = (WEIGHTS, MODEL, FEATURES, "provenance.json", SCORES)
"""What the run folder has of its last round."""

log = logging.getLogger(__name__)


# -- their folders ----------------------------------------------------------------------------------------


def round_folder(folder: Path, number: int) -> Path:
    return folder / "rounds" / str(number)


def begun_rounds(folder: Path) -> list[int]:
    """Numbers of all rounds, finished or not, in their order."""
    there = (folder / "rounds").iterdir() if (folder / "rounds").is_dir() else ()
    return sorted(int(path.name) for path in there if path.is_dir() and path.name.isdecimal())


def finished_rounds(folder: Path) -> list[int]:
    """Numbers of the rounds that have come to their end."""
    return [n for n in begun_rounds(folder) if (round_folder(folder, n) / SCORES).is_file()]


def last_round(folder: Path) -> int:
    """Number of the last finished round, 0 where there is none."""
    return max(finished_rounds(folder), default=0)


def begin_round(folder: Path, labels: Mapping[str, str], stamped: Mapping[str, str]) -> int:
    """The number of a round for these labels and images: the last one where it was stopped, or else a new one."""
    begun = begun_rounds(folder)
    number = begun[-1] if begun else 0
    if number > last_round(folder) and was_given(folder, number) == (dict(labels), dict(stamped)):
        return number
    to = round_folder(folder, number + 1)
    for name, content in ((LABELS, labels), (STAMPS, stamped)):
        write_text(to / name, json.dumps(dict(content), indent=1, ensure_ascii=False) + "\n")
    return number + 1


def was_given(folder: Path, number: int) -> tuple[dict[str, str], dict[str, str]] | None:
    """Labels and stamps of a round that was stopped; None where it was stopped before they were written."""
    try:
        return labels_of_round(folder, number), stamps_of_round(folder, number)
    except InputError:
        return None


def labels_of_round(folder: Path, number: int) -> dict[str, str]:
    return _read(round_folder(folder, number) / LABELS)


def stamps_of_round(folder: Path, number: int) -> dict[str, str]:
    return _read(round_folder(folder, number) / STAMPS)


def _read(path: Path) -> dict[str, str]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); run holotype discover with another --out."
        ) from error
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise InputError(f"{path} is not that of a round; run holotype discover with another --out.")
    return content


def share_round(folder: Path, number: int) -> None:
    """Let the run folder have the model and the features of a round: as hard links, or else as copies."""
    for name in SHARED:
        source, target = round_folder(folder, number) / name, folder / name
        if source.is_file() and not (target.is_file() and os.path.samefile(source, target)):
            _link(source, target)


def _link(source: Path, target: Path) -> None:
    beside = target.with_name(f".{target.name}.link")
    try:
        beside.unlink(missing_ok=True)
        os.link(source, beside)
    except OSError:  # another disk, or one without hard links

        def copy(part: Path) -> None:
            shutil.copyfile(source, part)

        write_beside(target, copy)
    else:
        os.replace(beside, target)


# -- what is known before a round ---------------------------------------------------------------------------


def stamp_images(table: Table) -> dict[str, str]:
    """Size and time of every image file, by path from the root."""
    paths = [str(path) for path in table.path]
    return dict(zip(relative(paths, table.root), stamps(paths), strict=True))


def changed_images(folder: Path, number: int, now: Mapping[str, str]) -> int:
    """How many images were replaced since a round was begun. now: of stamp_images."""
    before = stamps_of_round(folder, number)
    return sum(before.get(path) != stamp for path, stamp in now.items())


def take_edits(folder: Path, file: Path) -> None:
    """Add a file of edits to the log; edits of another run are refused."""
    edits = read_edits(file)
    number = last_round(folder)
    if not number:
        raise InputError(
            f"{folder} holds no discovery that {file} could correct; run holotype discover without --edits first."
        )
    new = append_edits(folder, at_home(edits, Discovery.load(round_folder(folder, number))))
    log.info(f"{file}: {len(edits):,} edits, {len(new):,} of them new.")


def confirmed_labels(folder: Path) -> dict[str, str]:
    """Labels that edits of all rounds so far have confirmed, by path from the root; later ones win."""
    log_of_edits = read_log(folder)
    labels: dict[str, str] = {}
    for number in finished_rounds(folder):
        found = Discovery.load(round_folder(folder, number))
        own = [edit for edit in log_of_edits if edit.run_id == found.run_id]
        confirmed = apply_edits(found, own).confirmed if own else {}
        labels |= dict(zip(relative(list(confirmed), found.facts.root), confirmed.values(), strict=True))
    return labels


def corrected(folder: Path) -> tuple[Discovery, list[str]]:
    """What the last round found with its edits, and a sentence for each edit that could not be applied."""
    found = Discovery.load(round_folder(folder, last_round(folder)))
    edits = read_log(folder)
    if not edits:
        return found, []
    applied = apply_edits(found, edits)
    return applied.discovery, applied.problems


def with_labels(table: Table, labels: Mapping[str, str]) -> Table:
    """The table with more labels, by path from the root; classes that they name for the first time are known now."""
    if not labels:
        return table
    paths = relative([str(path) for path in table.path], table.root)
    label = np.array([labels.get(p, own) for p, own in zip(paths, table.label, strict=True)], dtype=object)
    new = sorted(set(labels.values()) - set(table.known) - {""})
    present = set(label)
    known = tuple(name for name in (*table.known, *new) if name in present)
    return dataclasses.replace(table, label=label, known=known)
