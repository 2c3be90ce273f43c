"""docs/write.md, run as it stands: on coloured squares, with a tiny network and few steps."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from holotype.data.load import load_table
from holotype.discovery import pipeline
from holotype.export.camtrap import DEPLOYMENTS, MEDIA, OBSERVATIONS
from holotype.results.discovery import Discovery

PAGE = Path(__file__).resolve().parents[2] / "docs" / "write.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for name, text in FENCE.findall(PAGE.read_text(encoding="utf-8")) if name == language]


@pytest.fixture
def photos(tmp_path, monkeypatch, squares_folder, tiny_backbone_file, holotype) -> Path:
    """The working folder with photos/ and its run; every discovery in it is small."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(squares_folder, tmp_path / "photos")
    original = pipeline.discover_table

    def small(table, config, folder, **how):
        config = dataclasses.replace(config, k=4, steps=4, device="cpu", backbone=str(tiny_backbone_file))
        return original(table, config, folder, **{**how, "progress": False})

    monkeypatch.setattr(pipeline, "discover_table", small)
    outcome = holotype("discover", "photos/")
    assert outcome.code == 0, outcome.err
    return tmp_path


def test_the_commands_and_the_python_run(photos: Path, holotype, capsys) -> None:
    lines = [line for block in blocks("bash") for line in block.strip().splitlines()]
    assert len(lines) >= 6
    again = [f"{line} --overwrite" for line in lines if " write " in line and "--overwrite" not in line]
    for line in [*lines, *again]:
        program, *words = shlex.split(line)
        assert program == "holotype"
        outcome = holotype(*words)
        assert outcome.code == 0, outcome.err
    run = Discovery.load(Path("runs/photos-discover"))
    for folder in ("sorted", "sorted-copies"):
        assert len(list(Path(folder).rglob("*.png"))) == len(run.images) == 64
    table = load_table(Path("photos"), Path("next.csv"))
    assert {p: label for p, label in zip(table.path, table.label, strict=True) if label} == {
        p: label for p, label in zip(run.images.path, run.images.label, strict=True) if label
    }
    assert Discovery.load(Path("runs/photos-next")).known == run.known
    assert len(Path("every-image.csv").read_text(encoding="utf-8-sig").splitlines()) == 65
    assert len(json.loads(Path("coco.json").read_text())["annotations"]) == 64
    assert len(Path("package/observations.csv").read_text().splitlines()) == 65
    assert len(Path("package/deployments.csv").read_text().splitlines()) == 4  # green, red, unlabelled
    (example,) = blocks("python")
    capsys.readouterr()
    exec(compile(example, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.splitlines()[0] == "64"


def test_the_page_tells_fields_that_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    told = {
        name
        for row in re.findall(r"^\| (`.+?`) \|", text, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert told
    assert told <= {*MEDIA, *OBSERVATIONS, *DEPLOYMENTS}
