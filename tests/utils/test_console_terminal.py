"""Consoles that lack characters, colours that are not wanted, and notebooks that are no terminals."""

from __future__ import annotations

import contextlib
import io
import sys
from types import SimpleNamespace

import pytest

from holotype.utils.console import (
    console,
    console_kind,
    console_options,
    in_notebook,
    is_quiet,
    plain_characters,
)


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


def test_a_stream_that_is_no_console_is_left_alone(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    plain_characters()
    print("–")
    assert sys.stdout.getvalue() == "–\n"  # type: ignore[attr-defined]


def test_habits_last_as_long_as_their_block(monkeypatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert not is_quiet()
    with contextlib.suppress(ZeroDivisionError), console_options(quiet=True, no_color=True):
        assert is_quiet()
        assert console().no_color
        raise ZeroDivisionError
    assert not is_quiet()
    assert not console().no_color
    monkeypatch.setenv("NO_COLOR", "1")
    assert console().no_color


def test_a_notebook_is_known_by_its_kernel(monkeypatch) -> None:
    assert console_kind() == "pipe"
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert in_notebook()
    assert console_kind() == "notebook"
    shell.kernel = None  # IPython on a terminal
    assert not in_notebook()


def test_a_terminal_without_a_cursor_is_a_pipe(monkeypatch) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    assert console_kind() == "terminal"
    monkeypatch.setenv("TERM", "dumb")
    assert console_kind() == "pipe"
