"""`holotype methods`: which methods there are, and what one of them does."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from holotype.cli.common import Parser, aligned, echo

if TYPE_CHECKING:
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
    from holotype.runs.method_info import MethodInfo, list_methods, stage_names

    rows, broken = [METHODS_HEAD], []
    for info in list_methods():
        if isinstance(info, MethodInfo):
            year = str(info.card.year) if info.card else ""
            rows.append((info.name, year, stage_names(info), info.cache, info.capture, info.line))
        else:
            broken.append(str(info))
    width = min(shutil.get_terminal_size().columns, 100)
    return "\n".join([*aligned(rows), *broken, "", *textwrap.wrap(METHODS_FOOT, width)])


# -- one card -----------------------------------------------------------------------------------------


def card_text(info: MethodInfo) -> str:
    """Everything that is known of a method without running it."""
    from holotype.methods import METHODS

    presets = {name: values for name, values in info.presets.items() if values}
    key = info.settings[0].key if info.settings else ""
    sections = {
        "What it computes": info.computes,
        f"Settings (--{key} VALUE)": settings_text(info),
        "Settings by data set": values_text(info.recipes),
        "Presets (--preset NAME)": values_text(presets),
        "What differs from the publication": differences_text(info),
        "Published": published_text(info.name),
    }
    parts = [f"{title}\n{textwrap.indent(text, '  ')}" for title, text in sections.items() if text]
    more = f"holotype train {info.name} DATASET --help lists all settings, those of training too."
    if info.name in METHODS:
        more += f"\nWhat we measured is in docs/methods/{info.name}.md of the repository."
    return "\n\n".join([card_head(info), training_text(info), *parts, more])


def card_head(info: MethodInfo) -> str:
    if (card := info.card) is None:
        return (
            f"{info.name}: {info.title}\nIt has no card." if info.title else f"{info.name}\nIt has no card."
        )
    return f"{card.title} ({info.name}), {card.year}\n{wrapped(card.paper)}\n\n{wrapped(card.line)}"


def training_text(info: MethodInfo) -> str:
    from holotype.runs.method_info import stage_line

    if not info.stages:
        return "Nothing is trained: it clusters the features as they are."
    lines = [f"  {stage_line(stage, info.epochs)}" for stage in info.stages]
    return "\n".join([f"Stages (token cache: {info.cache}; CUDA graph: {info.capture})", *lines])


def settings_text(info: MethodInfo) -> str:
    lines = []
    for row in info.settings:
        lines.append(f"{row.key} = {row.value}    [{row.type}]")
        lines += [wrapped(row.help, "    ")] if row.help else []
    return "\n".join(lines)


def values_text(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """A paragraph for each data set or preset."""
    from holotype.config.parse import value_text
    from holotype.runs.method_info import recipe_title

    lines = {
        name: ", ".join(f"{k} = {value_text(v)}" for k, v in of.items()) for name, of in settings.items()
    }
    return "\n".join(wrapped(f"{recipe_title(name)}: {line}") for name, line in lines.items())


def differences_text(info: MethodInfo) -> str:
    points = "\n".join(
        f"- {wrapped(point, '  ').strip()}" for point in (info.card.differs if info.card else ())
    )
    return "\n\n".join(filter(None, [points, info.differs]))


def published_text(name: str) -> str:
    """A line for each data set; a star where the numbers cannot be right."""
    from holotype.runs.method_info import published_rows
    from holotype.runs.tables import read_published

    rows, content = published_rows(name), read_published()
    if not rows:
        return "Nothing is printed of it in the table that the other methods are compared by."
    lines, star = [f"{'':<12}{'All':>6}{'Old':>6}{'New':>6}{'p':>7}"], {True: " ", False: "*"}
    for dataset, scores, p in rows:
        cells = f"{scores.all:6.1f}{scores.old:6.1f}{scores.new:6.1f}{star[scores.lawful]}"
        lines.append(f"{dataset:<12}{cells}{f'{p.p:6.2f}{star[p.lawful]}' if p else ''}".rstrip())
    notes = [f"{content['paper']}; {content['setting']}.", "p = (All - k-means) / (SimGCD - k-means)."]
    if "*" in "".join(lines):
        notes.append(
            "* cannot be right, or rests on what cannot: All is not r Old + (1 - r) New, however rounded."
        )
    return "\n".join([*lines, *map(wrapped, notes)])


def wrapped(text: str, indent: str = "") -> str:
    width = min(shutil.get_terminal_size().columns, 100) - 2
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
