"""What a table of a study is made of: which rows, the runs that were found, and the facts that tell them apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from holotype.runs.study import Study, StudyRow
from holotype.runs.tables import Row

KINDS = ("study", "comparison", "progress", "ablation", "seeds", "each")
PLAIN = ("study", "each")
"""Kinds without published scores."""
FACTS = {"mode": "Mode", "epochs": "Epochs", "backbone": "Backbone", "train_blocks": "Blocks"}
"""Facts of a run that become columns where they differ within a table, and stand below it where they do not."""


@dataclass(frozen=True)
class Choice:
    """What a table is to show."""

    study: str
    dataset: str | None = None
    """None: every data set of the study, one table each."""
    rows: tuple[str, ...] | None = None
    kind: str = "study"
    seeds: tuple[tuple[int, ...], ...] = ()
    """Sets of seeds, in place of those of the rows; several of them for kind=seeds alone."""
    reading: str = "docs/studies/reading.md"
    """The page that says how tables are read, as the document with the table links to it."""


@dataclass(frozen=True)
class Line:
    """A row of the study in one way of running it; another mode or length makes a line of its own."""

    row: StudyRow
    found: Row


@dataclass(frozen=True)
class Page:
    """All that a table of one data set is made of."""

    study: Study
    choice: Choice
    rows: list[StudyRow]
    lines: list[Line]
    reference: list[Row]
    """Runs of the reference row; empty where there is none."""
    ends: dict[str, Row] = field(default_factory=dict)
    """For kind=progress, the runs between which it is measured, by the names of their rows."""


def differing(lines: Sequence[Line]) -> list[str]:
    """Facts that the reader needs to tell lines apart or to compare them fairly."""
    columns = [key for key in FACTS if len({line.found.facts[key] for line in lines}) > 1]
    alike = {(line.row.name, *(line.found.facts[key] for key in FACTS)) for line in lines}
    return columns if len(alike) == len(lines) else [*columns, "config_hash"]


def seeds(numbers: Sequence[int]) -> str:
    """`0, 2 (2)`, or `0 to 7 (8)` where none is missing between."""
    ordered = sorted(numbers)
    whole = len(ordered) > 2 and ordered[-1] - ordered[0] + 1 == len(ordered)
    told = f"{ordered[0]} to {ordered[-1]}" if whole else ", ".join(map(str, ordered))
    return f"{told} ({len(ordered)})"


def commits_of(runs: Iterable[Row]) -> str:
    """`28b508aaef29, 5f5c021e122c`: of twelve digits, however many a record has."""
    every = {commit for run in runs for commit in run.commits}
    return ", ".join(sorted({re.sub(r"^([0-9a-f]{12})[0-9a-f]+", r"\1", one) or "unknown" for one in every}))
