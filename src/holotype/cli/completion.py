"""`holotype completion`: completion scripts for bash, zsh and fish."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args, get_origin

from holotype.cli.common import Parser, echo, options_of

TOP_FLAGS = ("--help", "--version")
"""Flags that stand without a command."""
INSTALL_TEXT = {
    "bash": "holotype completion bash > ~/.local/share/bash-completion/completions/holotype",
    "zsh": "holotype completion zsh > DIR/_holotype, with DIR a folder of $fpath",
    "fish": "holotype completion fish > ~/.config/fish/completions/holotype.fish",
}


@dataclass
class CompletionOptions:
    """Print a script that completes commands, flags, methods, data sets and presets. It is made once."""

    shell: Literal["bash", "zsh", "fish"]
    """The shell."""


def make_parser() -> Parser:
    lines = "; ".join(f"for {shell}, {words}" for shell, words in INSTALL_TEXT.items())
    parser = Parser("completion", CompletionOptions)
    parser.description = f"{parser.description} {lines[0].upper()}{lines[1:]}."
    return parser


def command(argv: Sequence[str]) -> int:
    options: CompletionOptions = make_parser().parse_args(argv)
    echo(SCRIPTS[options.shell](read_entries()))
    return 0


# -- what the commands take ---------------------------------------------------------------------------


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


def read_entries() -> list[CompletionEntry]:
    """Return every command, in the order of the help."""
    from holotype.cli import COMMANDS, FLAGS

    entries = []
    for name, words in COMMANDS.items():
        module = importlib.import_module(f"holotype.cli.{name.replace('-', '_')}")
        entry = CompletionEntry(name, words, [CompletionFlag("--help", "show the help", False)])
        known = known_values(name)
        for option in options_of(module.make_parser().options):
            choices = tuple(literal_values(option.hint)) or known.get(option.name, ())
            if option.positional:
                entry.places.append(choices)
            else:
                valued = option.hint is not bool
                entry.flags.append(
                    CompletionFlag(option.flag, option.help, valued, choices if valued else ())
                )
        if name == "train":
            entry.places = [known["methods"], known["datasets"]]
            entry.flags += train_flags(known)
        entry.flags += [CompletionFlag(flag, line, False) for flag, line in FLAGS.items()]
        entries.append(entry)
    return entries


def known_values(command: str) -> dict[str, tuple[str, ...]]:
    """Return the words for options whose type does not list them: names that are looked up elsewhere."""
    from holotype.data.datasets.registry import BENCHMARKS
    from holotype.discovery.backbone_choice import PUBLIC_BACKBONE
    from holotype.methods import METHODS

    methods, datasets = tuple(METHODS), tuple(BENCHMARKS)
    known: dict[str, tuple[str, ...]] = {"device": ("auto", "cpu", "cuda", "mps")}
    known |= dict.fromkeys(("backbone", "backbone.name"), ("auto", "embedded", *PUBLIC_BACKBONE))
    known |= dict.fromkeys(("method", "methods", "method_name"), methods)
    known |= dict.fromkeys(("dataset", "datasets"), datasets)
    known["preset"] = tuple(dict.fromkeys(preset for kind in METHODS.values() for preset in kind.presets))
    known["name"] = {"data": datasets, "methods": methods}.get(command, ())
    known["images"] = datasets if command in ("embed", "estimate-k") else ()
    return known


def train_flags(known: dict[str, tuple[str, ...]]) -> list[CompletionFlag]:
    """Return the settings of every method as flags."""
    from holotype.methods import METHODS
    from holotype.runs.experiment import default_experiment, describe_settings, setting_values

    flags: dict[str, CompletionFlag] = {}
    for method in METHODS:
        experiment = default_experiment(method, "DATASET")
        hints = {key: hint for key, _, hint in setting_values(experiment)}
        for row in describe_settings(experiment):
            choices = known.get(row.key) or tuple(literal_values(hints[row.key]))
            flags.setdefault(row.key, CompletionFlag(f"--{row.key}", row.help, True, choices))
    return list(flags.values())


def literal_values(hint: Any) -> Iterator[str]:
    """Yield the words that a type names."""
    if hint is bool:
        yield from ("true", "false")
    elif get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    else:
        for part in get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint):
            yield from literal_values(part)


# -- scripts ------------------------------------------------------------------------------------------

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
    commands = " ".join((*(entry.name for entry in entries), *TOP_FLAGS))
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
        found=({commands} {" ".join(TOP_FLAGS)})
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
    lines += [f"complete -c holotype -n __fish_use_subcommand -l {flag[2:]}" for flag in TOP_FLAGS]
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
