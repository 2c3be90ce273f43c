"""Tests of a file in a process of its own are reported as if they had run here."""

import re
import subprocess
import sys
from pathlib import Path

from tests.apart import environment

TOP = Path(__file__).resolve().parents[1]
FILES = {
    "conftest.py": "from tests.apart import register as pytest_configure\n",
    "pytest.ini": "[pytest]\n",
    "one/test_first.py": "def test_first(): pass\n",
    "two/test_other.py": "def test_other(): open('other', 'w').write(str(__import__('os').getpid()))\n",
    "one/test_own.py": """
import os, pytest
OWN_PROCESS = True
def test_passes(tmp_path): open("own", "w").write(str(os.getpid()))
@pytest.mark.parametrize("number", [1, 2])
def test_some(number): assert number == 1, "the number is two"
def test_skips(): pytest.skip("no reason at all")
def test_falls(): {falls}
def test_last(): pass
""",
}
GOOD = ("test_first", "test_other", "test_passes", "test_some[1]", "test_falls", "test_last")
WENT = dict.fromkeys(GOOD, "PASSED") | {"test_some[2]": "FAILED", "test_skips": "SKIPPED"}
"""How the tests go where none falls."""


def outcome(folder: Path, *words: str, falls: str = "pass") -> tuple[str, dict[str, str]]:
    """What pytest says of the files, and how each test went."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text.replace("{falls}", falls))
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words]
    env = environment() | {"PYTHONPATH": str(TOP)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    said = done.stdout + done.stderr
    found = re.findall(r"::(test_\S+) (PASSED|FAILED|SKIPPED)|(PASSED|FAILED|SKIPPED) \S+::(test_\S+)", said)
    return said, {a or d: b or c for a, b, c, d in found}


def test_they_are_reported_as_they_went_and_a_process_that_breaks_down_takes_no_other_file_with_it(tmp_path):
    said, went = outcome(tmp_path, "-n", "2", "--dist", "loadfile", falls="os.abort()")
    assert went == WENT | {"test_falls": "FAILED", "test_last": "FAILED"}
    assert all(words in said for words in ("the number is two", "Fatal Python error: Aborted"))
    assert (tmp_path / "own").read_text() != (tmp_path / "other").read_text()
