"""The completion scripts of bash, zsh and fish, written out for a list of commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

TOP = ("--help", "--version")
"""Flags that stand without a command."""


@dataclass(frozen=True)
class Flag:
    """A flag as a shell offers it."""

    name: str
    """With its dashes."""
    help: str
    valued: bool
    """Whether a value follows."""
    choices: tuple[str, ...] = ()
    """Values to offer; where there are none, files."""


@dataclass
class Entry:
    """A command as a shell offers it."""

    name: str
    help: str
    flags: list[Flag] = field(default_factory=list)
    places: list[tuple[str, ...]] = field(default_factory=list)
    """Words to offer for each word that belongs to no flag; where there are none, files."""


Entries = Sequence[Entry]

WALK = """\
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


def _walk(entries: Entries, word: str) -> str:
    """`flag` is a flag that waits for its value, `place` counts the words that belong to no flag."""
    valued = "|".join(
        f'"{entry.name} {flag.name}"' for entry in entries for flag in entry.flags if flag.valued
    )
    return WALK.replace("WORD", word).replace("VALUED", valued or '""')


def _chosen(entries: Entries) -> Iterator[tuple[str, tuple[str, ...]]]:
    """`train --device`, and the words for its value."""
    for entry in entries:
        for flag in entry.flags:
            if flag.choices:
                yield f"{entry.name} {flag.name}", flag.choices


def _placed(entries: Entries) -> Iterator[tuple[str, tuple[str, ...]]]:
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


def bash(entries: Entries) -> str:
    """Where no word fits, the shell offers files."""
    commands = " ".join((*(entry.name for entry in entries), *TOP))
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


def zsh(entries: Entries) -> str:
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
        found=({commands} {" ".join(TOP)})
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


def fish(entries: Entries) -> str:
    lines = ["# fish completion of holotype"]
    for entry in entries:
        words = f"-f -a {entry.name} -d {_quoted(entry.help)}"
        lines.append(f"complete -c holotype -n __fish_use_subcommand {words}")
    lines += [f"complete -c holotype -n __fish_use_subcommand -l {flag[2:]}" for flag in TOP]
    for entry in entries:
        start = f"complete -c holotype -n '__fish_seen_subcommand_from {entry.name}'"
        places = dict.fromkeys(word for words in entry.places for word in words)
        if places:
            lines.append(f"{start} -a {_quoted(' '.join(places))}")
        lines += [f"{start} {_fish_flag(flag)}" for flag in entry.flags]
    return "\n".join(lines)


def _fish_flag(flag: Flag) -> str:
    words = f"-l {flag.name[2:]}"
    if flag.choices:
        words += f" -r -a {_quoted(' '.join(flag.choices))}"
    elif flag.valued:
        words += " -r"
    return f"{words} -d {_quoted(flag.help)}" if flag.help else words


def _quoted(text: str) -> str:
    """In fish a backslash quotes within single quotes as well."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: dict[str, Callable[[Entries], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
