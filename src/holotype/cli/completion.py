"""`holotype completion`: a script for the shell, made of what the commands really take."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from holotype.cli.shells import SCRIPTS, Entry, Flag
from holotype.cli.words import Parser, say

HOW = {
    "bash": "holotype completion bash > ~/.local/share/bash-completion/completions/holotype",
    "zsh": "holotype completion zsh > DIR/_holotype, with DIR a folder of $fpath",
    "fish": "holotype completion fish > ~/.config/fish/completions/holotype.fish",
}


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    say(SCRIPTS[given.shell](read_entries()))
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype completion",
        description="Print a script that completes commands, flags, methods, data sets and presets. It is made once: "
        + "; ".join(f"for {shell}, {words}" for shell, words in HOW.items())
        + ".",
    )
    parser.add_argument("shell", choices=list(HOW), metavar="SHELL", help=f"one of {', '.join(HOW)}")
    return parser


# -- what the commands take ---------------------------------------------------------------------------


def read_entries() -> list[Entry]:
    """Every command, in the order of the help."""
    from holotype.cli import COMMANDS, FLAGS

    everywhere = [Flag(name, words, False) for name, words in FLAGS.items()]
    found = []
    for name, words in COMMANDS.items():
        if name == "train":
            entry = train_entry(words)
        else:
            module = importlib.import_module(f"holotype.cli.{name.replace('-', '_')}")
            entry = Entry(name, words)
            read_parser(module.make_parser(), entry, known_words(name))
        entry.flags += everywhere
        found.append(entry)
    return found


def known_words(command: str) -> Mapping[str, tuple[str, ...]]:
    """Words for the flags and places of argparse that are not its choices: names that are looked up elsewhere."""
    from holotype.data.datasets.registry import BENCHMARKS
    from holotype.discovery.backbone_choice import PUBLIC_BACKBONE
    from holotype.methods import METHODS

    methods, datasets = tuple(METHODS), tuple(BENCHMARKS)
    named = {"data": datasets, "methods": methods}.get(command, ())
    images = datasets if command in ("embed", "estimate-k") else ()
    return {
        "NAME": named,
        "IMAGES": images,
        "--method": methods,
        "--methods": methods,
        "--method_name": methods,
        "--dataset": datasets,
        "--datasets": datasets,
        "--device": ("auto", "cpu", "cuda", "mps"),
        "--backbone": ("auto", "embedded", *PUBLIC_BACKBONE),
        "--k": ("auto",),
    }


def read_parser(parser: argparse.ArgumentParser, entry: Entry, known: Mapping[str, tuple[str, ...]]) -> None:
    """Add what an argparse parser takes, and its sub-commands, whose flags are offered together."""
    there = {flag.name for flag in entry.flags}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            entry.places.append(tuple(action.choices))
            for inner in action.choices.values():
                read_parser(inner, entry, known)
        elif action.option_strings:
            # one name for each flag is enough, its first long one
            name = next((one for one in action.option_strings if one.startswith("--")), "")
            if name and name not in there:
                words = _choices(action) or known.get(name, ())
                entry.flags.append(Flag(name, _help(action), action.nargs != 0, words))
        else:
            entry.places.append(_choices(action) or known.get(str(action.metavar), ()))


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ()))


def _help(action: argparse.Action) -> str:
    return " ".join((action.help or "").replace("%%", "%").split())


def train_entry(words: str) -> Entry:
    """`holotype train` has no parser of argparse: its flags are the settings of every method."""
    from holotype.data.datasets.registry import BENCHMARKS
    from holotype.methods import METHODS
    from holotype.runs.resolve import default_experiment, describe_settings, setting_values

    flags = {
        "help": Flag("--help", "show the settings of METHOD", False),
        "config": Flag("--config", "YAML file with settings, such as a run's config.yaml", True),
        "print_config": Flag("--print_config", "print all settings as such a file and leave", False),
        "no_progress": Flag("--no_progress", "show no progress bars", False),
    }
    known = dict(known_words("train"))
    known["--backbone.name"] = known["--backbone"]
    presets = dict.fromkeys(preset for method in METHODS.values() for preset in method.presets)
    known["--preset"] = tuple(presets)
    for method in METHODS:
        experiment = default_experiment(method, next(iter(BENCHMARKS)), "default")
        told = {row.key: row.help for row in describe_settings(experiment)}
        for key, _, hint in setting_values(experiment):
            choices = known.get(f"--{key}") or tuple(literals(hint))
            flags.setdefault(key, Flag(f"--{key}", " ".join(told.get(key, "").split()), True, choices))
    flags.setdefault("preset", Flag("--preset", "variant of the method", True, known["--preset"]))
    return Entry("train", words, list(flags.values()), [tuple(METHODS), tuple(BENCHMARKS)])


def literals(hint: Any) -> Iterator[str]:
    """The words that a type names."""
    if hint is bool:
        yield from ("true", "false")
    elif get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    elif get_origin(hint) is Annotated:
        yield from literals(get_args(hint)[0])
    elif get_origin(hint) in (Union, type(int | None)):
        for one in get_args(hint):
            yield from literals(one)
