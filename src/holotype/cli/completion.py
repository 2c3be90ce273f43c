"""`holotype completion`: completion scripts for bash, zsh and fish."""

from __future__ import annotations

import argparse
import importlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from holotype.cli.common import Parser, echo

TOP_COMMENT = ("--help", "--version")
"""Flags that stand without a command."""


@dataclass(frozen=True)
class CompletionFlag:
    """A flag as a shell offers it."""

    name: str
    """With its dashes."""
    help: str
    valued: bool
    """Whether a value follows."""
    choices: tuple[str, ...] = ()
    """Values to offer; where there are none, files."""


@dataclass
class CompletionEntry:
    """A command as a shell offers it."""

    name: str
    help: str
    flags: list[CompletionFlag] = field(default_factory=list)
    places: list[tuple[str, ...]] = field(default_factory=list)
    """Words to offer for each word that belongs to no flag; where there are none, files."""


CompletionEntries = Sequence[CompletionEntry]

BASH_WALK = """\
        word=$WORD
        [[ $word == "=" ]] && continue
        if [[ -n $flag ]]; then
            flag=""
        elif [[ $word == -* ]]; then
            case "$command $word" in
                VALUED) flag=$word ;;
            esac
        elif [[ -z $command ]]; then
            command=$word
        else
            place=$((place + 1))
        fi"""
"""For bash and zsh: the words before the cursor are the command, flags with their values, and places."""


def _walk(entries: CompletionEntries, word: str) -> str:
    """`flag` is a flag that waits for its value, `place` counts the words that belong to no flag."""
    valued = "|".join(
        f'"{entry.name} {flag.name}"' for entry in entries for flag in entry.flags if flag.valued
    )
    return BASH_WALK.replace("WORD", word).replace("VALUED", valued or '""')


def _chosen(entries: CompletionEntries) -> Iterator[tuple[str, tuple[str, ...]]]:
    """`train --device`, and the words for its value."""
    for entry in entries:
        for flag in entry.flags:
            if flag.choices:
                yield f"{entry.name} {flag.name}", flag.choices


def _placed(entries: CompletionEntries) -> Iterator[tuple[str, tuple[str, ...]]]:
    """`train 0`, and the words for its first place."""
    for entry in entries:
        for number, words in enumerate(entry.places):
            if words:
                yield f"{entry.name} {number}", words


def _cases(rows: Iterator[tuple[str, tuple[str, ...]]], assign: str) -> str:
    """Branches of a case; `assign` holds WORDS."""
    return "\n".join(
        f'            "{name}") {assign.replace("WORDS", " ".join(words))} ;;' for name, words in rows
    )


def bash(entries: CompletionEntries) -> str:
    """Where no word fits, the shell offers files."""
    commands = " ".join((*(entry.name for entry in entries), *TOP_COMMENT))
    flags = ((entry.name, tuple(flag.name for flag in entry.flags)) for entry in entries)
    return f"""\
# bash completion of holotype
_holotype() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} command="" flag="" word words="" i place=0
    [[ $current == "=" ]] && current=""
    for ((i = 1; i < COMP_CWORD; i++)); do
{_walk(entries, "{COMP_WORDS[i]}")}
    done
    if [[ -z $command ]]; then
        words="{commands}"
    elif [[ -n $flag ]]; then
        case "$command $flag" in
{_cases(_chosen(entries), 'words="WORDS"')}
        esac
    elif [[ $current == -* ]]; then
        case "$command" in
{_cases(flags, 'words="WORDS"')}
        esac
    else
        case "$command $place" in
{_cases(_placed(entries), 'words="WORDS"')}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _holotype holotype"""


def zsh(entries: CompletionEntries) -> str:
    commands = " ".join(_described(entry.name, entry.help) for entry in entries)
    flags = (
        (entry.name, tuple(_described(flag.name, flag.help) for flag in entry.flags)) for entry in entries
    )
    return f"""\
#compdef holotype
_holotype() {{
    local command="" flag="" word
    local -a found offered
    integer i place=0
    for ((i = 2; i < CURRENT; i++)); do
{_walk(entries, "words[i]")}
    done
    if [[ -z $command ]]; then
        found=({commands} {" ".join(TOP_COMMENT)})
        _describe command found
    elif [[ -z $flag && $words[CURRENT] == -* ]]; then
        case "$command" in
{_cases(flags, "found=(WORDS)")}
        esac
        _describe -o flag found
    else
        if [[ -n $flag ]]; then
            case "$command $flag" in
{_cases(_chosen(entries), "offered=(WORDS)")}
            esac
        else
            case "$command $place" in
{_cases(_placed(entries), "offered=(WORDS)")}
            esac
        fi
        compadd -a offered
        _files
    fi
}}
if [[ $funcstack[1] == _holotype ]]; then _holotype "$@"; else compdef _holotype holotype; fi"""


def _described(name: str, words: str) -> str:
    """`name:words`, as one word of the shell; a colon in the name would end it."""
    return shlex.quote(f"{name}:{words}")


def fish(entries: CompletionEntries) -> str:
    lines = ["# fish completion of holotype"]
    for entry in entries:
        words = f"-f -a {entry.name} -d {_quoted(entry.help)}"
        lines.append(f"complete -c holotype -n __fish_use_subcommand {words}")
    lines += [f"complete -c holotype -n __fish_use_subcommand -l {flag[2:]}" for flag in TOP_COMMENT]
    for entry in entries:
        start = f"complete -c holotype -n '__fish_seen_subcommand_from {entry.name}'"
        places = dict.fromkeys(word for words in entry.places for word in words)
        if places:
            lines.append(f"{start} -a {_quoted(' '.join(places))}")
        lines += [f"{start} {_fish_flag(flag)}" for flag in entry.flags]
    return "\n".join(lines)


def _fish_flag(flag: CompletionFlag) -> str:
    words = f"-l {flag.name[2:]}"
    if flag.choices:
        words += f" -r -a {_quoted(' '.join(flag.choices))}"
    elif flag.valued:
        words += " -r"
    return f"{words} -d {_quoted(flag.help)}" if flag.help else words


def _quoted(text: str) -> str:
    """In fish a backslash quotes within single quotes as well."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: dict[str, Callable[[CompletionEntries], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


INSTALL_TEXT = {
    "bash": "holotype completion bash > ~/.local/share/bash-completion/completions/holotype",
    "zsh": "holotype completion zsh > DIR/_holotype, with DIR a folder of $fpath",
    "fish": "holotype completion fish > ~/.config/fish/completions/holotype.fish",
}


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    echo(SCRIPTS[given.shell](read_entries()))
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype completion",
        description="Print a script that completes commands, flags, methods, data sets and presets. It is made once: "
        + "; ".join(f"for {shell}, {words}" for shell, words in INSTALL_TEXT.items())
        + ".",
    )
    parser.add_argument(
        "shell", choices=list(INSTALL_TEXT), metavar="SHELL", help=f"one of {', '.join(INSTALL_TEXT)}"
    )
    return parser


# -- what the commands take ---------------------------------------------------------------------------


def read_entries() -> list[CompletionEntry]:
    """Every command, in the order of the help."""
    from holotype.cli import COMMANDS, FLAGS

    everywhere = [CompletionFlag(name, words, False) for name, words in FLAGS.items()]
    found = []
    for name, words in COMMANDS.items():
        if name == "train":
            entry = train_entry(words)
        else:
            module = importlib.import_module(f"holotype.cli.{name.replace('-', '_')}")
            entry = CompletionEntry(name, words)
            read_parser(module.make_parser(), entry, known_values(name))
        entry.flags += everywhere
        found.append(entry)
    return found


def known_values(command: str) -> Mapping[str, tuple[str, ...]]:
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


def read_parser(
    parser: argparse.ArgumentParser, entry: CompletionEntry, known: Mapping[str, tuple[str, ...]]
) -> None:
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
                entry.flags.append(CompletionFlag(name, _help(action), action.nargs != 0, words))
        else:
            entry.places.append(_choices(action) or known.get(str(action.metavar), ()))


def _choices(action: argparse.Action) -> tuple[str, ...]:
    return tuple(map(str, action.choices or ()))


def _help(action: argparse.Action) -> str:
    return " ".join((action.help or "").replace("%%", "%").split())


def train_entry(words: str) -> CompletionEntry:
    """`holotype train` has no parser of argparse: its flags are the settings of every method."""
    from holotype.data.datasets.registry import BENCHMARKS
    from holotype.methods import METHODS
    from holotype.runs.resolve import default_experiment, describe_settings, setting_values

    flags = {
        "help": CompletionFlag("--help", "show the settings of METHOD", False),
        "config": CompletionFlag("--config", "YAML file with settings, such as a run's config.yaml", True),
        "print_config": CompletionFlag(
            "--print_config", "print all settings as such a file and leave", False
        ),
        "no_progress": CompletionFlag("--no_progress", "show no progress bars", False),
    }
    known = dict(known_values("train"))
    known["--backbone.name"] = known["--backbone"]
    presets = dict.fromkeys(preset for method in METHODS.values() for preset in method.presets)
    known["--preset"] = tuple(presets)
    for method in METHODS:
        experiment = default_experiment(method, next(iter(BENCHMARKS)), "default")
        told = {row.key: row.help for row in describe_settings(experiment)}
        for key, _, hint in setting_values(experiment):
            choices = known.get(f"--{key}") or tuple(literal_values(hint))
            flags.setdefault(
                key, CompletionFlag(f"--{key}", " ".join(told.get(key, "").split()), True, choices)
            )
    flags.setdefault("preset", CompletionFlag("--preset", "variant of the method", True, known["--preset"]))
    return CompletionEntry("train", words, list(flags.values()), [tuple(METHODS), tuple(BENCHMARKS)])


def literal_values(hint: Any) -> Iterator[str]:
    """The words that a type names."""
    if hint is bool:
        yield from ("true", "false")
    elif get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    elif get_origin(hint) is Annotated:
        yield from literal_values(get_args(hint)[0])
    elif get_origin(hint) in (Union, type(int | None)):
        for one in get_args(hint):
            yield from literal_values(one)
