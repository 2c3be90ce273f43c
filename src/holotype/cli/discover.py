"""`holotype discover`: from a folder of images to categories and a report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holotype.cli.common import echo
from holotype.cli.options import DiscoverOptions
from holotype.cli.train import score_lines
from holotype.data.load import load_table
from holotype.discovery.pipeline import default_folder, discover_table, find_folder, preview_discovery
from holotype.discovery.source import Source
from holotype.embeddings.store import EmbeddingParts
from holotype.results.describe import burst_events, burst_text
from holotype.results.discovery import Category, Discovery, weighted_sizes
from holotype.results.ensemble import stability_summary
from holotype.runs.record import RunFolder
from holotype.utils.text import plural

MAX_LINES = 40
"""Categories that are listed on the terminal; the report shows all."""


def discover_command(options: DiscoverOptions) -> None:
    source, config, edits, progress = options.source, options.config, options.edits, options.progress
    how: dict[str, Any] = {"unlabelled": options.unlabelled, **options.box_options}
    table = load_table(source, options.labels, vectors=options.features is not None, **how)
    if options.embeddings:
        EmbeddingParts(options.embeddings)  # what is wrong with the folder is said before anything else
    folder = options.out or find_folder(default_folder(source), table)
    if options.dry_run:
        for line in preview_discovery(table, config, folder, edits=edits, progress=progress):
            echo(line)
        return
    embeddings, unlabelled = options.embeddings, tuple(options.unlabelled)
    kept = Source.of(
        source,
        labels=options.labels,
        embeddings=embeddings,
        unlabelled=unlabelled,
        vectors=options.features is not None,
        **options.box_options,
    )
    found = discover_table(
        table, config, folder, progress=progress, edits=edits, embeddings=embeddings, source=kept
    )
    echo(discovery_summary(found, folder))


def category_lines(
    categories: Sequence[Category],
    times: Mapping[str, int] | None = None,
    whole: Mapping[str, int] | None = None,
) -> list[str]:
    """Return a line each; of more than MAX_LINES the largest known classes and the largest new categories, half of the
    lines for each kind, and how many are left out.

    Args:
        times: Bursts of each.
        whole: Images of the collection that a sample was drawn from.
    """
    shown, more = list(categories), []
    if len(categories) > MAX_LINES:
        shown = []
        for kind, words in (("known", "known class"), ("novel", "new category")):
            of = sorted((c for c in categories if c.kind == kind), key=lambda c: -c.n)
            shown += of[: MAX_LINES // 2]
            more += [plural(len(of) - MAX_LINES // 2, words)] if len(of) > MAX_LINES // 2 else []
    width = max((len(c.name) for c in shown), default=0)
    bursts = {id: f" in {n:>5,} {'burst ' if n == 1 else 'bursts'}" for id, n in (times or {}).items()}
    about = {id: f", about {count:,} in the collection" for id, count in (whole or {}).items()}
    lines = [
        f"  {c.name:<{width}} {c.n:>7,}{bursts.get(c.id, '')}{about.get(c.id, '')}  {c.words}".rstrip()
        for c in shown
    ]
    return [*lines, f"  and {' and '.join(more)} more, all smaller, in the report"] if more else lines


def discovery_summary(found: Discovery, folder: Path) -> str:
    """Return what a person wants to see at the end. Of bursts, an image that is alone counts as one."""
    images, facts, whole = found.images, found.facts, weighted_sizes(found.images)
    unread = int((images.problem != "").sum())
    novel = [c for c in found.categories if c.kind == "novel"]
    known = plural(len(found.known), "known class")
    new = plural(len(novel), "new category")
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
    if told := stability_summary(found):
        lines += ["", *told]
    if (record := RunFolder(folder).finished()) and record.scores.all is not None:
        n = plural(record.scores.n, "image")
        lines += ["", f"Against the truth of {n}, which training never saw, in per cent:"]
        lines += score_lines({"unlabelled": vars(record.scores)})
    seconds = ", ".join(f"{step} {value:.0f} s" for step, value in facts.seconds.items())
    doubtful = plural(int(images.doubtful.sum()), "image is", "images are")
    lines += ["", f"{doubtful} doubtful. Round {facts.round}; {seconds}."]
    if caveat := facts.backbone.get("caveat"):
        lines.append(f"Backbone {facts.backbone['name']}: {caveat}")
    lines.append(f"Every image with its category: {folder / 'assignments.csv'}")
    lines.append(f"Report: {folder / 'report.html'}")
    return "\n".join(lines)
