"""`holotype discover`: from a folder of images to categories and a report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holotype.cli.common import (
    BoxOptions,
    CodeOptions,
    Dir,
    File,
    LabelsOptions,
    Parser,
    ProgressOptions,
    RunDir,
    echo,
    is_rank0_output,
)
from holotype.config.schema import DiscoverConfig
from holotype.errors import InputError
from holotype.utils.text import plural

if TYPE_CHECKING:
    from holotype.data.table import Table
    from holotype.results.discovery import Category, Discovery

MAX_LINES = 40
"""Categories that are listed on the terminal; the report shows all."""


@dataclass(kw_only=True)
class DiscoverOptions(LabelsOptions, BoxOptions, CodeOptions, ProgressOptions):
    """Place every image in a known class or in a category found in the data: embed, estimate how many categories there
    are, train, describe, write a report. You can stop with Ctrl-C; the same command continues."""

    images: Annotated[str, "[IMAGES]"] | None = None
    """Folder of images, CSV or Parquet file that lists them, Parquet file or tars that hold them ('{000..099}.tar'), or
    an address (s3://bucket/photos, gs://, abfs://, hf://datasets/...)."""
    table: Annotated[str, "FILE"] | None = None
    """The same as IMAGES, for what holotype sample wrote."""
    out: RunDir | None = None
    """Run folder (default: runs/NAME-discover)."""
    dry_run: bool = False
    """Check the images and labels, say what to fix and how long training will take; write nothing."""
    unlabelled: list[Annotated[str, "NAME"]] = field(default_factory=list)
    """Treat this folder or label as unlabelled, not as a class; can be given several times."""
    embeddings: Dir | None = None
    """What holotype embed wrote of these images, or of all that holotype sample drew them from."""
    edits: File | None = None
    """edits.csv as exported from the report of this run."""
    config: DiscoverConfig = field(default_factory=DiscoverConfig)

    @property
    def source(self) -> str:
        """The images, however they are named."""
        if (self.images is None) == (self.table is None):
            raise InputError("holotype discover takes images by IMAGES or by --table, one of the two.")
        return self.images or self.table or ""

    def folder(self, table: Table) -> Path:
        """The run folder."""
        from holotype.discovery.pipeline import default_folder, find_folder

        return self.out or find_folder(default_folder(self.source), table)


def make_parser() -> Parser:
    return Parser("discover", DiscoverOptions)


def command(argv: Sequence[str]) -> int:
    options: DiscoverOptions = make_parser().parse_args(argv)
    source = options.source
    from holotype.data.load import load_table

    table = load_table(source, options.labels, unlabelled=options.unlabelled, **options.box_options)
    if options.embeddings:
        from holotype.embeddings.store import EmbeddingParts

        EmbeddingParts(options.embeddings)  # what is wrong with the folder is said before anything else
    if options.dry_run:
        return print_dry_run(table, options)
    from holotype.discovery.pipeline import discover_table

    folder = options.folder(table)
    found = discover_table(
        table,
        options.config,
        folder,
        progress=not options.no_progress,
        edits=options.edits,
        embeddings=options.embeddings,
    )
    if is_rank0_output():
        echo(discovery_summary(found, folder))
    return 0


def print_dry_run(table: Table, options: DiscoverOptions) -> int:
    """Print what a discovery would begin or go on with; raise the InputError that it would. Nothing is written."""
    config, edits, progress = options.config, options.edits, not options.no_progress
    from holotype.discovery.collection import index_images, read_collection
    from holotype.discovery.dry_run import exif_summary, inspect_collection

    folder = options.folder(table)
    now = index_images(table, read_collection(folder), progress)
    seen = inspect_collection(table, config, now, progress)
    shots = exif_summary(seen.table, config, seen.shots)
    if is_rank0_output():  # what follows takes seconds to import
        echo("\n".join((*seen.lines, *shots, *seen.unread)), flush=True)
    from holotype.discovery.backbone_choice import preview_backbone
    from holotype.discovery.dry_run import estimate_time, preview_plan
    from holotype.discovery.pipeline import check_table
    from holotype.discovery.plan import plan_round
    from holotype.utils.device import pick_device

    for part in (table, seen.table.take(seen.table.usable)):
        check_table(part, config, folder)
    plan = plan_round(folder, table, config, edits, now=now)
    lines = preview_plan(plan)
    if is_rank0_output() and lines:
        echo("\n".join(lines))
    if plan.trains:
        network = preview_backbone(config.network, pick_device(config.device))
        words = estimate_time(table, config, network, len(plan.inputs.seeds), plan.to_embed)
        if is_rank0_output():
            echo(words)
    return 0


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
    bursts = {id: f" in {n:>5,} {'burst ' if n == 1 else 'bursts'}" for id, n in (times or {}).items()}
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
    known = plural(len(found.known), "known class", "known classes")
    new = plural(len(novel), "new category", "new categories")
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
        n = plural(record.scores.n, "image")
        lines += [
            "",
            f"Against the truth of {n}, which training never saw, in per cent:",
            *score_lines(record),
        ]
    seconds = ", ".join(f"{step} {value:.0f} s" for step, value in facts.seconds.items())
    doubtful = plural(int(images.doubtful.sum()), "image is", "images are")
    lines += ["", f"{doubtful} doubtful. Round {facts.round}; {seconds}."]
    if caveat := facts.backbone.get("caveat"):
        lines.append(f"Backbone {facts.backbone['name']}: {caveat}")
    lines.append(f"Every image with its category: {folder / 'assignments.csv'}")
    lines.append(f"Report: {folder / 'report.html'}")
    return "\n".join(lines)
