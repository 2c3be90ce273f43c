"""Tests of a file in a process of its own are reported as if they had run here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apart import environment

TOP = Path(__file__).resolve().parents[1]
OWN = """
import os, pathlib, pytest
OWN_PROCESS = True
{before}
def test_passes(tmp_path):
    pathlib.Path("own").write_text(str(os.getpid()))

@pytest.mark.parametrize("number", [1, 2])
def test_some(number):
    assert number == 1, "the number is two"

def test_skips():
    pytest.skip("no reason at all")

def test_falls():
    {falls}

def test_last():
    pass
"""
OTHER = """
import os, pathlib
def test_other():
    pathlib.Path("other").write_text(str(os.getpid()))
"""
WENT = {
    "test_first": "PASSED",
    "test_other": "PASSED",
    "test_passes": "PASSED",
    "test_some[1]": "PASSED",
    "test_some[2]": "FAILED",
    "test_skips": "SKIPPED",
    "test_falls": "PASSED",
    "test_last": "PASSED",
}
"""How the tests go where none falls."""


def outcome(folder: Path, *words: str, falls: str = "pass", before: str = "") -> tuple[str, dict[str, str]]:
    """What pytest says of the two files, and how each test went."""
    (folder / "conftest.py").write_text("from tests.apart import register as pytest_configure\n")
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in (
        ("one/test_first.py", "def test_first(): pass\n"),
        ("one/test_own.py", OWN.format(falls=falls, before=before)),
        ("two/test_other.py", OTHER),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=environment() | {"PYTHONPATH": str(TOP)},
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    found = re.findall(r"::(test_\S+) (PASSED|FAILED|SKIPPED)|(PASSED|FAILED|SKIPPED) \S+::(test_\S+)", said)
    return said, {a or d: b or c for a, b, c, d in found}


@pytest.mark.parametrize("words", [(), ("-n", "2", "--dist", "loadfile")])
def test_they_are_reported_as_they_went(tmp_path: Path, words: tuple[str, ...]) -> None:
    said, went = outcome(tmp_path, *words)
    assert went == WENT
    assert "the number is two" in said
    assert "1 failed, 6 passed, 1 skipped" in said
    assert (tmp_path / "own").read_text() != (tmp_path / "other").read_text()


def test_only_those_that_were_chosen_run(tmp_path: Path) -> None:
    assert outcome(tmp_path, "-k", "last")[1] == {"test_last": "PASSED"}
    assert not (tmp_path / "own").exists()


def test_a_process_that_breaks_down_takes_no_other_file_with_it(tmp_path: Path) -> None:
    said, went = outcome(tmp_path, falls="os.abort()")
    assert went == WENT | {"test_falls": "FAILED", "test_last": "FAILED"}
    assert "The process of this file ended before the test did. It said:" in said
    assert "Fatal Python error: Aborted" in said


def test_a_file_that_cannot_be_read_there_fails(tmp_path: Path) -> None:
    said, went = outcome(tmp_path, before="assert 'HOLOTYPE_TEST_REPORTS' not in os.environ, 'not in here'")
    assert {name for name, how in went.items() if how == "PASSED"} == {"test_first", "test_other"}
    assert len(went) == 8
    assert "not in here" in said
