"""The bar moves on a terminal, says a line now and then in a pipe, and changes one line in a notebook."""

from __future__ import annotations

import io
import sys
from types import ModuleType, SimpleNamespace

import pytest

from holotype.utils import console
from holotype.utils.console import PlainBar, console_options, progress_bar
from holotype.utils.text import format_duration


@pytest.fixture
def now(monkeypatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return clock


def test_counting_shows_nothing_unless_asked_to(capfd, now) -> None:
    with progress_bar("Caching views", 10, False) as advance:
        now[0] += 60
        advance(10)
    with console_options(quiet=True), progress_bar("Caching views", 10, True) as advance:
        now[0] += 60
        advance(10)
    assert capfd.readouterr() == ("", "")


def test_short_work_is_not_worth_a_line_in_a_pipe(capsys, now) -> None:
    with progress_bar("Caching views", 10, True) as advance:
        now[0] += 4
        advance(10)
    assert capsys.readouterr() == ("", "")


def test_in_a_pipe_long_work_is_a_plain_line_now_and_then(capsys, now) -> None:
    with progress_bar("Reading images", 8000, True) as advance:
        for _ in range(80):
            now[0] += 0.5
            advance(100)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == "Reading images: 1,000/8,000, 12 %, 35 s left"
    assert lines[-1] == "Reading images: 8,000/8,000, 100 %"
    assert 7 <= len(lines) <= 9  # 40 seconds
    assert not any(character in err for character in "\r\x1b")


def test_a_night_is_some_dozens_of_lines(capsys, now) -> None:
    with progress_bar("Reading images", 36_000, True) as advance:
        for _ in range(36_000):
            now[0] += 1
            advance(1)
    assert 30 < len(capsys.readouterr().err.splitlines()) < 100


def test_what_an_earlier_run_has_done_says_nothing_about_speed(now) -> None:
    bar = PlainBar("train", 100, " steps")
    bar.before = 80
    bar.show(90, "cls 0.5")
    assert bar.line(now[0] + 10) == "train: 90/100 steps, 90 %, 10 s left; cls 0.5"


def test_a_notebook_shows_one_line_that_changes(monkeypatch, capsys, now) -> None:
    shown: list[str] = []

    class Cell:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown[-1] = data["text/plain"]

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Cell:
        shown.append(data["text/plain"])
        return Cell()

    made, inner = ModuleType("IPython"), ModuleType("IPython.display")
    made.get_ipython = lambda: SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
    inner.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", made)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    with progress_bar("Embedding images", 10, True) as advance:
        for _ in range(10):
            now[0] += 1
            advance(1)
    assert shown == ["Embedding images: 10/10, 100 %"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("no_color", [True, False])
def test_a_terminal_has_a_bar_with_colours_or_without(monkeypatch, no_color: bool) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with console_options(no_color=no_color), progress_bar("Reading images", 10, True) as advance:
        advance(10)
    assert "10/10" in screen.getvalue()
    assert ("\x1b[38;" in screen.getvalue() or "\x1b[3" in screen.getvalue()) is not no_color


def test_time_left_in_words() -> None:
    assert [format_duration(s) for s in (40.2, 720, 12_000)] == ["40 s", "12 min", "3 h 20 min"]
    assert [format_duration(s) for s in (3e5, float("nan"))] == ["3 days", "an unknown time"]
