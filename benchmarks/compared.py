"""A method's rows in the comparison of all methods: what it scored, and p beside the published one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from progress import ends_of, printed_on, progress_of
from study_table import name_of

from holotype.runs.published import PublishedProgress, published_progress
from holotype.runs.records import Records
from holotype.runs.study import read_study
from holotype.runs.sweep import select
from holotype.runs.tables import Row, make_row

COMPARISON = ("peers", "peers-cifar")
"""The studies that run every method on one engine, a data set each."""
APART = 0.3
"""Where p differs by more than this from the published one, the card says why."""


@dataclass(frozen=True)
class Compared:
    """A row of the comparison on one data set."""

    name: str
    """Of the row: a method may have one for each of its presets."""
    row: Row
    p: float | None
    printed: PublishedProgress | None

    @property
    def apart(self) -> bool:
        return self.p is not None and self.printed is not None and abs(self.p - self.printed.p) > APART


def compared(method: str, top: Path, results: Records) -> Iterator[Compared]:
    """In the order of the studies, as far as they were run. top: the folder that holds experiments/."""
    records = list(results.by_key.values())
    for study_name in COMPARISON:
        path = top / "experiments" / f"{study_name}.yaml"
        if not path.exists():
            continue
        study = read_study(path)
        for one in study.rows.values():
            for dataset in map(name_of, one.datasets if one.method == method else ()):
                if made := select(study, one, dataset, records):
                    row = make_row(made, one.name)
                    p = progress_of(row, ends_of(study, dataset, records))
                    yield Compared(one.name, row, p, published_progress(method, printed_on(dataset)))
