"""The card of a method as Markdown, for docs/methods/NAME.md, and the table of all methods, for docs/methods.md.

What it computes, its settings, presets and differences are read from the method (runs/cards.py), what was measured from
experiments/results, what is printed from runs/published.json. None of that is written by hand. Why p differs from the
published one is: it stands below the block, under the heading that `ours` links to (tests/benchmarks/test_compared.py).
The drawing lies beside the page (benchmarks/method_drawings.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compared import APART, Compared, compared
from measured import Measured, commands, measured
from method_drawings import in_words
from progress import own_cell, printed_on, published_cell
from script import read_record
from study_notes import union
from study_page import commits_of, seeds
from tables import pipeline, short, size, table

from holotype.methods import METHODS
from holotype.runs.cards import About, about, printed_rows, recipe_title, stage_line, stage_names
from holotype.runs.casting import as_text
from holotype.runs.published import read_published
from holotype.runs.records import Records
from holotype.runs.tables import SCORES, mean_and_std, published_cells

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
    note = "Token cache, CUDA graph: whether they apply, and in which stage. Table: `python benchmarks/exhibits.py`."
    return f"{words(head, body)}\n\n{note}"


def card_page(name: str, top: Path, results: Records) -> str:
    """All that is known of one method. top: the folder that holds experiments/."""
    found = about(name)
    parts = [*head(found), *works(name), *computes(found), *settings(found), *differs(found)]
    parts += ["## Measured", *measurements(name, top, results), *steps(name, results)]
    parts += ["## Published", *with_note([*published(name), *ours(name, top, results)])]
    return "\n\n".join([*parts, "This page: `python benchmarks/exhibits.py`."])


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
    yield f"![{in_words(name)}]({name}.svg)"


def computes(found: About) -> Iterator[str]:
    if found.computes:
        yield "## What it computes"
        yield f"```text\n{found.computes}\n```"


def settings(found: About) -> Iterator[str]:
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
    if named := {f"`{name}`": own for name, own in found.presets.items() if own}:
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


def measurements(name: str, top: Path, results: Records) -> Iterator[str]:
    rows = measured(name, top, results)
    if not rows:
        yield "Nothing yet: no record of a run with one of its presets is in `experiments/results`."
        return
    told = ["Data set", "Preset", "Backbone", "Blocks", "Epochs", "Mode", "Other settings", "Seeds (n)"]
    yield words([*told, "All", "Old", "New", "Seconds", "Study (row)"], [cells(one) for one in rows])
    yield (
        f"[How to read this table]({READING}), and [what the backbones have seen]({READING}#the-backbone). "
        "Presets as they stand in this version; what else was tried is in [the studies](../experiments.md). "
        "Seconds: of training, the mean over seeds, with the number of runs that trained at once in the process. "
        "A few runs shared the GPU with a second process and took longer than they would alone."
    )
    if any(setting.startswith("method.") for one in rows for setting in one.other):
        yield (
            "A setting of the method stands here where the preset leaves it to a rule that gives this number, or where "
            "the [comparison of all methods](../results.md#all-methods) changes it."
        )
    hardware = union(one.row.hardware for one in rows)
    yield f"Commits {commits_of(one.row for one in rows)}; {', '.join(hardware)}. Made by:"
    yield "```text\n" + "\n".join(commands(rows)) + "\n```"


def cells(one: Measured) -> list[str]:
    facts, row = one.row.facts, one.row
    told = [
        facts["dataset"],
        one.preset,
        facts["backbone"],
        facts["train_blocks"],
        facts["epochs"],
        facts["mode"],
    ]
    asked = [f"{each.study.name} ({each.row.name})" for each in one.asked]
    scores = [mean_and_std(row.scores[score]) for score in SCORES]
    other = ", ".join(f"`{setting}`" for setting in one.other)
    return [*map(str, told), other, seeds(row.seeds), *scores, seconds(one), ", ".join(asked)]


def seconds(one: Measured) -> str:
    """`40 (12 at once)`."""
    least, most = one.parallel[0], one.parallel[-1]
    at_once = f"{least} to {most}" if least < most else str(most)
    return short(one.row.seconds) + (f" ({at_once} at once)" if most > 1 else "")


def steps(name: str, results: Records) -> Iterator[str]:
    """Time of a step and memory, where benchmarks/speed.py has measured the method."""
    body = []
    for path in sorted((results.folder / "speed").glob("*.json")):
        record = read_record(path, ("hardware", "arch", "parts"), "speed.py")
        for part in ("exact", "cached", "methods", "image_stages"):
            for row in record["parts"].get(part, []):
                if row["method"] == name:
                    memory = size(row["device_bytes"]) if "device_bytes" in row else "none"
                    step = ", ".join([pipeline(row), *([row["stage"]] if "stage" in row else [])])
                    told = [step, f"{record['arch']}, {record['hardware']}", short(row["ms"]), memory]
                    body.append([*told, size(row["host_bytes"])])
    if not body:
        yield "Time of a step and memory have not been measured."
        return
    yield table(["Pipeline", "Network and hardware", "ms a step", "GPU memory", "Host memory"], body)
    yield "Batches and commands of these steps are in [performance.md](../performance.md)."


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


def ours(name: str, top: Path, results: Records) -> Iterator[str]:
    """Its rows in the comparison of all methods, p beside the published one."""
    rows = [one for one in compared(name, top, results) if one.printed]
    if not rows:
        return
    yield "Ours beside them, in the [comparison of all methods](../results.md#all-methods):"
    yield words(
        ["Data set", "Row", "All", "Old", "New", "p", "p (published)"], [compared_cells(one) for one in rows]
    )
    parts = {one.row.facts["dataset"]: printed_on(one.row.facts["dataset"]) for one in rows}
    told = [
        f"Of {part} the published p is that of {whole}." for part, whole in parts.items() if part != whole
    ]
    if any(one.apart for one in rows):
        told.append(f"Bold: more than {APART} from the published p; [why](#why-p-differs).")
    if told:
        yield " ".join(told)


def compared_cells(one: Compared) -> list[str]:
    scores = [mean_and_std(one.row.scores[score]) for score in SCORES]
    p = own_cell(one.p)
    return [
        one.row.facts["dataset"],
        one.name,
        *scores,
        f"**{p}**" if one.apart else p,
        published_cell(one.printed),
    ]
