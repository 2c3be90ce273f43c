"""Consoles that lack characters, colours that are not wanted, and notebooks that are no terminals."""

from __future__ import annotations

import contextlib
import io
import sys
from types import SimpleNamespace

import pytest

from holotype.machine.terminal import console, habits, in_notebook, is_quiet, place, plain_characters


@pytest.mark.parametrize(
    ("encoding", "text", "shown"),
    [
        ("ascii", "16 × 8 – “Größe” ≥ 3 … naïve", '16 x 8 - "Grosse" >= 3 ... naive'),
        ("cp1252", "é – × stay, ≥ and → do not", "é – × stay, >= and -> do not"),
        ("ascii", "鳥 and 🦉", "? and ?"),
        ("utf-8", "鳥 – é", "鳥 – é"),
        ("utf-8", "a name of odd bytes: \udcff.jpg", "a name of odd bytes: ?.jpg"),
    ],
)
def test_what_a_console_lacks_is_written_plainly(monkeypatch, encoding: str, text: str, shown: str) -> None:
    raw = [io.BytesIO(), io.BytesIO()]
    streams = [
        io.TextIOWrapper(r, encoding, e) for r, e in zip(raw, ("strict", "backslashreplace"), strict=True)
    ]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    with plain_characters():
        print(text)
        print(text, file=sys.stderr)
    for stream in streams:
        stream.flush()
    assert [r.getvalue().decode(encoding) for r in raw] == [shown + "\n"] * 2
    assert [stream.errors for stream in streams] == ["strict", "backslashreplace"]


def test_bytes_of_file_names_stay_where_the_console_keeps_them(monkeypatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "utf-8", "surrogateescape"))
    with plain_characters():
        print("\udcff", flush=True)
    assert raw.getvalue() == b"\xff\n"


def test_a_stream_that_is_no_console_is_left_alone(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with plain_characters():
        print("–")
    assert sys.stdout.getvalue() == "–\n"  # type: ignore[attr-defined]


def test_habits_last_as_long_as_their_block(monkeypatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert not is_quiet()
    with contextlib.suppress(ZeroDivisionError), habits(quiet=True, no_color=True):
        assert is_quiet()
        assert console().no_color
        raise ZeroDivisionError
    assert not is_quiet()
    assert not console().no_color
    monkeypatch.setenv("NO_COLOR", "1")
    assert console().no_color


def test_a_notebook_is_known_by_its_kernel(monkeypatch) -> None:
    assert place() == "pipe"
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook()
    assert place() == "notebook"
    shell.kernel = None  # IPython on a terminal
    assert not in_notebook()


def test_a_terminal_without_a_cursor_is_a_pipe(monkeypatch) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    assert place() == "terminal"
    monkeypatch.setenv("TERM", "dumb")
    assert place() == "pipe"
