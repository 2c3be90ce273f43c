"""`holotype discover`: from a folder of images to categories and a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.cli.words import Parser, add_labels_flag, add_running_flags, speaks

if TYPE_CHECKING:
    from holotype.categories.found import Discovery

MOST_LINES = 40
"""Categories that are listed on the terminal; the report shows all."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.discovery.config import DiscoverConfig

    config = DiscoverConfig(**{one.name: getattr(given, one.name) for one in fields(DiscoverConfig)})
    from holotype.data.sources import load_table
    from holotype.discovery.workflow import default_folder, discover_table

    table = load_table(Path(given.images), Path(given.labels) if given.labels else None)
    folder = Path(given.out) if given.out else default_folder(Path(given.images))
    edits = Path(given.edits) if given.edits else None
    found = discover_table(table, config, folder, progress=not given.no_progress, edits=edits)
    if speaks():
        print(summary(found, folder))
    return 0


def make_parser() -> Parser:
    """Every setting of DiscoverConfig is a flag, and the words under it are its help; values are checked there."""
    from holotype.discovery.config import DiscoverConfig

    parser = Parser(
        prog="holotype discover",
        description="Place every image in a known class or in a category found in the data: embed, estimate how many "
        "categories there are, train, describe, write a report. Ctrl-C and the same command goes on.",
    )
    parser.add_argument(
        "images", metavar="IMAGES", help="folder of images, or a CSV or Parquet file that lists them"
    )
    add_labels_flag(parser)
    parser.add_argument("--out", metavar="RUN", help="run folder (default: runs/NAME-discover)")
    parser.add_argument("--edits", metavar="FILE", help="edits.csv as exported from the report of this run")
    add_running_flags(parser)
    add_settings(parser, DiscoverConfig, skip={"device"})  # the running flags have it
    return parser


def add_settings(parser: Parser, settings: type, skip: set[str]) -> None:
    """A flag for each field of a dataclass whose fields have a sentence under them."""
    from holotype.runs.docstrings import field_docs

    told = field_docs(settings)
    for one in fields(settings):
        flag, help = f"--{one.name.replace('_', '-')}", told[one.name]
        if one.name in skip:
            continue
        if isinstance(one.default, bool):
            parser.add_argument(flag, action="store_true", help=help)
            continue
        shown = "" if one.default is None else f" (default: {one.default})"
        parser.add_argument(flag, default=one.default, metavar=one.name.upper(), help=f"{help}{shown}")


def summary(found: Discovery, folder: Path) -> str:
    """What a person wants to see at the end."""
    images, facts = found.images, found.facts
    unread = int((images.problem != "").sum())
    novel = [c for c in found.categories if c.kind == "novel"]
    lines = ["", f"{len(images):,} images, {len(found.known)} known classes, {len(novel)} new categories"]
    lines[-1] += f"; {unread:,} images could not be read" if unread else ""
    if count := found.count:
        lines.append(
            f"How many there are: {count['low']} to {count['high']}, most likely {count['best']}; "
            f"trained with {facts.k} (--k sets it)"
        )
    width = max((len(c.name) for c in found.categories[:MOST_LINES]), default=0)
    lines += [
        "",
        *(f"  {c.name:<{width}} {c.n:>7,}  {c.words}".rstrip() for c in found.categories[:MOST_LINES]),
    ]
    if len(found.categories) > MOST_LINES:
        lines.append(f"  and {len(found.categories) - MOST_LINES} more in the report")
    seconds = ", ".join(f"{step} {value:.0f} s" for step, value in facts.seconds.items())
    lines += ["", f"{int(images.doubtful.sum()):,} images are doubtful. Round {facts.round}; {seconds}."]
    lines.append(f"Every image with its category: {folder / 'assignments.csv'}")
    lines.append(f"Report: {folder / 'report.html'}")
    if caveat := facts.backbone.get("caveat"):
        lines.append(f"Backbone {facts.backbone['name']}: {caveat}")
    return "\n".join(lines)
