"""`holotype train`: parse settings, run one experiment, print its scores.

METHOD, DATASET, --preset and --config decide which settings there are; runs/experiment.py checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holotype.cli.common import Parser, echo
from holotype.cli.options import TrainOptions
from holotype.config.parse import write_yaml
from holotype.data.datasets.registry import BENCHMARKS, check_dataset
from holotype.errors import InputError
from holotype.methods import METHODS
from holotype.models.weights_io import backbone_caveat
from holotype.runs.experiment import Experiment, default_experiment, describe_settings, read_settings, resolve
from holotype.runs.record import Record
from holotype.runs.run import run_experiment
from holotype.utils.text import plural

NAMES = {"method_name": "METHOD", "dataset": "DATASET", "preset": "PRESET"}
"""Settings that decide which others there are, and their defaults."""


def read_names(options: TrainOptions, **defaults: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the names that NAMES lists and all other settings of files and flags. defaults: of the names."""
    if len(options.names) > 2:
        raise InputError(f"{options.names[2]!r} is one word too many; settings are --NAME VALUE.")
    flags = options.settings | ({"progress": "false"} if options.no_progress else {})
    named = flags | dict(zip(NAMES, options.names, strict=False))
    content: dict[str, Any] = {}
    for file in options.config:
        # the method that the words name wins over those of the files
        content |= read_settings(file, named.get("method_name") or content.get("method_name"))
    if "preset" in content and named.get("preset", content["preset"]) != content["preset"]:
        raise InputError(
            f"{options.config[-1]} holds the settings of the preset {content['preset']!r}, so --preset "
            f"{named['preset']} would change nothing but the name; leave out one of the two."
        )
    known = {"preset": "default"} | defaults | content | named
    for name, place in NAMES.items():
        if name not in known:
            raise InputError(
                f"{place} is missing; write holotype train METHOD DATASET, or name a --config file."
            )
    overrides = {key: value for key, value in content.items() if key not in NAMES} | flags
    return {name: known[name] for name in NAMES}, overrides


def train_help(options: TrainOptions) -> str:
    """Return the help, with every setting, its type and its default, where a method is named."""
    parser = Parser("train", TrainOptions)
    parser.usage = (
        "holotype train METHOD DATASET [--root DIR] [--SETTING VALUE ...]\n"
        "       holotype train --config FILE [--SETTING VALUE ...]"
    )
    if not (options.names or options.config or options.settings):
        parser.epilog = (
            f"METHOD: {', '.join(METHODS)} (holotype methods explains them), or your own as package.module:Class. "
            f"DATASET: {', '.join(BENCHMARKS)} (in the folder --root), or a folder of images, or a CSV or Parquet "
            "file that lists them."
        )
        return parser.format_help()

    names, _ = read_names(options, dataset="DATASET")
    experiment = default_experiment(*names.values())
    of = f"{names['method_name']} on {names['dataset']}"
    parser.description = f"{parser.description} The defaults shown are those of {of}."
    groups: dict[str, Any] = {}
    for row in describe_settings(experiment):
        if row.group not in groups:
            groups[row.group] = parser.add_argument_group(row.group)
        text = f"{row.help} [{row.type}; default {row.value}]".strip()
        groups[row.group].add_argument(
            f"--{row.key.replace('_', '-')}", metavar="VALUE", help=text.replace("%", "%%")
        )
    return parser.format_help()


def train_command(options: TrainOptions) -> None:
    if options.help:
        echo(train_help(options))
        return
    names, overrides = read_names(options)
    if not options.print_config:
        check_dataset(names["dataset"])
    experiment = resolve(names["method_name"], names["dataset"], names["preset"], overrides)
    if options.print_config:
        echo(write_yaml(experiment.as_dict()), end="")
        return
    finished = (experiment.folder / "scores.json").exists()
    echo(train_summary(experiment, run_experiment(experiment), finished))


def train_summary(experiment: Experiment, record: Record, finished: bool) -> str:
    """Return what a person wants to see after a run."""
    identity, made = record.identity, record.made
    lines = [f"{identity.method['name']} ({made.variant}) on {identity.data['name']}, seed {identity.seed}"]
    if finished:
        lines.append("This run was finished before; nothing was trained.")
    if record.scores.all is None:
        lines.append("The true classes are not known, so there is nothing to score.")
    else:
        test = {"held out": vars(record.test)} if record.test else {}
        inductive = identity.data.get("protocol", {}).get("inductive")
        name, images = ("test", "test") if inductive else ("unlabelled", "unlabelled training")
        lines += ["", *score_lines({name: vars(record.scores)} | test), ""]
        lines.append(f"{record.scores.n:,} {images} images, one global assignment, last epoch")
    if placed := record.placed:
        unread = f"; {placed.unreadable:,} could not be read" if placed.unreadable else ""
        novel = f"{placed.novel:,} in {plural(placed.novel_categories, 'new category')}"
        lines.append(f"Unlabelled images: {placed.known:,} in known classes, {novel}{unread}")
    lines.append(f"Every image with its category: {experiment.folder / 'assignments.csv'}")
    lines += [f"During training {restart}" for restart in record.restarts]
    lines += [f"Warning: {warning}" for warning in record.warnings]
    lines.append(f"{made.seconds:,} s of training, {made.mode}; run folder {experiment.folder}")
    if caveat := backbone_caveat(identity.backbone["digest"]):
        lines.append(f"Backbone {identity.backbone['name']}: {caveat}")
    return "\n".join(lines)


def score_lines(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a table of All, Old and New in per cent."""
    lines = [f"  {'':<11}   All    Old    New"]
    for name, scores in rows.items():
        shares = [scores[key] for key in ("all", "old", "new")]
        cells = ["  none" if share is None else f"{100 * share:6.1f}" for share in shares]
        lines.append(f"  {name:<11}{' '.join(cells)}")
    return lines
