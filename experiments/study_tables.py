"""The table of a study: its rows over seeds, and what each gains on the row that they are compared with.

Gains are differences between runs of the same seed, which share the order of images and the first weights: their
spread tells more than that of the two means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from harness import interval_of, table
from holotype.data.datasets.registry import BENCHMARKS, EMBEDDED
from holotype.data.load import collection_name
from holotype.errors import InputError
from holotype.runs.experiment import RECIPE_PARENT
from holotype.runs.record import Record, Records
from holotype.runs.study import Study, StudyRow, read_study, select_records, select_rows_by_name
from holotype.runs.tables import (
    FLOOR,
    FOOTNOTE_MARK,
    SCORE_COLUMNS,
    PublishedProgress,
    Row,
    find_published,
    make_row,
    mean_and_std,
    progress_to_simgcd,
    published_cells,
    published_progress,
)

KINDS = ("study", "comparison", "progress", "ablation", "seeds", "each")
PLAIN = ("study", "each", "progress")
"""Kinds without columns of published scores."""
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


HEAD = ("p", "p (published)")


def ends_of(study: Study, dataset: str, records: Sequence[Record]) -> dict[str, Row]:
    """The runs of k-means and of SimGCD on a data set, with all seeds of their rows; as far as they were made."""
    found = {}
    for name in (FLOOR, FOOTNOTE_MARK):
        if name not in study.rows:
            raise InputError(
                f"A table of kind=progress needs the rows {FLOOR} and {FOOTNOTE_MARK}; {study.name} has "
                f"{', '.join(study.rows)}."
            )
        row = study.rows[name]
        names = [collection_name(Path(one)) for one in row.datasets]
        made = select_records(study, row, dataset, records) if dataset in names else []
        if made:
            found[name] = make_row(made, name)
    return found


def printed_on(dataset: str) -> str:
    """The data set whose printed scores stand beside those of `dataset`: of a part, those of the whole."""
    return RECIPE_PARENT.get(dataset, dataset)


def progress_cells(row: Row, ends: dict[str, Row]) -> list[str]:
    """Ours and published; "" where there is none."""
    printed = published_progress(row.facts["method"], printed_on(row.facts["dataset"]))
    return [own_cell(progress_of(row, ends)), published_cell(printed)]


def progress_of(row: Row, ends: dict[str, Row]) -> float | None:
    """Of mean scores; None where an end is missing, has another backbone, or SimGCD is not above k-means."""
    rows = [row, *(ends[name] for name in (FLOOR, FOOTNOTE_MARK) if name in ends)]
    alls = [one.scores["all"] for one in rows]
    if len(rows) < 3 or len({one.facts["backbone"] for one in rows}) > 1 or None in alls:
        return None
    return progress_to_simgcd(*(mean(values) for values in alls if values is not None))


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
        told.append(f"Published p is that of {printed_on(dataset)}, of which {dataset} is a part.")
    methods = [line.found.facts["method"] for line in facts.lines]
    printed = [published_progress(method, printed_on(dataset)) for method in methods]
    if not all(one is None or one.lawful for one in printed):
        told.append(rf"\* [cannot be right as printed]({facts.choice.reading}#published-scores).")
    if absent := [name for name in (FLOOR, FOOTNOTE_MARK) if name not in facts.ends]:
        told.append(f"Without p of ours: no results of {' and '.join(absent)} here.")
    return told


def footer(facts: Page) -> list[str]:
    """One paragraph; what is true of every table stands once, on the page that it links to."""
    if not facts.lines:
        return [f"Not run: {'; '.join(not_run(facts))}."]
    notes, name, reading = [], facts.study.reference, facts.choice.reading
    if facts.choice.kind == "each":
        notes.append(f"One number for each seed, in [their order]({reading}).")
    elif facts.reference:
        notes.append(f"Δ: minus {name}, [paired by seed]({reading}).")
    elif name and facts.choice.kind != "progress":
        notes.append(f"Without differences: the reference {name} has no results here.")
    notes += published_notes(facts)
    if facts.choice.kind == "progress":
        notes += progress_notes(facts)
    if absent := not_run(facts):
        notes.append(f"Not run: {'; '.join(absent)}.")
    return [" ".join(notes or [how_to_read(reading)])]


def how_to_read(reading: str) -> str:
    return f"[How to read this table]({reading})."


def published_notes(facts: Page) -> list[str]:
    """Whose the published scores are, which of them cannot be right, and why ours do not compare with them."""
    printed = [line.found.published for line in facts.lines if line.found.published]
    if facts.choice.kind in PLAIN or not printed:
        return []
    told = [f"[Published scores]({facts.choice.reading}#published-scores) are of another backbone."]
    if not all(published.lawful for published in printed):
        told.append(r"\* cannot be right as printed.")
    return told


def not_run(facts: Page) -> list[str]:
    """Rows without results, and rows that lack seeds; those that lack the same stand together."""
    absent: list[str] = []
    lacking: dict[tuple[str, ...], list[str]] = {}
    for row in facts.rows:
        done = {seed for line in facts.lines if line.row.name == row.name for seed in line.found.seeds}
        missing = tuple(str(seed) for seed in row.seeds if seed not in done)
        if not done:
            absent.append(row.name)
        elif missing:
            lacking.setdefault(missing, []).append(row.name)
    told = (
        f"{', '.join(names)}, seed{'s' * (len(missing) > 1)} {', '.join(missing)}"
        for missing, names in lacking.items()
    )
    return [*told, *absent]


def provenance(facts: Page, dataset: str) -> str:
    """How the runs were made, where that is the same for all of them, and how to make them again."""
    runs = [line.found for line in facts.lines]
    how = []
    if runs:
        same, apart = runs[0].facts, differing(facts.lines)
        blocks = f"{same['train_blocks']} trained block{'' if same['train_blocks'] == 1 else 's'}"
        words = {"mode": f"{same['mode']} mode", "epochs": f"{same['epochs']} epochs"}
        words |= {"backbone": f"backbone {same['backbone']}", "train_blocks": blocks}
        how += [", ".join([f"Data set {dataset}", *(words[key] for key in FACTS if key not in apart)])]
        how += [f"seeds {seeds(runs[0].seeds)}"] if same_seeds(facts) else []
        how += [f"commit {commits_of((*runs, *facts.reference))}"]
        how += [", ".join(union(run.hardware for run in (*runs, *facts.reference)))]
        how = ["; ".join(how) + "."]
    return " ".join([*how, *runs_again(facts)])


def runs_again(facts: Page) -> list[str]:
    """The command that makes the runs again, as far as this version can."""
    past = [row.name for row in facts.rows if row.record]
    told = [f"Runs: `{command(facts)}`."] if len(past) < len(facts.rows) else []
    if past:
        at = f" of commit {facts.study.commit}" if facts.study.commit else ""
        told.append(f"Records of an earlier version{at}: {', '.join(past)}.")
    return told


def command(facts: Page) -> str:
    words = ["holotype bench --study", f"experiments/{facts.study.name}.yaml"]
    words += (
        [f"--rows {','.join(row.name for row in facts.rows if not row.record)}"] if facts.choice.rows else []
    )
    if facts.choice.seeds:
        words.append(f"--seeds {','.join(map(str, facts.choice.seeds[0]))}")
    datasets = {dataset for row in facts.rows for dataset in row.datasets}
    if any(dataset in BENCHMARKS and dataset not in EMBEDDED for dataset in datasets):
        words.append("--root DIR")
    if any(line.found.facts["backbone"] != "embedded" for line in facts.lines):
        words.append("--set backbone.name=BACKBONE")
    return " ".join(words)


def union(sets: Iterable[Iterable[str]]) -> list[str]:
    return sorted({one for each in sets for one in each})


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
    return list(study.rows.values()) if wanted is None else select_rows_by_name(study, wanted)


def name_of(dataset: str) -> str:
    """As records call a data set, which a study may give as a path."""
    return collection_name(Path(dataset))


def page(study: Study, choice: Choice, rows: list[StudyRow], dataset: str, records: list[Record]) -> str:
    lines = []
    for row in rows:
        if found := select_records(study, row, dataset, records):
            one = make_row(found, row.name)
            lines.append(Line(row, replace(one, published=printed(choice.kind, row, dataset))))
    reference = [] if choice.kind in ("each", "progress") else reference_of(study, choice, dataset, records)
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
    found = select_records(study, row, dataset, records)
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
        found = select_records(study, replace(row, seeds=group), dataset, records)
        reference = reference_of(study, chosen, dataset, records)
        if not found or not reference:
            raise InputError(
                f"{row.name} of {study.name} or its reference has no records of seeds {seeds(group)}; leave them out."
            )
        one, other = make_row(found, row.name), reference[0]
        runs += [one, other]
        gains = [paired(one, other, score) for score in SCORE_COLUMNS]
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


def same_seeds(facts: Page) -> bool:
    """Whether the seeds stand once, above the table."""
    return len({line.found.seeds for line in facts.lines}) == 1


def asks_something(facts: Page) -> bool:
    return any(what_changes(line.row, facts.study) for line in facts.lines)


def body(facts: Page) -> str:
    columns = differing(facts.lines)
    head = ["Row", *(["What it changes"] if asks_something(facts) else [])]
    head += [FACTS.get(key, "Config") for key in columns]
    head += [*([] if same_seeds(facts) else ["Seeds (n)"]), "All", "Old", "New"]
    head += ["Δ All", "Δ Old", "Δ New"] if facts.reference else []
    head += (
        [f"{name} (published)" for name in ("All", "Old", "New")] if facts.choice.kind not in PLAIN else []
    )
    head += HEAD if facts.choice.kind == "progress" else ()
    return table(head, [cells(line, facts, columns) for line in facts.lines])


def cells(line: Line, facts: Page, columns: Sequence[str]) -> list[str]:
    row, is_reference = line.found, line.row.name == facts.study.reference
    told = [f"{line.row.name} (reference)" if is_reference and facts.reference else line.row.name]
    told += [what_changes(line.row, facts.study)] if asks_something(facts) else []
    told += [str(row.facts[key])[:8] if key == "config_hash" else str(row.facts[key]) for key in columns]
    spell = each if facts.choice.kind == "each" else mean_and_std
    told += [] if same_seeds(facts) else [seeds(row.seeds)]
    told += [*(spell(row.scores[score]) for score in SCORE_COLUMNS)]
    if facts.reference:
        other = None if is_reference else counterpart(row, facts.reference)
        told += ["" if other is None else difference(paired(row, other, score)) for score in SCORE_COLUMNS]
    if facts.choice.kind not in PLAIN:
        told += published_cells(row.published)
    if facts.choice.kind == "progress":
        told += progress_cells(row, facts.ends)
    return [cell.replace("|", r"\|") for cell in told]


def each(values: Sequence[float] | None) -> str:
    """`60.5, 55.2, 56.3`: every seed's own."""
    return ", ".join(f"{value:.1f}" for value in values) if values else "none"


def what_changes(row: StudyRow, study: Study) -> str:
    """In the study's own words, else by its settings, else by its method."""
    own = [item[0] for item in row.settings.items() if item not in study.settings.items()]
    if row.asks:
        return row.asks
    if own:
        return ", ".join(f"`{key} = {spelled(row.settings[key])}`" for key in own)
    if row.preset != "default":
        return f"{row.method}, preset `{row.preset}`"
    return "" if row.name == row.method else row.method


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
    signs = f" ({sum(value * centre > 0 for value in values)}/{len(values)})" if len(values) > 1 else ""
    return f"{centre:+.1f}{spread}{signs}"
