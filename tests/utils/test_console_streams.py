"""A line that cannot be written ends no work."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holotype.utils.console import BestEffortStream, PlainBar, best_effort_streams

FULL = Path("/dev/full")


class Refusing(io.StringIO):
    """Takes one line, and then no more."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        if "\n" in self.getvalue():
            raise OSError(self.number, os.strerror(self.number))
        return super().write(text)


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_what_cannot_be_written_is_dropped_and_remembered(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    out, err = Refusing(number), Refusing(number)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with best_effort_streams() as told:
        bar = PlainBar("Training", 10)
        for done in range(3):
            print(f"line {done}")
            bar.done = done
            bar.close(always=True)
        assert told.problem is not None
        assert told.problem.errno == number
    assert (sys.stdout, sys.stderr) == (out, err)
    assert out.getvalue() == "line 0\n"
    assert err.getvalue() == "Training: 0/10, 0 %\n"


def test_a_stream_that_is_well_is_as_it_was() -> None:
    stream = io.StringIO()
    lasting = BestEffortStream(stream)
    print("a", "b", file=lasting, flush=True)
    assert stream.getvalue() == "a b\n"
    assert not lasting.isatty()
    assert lasting.problem is None


def holotype(words: str, **how: object) -> subprocess.CompletedProcess[str]:
    """In a shell of its own, with Python's usual buffers."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = ["bash", "-c", f"'{sys.executable}' -m holotype {words}"]
    return subprocess.run(command, env=given, text=True, timeout=120, capture_output=True, **how)  # type: ignore


@pytest.mark.skipif(not FULL.exists(), reason="this system has no disk that is always full")
def test_a_command_on_a_full_disk_says_so_and_one_whose_reader_is_gone_does_not() -> None:
    full = holotype(f"--help > {FULL}")
    assert (full.returncode, len(full.stderr.splitlines())) == (2, 1)
    assert "could be written to stdout (No space left on device)" in full.stderr
    gone = holotype("--help | true; exit ${PIPESTATUS[0]}")
    assert (gone.returncode, gone.stderr) == (0, "")
    deaf = holotype(f"status nowhere 2> {FULL}")
    assert (deaf.returncode, deaf.stdout) == (2, "")


@pytest.mark.skipif(os.name != "posix", reason="nobody closes streams there")
def test_closed_streams_are_nobodys_files() -> None:
    assert holotype("--help >&-").returncode == 0
    wrong = holotype("status nowhere 2>&-")
    assert (wrong.returncode, wrong.stdout) == (2, "")


@pytest.mark.skipif(os.name != "posix", reason="nobody closes streams there")
def test_the_first_file_does_not_take_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """Else what a library says on stderr would be written into it."""
    told = "import os; from holotype.utils.console import lasting_streams\n"
    told += "with lasting_streams(), open('run', 'w') as file:"
    told += " os.write(2, b'a word'); file.write(str(file.fileno() > 2))"
    subprocess.run(["bash", "-c", f"'{sys.executable}' -c \"{told}\" <&- >&- 2>&-"], cwd=tmp_path, timeout=60)
    assert (tmp_path / "run").read_text() == "True"
