"""The card of a method as Markdown, for docs/methods/NAME.md, and the table of all methods, for docs/methods.md.

What it computes, its settings, presets and differences are read from the method (runs/cards.py), what was measured from
experiments/results, what is printed from runs/published.json. None of that is written by hand. Why p differs from the
published one is: it stands below the block, under the heading that `results_part` links to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holotype.methods import METHODS
from holotype.runs.cards import About, about, printed_rows, recipe_title, stage_line, stage_names
from holotype.runs.casting import as_text
from holotype.runs.published import FLOOR, MARK, PublishedProgress, published_progress, read_published
from holotype.runs.records import Records
from holotype.runs.study import read_study
from holotype.runs.sweep import select
from holotype.runs.tables import SCORES, Row, make_row, mean_and_std, published_cells
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

STUDIES = ("cub", "cub-exact", "cifar", "sample", "peers", "peers-cifar")
"""Whose rows a card shows: the claims, and the comparison of all methods, for which there is p."""
APART = 0.3
"""Where p differs by more than this from the published one, the card says why."""
READING = "../studies/reading.md"
"""What is true of the tables of every card stands there once."""
PROGRESS = f"[p]({READING}#p) is 0 at k-means and 1 at SimGCD."
UNLAWFUL = rf"\* [cannot be right as printed]({READING}#published-scores), or rests on what cannot."


def methods_table() -> str:
    """All methods, a line each, with links to their cards."""
    head = ["Method", "Year", "What it does", "Drawing", "Stages", "Token cache", "CUDA graph"]
    body = []
    for name in METHODS:
        found = about(name)
        card = found.card
        assert card is not None  # tests/methods/test_find_method.py
        told = [f"[`{name}`](methods/{name}.md)", str(card.year), card.line]
        drawing = f"[how it works](methods/{name}.md#how-it-works)"
        body.append([*told, drawing, stage_names(found), found.cache, found.capture])
    note = "Token cache, CUDA graph: whether they apply, and in which stage. Table: `python experiments/exhibits.py`."
    return f"{words(head, body)}\n\n{note}"


def card_page(name: str, top: Path, results: Records) -> str:
    """All that is known of one method. top: the folder that holds experiments/."""
    found = about(name)
    parts = [*head(found), *works(name), *computes(found), *settings_part(found), *differs(found)]
    parts += with_note(["## Results", *results_part(name, top, results), "## Published", *published(name)])
    return "\n\n".join([*parts, "This page: `python experiments/exhibits.py`."])


def words(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown of cells that may hold anything."""
    rule = ["---"] * len(head)
    every = (head, rule, *([cell.replace("|", r"\|") for cell in row] for row in rows))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in every)


# -- what the method says of itself -------------------------------------------------------------------


def head(found: About) -> Iterator[str]:
    if found.card:
        yield f"{found.card.paper}."
        yield found.card.line
    if not found.stages:
        yield "It has no stages: features are clustered as they are."
        return
    lines = [f"- {stage_line(stage, found.epochs)}" for stage in found.stages]
    yield f"Stages at the default of {found.epochs} epochs (token cache: {found.cache}; CUDA graph: {found.capture}):"
    yield "\n".join(lines)


def works(name: str) -> Iterator[str]:
    yield "## How it works"
    yield f"![How {name} works: from images to features, heads, losses and categories]({name}.svg)"


def computes(found: About) -> Iterator[str]:
    if found.computes:
        yield "## What it computes"
        yield f"```text\n{found.computes}\n```"


def settings_part(found: About) -> Iterator[str]:
    """Defaults with their help, then what data sets and presets change."""
    yield "## Settings"
    rows = [[f"`{row.key}`", f"`{row.value}`", row.help] for row in found.settings]
    yield words(["Setting", "Default", "What it is"], rows)
    yield f"Those of training are in `holotype train {found.name} DATASET --help`."
    if found.recipes:
        yield "Values that data sets change:"
        yield changes("Data set", {recipe_title(name): own for name, own in found.recipes.items()})
    else:
        yield "No data set changes a value."
    usual = {row.key: row.value for row in found.settings}
    changed = {
        name: {key: value for key, value in own.items() if usual.get(key) != as_text(value)}
        for name, own in found.presets.items()
    }
    if named := {f"`{name}`": own for name, own in changed.items() if own}:
        yield "Presets (`--preset NAME`) beside `default`:"
        yield changes("Preset", named)
    else:
        yield "It has no preset beside `default`."


def changes(title: str, values: Mapping[str, Mapping[str, Any]]) -> str:
    """Names that change the same stand together."""
    groups: dict[str, list[str]] = {}
    for name, own in values.items():
        told = ", ".join(f"`{key} = {as_text(value)}`" for key, value in own.items())
        groups.setdefault(told, []).append(name)
    return words([title, "Settings"], [[", ".join(names), told] for told, names in groups.items()])


def differs(found: About) -> Iterator[str]:
    yield "## What differs from the publication"
    points = found.card.differs if found.card else ()
    if points:
        yield "\n".join(f"- {point}" for point in points)
    if found.differs:
        yield f"```text\n{found.differs}\n```"
    if not points and not found.differs:
        yield "Nothing that we know of."


# -- what was measured --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """A row of a study on one data set."""

    study: str
    name: str
    """Of the row."""
    asks: str
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
                if study and (made := select(study, one, dataset, records)):
                    row, ends = make_row(made, one.name), {FLOOR, MARK} <= set(study.rows)
                    p = progress_of(row, ends_of(study, dataset, records)) if ends else None
                    printed = published_progress(method, printed_on(dataset)) if ends else None
                    yield Result(study.name, one.name, one.asks, row, p, printed)


def results_part(name: str, top: Path, results: Records) -> Iterator[str]:
    rows = list(results_of(name, top, results))
    if not rows:
        yield "No record of its runs is in `experiments/results`."
        return
    head = ["Data set", "Study (row)", "What it changes", "Mode", "Epochs", "Seeds (n)", "All", "Old", "New"]
    yield words([*head, "p", "p (published)"], [cells(one) for one in rows])
    backbones = ", ".join(union([one.row.facts["backbone"]] for one in rows))
    told = [
        f"[How to read this table]({READING}). Backbone {backbones}; "
        f"commits {commits_of(one.row for one in rows)}; {', '.join(union(one.row.hardware for one in rows))}. "
        "Commands: [results.md](../results.md). Time and memory of a step: [performance.md](../performance.md)."
    ]
    if any(one.apart for one in rows):
        told.append(f"Bold: more than {APART} from the published p; [why](#why-p-differs).")
    yield " ".join(told)


def cells(one: Result) -> list[str]:
    facts, p = one.row.facts, own_cell(one.p)
    scores = [mean_and_std(one.row.scores[score]) for score in SCORES]
    told = [facts["dataset"], f"{one.study} ({one.name})", one.asks, facts["mode"], str(facts["epochs"])]
    printed = published_cell(one.printed)
    return [*told, seeds(one.row.seeds), *scores, f"**{p}**" if one.apart else p, printed]


# -- what is printed ----------------------------------------------------------------------------------


def published(name: str) -> Iterator[str]:
    rows, content = printed_rows(name), read_published()
    if not rows:
        yield "Nothing is printed of it in the table that the other methods are compared by."
        return
    body = [[row.dataset, *published_cells(row.scores), published_cell(row.progress)] for row in rows]
    yield words(["Data set", "All", "Old", "New", "p"], body)
    absent = [dataset for dataset in content["main"]["cells"] if dataset not in {row.dataset for row in rows}]
    missing = f" Not printed: {', '.join(absent)}." if absent else ""
    yield f"From [RPC's paper]({READING}#published-scores).{missing} {PROGRESS}"


def with_note(parts: list[str]) -> list[str]:
    """What a star means, below the tables that have one."""
    return [*parts, UNLAWFUL] if any(r"\*" in part for part in parts) else parts
