"""The table of a study: its rows over seeds, and what each gains on the row that they are compared with.

Gains are differences between runs of the same seed, which share the order of images and the first weights: their
spread tells more than that of the two means.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from progress import HEAD, ends_of, printed_on, progress_cells
from study_notes import footer, how_to_read, provenance
from study_page import FACTS, PLAIN, Choice, Line, Page, commits_of, differing, seeds
from tables import table

from holotype.data.sources import collection_name
from holotype.errors import InputError
from holotype.runs.published import find_published
from holotype.runs.record import Record
from holotype.runs.records import Records
from holotype.runs.study import Study, StudyRow, pick_rows, read_study
from holotype.runs.sweep import select

# the words and stars of the tables of holotype bench, so that published numbers are marked the same way everywhere
from holotype.runs.tables import SCORES, Row, make_row, mean_and_std, published_cells

ABLATION = {
    "rpc": "rpc",
    "no-fusion": "without embedding fusion",
    "no-align": "without L_align",
    "no-new": "without L_discover",
}
"""Rows of a study and of the published ablation that ask the same."""


def study_table(choice: Choice, top: Path, results: Records | None = None) -> str:
    """Markdown; top: the folder that holds experiments/. results: its records, where they were read before."""
    path = top / "experiments" / f"{choice.study}.yaml"
    study = read_study(path)
    rows = choose(study, choice.rows)
    records = list((results or Records(top / "experiments" / "results")).by_key.values())
    if choice.kind == "seeds":
        return seeds_table(study, choice, rows, records)
    if choice.seeds:
        rows = [replace(row, seeds=choice.seeds[0]) for row in rows]
    planned = list(dict.fromkeys(name_of(dataset) for row in rows for dataset in row.datasets))
    if choice.dataset and choice.dataset not in planned:
        raise InputError(
            f"The study {study.name} has no data set {choice.dataset}; a table can show {', '.join(planned)}."
        )
    names = [choice.dataset] if choice.dataset else planned
    blocks = []
    for name in names:
        blocks += [f"**{name}**"] if len(names) > 1 else []
        here = [row for row in rows if name in map(name_of, row.datasets)]
        blocks.append(page(study, choice, here, name, records))
    return "\n\n".join(blocks)


def choose(study: Study, wanted: Sequence[str] | None) -> list[StudyRow]:
    """The rows that are asked for, in the order of the file."""
    return list(study.rows.values()) if wanted is None else pick_rows(study, wanted)


def name_of(dataset: str) -> str:
    """As records call a data set, which a study may give as a path."""
    return collection_name(Path(dataset))


def page(study: Study, choice: Choice, rows: list[StudyRow], dataset: str, records: list[Record]) -> str:
    lines = []
    for row in rows:
        if found := select(study, row, dataset, records):
            one = make_row(found, row.name)
            lines.append(Line(row, replace(one, published=printed(choice.kind, row, dataset))))
    reference = [] if choice.kind == "each" else reference_of(study, choice, dataset, records)
    ends = ends_of(study, dataset, records) if choice.kind == "progress" else {}
    facts = Page(study, choice, rows, lines, reference, ends)
    table_itself = [body(facts)] if lines else []
    above = [provenance(facts, dataset)]
    return "\n\n".join(part for part in (*above, *table_itself, *footer(facts)) if part)


def reference_of(study: Study, choice: Choice, dataset: str, records: list[Record]) -> list[Row]:
    """The reference row's runs, with the seeds that the table shows."""
    row = study.rows[study.reference] if study.reference else None
    if row is None or dataset not in map(name_of, row.datasets):
        return []
    if choice.seeds:
        row = replace(row, seeds=tuple(seed for group in choice.seeds for seed in group))
    found = select(study, row, dataset, records)
    return [make_row(found, row.name)] if found else []


def seeds_table(study: Study, choice: Choice, rows: list[StudyRow], records: list[Record]) -> str:
    """What one row gains on the reference, over several sets of seeds."""
    if len(rows) != 1 or not choice.seeds or study.reference is None:
        raise InputError("A table of kind=seeds needs rows=ROW, seeds=0-1;2-9 and a study with a reference.")
    (row,) = rows
    dataset = choice.dataset or name_of(row.datasets[0])
    lines, runs = [], []
    for group in choice.seeds:
        chosen = replace(choice, seeds=(group,))
        found = select(study, replace(row, seeds=group), dataset, records)
        reference = reference_of(study, chosen, dataset, records)
        if not found or not reference:
            raise InputError(
                f"{row.name} of {study.name} or its reference has no records of seeds {seeds(group)}; leave them out."
            )
        one, other = make_row(found, row.name), reference[0]
        runs += [one, other]
        gains = [paired(one, other, score) for score in SCORES]
        lines.append([f"{seeds(group)}", *(difference(g) for g in gains), *(interval(g) for g in gains)])
    head = [
        f"{row.name} minus {study.reference}, seeds (n)",
        *(f"Δ {name}" for name in ("All", "Old", "New")),
    ]
    head += [f"95 % of Δ {name}" for name in ("All", "Old", "New")]
    made = f"Data set {dataset}; commit {commits_of(runs)}."
    return "\n\n".join([made, table(head, lines), how_to_read(choice.reading)])


def interval(values: Sequence[float]) -> str:
    """`0.6 to 1.8`: of the mean; "" of one value."""
    if len(values) < 2:
        return ""
    low, high = interval_of(values)
    return f"{low:.1f} to {high:.1f}"


def interval_of(values: Sequence[float]) -> tuple[float, float]:
    """Where the mean lies with 95 %, by Student's t; of two values or more."""
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return mean(values) - half, mean(values) + half


def printed(kind: str, row: StudyRow, dataset: str) -> Any:
    """The published scores that stand beside a row."""
    if kind == "progress":
        return find_published(row.method, printed_on(dataset))
    if kind == "comparison":
        return find_published(row.method, dataset)
    if kind == "ablation" and row.name in ABLATION:
        return find_published(ABLATION[row.name], dataset, "ablation")
    return None


# -- the table --------------------------------------------------------------------------------------------


def body(facts: Page) -> str:
    columns = differing(facts.lines)
    head = ["Row", "What it changes", *(FACTS.get(key, "Config") for key in columns), "Seeds (n)"]
    head += ["All", "Old", "New"]
    head += ["Δ All", "Δ Old", "Δ New"] if facts.reference else []
    head += (
        [f"{name} (published)" for name in ("All", "Old", "New")] if facts.choice.kind not in PLAIN else []
    )
    head += HEAD if facts.choice.kind == "progress" else ()
    return table(head, [cells(line, facts, columns) for line in facts.lines])


def cells(line: Line, facts: Page, columns: Sequence[str]) -> list[str]:
    row, is_reference = line.found, line.row.name == facts.study.reference
    told = [f"{line.row.name} (reference)" if is_reference else line.row.name]
    told += [what_changes(line.row, facts.study.own[line.row.name])]
    told += [str(row.facts[key])[:8] if key == "config_hash" else str(row.facts[key]) for key in columns]
    spell = each if facts.choice.kind == "each" else mean_and_std
    told += [seeds(row.seeds), *(spell(row.scores[score]) for score in SCORES)]
    if facts.reference:
        other = None if is_reference else counterpart(row, facts.reference)
        told += ["" if other is None else difference(paired(row, other, score)) for score in SCORES]
    if facts.choice.kind not in PLAIN:
        told += published_cells(row.published)
    if facts.choice.kind == "progress":
        told += progress_cells(row, facts.ends)
    return [cell.replace("|", r"\|") for cell in told]


def each(values: Sequence[float] | None) -> str:
    """`60.5, 55.2, 56.3`: every seed's own."""
    return ", ".join(f"{value:.1f}" for value in values) if values else "none"


def what_changes(row: StudyRow, own: Sequence[str]) -> str:
    """In the study's own words, else by its settings, else by its method."""
    if row.asks:
        return row.asks
    if own:
        return ", ".join(f"`{key} = {spelled(row.settings[key])}`" for key in own)
    return row.method if row.preset == "default" else f"{row.method}, preset `{row.preset}`"


def spelled(value: Any) -> str:
    """As it stands in a study file."""
    return value if isinstance(value, str) else json.dumps(value)


def counterpart(row: Row, reference: Sequence[Row]) -> Row | None:
    """The runs of the reference that were made most like those of a row; None where that is undecided."""

    def likeness(other: Row) -> int:
        return sum(other.facts[key] == row.facts[key] for key in FACTS)

    most = max(map(likeness, reference))
    best = [other for other in reference if likeness(other) == most]
    return best[0] if len(best) == 1 else None


def paired(row: Row, reference: Row, score: str) -> list[float]:
    """Row minus reference in points, for every seed that both have."""
    ours, theirs = row.scores[score], reference.scores[score]
    if ours is None or theirs is None:
        return []
    by_seed = dict(zip(reference.seeds, theirs, strict=True))
    return [value - by_seed[seed] for seed, value in zip(row.seeds, ours, strict=True) if seed in by_seed]


def difference(values: Sequence[float]) -> str:
    """`+1.2 ± 0.6 (5/5)`: mean, deviation, and how many of the seeds have the sign of the mean."""
    if not values:
        return ""
    centre = mean(values)
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{centre:+.1f}{spread} ({sum(value * centre > 0 for value in values)}/{len(values)})"
