"""MegaDetector's JSON, old and new, and COCO annotations: what is read, what is left out, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holotype.data.detections import detections_summary, read_detections
from holotype.errors import InputError

MEGADETECTOR = {
    "info": {"format_version": "1.4"},
    "detection_categories": {"1": "animal", "2": "person", "3": "vehicle"},
    "images": [
        {
            "file": "north/a.jpg",
            "detections": [
                {"category": "1", "conf": 0.93, "bbox": [0.1, 0.2, 0.3, 0.4]},
                {"category": "1", "conf": 0.15, "bbox": [0.5, 0.2, 0.1, 0.1]},
                {"category": "2", "conf": 0.99, "bbox": [0.0, 0.0, 0.1, 0.5]},
                {"category": "3", "conf": 0.99, "bbox": [0.0, 0.0, 0.1, 0.5]},
            ],
        },
        {"file": "north/b.jpg", "detections": []},
        {"file": "north/c.jpg", "failure": "image access failure", "detections": None},
    ],
}
COCO = {
    "images": [
        {"id": 7, "file_name": "a.jpg", "width": 200, "height": 100},
        {"id": "x", "file_name": "b.jpg"},
        {"id": 9, "file_name": "c.jpg"},
    ],
    "categories": [{"id": 1, "name": "fox"}, {"id": 2, "name": "Person"}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 1, "bbox": [20, 10, 40, 30]},
        {"id": 2, "image_id": 7, "category_id": 2, "bbox": [0, 0, 10, 10]},
        {"id": 3, "image_id": "x", "category_id": 1, "bbox": [5, 6, 7, 8], "score": 0.9},
        {"id": 4, "image_id": "x", "category_id": 1, "bbox": [5, 6, 7, 8], "score": 0.1},
        {"id": 5, "image_id": 9, "category_id": 1},
    ],
}


def write(folder: Path, content: object) -> Path:
    (folder / "boxes.json").write_text(json.dumps(content), encoding="utf-8")
    return folder / "boxes.json"


def test_megadetector(tmp_path: Path) -> None:
    found = read_detections(write(tmp_path, MEGADETECTOR))
    assert [(one.file, one.values, one.units) for one in found.boxes] == [
        ("north/a.jpg", (0.1, 0.2, 0.3, 0.4), "shares")
    ]
    assert list(found.pictures) == ["north/a.jpg", "north/b.jpg", "north/c.jpg"]
    assert sorted(detections_summary(found)) == ["1 of less than 0.2 confidence", "1 person", "1 vehicle"]
    assert found.failed == 1
    assert len(read_detections(write(tmp_path, MEGADETECTOR), 0.1).boxes) == 2
    assert found.boxes[0].where == "box 1 of north/a.jpg"


def test_the_list_of_newer_versions(tmp_path: Path) -> None:
    content = [
        {
            "file": "a.jpg",
            "detections": [
                {"category": "animal", "confidence": 0.9, "bbox": [10, 20, 40, 60]},
                {"category": "person", "confidence": 0.9, "bbox": [10, 20, 40, 60]},
            ],
        },
        {"file": "b.jpg", "detections": []},
    ]
    found = read_detections(write(tmp_path, content))
    assert [(one.values, one.units) for one in found.boxes] == [((10, 20, 40, 60), "corners")]
    assert list(detections_summary(found)) == ["1 person"]


def test_coco(tmp_path: Path) -> None:
    found = read_detections(write(tmp_path, COCO))
    assert [(one.file, one.values, one.size, one.number) for one in found.boxes] == [
        ("a.jpg", (20, 10, 40, 30), (200, 100), 1),
        ("b.jpg", (5, 6, 7, 8), None, 1),
    ]
    assert list(found.pictures) == ["a.jpg", "b.jpg", "c.jpg"]
    assert sorted(detections_summary(found)) == ["1 of less than 0.2 confidence", "1 person"]


@pytest.mark.parametrize(
    "content",
    [
        {},
        [],
        {"images": []},
        {"images": [{"file_name": "a.jpg"}]},
        {"images": [{"file": "a.jpg", "detections": [{"category": "1", "conf": 1, "bbox": [1, 2]}]}]},
        {"images": [{"file": "a.jpg", "detections": [{"category": "1", "bbox": [0, 0, 1, 1]}]}]},
        {"images": [], "annotations": [{"image_id": 3, "bbox": [1, 2, 3, 4]}]},
        [3],
        "text",
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: object) -> None:
    with pytest.raises(InputError, match="is neither the output of MegaDetector nor COCO annotations"):
        read_detections(write(tmp_path, content))


def test_what_is_no_json(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_detections(tmp_path / "none.json")
    (tmp_path / "half.json").write_text('{"images": [')
    with pytest.raises(InputError, match="is not readable JSON"):
        read_detections(tmp_path / "half.json")
