"""What tests of the documents share: the blocks of a page, and a folder in which every discovery is small."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holotype.cli import discover as command
from holotype.discovery import pipeline

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return [block for name, block in FENCE.findall(text) if name == language]


def commands(text: str) -> list[list[str]]:
    """The words after `holotype` of every command of a page."""
    lines = [line for block in blocks(text, "bash") for line in block.strip().splitlines()]
    assert all(line.startswith("holotype ") for line in lines)
    return [shlex.split(line)[1:] for line in lines]


def table_cells(text: str) -> list[str]:
    """What stands in backquotes in the first cells of tables."""
    rows = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def run_python(text: str, names: dict | None = None) -> dict:
    """Run the code of a block; return the names that it leaves."""
    names = {} if names is None else names
    exec(compile(text, "page", "exec"), names)
    return names


@pytest.fixture
def small(tmp_path, monkeypatch, tiny_backbone_file) -> Path:
    """A working folder in which every discovery is one of k-means into four, or five, with a tiny network."""
    monkeypatch.chdir(tmp_path)
    original = pipeline.discover_table

    def discover(table, config, folder, **how):
        k = 4 if config.k == "auto" else 5
        network = str(tiny_backbone_file) if config.backbone == "auto" else config.backbone
        small = {"method": "kmeans", "device": "cpu", "backbone": network}
        config = dataclasses.replace(config, k=k, **small)
        return original(table, config, folder, **{**how, "progress": False})

    for module in (pipeline, command):
        monkeypatch.setattr(module, "discover_table", discover)
    return tmp_path


@pytest.fixture
def photos(small: Path, squares_folder: Path) -> Path:
    """Coloured squares as photos/ in such a folder."""
    return shutil.copytree(squares_folder, small / "photos")


@pytest.fixture
def follow(holotype) -> Callable[..., str]:
    """Run a command; return what it says on stdout and stderr."""

    def run(*words: object) -> str:
        outcome = holotype(*words)
        assert outcome.code == 0, outcome.err
        return outcome.out + outcome.err

    return run
