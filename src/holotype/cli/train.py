"""`holotype train`: one run, and the few lines printed after it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holotype.cli.settings import USAGE, Words, help_text, read_request, read_words
from holotype.cli.words import either, say, several, speaks

if TYPE_CHECKING:
    from holotype.runs.experiment import Experiment
    from holotype.runs.record import Record, Scores


def command(argv: Sequence[str]) -> int:
    words = read_words(argv)
    if words.has("--help", "-h"):
        say(_help(words))
        return 0
    request = read_request(words)
    if words.has("--print_config"):
        from holotype.config.parse import write_yaml

        say(write_yaml(request.resolve().as_dict()), end="")
        return 0
    from holotype.data.datasets.registry import check_dataset

    check_dataset(request.dataset)
    experiment = request.resolve()
    from holotype.runs.run import run_experiment

    finished = (experiment.folder / "scores.json").exists()
    record = run_experiment(experiment)
    if speaks():
        say(summary(experiment, record, finished))
    return 0


def _help(words: Words) -> str:
    """The settings of METHOD where it is named, otherwise what can stand for METHOD and DATASET."""
    if not (words.places or words.has("--config")):
        return general_help()
    if len(words.places) == 1 and not words.has("--config"):
        words.places.append("DATASET")
    request = read_request(words)
    from holotype.runs.resolve import default_experiment

    return help_text(default_experiment(request.method, request.dataset, request.preset))


def general_help() -> str:
    from holotype.data.datasets.registry import BENCHMARKS
    from holotype.methods import METHODS

    methods = []
    for name, method in METHODS.items():
        presets = "" if len(method.presets) == 1 else f" (--preset {either(method.presets)})"
        methods.append(f"  {name:<10} {_first_line(method)}{presets}")
    return "\n".join(
        [
            f"usage: {USAGE}",
            "",
            "METHOD is one of these, or a method of your own as package.module:Class:",
            *methods,
            "",
            "DATASET is one of these, in the folder --root, or a folder of images, or a CSV or Parquet file:",
            f"  {', '.join(BENCHMARKS)}",
            "",
            "holotype train METHOD DATASET --help lists the settings with their defaults there.",
        ]
    )


def _first_line(method: type) -> str:
    """The first line of the method's module, which names it and its paper."""
    doc = sys.modules[method.__module__].__doc__ or method.__doc__ or ""
    return doc.strip().split("\n")[0].rstrip(".")


def summary(experiment: Experiment, record: Record, finished: bool) -> str:
    """What a person wants to see after a run."""
    from holotype.models.weights_io import backbone_caveat

    identity, made = record.identity, record.made
    lines = [f"{identity.method['name']} ({made.variant}) on {identity.data['name']}, seed {identity.seed}"]
    if finished:
        lines.append("This run was finished before; nothing was trained.")
    if record.scores.all is None:
        lines.append("The true classes are not known, so there is nothing to score.")
    else:
        lines += ["", *score_lines(record), ""]
        lines.append(f"{record.scores.n:,} unlabelled training images, one global assignment, last epoch")
    if placed := record.placed:
        unread = f"; {placed.unreadable:,} could not be read" if placed.unreadable else ""
        lines.append(
            f"Unlabelled images: {placed.known:,} in known classes, {placed.novel:,} in "
            f"{several(placed.novel_categories, 'new category', 'new categories')}{unread}"
        )
    lines.append(f"Every image with its category: {experiment.folder / 'assignments.csv'}")
    lines += [f"During training {restart}" for restart in record.restarts]
    lines.append(f"{made.seconds:,} s of training, {made.mode}; run folder {experiment.folder}")
    if caveat := backbone_caveat(identity.backbone["digest"]):
        lines.append(f"Backbone {identity.backbone['name']}: {caveat}")
    return "\n".join(lines)


def score_lines(record: Record) -> list[str]:
    """All, Old and New in per cent; held-out images below, where there are some."""
    rows = [("", *(f"{word:>6}" for word in ("All", "Old", "New")))]
    rows.append(("unlabelled", *_cells(record.scores)))
    if record.test:
        rows.append(("held out", *_cells(record.test)))
    return [f"  {name:<11}" + " ".join(cells) for name, *cells in rows]


def _cells(scores: Scores) -> tuple[str, ...]:
    return tuple(
        f"{100 * share:6.1f}" if share is not None else "  none"
        for share in (scores.all, scores.old, scores.new)
    )
