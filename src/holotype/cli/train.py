"""`holotype train`: one run, and the few lines printed after it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holotype.cli.settings import USAGE, Words, help_text, read_request, read_words
from holotype.cli.words import speaks

if TYPE_CHECKING:
    from holotype.runs.experiment import Experiment


def command(argv: Sequence[str]) -> int:
    words = read_words(argv)
    if words.has("--help", "-h"):
        print(_help(words))
        return 0
    request = read_request(words)
    if words.has("--print_config"):
        from holotype.runs.yaml_text import write_yaml

        print(write_yaml(request.resolve().as_dict()), end="")
        return 0
    from holotype.data.benchmarks import check_dataset

    check_dataset(request.dataset)
    experiment = request.resolve()
    from holotype.runs.run import run_experiment

    finished = (experiment.folder / "scores.json").exists()
    record = run_experiment(experiment)
    if speaks():
        print(summary(experiment, record, finished))
    return 0


def _help(words: Words) -> str:
    """The settings of METHOD where it is named, otherwise what can stand for METHOD and DATASET."""
    if not (words.places or words.has("--config")):
        return general_help()
    if len(words.places) == 1 and not words.has("--config"):
        words.places.append("DATASET")
    request = read_request(words)
    from holotype.runs.settings import default_experiment

    return help_text(default_experiment(request.method, request.dataset, request.preset))


def general_help() -> str:
    from holotype.data.benchmarks import BENCHMARKS
    from holotype.methods import METHODS

    methods = []
    for name, method in METHODS.items():
        presets = "" if len(method.presets) == 1 else f" (--preset {' or '.join(method.presets)})"
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


def summary(experiment: Experiment, record: dict[str, Any], finished: bool) -> str:
    """What a person wants to see after a run."""
    lines = [f"{record['method']} ({record['variant']}) on {record['dataset']}, seed {record['seed']}"]
    if finished:
        lines.append("This run was finished before; nothing was trained.")
    if record.get("all") is None:
        lines.append("The true classes are not known, so that there is nothing to score.")
    else:
        lines += ["", *score_lines(record), ""]
        lines.append(f"{record['n']:,} {record['scored_on']}, one global assignment, {record['selection']}")
    if placed := record.get("placed"):
        unread = f"; {placed['unreadable']:,} could not be read" if placed["unreadable"] else ""
        lines.append(
            f"Unlabelled images: {placed['known']:,} in known classes, {placed['novel']:,} in "
            f"{placed['novel_categories']:,} new categories{unread}"
        )
    lines.append(f"Every image with its category: {experiment.folder / 'assignments.csv'}")
    lines.append(f"{record['seconds']:,} s of training, {record['mode']}; run folder {experiment.folder}")
    if record.get("caveat"):
        lines.append(f"Backbone {record['backbone']}: {record['caveat']}")
    return "\n".join(lines)


def score_lines(record: dict[str, Any]) -> list[str]:
    """All, Old and New in per cent; held-out images below, where there are some."""
    rows = [("", *(f"{word:>6}" for word in ("All", "Old", "New")))]
    rows.append(("unlabelled", *(_percent(record[key]) for key in ("all", "old", "new"))))
    if record.get("test"):
        rows.append(("held out", *(_percent(record["test"][key]) for key in ("all", "old", "new"))))
    return [f"  {name:<11}" + " ".join(cells) for name, *cells in rows]


def _percent(share: float | None) -> str:
    return f"{100 * share:6.1f}" if share is not None else "  none"
