"""What a sweep runs: the rows of a study as experiments, and the records that are theirs.

A study selects its records by what its rows resolve to, not by names: one that several studies ask for exists once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holotype.data.datasets.registry import check_dataset
from holotype.data.load import collection_name
from holotype.errors import InputError
from holotype.runs.experiment import Experiment
from holotype.runs.identity import fits, outline
from holotype.runs.record import Record
from holotype.runs.settings import resolve
from holotype.runs.study import ELSEWHERE, Study, StudyRow, pick_rows
from holotype.runs.views import without_unusable_cache
from holotype.utils.text import suggest


@dataclass(frozen=True)
class Change:
    """A setting on top of what a study says."""

    setting: str
    value: Any
    where: str = ""
    """A row, a METHOD or a METHOD@PRESET; "" for all rows."""

    def __str__(self) -> str:
        return f"{self.where}{':' if self.where else ''}{self.setting}={self.value}"


@dataclass(frozen=True)
class Ask:
    """Which part of a study is run, and how."""

    rows: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    changes: Sequence[Change] = ()
    cache_views: str | None = None
    root: str | None = None
    progress: bool = True


def flags_study(methods: Sequence[str], datasets: Sequence[str], seeds: Sequence[int]) -> Study:
    """Methods (each with its preset, or not, as in rpc@reading) on data sets, as a study without a file."""
    rows = {}
    for word in methods:
        method, _, preset = word.partition("@")
        rows[word] = StudyRow(word, method, preset or "default", "", {}, tuple(datasets), tuple(seeds))
    own: dict[str, tuple[str, ...]] = dict.fromkeys(rows, ())
    return Study(Path("bench"), "", "off", None, rows, None, own)


def chosen_rows(study: Study, ask: Ask) -> list[StudyRow]:
    """The rows that are asked for, with the seeds that are asked for."""
    rows = list(study.rows.values()) if ask.rows is None else pick_rows(study, ask.rows)
    if not rows:
        raise InputError(f"--rows names no row; the rows of {study.name} are {', '.join(study.rows)}.")
    if ask.seeds is None:
        return rows
    seeds = tuple(dict.fromkeys(ask.seeds))  # one that stands twice is no second run
    if not seeds:
        raise InputError("The list of seeds is empty; give whole numbers, or leave it out.")
    return [replace(row, seeds=seeds) for row in rows]


def experiments(study: Study, ask: Ask, *, label: bool = True) -> list[Experiment]:
    """Every row on each of its data sets with each of its seeds, settings checked.

    label: whether the row's name is to stand in tables.
    """
    rows = [row for row in chosen_rows(study, ask) if can_run(row, study, ask)]
    changes = changes_by_row(ask.changes, rows, study if label else None)
    made = []
    for dataset in dict.fromkeys(dataset for row in rows for dataset in row.datasets):
        for row in rows:
            if dataset in row.datasets:
                for seed in row.seeds:
                    one = resolve_row(study, replace(row, seeds=(seed,)), dataset, ask, changes[row.name])
                    made.append(replace(one, label=row.name if label else None))
    return made


def can_run(row: StudyRow, study: Study, ask: Ask) -> bool:
    """A row that names its records belongs to another version; it is passed over, and refused if it was asked for."""
    if row.record is not None and ask.rows is not None:
        at = f" (it belongs to commit {study.commit})" if study.commit else ""
        raise InputError(
            f"Row {row.name} of {study.file} cannot be run by this version{at}: its settings or its revision are gone; "
            "its records are kept."
        )
    return row.record is None


def resolve_row(
    study: Study,
    row: StudyRow,
    dataset: str,
    ask: Ask | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Experiment:
    """A row on one data set, with its first seed."""
    ask = ask or Ask()
    overrides = {**row.settings, **(changes or {}), "cache_views": ask.cache_views or study.cache_views}
    overrides |= {"seed": row.seeds[0]} | ({} if ask.progress else {"progress": False})
    overrides |= {"root": ask.root} if ask.root else {}
    try:
        check_dataset(dataset)
        return without_unusable_cache(resolve(row.method, dataset, row.preset, overrides))
    except InputError as error:
        if not study.question:  # made of flags: there is no row to name
            raise
        past = (
            f" The study belongs to commit {study.commit}: check that out to run it." if study.commit else ""
        )
        raise InputError(f"Row {row.name} of {study.file}: {error}{past}") from error


def changes_by_row(
    changes: Sequence[Change], rows: Sequence[StudyRow], study: Study | None
) -> dict[str, dict[str, Any]]:
    """The changes that concern each row; later ones win."""
    found: dict[str, dict[str, Any]] = {row.name: {} for row in rows}
    names = list(study.rows) if study else []
    for change in changes:
        if change.setting in ELSEWHERE:
            raise InputError(f"--set {change} is not possible; holotype bench --help lists the flag for it.")
        concerned = [row for row in rows if _concerns(change.where, row, names)]
        near = suggest(change.where, [word for row in rows for word in (row.name, row.method)])
        if not concerned and study:
            raise InputError(
                f"--set {change} names {change.where!r}{near}, which is neither a row that is run nor the method of "
                f"one; the rows are {', '.join(row.name for row in rows)}."
            )
        if not concerned:
            raise InputError(
                f"--set {change} names the method {change.where!r}{near}, which is not among --methods."
            )
        for row in concerned:
            found[row.name][change.setting] = change.value
    return found


def _concerns(where: str, row: StudyRow, names: Sequence[str]) -> bool:
    """Where a row is called like a method, its name means the row alone."""
    if where in names:
        return where == row.name
    return where in ("", row.method, f"{row.method}@{row.preset}")


# -- records --------------------------------------------------------------------------------------------


def select(
    study: Study,
    row: StudyRow,
    dataset: str,
    records: Iterable[Record],
    ask: Ask | None = None,
    changes: Mapping[str, Any] | None = None,
) -> list[Record]:
    """The records of a row on one data set (as records call it), by seed; conflicting ones are refused."""
    if row.record is not None:
        found = [r for r in records if r.identity.hash == row.record and r.identity.data["name"] == dataset]
    else:
        named = next(name for name in row.datasets if dataset in (name, collection_name(name)))
        told = outline(resolve_row(study, row, named, ask, changes))
        found = [record for record in records if fits(record.identity, told)]
    found = sorted(
        (r for r in found if r.identity.seed in row.seeds), key=lambda record: record.identity.seed
    )
    if len({record.identity.hash for record in found}) > 1:
        one, other = found[0], next(r for r in found if r.identity.hash != found[0].identity.hash)
        raise InputError(
            f"The row {row.name} of {study.name} has records of two kinds, {one.identity.name} and "
            f"{other.identity.name}, which differ in {difference(one, other)}; move those of one kind away."
        )
    return found


def difference(one: Record, other: Record) -> str:
    """The first part of two identities that is not the same."""
    mine, theirs = one.identity.parts, other.identity.parts
    return next(key for key in (mine | theirs) if key != "seed" and mine.get(key) != theirs.get(key))
