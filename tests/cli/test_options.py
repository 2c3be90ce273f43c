"""Options as dataclasses, and the flags of slices: what cannot be is one sentence, before anything is read."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from holotype.cli.common import BoxOptions, File, Parser, RunDir, options_of
from holotype.config.types import Count
from holotype.errors import InputError


@dataclass
class Group:
    depth: int = 3
    """How deep it is."""


@dataclass(kw_only=True)
class Options(BoxOptions):
    """What it does."""

    run: RunDir
    """Folder of a run."""
    images: Annotated[str, "[IMAGES]"] | None = None
    kind: Literal["a", "b"] | None = None
    study: tuple[File, ...] = ()
    entry: list[str] = field(default_factory=list)
    n: Annotated[Count, "N"] = 1
    """Number of things."""
    group: Group = field(default_factory=Group)


def test_a_dataclass_becomes_arguments_and_comes_back() -> None:
    words = [
        "--entry",
        "x",
        "run",
        "--study",
        "a",
        "b",
        "--box_confidence=0.5",
        "--depth",
        "4",
        "--entry",
        "y",
    ]
    parsed = Parser("try", Options).parse_args(words)
    assert parsed == Options(
        run=Path("run"),
        study=(Path("a"), Path("b")),
        entry=["x", "y"],
        box_confidence=0.5,
        group=Group(4),
    )
    assert Parser("try", Options).parse_args(["run", "--n", "2", "photos"]).images == "photos"
    assert [option.name for option in options_of(Options) if option.positional] == ["run", "images"]
    text = " ".join(Parser("try", Options).format_help().split())
    assert "--n N Number of things. [a whole number (at least 1); default 1]" in text
    assert "--depth DEPTH How deep it is." in text


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("", "RUN"),
        ("run --n 0", "--n must be"),
        ("run --n", "--n"),
        ("run --kind c", "a or b"),
        ("run --dept 3", "did you mean --depth"),
        ("run a b", "'b'"),
        ("run --skip-missing=yes", "'yes'"),
    ],
)
def test_what_cannot_be_parsed_is_one_sentence(line: str, word: str) -> None:
    with pytest.raises(InputError) as raised:
        Parser("try", Options).parse_args(line.split())
    assert word in str(raised.value)
    assert str(raised.value)[-1] in ".?"


# -- slices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--only", "0/4"], "--only 0/4"),
        (["--only", "5/4"], "--only 5/4"),
        (["--only", "x"], "--only x"),
        (["--ray-address", "auto"], "--engine ray"),
        (["--actors", "3", "--engine", "local"], "--engine ray"),
        (["--actors", "0", "--engine", "ray"], "--actors"),
        (["--slice", "4097"], "4,096"),
        (["--slice", "0"], "--slice"),
        (["--engine", "spark"], "'spark'"),
    ],
)
def test_bad_flags(words: list[str], says: str, holotype, squares_folder: Path, tmp_path: Path) -> None:
    outcome = holotype("embed", squares_folder, "--out", tmp_path / "o", *words)
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("command", ["embed", "assign"])
def test_without_ray_it_says_what_to_install(
    command, holotype, squares_folder, tmp_path, monkeypatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest)
    )
    run = [tmp_path] if command == "assign" else []
    outcome = holotype(command, *run, squares_folder, "--engine", "ray", "--out", tmp_path / "o")
    assert outcome.code == 2
    assert "pip install 'holotype[ray]'" in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "o").exists()
