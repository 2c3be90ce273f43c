"""`holotype methods`: which methods there are, and what one of them does."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from holotype.cli.common import Parser, echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holotype.runs.method_info import MethodInfo

METHODS_HEAD = ("method", "year", "stages", "cache", "graph", "what it does")
METHODS_FOOT = (
    "cache: whether the token cache applies (--cache-views); graph: whether steps are captured as a CUDA graph. "
    "holotype methods NAME prints a method's card; NAME may also be package.module:Class."
)


@dataclass
class MethodsOptions:
    """List the methods, or print the card of one: what it computes, its settings, where it differs from its
    publication, and its published scores."""

    name: Annotated[str, "[NAME]"] | None = None
    """A method of the list, or one of your own as package.module:Class."""


def make_parser() -> Parser:
    return Parser("methods", MethodsOptions)


def command(argv: Sequence[str]) -> int:
    options: MethodsOptions = make_parser().parse_args(argv)
    from holotype.runs.method_info import method_info

    echo(methods_text() if options.name is None else card_text(method_info(options.name)))
    return 0


def methods_text() -> str:
    """A line for each method, those of installed packages last."""
    from holotype.runs.method_info import MethodInfo, list_methods

    found = list_methods()
    rows = [METHODS_HEAD, *(method_line(one) for one in found if isinstance(one, MethodInfo))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(METHODS_HEAD) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
    broken = [str(one) for one in found if not isinstance(one, MethodInfo)]
    return "\n".join([*lines, *broken, "", *textwrap.wrap(METHODS_FOOT, column_width())])


def method_line(found: MethodInfo) -> tuple[str, ...]:
    from holotype.runs.method_info import stage_names

    year = str(found.card.year) if found.card else ""
    return found.name, year, stage_names(found), found.cache, found.capture, found.line


def column_width() -> int:
    """Of the terminal; no wider than is good to read."""
    return min(shutil.get_terminal_size().columns, 100)


# -- one card -----------------------------------------------------------------------------------------


def card_text(found: MethodInfo) -> str:
    """Everything that is known of a method without running it."""
    parts = [card_head(found), training_lines(found)]
    parts += [card_section("What it computes", found.computes)] if found.computes else []
    parts += (
        [card_section(f"Settings (--{found.settings[0].key} VALUE)", settings_lines(found))]
        if found.settings
        else []
    )
    parts += [card_section("Settings by data set", named_methods(found.recipes))] if found.recipes else []
    named = {name: values for name, values in found.presets.items() if values}
    parts += [card_section("Presets (--preset NAME)", named_methods(named))] if named else []
    parts += (
        [card_section("What differs from the publication", told)] if (told := difference_lines(found)) else []
    )
    return "\n\n".join([*parts, card_section("Published", published_lines(found.name)), last_line(found)])


def card_head(found: MethodInfo) -> str:
    if found.card is None:
        return "\n".join([f"{found.name}: {found.title}" if found.title else found.name, "It has no card."])
    card = found.card
    return "\n".join(
        [f"{card.title} ({found.name}), {card.year}", *wrap_text(card.paper), "", *wrap_text(card.line)]
    )


def training_lines(found: MethodInfo) -> str:
    from holotype.runs.method_info import stage_line

    if not found.stages:
        return "Nothing is trained: it clusters the features as they are."
    lines = [f"  {stage_line(stage, found.epochs)}" for stage in found.stages]
    told = f"Stages (token cache: {found.cache}; CUDA graph: {found.capture})"
    return "\n".join([told, *lines])


def card_section(title: str, text: str) -> str:
    return f"{title}\n{textwrap.indent(text, '  ')}"


def settings_lines(found: MethodInfo) -> str:
    lines: list[str] = []
    for row in found.settings:
        lines.append(f"{row.key} = {row.value}    [{row.type}]")
        lines += wrap_text(row.help, "    ") if row.help else []
    return "\n".join(lines)


def named_methods(values: Mapping[str, Mapping[str, Any]]) -> str:
    return "\n".join(one for name, own in values.items() for one in _named(name, own))


def _named(name: str, own: Mapping[str, Any]) -> Iterator[str]:
    from holotype.config.parse import value_text
    from holotype.runs.method_info import recipe_title

    told = ", ".join(f"{key} = {value_text(value)}" for key, value in own.items())
    yield from wrap_text(f"{recipe_title(name)}: {told}")


def difference_lines(found: MethodInfo) -> str:
    lines = [one for point in (found.card.differs if found.card else ()) for one in bullet_lines(point)]
    return "\n".join(
        [*lines, *(["", found.differs] if found.differs and lines else [found.differs])]
    ).rstrip()


def bullet_lines(text: str) -> list[str]:
    first, *rest = wrap_text(text, "  ")
    return [f"- {first.strip()}", *rest]


def published_lines(name: str) -> str:
    """A line for each data set; a star where the numbers cannot be right."""
    from holotype.runs.method_info import published_rows
    from holotype.runs.tables import read_published

    rows, content = published_rows(name), read_published()
    if not rows:
        return "Nothing is printed of it in the table that the other methods are compared by."
    lines = [f"{'':<12}{'All':>6}{'Old':>6}{'New':>6}{'p':>7}"]
    for row in rows:
        cells = (
            f"{row.scores.all:6.1f}{row.scores.old:6.1f}{row.scores.new:6.1f}{star_mark(row.scores.lawful)}"
        )
        p = f"{row.progress.p:6.2f}{star_mark(row.progress.lawful)}" if row.progress else ""
        lines.append(f"{row.dataset:<12}{cells}{p}".rstrip())
    notes = [f"{content['paper']}; {content['setting']}.", "p = (All - k-means) / (SimGCD - k-means)."]
    if "*" in "".join(lines):
        notes.append(
            "* cannot be right, or rests on what cannot: All is not r Old + (1 - r) New, however rounded."
        )
    return "\n".join([*lines, *(one for note in notes for one in wrap_text(note))])


def star_mark(lawful: bool) -> str:
    return " " if lawful else "*"


def last_line(found: MethodInfo) -> str:
    """Where more is."""
    from holotype.methods import METHODS

    told = [f"holotype train {found.name} DATASET --help lists all settings, those of training too."]
    if found.name in METHODS:
        told.append(f"What we measured is in docs/methods/{found.name}.md of the repository.")
    return "\n".join(told)


def wrap_text(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, column_width() - 2, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
