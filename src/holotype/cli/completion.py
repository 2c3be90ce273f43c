"""`holotype completion`: completion scripts for bash, zsh and fish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from holotype.cli import COMMANDS, FLAGS, options_type
from holotype.cli.common import echo, options_of
from holotype.cli.options import CompletionOptions
from holotype.data.datasets.registry import BENCHMARKS
from holotype.discovery.backbone_choice import PUBLIC_BACKBONE
from holotype.methods import METHODS
from holotype.runs.experiment import default_experiment, describe_settings, setting_values


def completion_command(options: CompletionOptions) -> None:
    write = fish if options.shell == "fish" else bash
    zsh = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n" if options.shell == "zsh" else ""
    echo(zsh + write(read_entries()))


class CompletionFlag(NamedTuple):
    """A flag as a shell offers it."""

    help: str
    valued: bool = False
    """Whether a value follows."""
    choices: tuple[str, ...] = ()
    """Values to offer; where there are none, files."""


@dataclass
class CompletionEntry:
    """A command as a shell offers it."""

    help: str
    flags: dict[str, CompletionFlag] = field(default_factory=dict)
    """By their names, with dashes."""
    places: list[tuple[str, ...]] = field(default_factory=list)
    """Words to offer for each word that belongs to no flag; where there are none, files."""


CompletionEntries = Mapping[str, CompletionEntry]


def read_entries() -> dict[str, CompletionEntry]:
    """Return every command by its name, in the order of the help."""
    entries = {}
    for name, line in COMMANDS.items():
        entry = entries[name] = CompletionEntry(line, {"--help": CompletionFlag("show the help")})
        known = known_values(name)
        for option in options_of(options_type(name)):
            choices = tuple(literal_values(option.hint)) or known.get(option.name, ())
            if option.positional:
                entry.places.append(choices)
            elif option.hint is bool:
                entry.flags[option.flag] = CompletionFlag(option.help)
            else:
                entry.flags[option.flag] = CompletionFlag(option.help, True, choices)
        if name == "train":
            entry.places = [known["methods"], known["datasets"]]
            entry.flags |= train_flags(known)
        entry.flags |= {flag: CompletionFlag(line) for flag, line in FLAGS.items()}
    return entries


def known_values(command: str) -> dict[str, tuple[str, ...]]:
    """Return the words for options whose type does not list them: names that are looked up elsewhere."""
    methods, datasets = tuple(METHODS), tuple(BENCHMARKS)
    known: dict[str, tuple[str, ...]] = {"device": ("auto", "cpu", "cuda", "mps")}
    known |= dict.fromkeys(("backbone", "backbone.name"), ("auto", "embedded", *PUBLIC_BACKBONE))
    known |= dict.fromkeys(("method", "methods", "method_name"), methods)
    known |= dict.fromkeys(("dataset", "datasets"), datasets)
    known["preset"] = tuple(dict.fromkeys(preset for kind in METHODS.values() for preset in kind.presets))
    known["name"] = {"data": datasets, "methods": methods}.get(command, ())
    known["images"] = datasets if command in ("embed", "estimate-k") else ()
    return known


def train_flags(known: Mapping[str, tuple[str, ...]]) -> dict[str, CompletionFlag]:
    """Return the settings of every method as flags."""
    flags: dict[str, CompletionFlag] = {}
    for method in METHODS:
        experiment = default_experiment(method, "DATASET")
        hints = {key: hint for key, _, hint in setting_values(experiment)}
        for row in describe_settings(experiment):
            choices = known.get(row.key) or tuple(literal_values(hints[row.key]))
            flags.setdefault(f"--{row.key}", CompletionFlag(row.help, True, choices))
    return flags


def literal_values(hint: Any) -> Iterator[str]:
    """Yield the words that a type names."""
    if hint is bool:
        yield from ("true", "false")
    elif get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    else:
        for part in get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint):
            yield from literal_values(part)


BASH = """\
# completion of holotype
_holotype() {
    local current=${COMP_WORDS[COMP_CWORD]} command="" flag="" word words="" i place=0
    [[ $current == "=" ]] && current=""
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
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
        fi
    done
    [[ -z $flag && $current == -* ]] && place=flags
    case "$command ${flag:-$place}" in
CASES
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _holotype holotype"""
"""The words before the cursor are the command, flags with their values, and places: `flag` waits for its value,
`place` counts the words that belong to no flag. Where no word fits, the shell offers files. zsh reads it, too."""


def bash(entries: CompletionEntries) -> str:
    """Return the script for bash, and for zsh with bashcompinit."""
    top = (*entries, "--help", "--version")
    cases: dict[str, tuple[str, ...]] = {" 0": top, " flags": top}
    valued = []
    for name, entry in entries.items():
        cases[f"{name} flags"] = tuple(entry.flags)
        cases |= {f"{name} {number}": words for number, words in enumerate(entry.places)}
        cases |= {f"{name} {flag}": of.choices for flag, of in entry.flags.items()}
        valued += [f'"{name} {flag}"' for flag, of in entry.flags.items() if of.valued]
    lines = [f'        "{name}") words="{" ".join(words)}" ;;' for name, words in cases.items() if words]
    return BASH.replace("VALUED", "|".join(valued)).replace("CASES", "\n".join(lines))


def fish(entries: CompletionEntries) -> str:
    """Return the script for fish."""
    top = "complete -c holotype -n __fish_use_subcommand"
    lines = [f"{top} -f -a {name} -d {_quoted(entry.help)}" for name, entry in entries.items()]
    lines += [f"{top} -l help", f"{top} -l version"]
    for name, entry in entries.items():
        start = f"complete -c holotype -n '__fish_seen_subcommand_from {name}'"
        if places := dict.fromkeys(word for words in entry.places for word in words):
            lines.append(f"{start} -a {_quoted(' '.join(places))}")
        for flag, of in entry.flags.items():
            values = f" -a {_quoted(' '.join(of.choices))}" if of.choices else ""
            help = f" -d {_quoted(of.help)}" if of.help else ""
            lines.append(f"{start} -l {flag[2:]}{' -r' if of.valued else ''}{values}{help}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Quote for fish, where a backslash quotes within single quotes as well."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
