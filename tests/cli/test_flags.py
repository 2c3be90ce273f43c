"""What goes with every command: quiet, verbose, no colours, the version, exit codes, consoles of few characters."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holotype import __version__, cli
from holotype.cli import COMMANDS, EXIT_CODES, FLAGS
from holotype.errors import InputError, Stopped
from holotype.utils.console import console, is_quiet

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


@pytest.fixture
def told(monkeypatch, holotype):
    """A command that only talks; returns what the terminal shows."""
    seen: dict[str, object] = {}

    def talk(words: list[str]) -> int:
        seen.update(words=words, quiet=is_quiet(), plain=console().no_color)
        logger = logging.getLogger("holotype.somewhere")
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            logger.log(level, logging.getLevelName(level))
        if "bad" in words:
            raise InputError("It cannot be used; mend it.")
        print("result")
        return 0

    monkeypatch.setattr("holotype.cli.data.command", talk)

    def call(*words: str):
        seen.clear()
        return holotype(*words), dict(seen)

    return call


def test_a_command_talks_as_it_is_asked_to(told) -> None:
    outcome, seen = told("data", "list")
    assert (outcome.out, outcome.err) == ("result\n", "INFO\nWARNING\n")
    assert not seen["quiet"]
    outcome, seen = told("data", "--quiet", "list")
    assert (outcome.out, outcome.err) == ("result\n", "WARNING\n")
    assert seen == {"words": ["list"], "quiet": True, "plain": "NO_COLOR" in os.environ}
    outcome, seen = told("data", "list", "--no_color")
    assert seen["plain"]
    assert seen["words"] == ["list"]


def test_flags_may_stand_before_the_command(told) -> None:
    outcome, seen = told("--quiet", "--no-color", "data", "list")
    assert outcome.code == 0
    assert seen == {"words": ["list"], "quiet": True, "plain": True}
    assert not is_quiet()  # when the command is done


def test_verbose_says_when_and_where(told) -> None:
    outcome, _ = told("data", "list", "--verbose")
    lines = outcome.err.splitlines()
    assert [line.split(": ")[-1] for line in lines] == ["DEBUG", "INFO", "WARNING"]
    assert all(re.match(r"\d\d:\d\d:\d\d holotype\.somewhere talk: ", line) for line in lines)
    outcome, _ = told("data", "bad", "--verbose")
    assert outcome.code == 2
    assert "Traceback" in outcome.err
    assert outcome.err.endswith("\nIt cannot be used; mend it.\n")
    assert "Traceback" not in told("data", "bad")[0].err


def test_contradictions_and_versions(holotype) -> None:
    outcome = holotype("data", "list", "--quiet", "--verbose")
    assert outcome.code == 2
    assert outcome.err == "--quiet and --verbose contradict each other; leave out one.\n"
    assert holotype("train", "--version").out == f"holotype {__version__}\n"


def test_help_names_flags_and_exit_codes(holotype) -> None:
    text = holotype("--help").out
    for name, line in (*FLAGS.items(), *EXIT_CODES.items()):
        assert re.search(rf"^  {re.escape(name)} +{re.escape(line)}$", text, re.M), name


def test_the_page_of_commands_says_the_same() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\d+|128\+n)` \| (.+) \|$", page, re.M))
    assert rows == EXIT_CODES
    assert set(re.findall(r"^\| `(--[\w-]+)` \|", page, re.M)) == set(FLAGS)
    assert set(re.findall(r"^\| `holotype ([\w-]+)` \|", page, re.M)) >= set(COMMANDS)


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (None, "0"),
        (InputError("Not so."), "2"),
        (FileNotFoundError(2, "no such file", "x"), "2"),
        (Stopped("step 3"), "130"),
        (KeyboardInterrupt(), "130"),
        (SystemExit(0), "0"),
    ],
)
def test_every_end_has_its_code(holotype, monkeypatch, ends: BaseException | None, code: str) -> None:
    def command(words: list[str]) -> int:
        if ends is not None:
            raise ends
        return 0

    monkeypatch.setattr("holotype.cli.data.command", command)
    assert code in EXIT_CODES or int(code) > 128
    assert str(holotype("data", "list").code) == code


def test_a_fault_of_the_program_is_1() -> None:
    script = "import sys; import holotype.cli.data as d; from holotype.cli import main\n"
    script += "def fail(words): {}\nd.command = fail; sys.exit(main(['data', 'list']))"
    done = subprocess.run(
        [sys.executable, "-c", script.format("1 / 0")], capture_output=True, text=True, check=False
    )
    assert done.returncode == cli.FAULT
    assert "Traceback" in done.stderr


def test_a_console_that_is_not_utf8_is_no_error() -> None:
    script = "import sys; import holotype.cli.data as d; from holotype.cli import main\n"
    script += "d.command = lambda words: print('Größe × 鳥') or 0; sys.exit(main(['data', 'list']))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, rb"Gr\xf6\xdfe \xd7 \u9ce5" + b"\n", b"")
