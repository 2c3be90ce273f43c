"""The scripts do in a shell what they are for."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from holotype.cli.completion import SCRIPTS, CompletionEntry, CompletionFlag, bash, fish, zsh

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
