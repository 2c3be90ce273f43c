"""docs/bursts-and-boxes.md, followed to the letter: on painted pictures of traps, with a tiny network and k-means."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest

from holotype.discovery import pipeline
from holotype.results.discovery import Discovery
from tests.conftest import write_csv
from tests.discovery.test_round_runner import trap_folder
from tests.discovery.trap import trap_pictures

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "bursts-and-boxes.md").read_text(encoding="utf-8")
RUN = Path("runs/photos-discover")


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.strip().splitlines()]


@pytest.fixture
def here(tmp_path, monkeypatch, tiny_backbone_file) -> Path:
    """A working folder in which every discovery is small."""
    monkeypatch.chdir(tmp_path)
    original = pipeline.discover_table

    def small(table, config, folder, **how):
        network = str(tiny_backbone_file) if config.backbone == "auto" else config.backbone
        config = dataclasses.replace(config, k=4, method="kmeans", device="cpu", backbone=network)
        return original(table, config, folder, **{**how, "progress": False})

    monkeypatch.setattr(pipeline, "discover_table", small)
    return tmp_path


def test_times_and_bursts(here: Path, holotype) -> None:
    plain, seconds, no, told = commands()[:4]
    trap_folder(here / "photos")
    outcome = holotype(*plain)
    assert outcome.code == 0, outcome.err
    assert (
        "The files say when 72 of 72 images were taken (2024-05-01 to 2024-05-06), with which camera 72 were."
        in outcome.err
    )
    assert (
        "72 frames of 24 bursts of up to 3 (one camera, at most 10 seconds apart, alike); a burst"
        in outcome.err
    )
    assert "12 frames labelled like" in outcome.err
    assert "72 images (72 frames of 24 bursts)" in outcome.out
    assert re.search(r"red +18 in +6 bursts", outcome.out)
    table = pd.read_csv(RUN / "assignments.csv", keep_default_na=False)
    assert {"taken", "camera", "group"} <= set(table.columns)
    assert table.note.str.contains("has the label of a frame of its burst").sum() == 12
    assert "Settings that differ from round 1: --bursts 30 (was auto)." in holotype(*seconds).err
    assert "Settings that differ from round 2: --bursts no (was 30)." in holotype(*no).err
    assert "group" not in pd.read_csv(RUN / "assignments.csv").columns
    rows = [
        ("red/red-0-0.jpg", "red", "n-17"),
        ("unlabelled/red-0-1.jpg", "", "n-17"),
        ("green/green-0-0.jpg", "green", ""),
    ]
    write_csv(here / "sequences.csv", "path,label,group", rows)
    outcome = holotype(*told)
    assert "2 frames of 1 burst of up to 2 (as the column group says)" in outcome.err
    assert Discovery.load(RUN).images.label.tolist().count("red") == 2


def test_boxes(here: Path, holotype) -> None:
    boxes, sure, listed, coco, labels, folders, camtrap, assign = commands()[4:]
    trap_pictures(here / "photos")
    shutil.move(here / "photos" / "detections.json", here / "detections.json")
    outcome = holotype(*boxes)
    assert outcome.code == 0, outcome.err
    assert "detections.json: 44 boxes in 40 pictures. Left out: 1 person, 1 of less than 0.2" in outcome.err
    assert "4 labelled pictures" not in outcome.err
    assert "2 labelled pictures with several boxes" in outcome.err
    table = pd.read_csv(RUN / "assignments.csv")
    assert table.path.str.contains(r"\.jpg#xywh=percent:[\d.,]+$").all()
    assert {"file", "box"} <= set(table.columns)
    for words in (coco, labels, folders, camtrap):
        done = holotype("write", *words[1:])
        assert done.code == 0, done.err
    assert len(json.loads(Path("found.json").read_text())["images"]) == 40
    assert list(pd.read_csv("labels.csv").columns) == ["path", "label", "box"]
    assert len(list(Path("sorted").rglob("*.jpg"))) == 44
    assert pd.read_csv("package/observations.csv").bboxX.notna().all()
    shutil.copytree("photos", "new")
    shutil.copy("detections.json", "new/detections.json")
    placed = holotype(*assign, "--device", "cpu")
    assert placed.code == 0, placed.err
    assert "44 images" in placed.out
    assert "Nothing has changed since round 1" in holotype(*sure).err  # all of them are surer than that
    write_csv(
        here / "boxes.csv",
        "path,label,box",
        [("red/red-00.jpg", "red", "0.12,0.4,0.3,0.22"), *_pixels()],
    )
    outcome = holotype(*listed, "--out", "runs/listed")
    assert outcome.code == 0, outcome.err
    assert "Left out: 30 of the 41 pictures, which have no box in boxes.csv." in outcome.err
    assert len(pd.read_csv("runs/listed/assignments.csv")) == 12


def test_from_whole_pictures_to_boxes(here: Path, holotype) -> None:
    boxes = commands()[4]
    trap_pictures(here / "photos")
    shutil.move(here / "photos" / "detections.json", here / "detections.json")
    assert holotype("discover", "photos").code == 0
    refused = holotype(*boxes)
    assert refused.code == 2
    assert "holds a discovery of other images" in refused.err
    assert holotype("write", RUN, "--labels", "labels.csv").code == 0
    outcome = holotype(*boxes, "--labels", "labels.csv", "--out", "runs/boxes")
    assert outcome.code == 0, outcome.err
    assert (pd.read_csv("runs/boxes/assignments.csv").label.notna()).sum() == 12


def _pixels() -> list[tuple[str, str, str]]:
    """Boxes of some pictures, in pixels."""
    named = [("red/red-00.jpg", ""), ("green/green-00.jpg", "green")]
    named += [
        (f"unlabelled/{colour}-0{n}.jpg", "") for colour in ("blue", "yellow", "red") for n in (6, 7, 8)
    ]
    return [(path, label, "10,5,40,50") for path, label in named]


def test_the_python_runs(here: Path, capsys) -> None:
    trap_pictures(here / "photos")
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(example, "bursts-and-boxes.md", "exec"), {})
    assert "HP2X" in capsys.readouterr().out
