"""p of the rows of a study: how far each is on the way from k-means to SimGCD, on the same features and images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from study_page import Page

from holotype.data.sources import collection_name
from holotype.errors import InputError
from holotype.runs.published import FLOOR, MARK, PublishedProgress, progress, published_progress
from holotype.runs.recipes import PART_OF
from holotype.runs.record import Record
from holotype.runs.study import Study
from holotype.runs.sweep import select
from holotype.runs.tables import Row, make_row

HEAD = ("p", "p (published)")


def ends_of(study: Study, dataset: str, records: Sequence[Record]) -> dict[str, Row]:
    """The runs of k-means and of SimGCD on a data set, with all seeds of their rows; as far as they were made."""
    found = {}
    for name in (FLOOR, MARK):
        if name not in study.rows:
            raise InputError(
                f"A table of kind=progress needs the rows {FLOOR} and {MARK}; {study.name} has {', '.join(study.rows)}."
            )
        row = study.rows[name]
        names = [collection_name(Path(one)) for one in row.datasets]
        made = select(study, row, dataset, records) if dataset in names else []
        if made:
            found[name] = make_row(made, name)
    return found


def printed_on(dataset: str) -> str:
    """The data set whose printed scores stand beside those of `dataset`: of a part, those of the whole."""
    return PART_OF.get(dataset, dataset)


def progress_cells(row: Row, ends: dict[str, Row]) -> list[str]:
    """Ours and published; "" where there is none."""
    printed = published_progress(row.facts["method"], printed_on(row.facts["dataset"]))
    return [own_cell(progress_of(row, ends)), published_cell(printed)]


def progress_of(row: Row, ends: dict[str, Row]) -> float | None:
    """Of mean scores; None where an end is missing, has another backbone, or SimGCD is not above k-means."""
    rows = [row, *(ends[name] for name in (FLOOR, MARK) if name in ends)]
    alls = [one.scores["all"] for one in rows]
    if len(rows) < 3 or len({one.facts["backbone"] for one in rows}) > 1 or None in alls:
        return None
    return progress(*(mean(values) for values in alls if values is not None))


def own_cell(p: float | None) -> str:
    return "" if p is None else f"{p:.2f}"


def published_cell(found: PublishedProgress | None) -> str:
    """With a star where a row that it is made of cannot be right."""
    return "" if found is None else f"{found.p:.2f}" + ("" if found.lawful else r"\*")


def progress_notes(facts: Page) -> list[str]:
    """How p is read, and why there is none."""
    told = [f"[p]({facts.choice.reading}#p) is 0 at k-means and 1 at SimGCD."]
    dataset = facts.lines[0].found.facts["dataset"]
    if printed_on(dataset) != dataset:
        told.append(
            f"Published scores and p are those of {printed_on(dataset)}, of which {dataset} is a part."
        )
    if absent := [name for name in (FLOOR, MARK) if name not in facts.ends]:
        told.append(f"Without p of ours: no results of {' and '.join(absent)} here.")
    return told
