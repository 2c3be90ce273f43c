"""docs/folder.md, run as it stands: on coloured squares, with a tiny network and few steps."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest

from holotype.discovery import pipeline
from tests.conftest import KNOWN, write_csv

PAGE = Path(__file__).resolve().parents[2] / "docs" / "folder.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for name, text in FENCE.findall(PAGE.read_text(encoding="utf-8")) if name == language]


@pytest.fixture
def photos(tmp_path, monkeypatch, squares_folder, tiny_backbone_file) -> Path:
    """The working folder with photos/ and labels.csv; every discovery in it is small."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(squares_folder, tmp_path / "photos")
    images = sorted((tmp_path / "photos").glob("unlabelled/*.png"))
    named = [(str(image.relative_to(tmp_path / "photos")), image.name.partition("-")[0]) for image in images]
    labels = [row for row in named if row[1] in KNOWN][::3]
    write_csv(tmp_path / "labels.csv", "path,label", labels)
    original = pipeline.discover_table

    def small(table, config, folder, **how):
        config = dataclasses.replace(config, steps=4, device="cpu", backbone=str(tiny_backbone_file))
        return original(table, config, folder, **{**how, "progress": False})

    monkeypatch.setattr(pipeline, "discover_table", small)
    return tmp_path


def test_the_commands_run(photos: Path, holotype) -> None:
    lines = [line for block in blocks("bash") for line in block.strip().splitlines()]
    assert len(lines) >= 5
    for number, line in enumerate(lines):
        program, *words = shlex.split(line)
        assert program == "holotype"
        if "--out" not in words:  # several lines make a run of their own in the same folder
            words += ["--out", f"runs/{number}"]
        outcome = holotype(*words)
        assert outcome.code == 0, outcome.err
        if "--dry-run" in words:
            assert outcome.out.startswith("64 images: 16 labelled in 2 classes, 48 unlabelled.")
            assert "Time on this" in outcome.out
            assert not Path(words[-1]).exists()
            continue
        run = Path(words[words.index("--out") + 1])
        assert f"Report: {run / 'report.html'}" in outcome.out
        assert len(pd.read_csv(run / "assignments.csv")) == 64
    rows = re.findall(r"^\| (`.+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = [file.rstrip("/") for row in rows for file in re.findall(r"`([^`]+)`", row)]
    left = {file.name for file in run.iterdir()}
    assert left - set(told) == set()
    formats = PAGE.with_name("formats.md").read_text(encoding="utf-8")
    assert [name for name in left if f"`{name}" not in formats] == []
    # these are there once there is something to keep
    assert set(told) - left <= {"edits.csv", "earlier.json", "heartbeat.json"}


def test_the_python_runs(photos: Path, capsys) -> None:
    (example,) = blocks("python")
    exec(compile(example, "folder.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "green" in printed
    assert (photos / "runs" / "photos" / "report.html").is_file()
