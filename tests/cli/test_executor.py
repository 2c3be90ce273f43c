"""The flags of slices: what contradicts itself is one sentence, before anything is read."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


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
