"""What is completed is what the commands take: read from their parsers, and from the settings of train."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from typing import Annotated, Literal

import pytest

from holotype.cli import COMMANDS, FLAGS
from holotype.cli.completion import (
    SCRIPTS,
    CompletionEntry,
    CompletionFlag,
    bash,
    fish,
    literal_values,
    read_entries,
    zsh,
)
from holotype.data.datasets.registry import BENCHMARKS
from holotype.methods import METHODS


@pytest.fixture(scope="module")
def entries() -> dict[str, CompletionEntry]:
    return {entry.name: entry for entry in read_entries()}


def test_every_command_is_there_with_the_flags_of_all(entries: dict[str, CompletionEntry]) -> None:
    assert list(entries) == list(COMMANDS)
    for entry in entries.values():
        names = [flag.name for flag in entry.flags]
        assert {"--help", *FLAGS} <= set(names)
        assert len(names) == len(set(names))


def test_names_are_offered_where_they_can_stand(entries: dict[str, CompletionEntry]) -> None:
    methods, datasets = tuple(METHODS), tuple(BENCHMARKS)
    assert entries["train"].places == [methods, datasets]
    assert entries["methods"].places == [methods]
    assert entries["data"].places == [("list", "check"), datasets]
    assert entries["embed"].places == [datasets]
    assert entries["discover"].places == [()]
    assert entries["completion"].places == [("bash", "zsh", "fish")]


def test_values_are_offered_where_they_are_few(entries: dict[str, CompletionEntry]) -> None:
    train = {flag.name: flag for flag in entries["train"].flags}
    assert set(train["--preset"].choices) >= {"default", "as_run", "light"}
    assert train["--store"].choices == ("auto", "device", "host", "disk")
    assert train["--progress"].choices == ("true", "false")
    assert "embedded" in train["--backbone.name"].choices
    assert train["--train.epochs"].valued
    assert not train["--train.epochs"].choices
    assert not train["--print-config"].valued
    discover = {flag.name: flag for flag in entries["discover"].flags}
    assert discover["--method"].choices == tuple(METHODS)
    assert discover["--long-tail"].valued
    bench = {flag.name: flag for flag in entries["bench"].flags}
    assert bench["--datasets"].choices == tuple(BENCHMARKS)


def test_types_that_name_words() -> None:
    assert list(literal_values(Annotated[Literal["a", "b"], "rule"] | None)) == ["a", "b"]
    assert list(literal_values(int | bool)) == ["true", "false"]
    assert list(literal_values(str)) == []


def test_from_the_command_to_the_shell(holotype) -> None:
    outcome = holotype("completion", "bash")
    assert outcome.code == 0
    assert completed(outcome.out, "holotype", "train", "sim") == ["simgcd"]
    assert completed(outcome.out, "holotype", "train", "rpc", "cub", "--train.ep") == ["--train.epochs"]
    assert completed(outcome.out, "holotype", "doc") == ["doctor"]
    outcome = holotype("completion", "tcsh")
    assert outcome.code == 2
    assert "tcsh" in outcome.err


# -- in a shell ---------------------------------------------------------------------------------------

ENTRIES = [
    CompletionEntry(
        "train",
        "train one method",
        [
            CompletionFlag("--device", "where: it's up to you", True, ("auto", "cpu", "cuda")),
            CompletionFlag("--root", "folder", True),
            CompletionFlag("--quiet", "say nothing", False),
        ],
        [("rpc", "simgcd"), ("cub", "scars")],
    ),
    CompletionEntry("write-all", "write", [CompletionFlag("--quiet", "say nothing", False)], [()]),
]


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last of the words, found as readline finds it: through `complete`."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    lines = [
        script,
        "found=$(complete -p holotype); [[ $found == *'-F _holotype'* && $found == *'-o default'* ]] || exit 9",
        f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}",
        "_holotype holotype",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("",), ["train", "write-all", "--help", "--version"]),
        (("tr",), ["train"]),
        (("train", ""), ["rpc", "simgcd"]),
        (("train", "s"), ["simgcd"]),
        (("train", "rpc", "c"), ["cub"]),
        (("train", "rpc", "cub", ""), []),  # files
        (("train", "--"), ["--device", "--root", "--quiet"]),
        (("train", "rpc", "--device", "c"), ["cpu", "cuda"]),
        (("train", "rpc", "--device", "=", "cu"), ["cuda"]),
        (("train", "rpc", "--device", "="), ["auto", "cpu", "cuda"]),
        (("train", "--device", "cpu", "--quiet", "s"), ["simgcd"]),
        (("train", "--root", "cub", "rpc", "s"), ["scars"]),
        (("train", "--root", ""), []),
        (("--quiet", "tr"), ["train"]),
        (("write-all", "--"), ["--quiet"]),
        (("nothing", ""), []),
    ],
)
def test_bash_offers_what_can_stand_there(words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(bash(ENTRIES), "holotype", *words) == offered


@pytest.mark.parametrize("shell", SCRIPTS)
def test_shells_that_are_there_can_read_their_script(shell: str) -> None:
    script = SCRIPTS[shell](ENTRIES)
    for word in ("train", "write-all", "device", "cuda", "simgcd", "scars"):
        assert word in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_quotes_in_helps_are_quoted() -> None:
    assert "-d 'where: it\\'s up to you'" in fish(ENTRIES)
    assert shlex.quote("--device:where: it's up to you") in zsh(ENTRIES)
