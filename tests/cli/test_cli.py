"""What goes with every command: help, options as dataclasses, quiet and verbose, exit codes, messages, doctor."""

import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from holotype import __version__, cli
from holotype.cli import COMMANDS, EXIT_CODES, FLAGS, NOT_WELL
from holotype.cli.common import Parser, logged_to_stderr, options_of
from holotype.cli.options import MAX_SHARD, BoxOptions, File, RunDir
from holotype.config.parse import Count
from holotype.data.datasets.registry import BENCHMARKS
from holotype.embeddings.shards import IMAGES_PER_PLAN_SHARD
from holotype.errors import InputError, Stopped
from holotype.methods import METHODS
from holotype.utils.console import console, is_quiet

from .conftest import assert_sentence

HEAVY = {"torch", "numpy", "pandas", "timm", "rich", "sklearn", "matplotlib"}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        *((words, HEAVY) for words in ("--help", "methods --all", "train rpc cub --seed")),
        *((words, HEAVY - {"numpy", "rich"}) for words in ("status nowhere", "studio nowhere --no-browser")),
    ],
)
def test_nothing_heavy_is_loaded_before_the_words_make_sense(words: str, heavy: set[str]) -> None:
    code = f"import sys; from holotype.cli import main; main({words.split()!r}); print(*sys.modules, sep=chr(10))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split("\n"))
    assert "holotype.cli" in loaded
    assert not loaded & heavy


def test_help_names_every_command_flag_and_exit_code(holotype) -> None:
    for words in ((), ("--help",), ("-h",)):
        outcome = holotype(*words)
        assert outcome.code == 0
        assert all(f"holotype {name}" in outcome.out for name in COMMANDS)
    for name, line in (*FLAGS.items(), *EXIT_CODES.items()):
        assert re.search(rf"^  {re.escape(name)} +{re.escape(line)}$", outcome.out, re.M), name
    for name in COMMANDS:
        outcome = holotype(name, "--help")
        assert (outcome.code, f"holotype {name}" in outcome.out) == (0, True)
    text = holotype("train", "-h").out.replace("\n", " ")
    assert all(name in text for name in (*METHODS, *BENCHMARKS))
    for words in (("-V",), ("--version",), ("train", "--version")):
        assert holotype(*words).out == f"holotype {__version__}\n"


def test_the_page_of_commands_says_the_same() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `(\d+|128\+n)` \| (.+) \|$", page, re.M)) == EXIT_CODES
    assert set(re.findall(r"^\| `(--[\w-]+)` \|", page, re.M)) == set(FLAGS)
    assert set(re.findall(r"^\| `holotype ([\w-]+)` \|", page, re.M)) >= set(COMMANDS)


@dataclass
class Group:
    depth: int = 3
    """How deep it is."""


@dataclass(kw_only=True)
class Options(BoxOptions):
    """What it does."""

    run: RunDir
    images: Annotated[str, "[IMAGES]"] | None = None
    kind: Literal["a", "b"] | None = None
    study: tuple[File, ...] = ()
    entry: list[str] = field(default_factory=list)
    n: Annotated[Count, "N"] = 1
    """Number of things."""
    group: Group = field(default_factory=Group)


def test_a_dataclass_becomes_arguments_and_comes_back() -> None:
    parser = Parser("try", Options)
    line = "--entry x run --study a b --box_confidence=0.5 --depth 4 --entry y"
    parsed = parser.parse_args(line.split())
    paths = {"run": Path("run"), "study": (Path("a"), Path("b"))}
    assert parsed == Options(**paths, entry=["x", "y"], box_confidence=0.5, group=Group(4))
    assert Parser("try", Options).parse_args(["run", "--n", "2", "photos"]).images == "photos"
    assert [option.name for option in options_of(Options) if option.positional] == ["run", "images"]
    text = " ".join(parser.format_help().split())
    assert "--n N Number of things. [a whole number (at least 1); default 1]" in text
    assert "--depth DEPTH How deep it is." in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--only 0/4", "--only 0/4"),
        ("--actors 3 --engine local", "--engine ray"),
        ("--slice 4097", "4,096"),
        ("--engine spark", "'spark'"),
    ],
)
def test_bad_flags_of_slices(words: str, says: str, holotype, squares_folder: Path, tmp_path: Path) -> None:
    assert_sentence(holotype("embed", squares_folder, "--out", tmp_path / "o", *words.split()), says)
    assert not (tmp_path / "o").exists()
    assert MAX_SHARD == IMAGES_PER_PLAN_SHARD


@pytest.mark.parametrize("words", ["embed", "assign run"])
def test_without_ray_it_says_what_to_install(words, holotype, squares_folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None)
    outcome = holotype(*words.split(), squares_folder, "--engine", "ray", "--out", tmp_path / "o")
    assert_sentence(outcome, "pip install 'holotype[ray]'")
    assert not (tmp_path / "o").exists()


@pytest.fixture
def told(monkeypatch, holotype):
    """A command that only talks; returns what the terminal shows."""
    seen: dict[str, object] = {}

    def talk(options) -> None:
        seen.update(quiet=is_quiet(), plain=console().no_color)
        logger = logging.getLogger("holotype.somewhere")
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            logger.log(level, logging.getLevelName(level))
        if options.name == "bad":
            raise InputError("It cannot be used; mend it.")
        print("result")

    monkeypatch.setattr("holotype.cli.info.data_command", talk)

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
    assert seen == {"quiet": True, "plain": "NO_COLOR" in os.environ}
    assert told("data", "list", "--no_color")[1]["plain"]
    outcome, seen = told("--quiet", "--no-color", "data", "list")  # before the command, too
    assert (outcome.code, seen) == (0, {"quiet": True, "plain": True})
    assert not is_quiet()  # when the command is done
    assert told("data", "list", "--quiet", "--verbose")[0].code == 2


def test_verbose_says_when_and_where(told) -> None:
    lines = told("data", "list", "--verbose")[0].err.splitlines()
    assert [line.split(": ")[-1] for line in lines] == ["DEBUG", "INFO", "WARNING"]
    assert all(re.match(r"\d\d:\d\d:\d\d holotype\.somewhere talk: ", line) for line in lines)
    outcome, _ = told("data", "check", "bad", "--verbose")
    assert (outcome.code, "Traceback" in outcome.err) == (2, True)
    assert outcome.err.endswith("\nIt cannot be used; mend it.\n")
    assert "Traceback" not in told("data", "check", "bad")[0].err


def test_of_several_processes_one_speaks(monkeypatch, capsys) -> None:
    logger = logging.getLogger("holotype.somewhere")
    with logged_to_stderr():
        logger.info("64 images, 1.6 GB, in host memory.")
        logger.debug("not worth a line")
        monkeypatch.setenv("RANK", "1")
        logger.warning("the second process is silent")
    assert capsys.readouterr().err == "64 images, 1.6 GB, in host memory.\n"
    assert not logging.getLogger("holotype").handlers  # when the command is done, nobody listens any more


ENDS = [None, InputError("No."), FileNotFoundError(2, "none", "x"), Stopped("3"), KeyboardInterrupt()]
ENDS += [SystemExit(0)]


@pytest.mark.parametrize(("ends", "code"), list(zip(ENDS, (0, 2, 2, 130, 130, 0), strict=True)))
def test_every_end_has_its_code(holotype, monkeypatch, ends: BaseException | None, code: int) -> None:
    def command(options) -> None:
        if ends is not None:
            raise ends

    monkeypatch.setattr("holotype.cli.info.data_command", command)
    assert str(code) in EXIT_CODES or code > 128
    outcome = holotype("data", "list")
    assert (outcome.code, outcome.err.count("\n")) == (code, int(code > 0))


@pytest.mark.parametrize(
    ("does", "code", "out"),
    [("1 / 0", cli.FAULT, b""), ("print('Größe × 鳥')", 0, rb"Gr\xf6\xdfe \xd7 \u9ce5" + b"\n")],
)
def test_a_fault_of_the_program_and_a_console_that_is_not_utf8(does: str, code: int, out: bytes) -> None:
    script = "import sys, holotype.cli.info as info; from holotype.cli import main\n"
    script += f"info.data_command = lambda options: {does}; sys.exit(main(['data', 'list']))"
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, env=ascii_only)
    assert (done.returncode, done.stdout) == (code, out)
    assert (b"Traceback" in done.stderr) == bool(code)


def test_doctor_says_its_facts_and_has_an_exit_code_of_its_own(holotype, monkeypatch) -> None:
    views = {"1,000 images": "16+8", "100,000 images": "off"}
    facts = {"hub": {"answers": False}, "auto": {"cache views": views}}
    facts |= {"self-test": {"passed": True}, "gpus": {}}
    asked = []
    monkeypatch.setattr("holotype.cli.doctor.run_checks", lambda paths: asked.append(paths) or facts)
    outcome = holotype("doctor")
    assert outcome.out.splitlines() == [
        *("hub", "  answers: no", "auto", "  cache views: 1,000 images 16+8; 100,000 images off"),
        *("self-test", "  passed: yes", "gpus", "  none"),
    ]
    assert json.loads(holotype("doctor", "--json", "--paths").out) == facts
    facts["self-test"] = {"passed": False}
    assert (outcome.code, holotype("doctor").code, asked) == (0, NOT_WELL, [False, True, False])
