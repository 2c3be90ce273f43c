"""Boxes from the folder to whatever is made of a run: each is an image of its own."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from holotype.config.schema import DiscoverConfig
from holotype.data.boxes import split_box
from holotype.data.load import load_table
from holotype.discovery.pipeline import discover_table
from holotype.errors import InputError
from holotype.export.assign import assign_images
from holotype.export.coco import write_coco
from holotype.export.results_table import write_labels
from holotype.report.build import read_data
from holotype.results.discovery import Discovery
from tests.conftest import COLOURS
from tests.discovery.made_round import edits_file
from tests.discovery.trap import ANIMAL, trap_pictures

BOXES = 44
"""One in each of 40 pictures, and another one in four of them."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return trap_pictures(tmp_path_factory.mktemp("trap") / "photos")


@pytest.fixture(scope="module")
def made(photos: Path, tmp_path_factory, tiny_backbone_file) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    network = str(tiny_backbone_file)
    config = DiscoverConfig(k=4, steps=12, method="kmeans", backbone=network, device="cpu", bursts="no")
    discover_table(load_table(photos, boxes=photos / "detections.json"), config, run, progress=False)
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def colour_of(path: str) -> str:
    return Path(split_box(path)[0]).name.partition("-")[0]


def shows(pixels: np.ndarray, path: str) -> bool:
    return bool(np.abs(pixels.astype(int) - np.array(COLOURS[colour_of(path)])).max() < 60)


def test_each_box_is_a_row_and_a_thumbnail(run: Path, photos: Path) -> None:
    table = pd.read_csv(run / "assignments.csv", keep_default_na=False)
    assert (len(table), (table.box != "").all()) == (BOXES, True)
    assert set(table.file) == {str(path) for path in photos.rglob("*.jpg") if path.name != "empty.jpg"}
    two = table[table.file == str(photos / "red" / "red-00.jpg")]
    assert two.label.tolist() == ["red", "red"]
    assert two.path.nunique() == two.box.nunique() == two.digest.nunique() == 2
    right = pd.crosstab(table.path.map(colour_of), table.category_id).max(axis=1).sum()
    assert right > 0.8 * BOXES  # the animals, not their surroundings
    data = read_data(run)
    images, thumbs = data["images"], data["thumbs"]
    sheet = np.asarray(Image.open(run / "report" / "thumbs" / "00000.jpg"))
    for i, path in enumerate(images["path"]):
        top, left = (part * thumbs["side"] for part in divmod(thumbs["cell"][i], thumbs["grid"]))
        assert shows(sheet[top + thumbs["height"][i] // 2, left + thumbs["width"][i] // 2], path), path
    assert all("#" not in rest for rest in images["file"])


def test_a_renamed_picture_takes_its_boxes_along(run, photos, tmp_path, small, caplog) -> None:
    caplog.set_level("INFO")
    config, elsewhere = small(method="kmeans", bursts="no"), tmp_path / "photos"
    shutil.copytree(photos, elsewhere)
    discover_table(load_table(photos, boxes=photos / "detections.json"), config, run, progress=False)
    assert "Nothing has changed since round 1" in caplog.text
    image = next(path for path in Discovery.load(run).images.path if "blue-00" in path)
    edits = edits_file(run, ("confirm", image, "", "red"))
    (elsewhere / "unlabelled" / "blue-00.jpg").rename(elsewhere / "unlabelled" / "night.jpg")
    boxes = elsewhere / "detections.json"
    boxes.write_text(boxes.read_text().replace("blue-00", "night"))
    discover_table(load_table(elsewhere, boxes=boxes), config, run, progress=False, edits=edits)
    assert "Since round 1: 2 images renamed." in caplog.text
    images = Discovery.load(run).images
    night = images[images.file == str(elsewhere / "unlabelled" / "night.jpg")]
    assert sorted(night.label) == ["", "red"]
    assert night.category_id[night.path.str.endswith(split_box(image)[1].ending)].tolist() == ["red"]


def test_boxes_that_were_forgotten_the_second_time_are_asked_for(run, photos, small, tmp_path) -> None:
    config, boxes = small(method="kmeans", bursts="no"), load_table(photos, boxes=photos / "detections.json")
    with pytest.raises(InputError, match=r"none of its 44 boxes .*give its boxes again with --boxes, or"):
        discover_table(load_table(photos), config, run, progress=False)
    discover_table(load_table(photos), config, tmp_path / "whole", progress=False)
    with pytest.raises(InputError, match=r"none of its 41 is .*leave the boxes out, or"):
        discover_table(boxes, config, tmp_path / "whole", progress=False)


def test_labels_and_coco_lead_back_to_the_same_boxes(run: Path, photos: Path, tmp_path: Path) -> None:
    images = set(Discovery.load(run).images.path)
    write_labels(run, tmp_path / "labels.csv", all=True)
    assert list(pd.read_csv(tmp_path / "labels.csv").columns) == ["path", "label", "box"]
    again = load_table(photos, tmp_path / "labels.csv")
    both = load_table(photos, tmp_path / "labels.csv", boxes=photos / "detections.json")
    assert set(again.path) == set(both.path) == images
    assert dict(zip(again.path, again.label, strict=True)) == dict(zip(both.path, both.label, strict=True))
    done = write_coco(run, tmp_path / "coco.json")
    assert (done.images, done.annotations, done.unread) == (40, BOXES, 0)
    content = json.loads((tmp_path / "coco.json").read_text())
    assert len({image["file_name"] for image in content["images"]}) == 40
    assert all(one["bbox"][2:] == pytest.approx(ANIMAL, abs=0.02) for one in content["annotations"])
    assert set(load_table(photos, boxes=tmp_path / "coco.json").path) == images  # pixels and shares are one


def test_new_pictures_are_placed_by_their_boxes(run: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.csv"
    assigned = assign_images(run, photos, out=out, device="cpu", boxes=photos / "detections.json")
    table = pd.read_csv(out)
    assert (assigned.n, table.file.nunique()) == (BOXES, 40)
    assert table.box.str.count(",").eq(3).all()
    before = Discovery.load(run).images
    free = before[before.label == ""].set_index("path").category_id
    assert list(table.set_index("path").category_id[free.index]) == list(free)


def test_the_command_line(photos: Path, tmp_path: Path, holotype, tiny_backbone_file) -> None:
    how = ("--backbone", tiny_backbone_file, "--method=kmeans", "--k=4", "--device=cpu", "--no-progress")
    boxes, out = ("--boxes", photos / "detections.json"), ("--out", tmp_path / "run")
    seen = holotype("discover", photos, *boxes, "--dry-run", *out, *how)
    assert seen.code == 0, seen.err
    assert "44 boxes in 40 pictures. Left out: 1 person, 1 of less than 0.2 confidence" in seen.err
    assert "44 images: 12 labelled in 2 classes, 32 unlabelled." in seen.out
    outcome = holotype("discover", photos, *boxes, "--box-confidence", 0.05, *out, *how)
    assert outcome.code == 0, outcome.err
    assert "45 boxes in 41 pictures" in outcome.err
    placed = holotype("assign", tmp_path / "run", photos, *boxes, "--device", "cpu", "--no-progress")
    assert "44 images:" in placed.out
