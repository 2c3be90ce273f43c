"""`holotype train`: parse settings, run one experiment, print its scores.

METHOD, DATASET, --preset and --config are taken off; every other flag is a setting, which runs/resolve.py checks.
Nothing heavy is imported before the words make sense.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.cli.common import echo, is_rank0_output
from holotype.errors import InputError
from holotype.utils.text import join_or, plural

if TYPE_CHECKING:
    from holotype.runs.experiment import Experiment
    from holotype.runs.record import Record, Scores

BARE_FLAGS = ("--help", "-h", "--print_config", "--no_progress", "--allow_code")
"""Flags that take no value."""
POSITIONALS = ("method_name", "dataset", "preset")
"""Settings that decide which others there are, and their defaults."""
TRAIN_USAGE = """holotype train METHOD DATASET [--root DIR] [--SETTING VALUE ...]
       holotype train --config FILE [--SETTING VALUE ...]"""


@dataclass
class ParsedArgs:
    """A command line taken apart."""

    places: list[str] = field(default_factory=list)
    """Words that belong to no flag: METHOD and DATASET."""
    flags: list[tuple[str, str | None]] = field(default_factory=list)
    """Flag and value, in order; None for a flag of BARE."""

    def has(self, *names: str) -> bool:
        return any(flag in names for flag, _ in self.flags)

    def pop(self, name: str) -> list[str]:
        """Take the values of a flag off."""
        values = [value for flag, value in self.flags if flag == name and value is not None]
        self.flags = [(flag, value) for flag, value in self.flags if flag != name]
        return values


def parse_words(argv: Sequence[str]) -> ParsedArgs:
    words, rest = ParsedArgs(), iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        flag = with_underscores(name)
        if not word.startswith("-") or word == "-":
            words.places.append(word)
        elif flag in BARE_FLAGS:
            if equals:
                raise InputError(f"The flag {name} takes no value; write {name} alone.")
            words.flags.append((flag, None))
        elif equals:
            words.flags.append((flag, value))
        else:
            given = next(rest, None)
            if given is None or given.startswith("--"):
                raise InputError(f"The flag {word} needs a value; write {word} VALUE.")
            words.flags.append((flag, given))
    return words


def with_underscores(flag: str) -> str:
    """A flag as settings are spelled: --cache-views is --cache_views."""
    return "--" + flag[2:].replace("-", "_") if flag.startswith("--") else flag


@dataclass
class TrainRequest:
    """What a command line asks for, before it is checked."""

    method: str
    dataset: str
    preset: str
    from_files: dict[str, Any]
    """Dotted settings, of the last file that has them."""
    flags: dict[str, str]
    """Dotted settings, as text."""

    def resolve(self) -> Experiment:
        """Defaults of method, data set and preset, then the files, then the flags."""
        from holotype.runs.resolve import default_experiment, nearest_setting, resolve, setting_values

        known = [
            key for key, _, _ in setting_values(default_experiment(self.method, self.dataset, self.preset))
        ]
        for flag in self.flags:
            if flag not in known:
                meant = nearest_setting(flag.lstrip("-"), known)
                hint = (
                    f"did you mean --{meant}?"
                    if meant
                    else "holotype train METHOD DATASET --help lists them."
                )
                raise InputError(f"There is no flag {'' if flag.startswith('-') else '--'}{flag}; {hint}")
        return resolve(self.method, self.dataset, self.preset, self.from_files | self.flags)


def read_request(words: ParsedArgs) -> TrainRequest:
    """METHOD, DATASET and --preset from the words, or from the files of --config, and all the other settings."""
    files = [Path(file) for file in words.pop("--config")]
    given = _given_names(words)
    content = _read_files(files, given.get("method_name"))
    if given.get("preset", content.get("preset")) != content.get("preset", given.get("preset")):
        raise InputError(
            f"{files[-1]} holds the settings of the preset {content['preset']!r}, so --preset "
            f"{given['preset']} would change nothing but the name; leave out one of the two."
        )
    found = {
        "preset": "default",
        **{name: content.pop(name) for name in POSITIONALS if name in content},
        **given,
    }
    for name, place in (("method_name", "METHOD"), ("dataset", "DATASET")):
        if name not in found:
            raise InputError(
                f"{place} is missing; write holotype train METHOD DATASET, or name it in a --config file."
            )
    flags = {flag.removeprefix("--"): value for flag, value in words.flags if value is not None}
    if words.has("--no_progress"):
        flags["progress"] = "false"
    return TrainRequest(found["method_name"], found["dataset"], found["preset"], content, flags)


def _given_names(words: ParsedArgs) -> dict[str, str]:
    """Of NAMES, those that the words say."""
    if len(words.places) > 2:
        raise InputError(
            f"{words.places[2]!r} is one word too many after METHOD and DATASET; settings are --NAME VALUE."
        )
    given = dict(zip(POSITIONALS, words.places, strict=False))
    for name in POSITIONALS:
        for value in words.pop(f"--{name}"):
            if given.get(name, value) != value:
                raise InputError(f"{name} is given twice, as {given[name]!r} and {value!r}; leave one out.")
            given[name] = value
    return given


def _read_files(files: Sequence[Path], method: str | None) -> dict[str, Any]:
    """Dotted settings. method: the one that the words name, which wins over those of the files."""
    content: dict[str, Any] = {}
    if files:
        from holotype.config.parse import flatten
        from holotype.runs.resolve import read_settings

        for file in files:
            content |= flatten(read_settings(file, method or content.get("method_name")))
    return content


def settings_help(experiment: Experiment) -> str:
    """Every setting with its type and its default, group by group; as wide as the terminal."""
    from holotype.runs.resolve import describe_settings

    parser = argparse.ArgumentParser(
        prog="holotype train",
        usage=TRAIN_USAGE,
        description="Train one method on one data set and score it. The defaults shown are those of "
        f"{experiment.method_name} on {experiment.dataset}.",
        add_help=False,
    )
    general = parser.add_argument_group("What to do")
    general.add_argument("-h", "--help", action="store_true", help="Show this help and leave.")
    general.add_argument(
        "--config",
        metavar="FILE",
        help="YAML file with settings, such as a run's config.yaml; flags win over it.",
    )
    general.add_argument(
        "--print_config", action="store_true", help="Print all settings as such a YAML file and leave."
    )
    general.add_argument("--no_progress", action="store_true", help="Show no progress bars.")
    general.add_argument(
        "--allow_code",
        action="store_true",
        help="Import the method that a --config file of somebody else's names as package.module:Class.",
    )
    groups: dict[str, Any] = {}
    for row in describe_settings(experiment):
        if row.group not in groups:
            groups[row.group] = parser.add_argument_group(row.group)
        text = f"{row.help} [{row.type}; default {row.value}]".strip()
        groups[row.group].add_argument(f"--{row.key}", metavar="VALUE", help=text.replace("%", "%%"))
    return parser.format_help()


def command(argv: Sequence[str]) -> int:
    words = parse_words(argv)
    if words.has("--help", "-h"):
        echo(_help(words))
        return 0
    request = read_request(words)
    if words.has("--print_config"):
        from holotype.config.parse import write_yaml

        echo(write_yaml(request.resolve().as_dict()), end="")
        return 0
    from holotype.data.datasets.registry import check_dataset

    check_dataset(request.dataset)
    experiment = request.resolve()
    from holotype.runs.run import run_experiment

    finished = (experiment.folder / "scores.json").exists()
    record = run_experiment(experiment)
    if is_rank0_output():
        echo(train_summary(experiment, record, finished))
    return 0


def _help(words: ParsedArgs) -> str:
    """The settings of METHOD where it is named, otherwise what can stand for METHOD and DATASET."""
    if not (words.places or words.has("--config")):
        return general_help()
    if len(words.places) == 1 and not words.has("--config"):
        words.places.append("DATASET")
    request = read_request(words)
    from holotype.runs.resolve import default_experiment

    return settings_help(default_experiment(request.method, request.dataset, request.preset))


def general_help() -> str:
    from holotype.data.datasets.registry import BENCHMARKS
    from holotype.methods import METHODS

    methods = []
    for name, method in METHODS.items():
        presets = "" if len(method.presets) == 1 else f" (--preset {join_or(method.presets)})"
        methods.append(f"  {name:<10} {_first_line(method)}{presets}")
    return "\n".join(
        [
            f"usage: {TRAIN_USAGE}",
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
