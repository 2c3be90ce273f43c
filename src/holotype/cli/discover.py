"""`holotype discover`: from a folder of images to categories and a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.cli.words import Parser, add_labels_flag, add_running_flags, several, speaks

if TYPE_CHECKING:
    from holotype.categories.found import Discovery
    from holotype.data.table import Table
    from holotype.discovery.config import DiscoverConfig

ANSWERS = ("auto", "yes", "no")
MOST_LINES = 40
"""Categories that are listed on the terminal; the report shows all."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(answered(argv))
    from holotype.discovery.config import DiscoverConfig

    config = DiscoverConfig(**{one.name: getattr(given, one.name) for one in fields(DiscoverConfig)})
    from holotype.data.sources import load_table

    labels = Path(given.labels) if given.labels else None
    table = load_table(
        Path(given.images), labels, unlabelled=given.unlabelled, skip_missing=given.skip_missing
    )
    if given.dry_run:
        return first_look(table, config, given.out, Path(given.images), progress=not given.no_progress)
    from holotype.discovery.claim import find_folder
    from holotype.discovery.workflow import default_folder, discover_table

    folder = Path(given.out) if given.out else find_folder(default_folder(Path(given.images)), table)
    edits = Path(given.edits) if given.edits else None
    found = discover_table(table, config, folder, progress=not given.no_progress, edits=edits)
    if speaks():
        print(summary(found, folder))
    return 0


def first_look(table: Table, config: DiscoverConfig, out: str | None, images: Path, progress: bool) -> int:
    """Print what a discovery would begin or go on with; raise the InputError that it would. Nothing is written."""
    from holotype.discovery.look import look

    seen = look(table, config, progress)
    if speaks():
        print("\n".join((*seen.lines, *seen.unread)), flush=True)  # what follows takes seconds to import
    from holotype.discovery.best_backbone import foresee_backbone
    from holotype.discovery.claim import find_folder
    from holotype.discovery.forecast import forecast
    from holotype.discovery.going_on import foresee
    from holotype.discovery.workflow import check_table, default_folder
    from holotype.machine.device import pick_device

    for given in (table, seen.table.take(seen.table.usable)):
        check_table(given, config)
    since = foresee(Path(out) if out else find_folder(default_folder(images), table), table, progress)
    if speaks() and since:
        print(since)
    words = forecast(table, config, foresee_backbone(config.network, pick_device(config.device))).words
    if speaks():
        print(words)
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
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what is there and what to mend before training, and how long it will take; write nothing",
    )
    parser.add_argument(
        "--unlabelled",
        action="append",
        default=[],
        metavar="NAME",
        help="folder, or label, that is a heap and no class; may be given several times",
    )
    parser.add_argument(
        "--skip-missing", action="store_true", help="leave out rows of a file whose images are missing"
    )
    parser.add_argument("--edits", metavar="FILE", help="edits.csv as exported from the report of this run")
    add_running_flags(parser)
    add_settings(parser, DiscoverConfig, skip={"device"})  # the running flags have it
    return parser


def answered(argv: Sequence[str]) -> list[str]:
    """The words with an answer behind --long-tail, which stood alone once and may still."""
    words = list(argv)
    for at in reversed([i for i, word in enumerate(words) if word in ("--long-tail", "--long_tail")]):
        if words[at + 1 : at + 2] not in ([answer] for answer in ANSWERS):
            words.insert(at + 1, "yes")
    return words


def add_settings(parser: Parser, settings: type, skip: set[str]) -> None:
    """A flag for each field of a dataclass whose fields have a sentence under them."""
    from holotype.runs.docstrings import field_docs

    told = field_docs(settings)
    for one in fields(settings):
        flag, help = f"--{one.name.replace('_', '-')}", told[one.name]
        if one.name in skip:
            continue
        shown = "" if one.default is None else f" (default: {one.default})"
        if one.name == "long_tail":
            parser.add_argument(
                flag, nargs="?", const="yes", default="auto", metavar="ANSWER", help=f"{help}{shown}"
            )
            continue
        parser.add_argument(flag, default=one.default, metavar=one.name.upper(), help=f"{help}{shown}")


def summary(found: Discovery, folder: Path) -> str:
    """What a person wants to see at the end."""
    from holotype.categories.returning import summary as returning

    images, facts = found.images, found.facts
    unread = int((images.problem != "").sum())
    novel = [c for c in found.categories if c.kind == "novel"]
    known, new = (
        several(len(found.known), "known class", "known classes"),
        several(len(novel), "new category", "new categories"),
    )
    lines = ["", f"{several(len(images), 'image')}, {known}, {new}"]
    lines[-1] += f"; {several(unread, 'image')} could not be read" if unread else ""
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
    if told := returning(found):
        lines += ["", *told]
    seconds = ", ".join(f"{step} {value:.0f} s" for step, value in facts.seconds.items())
    lines += [
        "",
        f"{several(int(images.doubtful.sum()), 'image is', 'images are')} doubtful. Round {facts.round}; {seconds}.",
    ]
    lines.append(f"Every image with its category: {folder / 'assignments.csv'}")
    lines.append(f"Report: {folder / 'report.html'}")
    if caveat := facts.backbone.get("caveat"):
        lines.append(f"Backbone {facts.backbone['name']}: {caveat}")
    return "\n".join(lines)
