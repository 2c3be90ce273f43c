"""COCO JSON by its public description: every id is one, refers to something, and boxes are whole images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from export.made_results import edit, made_run, paths
from holotype.data.detections import read_detections
from holotype.errors import InputError
from holotype.export.coco import write_coco
from holotype.results.discovery import Discovery


def assert_valid(content: dict) -> None:
    """What https://cocodataset.org/#format-data asks for."""
    assert set(content) == {"info", "licenses", "images", "annotations", "categories"}
    info = dict.fromkeys(("version", "description", "contributor", "url", "date_created"), str) | {
        "year": int
    }
    assert {key: type(value) for key, value in content["info"].items()} == info
    for key in ("images", "annotations", "categories"):
        ids = [one["id"] for one in content[key]]
        assert all(type(id) is int for id in ids)
        assert len(set(ids)) == len(ids)
    images = {one["id"]: one for one in content["images"]}
    for one in images.values():
        assert type(one["width"]) is type(one["height"]) is int
        assert min(one["width"], one["height"]) > 0
        assert isinstance(one["file_name"], str)
    known = {one["id"] for one in content["categories"]}
    assert {one["supercategory"] for one in content["categories"]} <= {"known", "new"}
    for one in content["annotations"]:
        image = images[one["image_id"]]
        width, height = image["width"], image["height"]
        assert one["category_id"] in known
        assert one["bbox"] == [0, 0, width, height]
        assert one["area"] == width * height
        assert one["segmentation"] == [[0, 0, width, 0, width, height, 0, height]]
        assert one["iscrowd"] == 0
        assert 0 <= one["score"] <= 1


def test_it_says_what_the_run_says(tmp_path) -> None:
    run = made_run(tmp_path)
    one, other = paths(run, "new-02")[:2]
    found = edit(
        run, ("rename", "", "new-01", "Käfer, =2"), ("move", one, "", "Bag"), ("reject", other, "", "")
    )
    Path(paths(run, "Bag")[-1]).unlink()
    done = write_coco(run, tmp_path / "out" / "coco.json")
    content = json.loads((tmp_path / "out" / "coco.json").read_text(encoding="utf-8"))
    assert_valid(content)
    n = len(found.images)
    assert (done.images, done.annotations, done.unread) == (n - 1, n - 2, 1)
    assert (len(content["images"]), len(content["annotations"])) == (n - 1, n - 2)
    names = {c["id"]: (c["name"], c["supercategory"]) for c in content["categories"]}
    assert ("Käfer, =2", "new") in names.values()
    assert ("Bag", "known") in names.values()
    said = {a["image_id"]: (names[a["category_id"]][0], a["score"]) for a in content["annotations"]}
    for image in content["images"]:
        path = tmp_path / "my pictures" / image["file_name"]
        assert Image.open(path).size == (image["width"], image["height"])
        row = found.images[found.images.path == str(path)].iloc[0]
        if str(path) == other:
            assert image["id"] not in said
            continue
        score = 1.0 if row.label != "" or str(path) == one else row.probability
        assert said[image["id"]] == (row.category, pytest.approx(score, abs=1e-6))


def test_what_has_no_probability_has_no_score_and_what_is_unreadable_is_left_out(tmp_path) -> None:
    run = made_run(tmp_path)
    found = Discovery.load(run)
    found.images["probability"] = float("nan")
    found.images.loc[5, ["label", "category", "category_id", "kind", "problem"]] = ["", "", "", "", "cut off"]
    found.save(run)
    assert write_coco(run, tmp_path / "coco.json").unread == 1
    content = json.loads((tmp_path / "coco.json").read_text(encoding="utf-8"))
    scored = {one["image_id"] for one in content["annotations"] if "score" in one}
    assert scored == {i + 1 for i, label in enumerate(found.images.label) if label}
    assert 6 not in {one["id"] for one in content["images"]}


def test_another_ending_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match=r"does not end in \.json"):
        write_coco(made_run(tmp_path), tmp_path / "coco.txt")


def test_its_scores_are_not_those_of_a_detector(tmp_path) -> None:
    """Read as boxes, an image of which the model is unsure was left out as a box of which a detector is."""
    write_coco(made_run(tmp_path), tmp_path / "coco.json")
    content = json.loads((tmp_path / "coco.json").read_text())
    unsure = [one for one in content["annotations"] if one["score"] < 0.9]
    assert unsure
    found = read_detections(tmp_path / "coco.json", confidence=0.9)
    assert (len(found.boxes), found.left_out) == (len(content["annotations"]), {})
    content["info"]["description"] = "by somebody else"
    (tmp_path / "other.json").write_text(json.dumps(content))
    other = read_detections(tmp_path / "other.json", confidence=0.9)
    assert len(other.boxes) == len(found.boxes) - len(unsure)
