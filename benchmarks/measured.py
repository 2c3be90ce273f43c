"""The records that a method's card shows: runs of its presets as they stand, from whichever studies ask for them.

Runs with other settings of the method belong to the studies that tried them, and are in docs/studies/, but for those
of the comparison of all methods, which stand on every card. A setting that a preset leaves to a rule may be given as a
number, if it is the one that the rule gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from compared import COMPARISON
from study_notes import command
from study_page import Choice, Line, Page
from study_table import name_of

from holotype.methods import find_method
from holotype.methods.rpc import debiasing
from holotype.runs.casting import as_text
from holotype.runs.experiment import Experiment
from holotype.runs.identity import NO_PART
from holotype.runs.record import Record
from holotype.runs.records import Records
from holotype.runs.settings import resolve, settings
from holotype.runs.study import Study, StudyRow, read_study
from holotype.runs.sweep import resolve_row, select
from holotype.runs.tables import Row, make_row

SHOWN = ("epochs", "name", "arch", "train_blocks")
"""Settings that the table shows in columns."""
ROUNDED = 0.01
"""How far a number that stands for a rule may be off, as a share of it: studies round."""


@dataclass(frozen=True)
class Asked:
    """A row of a study that asks for runs of a preset on one data set."""

    study: Study
    row: StudyRow
    preset: str
    other: tuple[str, ...]
    """Settings that are not those of the preset, beside what tables have columns for; of the method, numbers in place
    of rules, and what a row of the comparison changes."""
    records: list[Record]


@dataclass(frozen=True)
class Measured:
    """Runs that differ in nothing but the seed."""

    row: Row
    preset: str
    other: tuple[str, ...]
    parallel: tuple[int, ...]
    """How many runs trained at once, where that differs each of the numbers."""
    asked: tuple[Asked, ...]
    """Rows that between them ask for all of the seeds, as few as will do."""


def measured(name: str, top: Path, results: Records) -> list[Measured]:
    """In the order of data set, backbone, preset and length. top: the folder that holds experiments/."""
    groups: dict[str, list[Asked]] = {}
    for one in ask_for(name, top, results):
        groups.setdefault(one.records[0].identity.hash, []).append(one)
    found = []
    for asked in groups.values():
        records = {record.key: record for one in asked for record in one.records}
        parallel = tuple(sorted({record.made.parallel for record in records.values()}))
        one = asked[0]
        row = make_row(list(records.values()))
        found.append(Measured(row, one.preset, one.other, parallel, tuple(fewest(asked))))
    presets = list(find_method(name).presets)
    return sorted(found, key=lambda one: (*place(one.row), presets.index(one.preset)))


def fewest(asked: list[Asked]) -> Iterator[Asked]:
    """Rows with the most seeds first, until no seed is missing."""
    missing = {record.key for one in asked for record in one.records}
    while missing:
        best = max(asked, key=lambda one: len(missing & {record.key for record in one.records}))
        missing -= {record.key for record in best.records}
        yield best


def place(row: Row) -> tuple[str, str, int, int, str]:
    told = row.facts
    return told["dataset"], told["backbone"], told["train_blocks"], -told["epochs"], told["mode"]


def ask_for(name: str, top: Path, results: Records) -> Iterator[Asked]:
    records = [one for one in results.by_key.values() if one.identity.method["name"] == name]
    if not records:
        return
    for path in sorted((top / "experiments").glob("*.yaml")):
        study = read_once(path, path.stat().st_mtime_ns)
        for row in study.rows.values():
            if row.method != name or row.record is not None:
                continue
            for dataset in row.datasets:
                found = select(study, row, name_of(dataset), records)
                experiment = resolve_row(study, row, dataset)
                usual = preset_of(experiment, row, dataset, found[0].identity.data["k"]) if found else None
                if found and not usual and study.name in COMPARISON:
                    usual = resolve(row.method, dataset, row.preset)
                if usual:
                    yield Asked(study, row, usual.preset, other_settings(experiment, usual), found)


@cache
def read_once(path: Path, changed: int) -> Study:
    """Each card asks every study. changed: when the file was, since it may be another by now."""
    return read_study(path)


def preset_of(experiment: Experiment, row: StudyRow, dataset: str, k: int) -> Experiment | None:
    """The preset whose settings of the method a row has, whichever way it says so; None of none. k: categories."""
    for preset in dict.fromkeys([row.preset, *find_method(row.method).presets]):
        usual = resolve(row.method, dataset, preset)
        rules = by_rule(usual, k)
        own = {key: value for key, value in differing(experiment, usual).items() if key.startswith("method.")}
        if all(key in rules and close(value, rules[key]) for key, value in own.items()):
            return usual
    return None


def by_rule(usual: Experiment, k: int) -> dict[str, float]:
    """What follows from the number of categories, where the settings leave it open: RPC's debiased loss alone."""
    if usual.method_name != "rpc":
        return {}
    rule = debiasing(usual.method, k)
    found = {"method.debias.adl": rule.adl, "method.debias.threshold": rule.threshold}
    open_ones = {key for key, value, _ in settings(usual) if value is None}
    return {key: value for key, value in found.items() if key in open_ones}


def close(value: Any, rule: float) -> bool:
    return value is not None and math.isclose(value, rule, rel_tol=ROUNDED)


def differing(experiment: Experiment, usual: Experiment) -> dict[str, Any]:
    """The settings that are not the usual ones."""
    pairs = zip(settings(experiment), settings(usual), strict=True)
    return {key: value for (key, value, _), (_, default, _) in pairs if value != default}


def other_settings(experiment: Experiment, usual: Experiment) -> tuple[str, ...]:
    """`train.batch_size = 64`: what decides a result and has no column of its own."""
    told = []
    for key, value in differing(experiment, usual).items():
        group, _, name = key.partition(".")
        if group in ("train", "backbone", "method") and name not in (*NO_PART, *SHOWN):
            told.append(f"{key} = {as_text(value)}")
    return tuple(told)


def commands(found: list[Measured]) -> list[str]:
    """One for each study, with the rows that are shown."""
    told: dict[str, tuple[Study, dict[str, StudyRow], list[Line]]] = {}
    for one in found:
        for asked in one.asked:
            _, rows, lines = told.setdefault(asked.study.name, (asked.study, {}, []))
            rows[asked.row.name] = asked.row
            lines.append(Line(asked.row, one.row))
    return [
        command(Page(study, Choice(name, rows=tuple(rows)), list(rows.values()), lines, []))
        for name, (study, rows, lines) in told.items()
    ]
