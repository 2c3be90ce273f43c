"""What is completed is what the commands take: read from their options, and from the settings of train."""

import shlex
import shutil
import subprocess
from typing import Annotated, Literal

import pytest

from holotype.cli import COMMANDS, FLAGS
from holotype.cli.completion import CompletionEntry, CompletionFlag, bash, fish, literal_values, read_entries
from holotype.data.datasets.registry import BENCHMARKS
from holotype.methods import METHODS


def test_names_and_values_are_offered_where_they_can_stand() -> None:
    entries = read_entries()
    methods, datasets = tuple(METHODS), tuple(BENCHMARKS)
    assert list(entries) == list(COMMANDS)
    assert all({"--help", *FLAGS} <= entry.flags.keys() for entry in entries.values())
    places = {name: entries[name].places for name in ("train", "data", "discover")}
    assert places == {"train": [methods, datasets], "data": [("list", "check"), datasets], "discover": [()]}
    train = entries["train"].flags
    assert set(train["--preset"].choices) >= {"default", "as_run", "light"}
    assert train["--progress"].choices == ("true", "false")
    assert (train["--train.epochs"].valued, train["--train.epochs"].choices) == (True, ())
    assert not train["--print-config"].valued
    assert entries["bench"].flags["--datasets"].choices == datasets
    assert list(literal_values(Annotated[Literal["a", "b"], "rule"] | None)) == ["a", "b"]
    assert list(literal_values(int | bool)) == ["true", "false"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_from_the_command_to_the_shell(holotype, shell: str) -> None:
    outcome = holotype("completion", shell)
    assert outcome.code == 0
    assert all(word in outcome.out for word in ("simgcd", "train.epochs", "doctor"))
    if shell == "bash":
        assert completed(outcome.out, "train", "sim") == ["simgcd"]
        assert completed(outcome.out, "train", "rpc", "cub", "--train.ep") == ["--train.epochs"]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n"], input=outcome.out, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


TRAIN = {
    "--device": CompletionFlag("where: it's up to you", True, ("auto", "cpu", "cuda")),
    "--root": CompletionFlag("folder", True),
    "--quiet": CompletionFlag("say nothing"),
}
ENTRIES = {
    "train": CompletionEntry("train one method", TRAIN, [("rpc", "simgcd"), ("cub", "scars")]),
    "write-all": CompletionEntry("write", {"--quiet": CompletionFlag("")}, [()]),
}


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last of the words, found as readline finds it: through `complete`."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    lines = [
        script,
        "found=$(complete -p holotype); [[ $found == *'-F _holotype'* && $found == *'-o default'* ]] || exit 9",
        f"COMP_WORDS=({shlex.join(('holotype', *words))}); COMP_CWORD={len(words)}",
        "_holotype holotype",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    command = ["bash", "--norc", "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("", ["train", "write-all", "--help", "--version"]),
        ("train ", ["rpc", "simgcd"]),
        ("train rpc c", ["cub"]),
        ("train rpc cub ", []),  # files
        ("train --", ["--device", "--root", "--quiet"]),
        ("train rpc --device c", ["cpu", "cuda"]),
        ("train rpc --device = cu", ["cuda"]),
        ("train rpc --device =", ["auto", "cpu", "cuda"]),
        ("train --root cub rpc s", ["scars"]),
        ("--quiet tr", ["train"]),
        ("nothing ", []),
    ],
)
def test_bash_offers_what_can_stand_there(words: str, offered: list[str]) -> None:
    assert completed(bash(ENTRIES), *words.split(" ")) == offered


def test_quotes_in_helps_are_quoted() -> None:
    assert "-d 'where: it\\'s up to you'" in fish(ENTRIES)
