"""The card of a method as Markdown, for docs/methods/NAME.md, and the table of all methods, for docs/methods.md.

What it computes, its settings, presets and differences are read from the method (runs/method_info.py), what was
measured from experiments/results. None of that is written by hand. Why p differs from the published one is: it stands
below the block, under the heading that `results_part` links to. Published scores are in `holotype methods NAME`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from holotype.config.parse import value_text
from holotype.methods import METHODS
from holotype.runs.method_info import (
    MethodInfo,
    method_info,
    recipe_title,
    stage_line,
    stage_names,
)
from holotype.runs.record import Records
from holotype.runs.study import read_study, select_records
from holotype.runs.tables import (
    FLOOR,
    FOOTNOTE_MARK,
    SCORE_COLUMNS,
    PublishedProgress,
    Row,
    make_row,
    mean_and_std,
    published_progress,
)
from study_tables import (
    commits_of,
    ends_of,
    name_of,
    own_cell,
    printed_on,
    progress_of,
    published_cell,
    seeds,
    union,
)

STUDIES = ("peers", "peers-cifar")
"""Whose rows a card shows: the comparison of all methods, for which there is p."""
APART = 0.3
"""Where p differs by more than this from the published one, the card says why."""
READING = "../studies/reading.md"
"""What is true of the tables of every card stands there once."""
UNLAWFUL = r"\* Cannot be right as printed, or rests on such a score."


def methods_table() -> str:
    """All methods, a line each, with links to their cards."""
    head = ["Method", "Year", "What it does", "Stages"]
    body = []
    for name in METHODS:
        found = method_info(name)
        card = found.card
        assert card is not None  # tests/methods/test_find_method.py
        told = [f"[`{name}`](methods/{name}.md)", str(card.year), card.line]
        body.append([*told, stage_names(found)])
    return words(head, body)


def card_page(name: str, top: Path, results: Records) -> str:
    """All that is known of one method. top: the folder that holds experiments/."""
    found = method_info(name)
    parts = [*head(found), *works(name), *computes(found), *settings_part(found), *differs(found)]
    parts += with_note(["## Results", *results_part(name, top, results)])
    return "\n\n".join(parts)


def words(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown of cells that may hold anything."""
    rule = ["---"] * len(head)
    every = (head, rule, *([cell.replace("|", r"\|") for cell in row] for row in rows))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in every)


# -- what the method says of itself -------------------------------------------------------------------


def head(found: MethodInfo) -> Iterator[str]:
    if found.card:
        yield found.card.line
        yield f"{found.card.paper}."
    if found.stages:
        yield "\n".join(f"- Stage {stage_line(stage, found.epochs)}" for stage in found.stages)


def works(name: str) -> Iterator[str]:
    yield f"![Diagram of {name}: images, features, heads, losses]({name}.svg)"


def computes(found: MethodInfo) -> Iterator[str]:
    if found.computes:
        yield "## What it computes"
        yield f"```text\n{found.computes}\n```"


@cache
def settings_index(name: str) -> set[tuple[str, str, str]]:
    return {(row.key, row.value, row.help) for row in method_info(name).settings}


def settings_part(found: MethodInfo) -> Iterator[str]:
    """Defaults with the first clause of their help, then what data sets and presets change."""
    yield "## Settings"
    shared: dict[str, list[str]] = {}
    rows = []
    for row in found.settings:
        first = next(name for name in METHODS if (row.key, row.value, row.help) in settings_index(name))
        key = f"`{row.key.removeprefix('method.')}`"
        if first == found.name:
            rows.append([key, f"`{row.value}`", row.help.partition("; ")[0].rstrip(".")])
        else:
            shared.setdefault(first, []).append(key)
    if rows:
        yield words(["`--method.`", "Default", "Meaning"], rows)
    for first, keys in shared.items():
        yield f"As [{first}]({first}.md#settings): {', '.join(keys)}."
    if found.recipes:
        yield changes("Data set", {recipe_title(name): own for name, own in found.recipes.items()})
    usual = {row.key: row.value for row in found.settings}
    changed = {
        name: {key: value for key, value in own.items() if usual.get(key) != value_text(value)}
        for name, own in found.presets.items()
    }
    if named := {f"`{name}`": own for name, own in changed.items() if own}:
        yield changes("Preset", named)


def changes(title: str, values: Mapping[str, Mapping[str, Any]]) -> str:
    """Names that change the same stand together."""
    groups: dict[str, list[str]] = {}
    for name, own in values.items():
        told = ", ".join(f"`{key.removeprefix('method.')}={value_text(value)}`" for key, value in own.items())
        groups.setdefault(told, []).append(name)
    return words([title, "Settings"], [[", ".join(names), told] for told, names in groups.items()])


def differs(found: MethodInfo) -> Iterator[str]:
    yield "## What differs from the publication"
    points = found.card.differs if found.card else ()
    if points:
        yield "\n".join(f"- {point}" for point in points)
    elif found.differs:
        yield f"```text\n{found.differs}\n```"
    else:
        yield "Nothing that we know of."


# -- what was measured --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """A row of a study on one data set."""

    name: str
    row: Row
    p: float | None
    printed: PublishedProgress | None

    @property
    def apart(self) -> bool:
        return self.p is not None and self.printed is not None and abs(self.p - self.printed.p) > APART


def results_of(method: str, top: Path, results: Records) -> Iterator[Result]:
    """Every row of STUDIES with this method, as far as it was run. top: the folder that holds experiments/."""
    records = list(results.by_key.values())
    for path in (top / "experiments" / f"{name}.yaml" for name in STUDIES):
        study = read_study(path) if path.exists() else None
        for one in study.rows.values() if study else ():
            for dataset in map(name_of, one.datasets if one.method == method else ()):
                if study and (made := select_records(study, one, dataset, records)):
                    row, ends = make_row(made, one.name), {FLOOR, FOOTNOTE_MARK} <= set(study.rows)
                    p = progress_of(row, ends_of(study, dataset, records)) if ends else None
                    printed = published_progress(method, printed_on(dataset)) if ends else None
                    yield Result(one.name, row, p, printed)


def results_part(name: str, top: Path, results: Records) -> Iterator[str]:
    rows = list(results_of(name, top, results))
    if not rows:
        yield "No record of its runs is in `experiments/results`."
        return
    yield "All / Old / New, and p:"
    yield "\n".join(map(result_line, rows))
    backbones = ", ".join(union([one.row.facts["backbone"]] for one in rows))
    told = [
        f"[How to read it]({READING}). Seeds {', '.join(union([seeds(one.row.seeds)] for one in rows))}; "
        f"backbone {backbones}; commits {commits_of(one.row for one in rows)}; "
        f"{', '.join(union(one.row.hardware for one in rows))}. Commands: [results](../results.md#all-methods)."
    ]
    if any(one.apart for one in rows):
        told.append(f"Bold: more than {APART} from the published p; [why](#why-p-differs).")
    yield " ".join(told)


def result_line(one: Result) -> str:
    facts, p = one.row.facts, own_cell(one.p)
    scores = " / ".join(mean_and_std(one.row.scores[score]) for score in SCORE_COLUMNS)
    told = f"{one.name} on {facts['dataset']}, {facts['mode']}: {scores}"
    marked = f"**{p}**" if one.apart else p
    return f"- {told}; p {marked}, published {published_cell(one.printed)}" if one.printed else f"- {told}"


def with_note(parts: list[str]) -> list[str]:
    """What a star means, below the tables that have one."""
    return [*parts, UNLAWFUL] if any(r"\*" in part for part in parts) else parts
