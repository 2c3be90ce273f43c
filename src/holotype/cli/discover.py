"""`holotype discover`: from a folder of images to categories and a report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from holotype.cli.common import (
    SOURCES,
    Parser,
    add_box_flags,
    add_code_flag,
    add_labels_flag,
    add_running_flags,
    box_options,
    echo,
    is_rank0_output,
)
from holotype.errors import InputError
from holotype.utils.text import plural

if TYPE_CHECKING:
    from argparse import Namespace

    from holotype.config.schema import DiscoverConfig
    from holotype.data.table import Table
    from holotype.results.discovery import Category, Discovery

MAX_LINES = 40
"""Categories that are listed on the terminal; the report shows all."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    if (given.images is None) == (given.table is None):
        raise InputError(
            "holotype discover takes images by IMAGES or by --table, one of the two; holotype discover --help says "
            "more."
        )
    given.images = given.images or given.table
    from holotype.config.schema import DiscoverConfig

    config = DiscoverConfig(**{one.name: getattr(given, one.name) for one in fields(DiscoverConfig)})
    from holotype.data.load import load_table

    labels = Path(given.labels) if given.labels else None
    table = load_table(
        given.images,
        labels,
        unlabelled=given.unlabelled,
        skip_missing=given.skip_missing,
        **box_options(given.boxes, given.box_confidence),
    )
    if given.embeddings:
        from holotype.embeddings.store import EmbeddingParts

        EmbeddingParts(given.embeddings)  # what is wrong with the folder is said before anything else
    if given.dry_run:
        return print_dry_run(table, config, given)
    from holotype.discovery.ownership import find_folder
    from holotype.discovery.pipeline import default_folder, discover_table

    folder = Path(given.out) if given.out else find_folder(default_folder(given.images), table)
    edits = Path(given.edits) if given.edits else None
    embeddings = Path(given.embeddings) if given.embeddings else None
    found = discover_table(
        table, config, folder, progress=not given.no_progress, edits=edits, embeddings=embeddings
    )
    if is_rank0_output():
        echo(discovery_summary(found, folder))
    return 0


def print_dry_run(table: Table, config: DiscoverConfig, asked: Namespace) -> int:
    """Print what a discovery would begin or go on with; raise the InputError that it would. Nothing is written."""
    progress = not asked.no_progress
    from holotype.discovery.dry_run import exif_summary, inspect_collection

    seen = inspect_collection(table, config, progress)
    shots = exif_summary(seen.table, config, seen.shots)
    if is_rank0_output():
        echo(
            "\n".join((*seen.lines, *shots, *seen.unread)), flush=True
        )  # what follows takes seconds to import
    from holotype.discovery.backbone_choice import preview_backbone
    from holotype.discovery.dry_run import estimate_time, preview_plan
    from holotype.discovery.ensemble_training import choose_trainings
    from holotype.discovery.ownership import check_labels_remain, find_folder, stored_backbone
    from holotype.discovery.pipeline import check_table, default_folder
    from holotype.discovery.plan import plan_round
    from holotype.utils.device import pick_device

    folder = Path(asked.out) if asked.out else find_folder(default_folder(asked.images), table)
    edits = Path(asked.edits) if asked.edits else None
    check_labels_remain(folder, table)
    for given in (table, seen.table.take(seen.table.usable)):
        check_table(given, config, folder, edits)
    stored_backbone(folder, config.network)
    plan = plan_round(folder, table, config, edits, progress)
    lines = preview_plan(plan)
    if is_rank0_output() and lines:
        echo("\n".join(lines))
    if plan.trains:
        network = preview_backbone(config.network, pick_device(config.device))
        trainings = choose_trainings(folder, config, len(table))
        words = estimate_time(table, config, network, trainings, plan.to_embed)
        if is_rank0_output():
            echo(words)
    return 0


def make_parser() -> Parser:
    """Every setting of DiscoverConfig is a flag, and the words under it are its help; values are checked there."""
    from holotype.config.schema import DiscoverConfig

    parser = Parser(
        prog="holotype discover",
        description="Place every image in a known class or in a category found in the data: embed, estimate how many "
        "categories there are, train, describe, write a report. You can stop with Ctrl-C; the same command continues.",
    )
    parser.add_argument("images", nargs="?", metavar="IMAGES", help=SOURCES)
    parser.add_argument("--table", metavar="FILE", help="the same as IMAGES, for what holotype sample wrote")
    add_labels_flag(parser)
    parser.add_argument("--out", metavar="RUN", help="run folder (default: runs/NAME-discover)")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check the images and labels, say what to fix and how long training will take; write nothing",
    )
    parser.add_argument(
        "--unlabelled",
        action="append",
        default=[],
        metavar="NAME",
        help="treat this folder or label as unlabelled, not as a class; can be given several times",
    )
    parser.add_argument(
        "--skip-missing",
        action="store_true",
        help="leave out rows of a file whose images are missing, and impossible boxes",
    )
    add_box_flags(parser)
    parser.add_argument(
        "--embeddings",
        metavar="DIR",
        help="what holotype embed wrote of these images, or of all that holotype sample drew them from",
    )
    parser.add_argument("--edits", metavar="FILE", help="edits.csv as exported from the report of this run")
    add_code_flag(parser)
    add_running_flags(parser)
    add_settings(parser, DiscoverConfig, skip={"device"})  # the running flags have it
    return parser


def add_settings(parser: Parser, settings: type, skip: set[str]) -> None:
    """A flag for each field of a dataclass whose fields have a sentence under them; the help says what it may be."""
    from holotype.config.parse import describe_type, field_docs

    told, kinds = field_docs(settings), get_type_hints(settings, include_extras=True)
    for one in fields(settings):
        flag, help = f"--{one.name.replace('_', '-')}", told[one.name]
        if one.name in skip:
            continue
        shown = "" if one.default is None else f"; default {one.default}"
        kind = describe_type(drop_none(kinds[one.name]), rules=True)
        text = f"{help} [{kind}{shown}]"
        parser.add_argument(flag, default=one.default, metavar=one.name.upper(), help=text)


def drop_none(hint: Any) -> Any:
    """The type of a flag: none is what it has where it is not given."""
    parts = [part for part in get_args(hint) if part is not type(None)]
    return parts[0] if type(None) in get_args(hint) and len(parts) == 1 else hint


def category_lines(
    categories: Sequence[Category],
    times: Mapping[str, int] | None = None,
    whole: Mapping[str, int] | None = None,
) -> list[str]:
    """A line each. Of more than MOST_LINES the largest known classes, then the largest new categories, half of the
    lines for each kind, or more where the other kind needs fewer; and how many are left out. times: bursts of each.
    whole: images of the collection that a sample was drawn from."""
    shown, rest = list(categories), {"known": 0, "novel": 0}
    if len(categories) > MAX_LINES:
        kinds = {kind: [c for c in categories if c.kind == kind] for kind in rest}
        shown = []
        for kind, of in kinds.items():
            others = len(categories) - len(of)
            room = max(MAX_LINES // 2, MAX_LINES - others)
            shown += sorted(of, key=lambda c: -c.n)[:room]
            rest[kind] = max(0, len(of) - room)
    width = max((len(c.name) for c in shown), default=0)
    bursts = {
        id: f" in {count:>5,} {'burst ' if count == 1 else 'bursts'}" for id, count in (times or {}).items()
    }
    about = {id: f", about {count:,} in the collection" for id, count in (whole or {}).items()}
    lines = [
        f"  {c.name:<{width}} {c.n:>7,}{bursts.get(c.id, '')}{about.get(c.id, '')}  {c.words}".rstrip()
        for c in shown
    ]
    more = [
        plural(rest["known"], "known class", "known classes") if rest["known"] else "",
        plural(rest["novel"], "new category", "new categories") if rest["novel"] else "",
    ]
    if any(more):
        lines.append(f"  and {' and '.join(filter(None, more))} more, all smaller, in the report")
    return lines


def discovery_summary(found: Discovery, folder: Path) -> str:
    """What a person wants to see at the end. Of bursts, an image that is alone counts as one."""
    from holotype.cli.train import score_lines
    from holotype.results.describe import burst_events, burst_text
    from holotype.results.discovery import weighted_sizes
    from holotype.results.ensemble import stability_summary as returning
    from holotype.runs.record import RunFolder

    images, facts, whole = found.images, found.facts, weighted_sizes(found.images)
    unread = int((images.problem != "").sum())
    novel = [c for c in found.categories if c.kind == "novel"]
    known, new = (
        plural(len(found.known), "known class", "known classes"),
        plural(len(novel), "new category", "new categories"),
    )
    frames, times = burst_text(images["group"]) if "group" in images else "", burst_events(images)
    lines = ["", f"{plural(len(images), 'image')}{f' ({frames})' if frames else ''}, {known}, {new}"]
    lines[-1] += f"; {plural(unread, 'image')} could not be read" if unread else ""
    if whole:
        lines.append(f"The images are a sample, and stand for about {sum(whole.values()):,} of a collection.")
    if count := found.count:
        lines.append(
            f"Number of categories: {count['low']} to {count['high']}, most likely {count['best']}; "
            f"{facts.training_size} (--k sets it)"
        )
    elif 0 < facts.in_use < facts.k:
        lines.append(f"{facts.training_size.capitalize()} (--k sets it)")
    if not novel:
        lines.append(
            f"If you expect new categories: holotype cut {shlex.quote(str(folder))} shows what would split off, and "
            "--k N trains with N categories, known and new together."
        )
    lines += ["", *category_lines(found.categories, times, whole)]
    if told := returning(found):
        lines += ["", *told]
    if (record := RunFolder(folder).finished()) and record.scores.all is not None:
        about = (
            f"Against the truth of {plural(record.scores.n, 'image')}, which training never saw, in per cent:"
        )
        lines += ["", about, *score_lines(record)]
    seconds = ", ".join(f"{step} {value:.0f} s" for step, value in facts.seconds.items())
    lines += [
        "",
        f"{plural(int(images.doubtful.sum()), 'image is', 'images are')} doubtful. Round {facts.round}; {seconds}.",
    ]
    if caveat := facts.backbone.get("caveat"):
        lines.append(f"Backbone {facts.backbone['name']}: {caveat}")
    lines.append(f"Every image with its category: {folder / 'assignments.csv'}")
    lines.append(f"Report: {folder / 'report.html'}")
    return "\n".join(lines)
