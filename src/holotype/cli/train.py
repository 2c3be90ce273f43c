"""`holotype train`: parse settings, run one experiment, print its scores.

METHOD, DATASET, --preset and --config are taken off; every other flag is a setting, which runs/experiment.py checks.
Nothing heavy is imported before the words make sense.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holotype.cli.common import (
    CodeOptions,
    File,
    Parser,
    ProgressOptions,
    dashed_flag,
    echo,
    is_rank0_output,
    options_of,
)
from holotype.errors import InputError
from holotype.utils.text import join_or, plural

if TYPE_CHECKING:
    from holotype.runs.experiment import Experiment
    from holotype.runs.record import Record, Scores

NAMES = {"method_name": "METHOD", "dataset": "DATASET", "preset": "PRESET"}
"""Settings that decide which others there are, and their defaults."""
TRAIN_USAGE = """holotype train METHOD DATASET [--root DIR] [--SETTING VALUE ...]
       holotype train --config FILE [--SETTING VALUE ...]"""


@dataclass
class TrainOptions(CodeOptions, ProgressOptions):
    """Train one method on one data set and score it."""

    names: list[Annotated[str, "[METHOD DATASET]"]] = field(default_factory=list)
    """The method and the data set."""
    config: list[File] = field(default_factory=list)
    """YAML file with settings, such as a run's config.yaml; flags win over it."""
    print_config: bool = False
    """Print all settings as such a YAML file and leave."""


@dataclass
class TrainRequest:
    """What a command line asks for, before it is checked."""

    options: TrainOptions
    names: dict[str, str]
    """Those of NAMES."""
    from_files: dict[str, Any]
    """Dotted settings, of the last file that has them."""
    flags: dict[str, str]
    """Dotted settings, as text."""

    def defaults(self) -> Experiment:
        """The experiment without the settings of files and flags."""
        from holotype.runs.experiment import default_experiment

        return default_experiment(self.names["method_name"], self.names["dataset"], self.names["preset"])

    def resolve(self) -> Experiment:
        """Defaults of method, data set and preset, then the files, then the flags."""
        from holotype.runs.experiment import nearest_setting, resolve, setting_values

        default = self.defaults()
        known = [key for key, _, _ in setting_values(default)]
        for flag in self.flags:
            if flag not in known:
                meant = nearest_setting(flag.lstrip("-"), known)
                hint = (
                    f"did you mean --{meant}?"
                    if meant
                    else "holotype train METHOD DATASET --help lists them."
                )
                raise InputError(f"There is no flag {'' if flag.startswith('-') else '--'}{flag}; {hint}")
        return resolve(default.method_name, default.dataset, default.preset, self.from_files | self.flags)


def read_request(argv: Sequence[str], **defaults: str) -> TrainRequest:
    """Read the words: options, METHOD and DATASET, and every other flag as a setting. defaults: of NAMES."""
    words, flags = split_settings(argv)
    options: TrainOptions = make_parser().parse_args(words)
    if len(options.names) > 2:
        raise InputError(
            f"{options.names[2]!r} is one word too many after METHOD and DATASET; settings are --NAME VALUE."
        )
    names = dict(zip(NAMES, options.names, strict=False))
    for name in NAMES:
        value = flags.pop(name, None)
        if value is not None and names.setdefault(name, value) != value:
            raise InputError(f"{name} is given twice, as {names[name]!r} and {value!r}; leave one out.")
    content = _read_files(options.config, names.get("method_name"))
    if names.get("preset", content.get("preset")) != content.get("preset", names.get("preset")):
        raise InputError(
            f"{options.config[-1]} holds the settings of the preset {content['preset']!r}, so --preset "
            f"{names['preset']} would change nothing but the name; leave out one of the two."
        )
    from_files = {name: content.pop(name) for name in NAMES if name in content}
    names = {"preset": "default"} | defaults | from_files | names
    for name, place in NAMES.items():
        if name not in names:
            raise InputError(
                f"{place} is missing; write holotype train METHOD DATASET, or name it in a --config file."
            )
    if options.no_progress:
        flags["progress"] = "false"
    return TrainRequest(options, names, content, flags)


def split_settings(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Take the flags that are no options of the command off, as settings: dotted name -> text."""
    options = {option.flag for option in options_of(TrainOptions)} | {"--help", "-h"}
    words: list[str] = []
    settings: dict[str, str] = {}
    rest = iter(argv)
    for word in rest:
        flag, equals, value = word.partition("=")
        if word == "-" or not word.startswith("-") or dashed_flag(flag) in options:
            words.append(word)
            continue
        if not equals:
            value = next(rest, "--")
            if value.startswith("--"):
                raise InputError(f"The flag {word} needs a value; write {word} VALUE.")
        settings[flag[2:].replace("-", "_") if flag.startswith("--") else flag] = value
    return words, settings


def _read_files(files: Sequence[Path], method: str | None) -> dict[str, Any]:
    """Dotted settings. method: the one that the words name, which wins over those of the files."""
    content: dict[str, Any] = {}
    if files:
        from holotype.runs.experiment import read_settings

        for file in files:
            content |= read_settings(file, method or content.get("method_name"))
    return content


def make_parser() -> Parser:
    return Parser("train", TrainOptions, usage=TRAIN_USAGE)


def settings_help(experiment: Experiment) -> str:
    """Every setting with its type and its default, group by group; as wide as the terminal."""
    from holotype.runs.experiment import describe_settings

    parser = make_parser()
    names = f"{experiment.method_name} on {experiment.dataset}"
    parser.description = f"{parser.description} The defaults shown are those of {names}."
    groups: dict[str, Any] = {}
    for row in describe_settings(experiment):
        if row.group not in groups:
            groups[row.group] = parser.add_argument_group(row.group)
        text = f"{row.help} [{row.type}; default {row.value}]".strip()
        groups[row.group].add_argument(f"--{row.key}", metavar="VALUE", help=text.replace("%", "%%"))
    return parser.format_help()


def command(argv: Sequence[str]) -> int:
    if {"--help", "-h"}.intersection(argv):
        words = [word for word in argv if word not in ("--help", "-h")]
        echo(settings_help(read_request(words, dataset="DATASET").defaults()) if words else general_help())
        return 0
    request = read_request(argv)
    if request.options.print_config:
        from holotype.config.parse import write_yaml

        echo(write_yaml(request.resolve().as_dict()), end="")
        return 0
    from holotype.data.datasets.registry import check_dataset

    check_dataset(request.names["dataset"])
    experiment = request.resolve()
    from holotype.runs.run import run_experiment

    finished = (experiment.folder / "scores.json").exists()
    record = run_experiment(experiment)
    if is_rank0_output():
        echo(train_summary(experiment, record, finished))
    return 0


def general_help() -> str:
    from holotype.data.datasets.registry import BENCHMARKS
    from holotype.methods import METHODS

    methods = []
    for name, method in METHODS.items():
        presets = "" if len(method.presets) == 1 else f" (--preset {join_or(method.presets)})"
        # the first line of the module names the method and its paper
        doc = sys.modules[method.__module__].__doc__ or method.__doc__ or ""
        methods.append(f"  {name:<10} {doc.strip().splitlines()[0].rstrip('.')}{presets}")
    return "\n".join(
        [
            f"usage: {TRAIN_USAGE}\n",
            "METHOD is one of these, or a method of your own as package.module:Class:",
            *methods,
            "\nDATASET is one of these, in the folder --root, or a folder of images, or a CSV or Parquet file:",
            f"  {', '.join(BENCHMARKS)}\n",
            "holotype train METHOD DATASET --help lists the settings with their defaults there.",
        ]
    )


def train_summary(experiment: Experiment, record: Record, finished: bool) -> str:
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
            f"{plural(placed.novel_categories, 'new category', 'new categories')}{unread}"
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
