"""Bars, streams and consoles: a line that cannot be written or shown ends no work."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from holotype.utils import console as module
from holotype.utils.console import (
    PlainBar,
    best_effort_streams,
    console_kind,
    console_options,
    plain_characters,
    progress_bar,
)

FULL = Path("/dev/full")
posix = pytest.mark.skipif(os.name != "posix", reason="nobody closes streams there")


@pytest.fixture
def now(monkeypatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return clock


def screen(monkeypatch) -> io.StringIO:
    """Put a terminal in the place of stderr."""
    shown = io.StringIO()
    shown.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return shown


def work(now: list[float], total: int, times: int, seconds: float, show: bool = True) -> None:
    with progress_bar("Reading images", total, show) as advance:
        for _ in range(times):
            now[0] += seconds
            advance(total // times)


def test_nothing_is_shown_unless_asked_to_nor_of_short_work_in_a_pipe(capfd, now) -> None:
    work(now, 10, 1, 60.0, show=False)
    with console_options(quiet=True):
        work(now, 10, 1, 60.0)
    work(now, 10, 1, 4.0)
    assert capfd.readouterr() == ("", "")


def test_in_a_pipe_long_work_is_a_plain_line_ever_more_rarely(capsys, now) -> None:
    work(now, 8000, 80, 0.5)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Reading images: 1,000/8,000, 12 %, 35 s left\n")
    assert err.endswith("Reading images: 8,000/8,000, 100 %\n")
    assert 7 <= len(err.splitlines()) <= 9  # 40 seconds
    assert not any(character in err for character in "\r\x1b")
    work(now, 36_000, 36_000, 1.0)
    assert 30 < len(capsys.readouterr().err.splitlines()) < 100  # a night
    bar = PlainBar("train", 100, " steps")
    bar.before = 80  # what an earlier run has done says nothing about speed
    bar.show(90, "cls 0.5")
    assert bar.line(now[0] + 10) == "train: 90/100 steps, 90 %, 10 s left; cls 0.5"


def test_a_notebook_shows_one_line_that_changes(monkeypatch, capsys, now) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert console_kind() == "notebook"
    work(now, 10, 10, 1.0)
    shown = capsys.readouterr().err
    assert shown.startswith("\rReading images: 1/10, 10 %, 9 s left\r")
    assert shown.endswith("\n")
    assert [line.rstrip() for line in shown.split("\r")][-1] == "Reading images: 10/10, 100 %"


@pytest.mark.parametrize("no_color", [True, False])
def test_a_terminal_has_a_bar_with_colours_or_without(monkeypatch, no_color: bool) -> None:
    shown = screen(monkeypatch)
    with console_options(no_color=no_color), progress_bar("Reading images", 10, True) as advance:
        advance(10)
    assert console_kind() == "terminal"
    monkeypatch.setenv("TERM", "dumb")  # one without a cursor
    assert console_kind() == "pipe"
    assert "10/10" in shown.getvalue()
    assert ("\x1b[3" in shown.getvalue()) is not no_color


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
def test_what_cannot_be_written_is_dropped_and_remembered(monkeypatch, number: int) -> None:
    out, err = Refusing(number), Refusing(number)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with best_effort_streams() as told:
        assert not sys.stdout.isatty()
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


def holotype(words: str) -> subprocess.CompletedProcess[str]:
    """In a shell of its own, with Python's usual buffers."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = ["bash", "-c", f"'{sys.executable}' -m holotype {words}"]
    return subprocess.run(command, env=given, text=True, timeout=120, capture_output=True)


@pytest.mark.skipif(not FULL.exists(), reason="this system has no disk that is always full")
def test_a_command_on_a_full_disk_says_so_and_one_whose_reader_is_gone_does_not() -> None:
    full = holotype(f"--help > {FULL}")
    assert (full.returncode, len(full.stderr.splitlines())) == (2, 1)
    assert "No space left on device" in full.stderr
    gone = holotype("--help | true; exit ${PIPESTATUS[0]}")
    assert (gone.returncode, gone.stderr) == (0, "")


@posix
def test_closed_streams_are_nobodys_files(tmp_path: Path) -> None:
    """Else what a library says on stderr would be written into the first file that is opened."""
    wrong = holotype("status nowhere 2>&-")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    told = "import os; from holotype.utils.console import best_effort_streams\n"
    told += "with best_effort_streams(), open('run', 'w') as file:"
    told += " os.write(2, b'a word'); file.write(str(file.fileno() > 2))"
    subprocess.run(["bash", "-c", f"'{sys.executable}' -c \"{told}\" <&- >&- 2>&-"], cwd=tmp_path, timeout=60)
    assert (tmp_path / "run").read_text() == "True"


@pytest.mark.parametrize(
    ("encoding", "errors", "text", "shown"),
    [
        ("ascii", "strict", "16 × 8", b"16 \\xd7 8\n"),
        ("utf-8", "strict", "\udcff.jpg", b"\\udcff.jpg\n"),
        ("utf-8", "surrogateescape", "\udcff.jpg", b"\xff.jpg\n"),
        ("ascii", "replace", "×", b"?\n"),
    ],
)
def test_what_a_console_lacks_ends_no_command(monkeypatch, encoding, errors, text, shown) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding, errors, newline="\n"))
    plain_characters()
    print(text, flush=True)
    assert raw.getvalue() == shown
