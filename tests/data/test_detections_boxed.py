"""Boxes become the rows of a table: from a column, from a detector's file, and from both."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holotype.data.boxes import split_box
from holotype.data.detections import box_columns
from holotype.data.exif import upright_size
from holotype.data.labels import read_csv_table
from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.errors import InputError
from tests.data.cameras import photograph
from tests.data.test_detections import COCO


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Pictures of 80 x 40 pixels."""
    for name in ("fox/a.jpg", "unlabelled/b.jpg", "unlabelled/c.jpg", "deer/d.jpg"):
        photograph(tmp_path / "photos" / name, np.zeros((40, 80, 3), dtype=np.uint8))
    return tmp_path / "photos"


def rows(table: Table) -> list[tuple[str, str, str]]:
    parts = [split_box(str(path)) for path in table.path]
    return [
        (Path(file).name, box.text if box else "", label)
        for (file, box), label in zip(parts, table.label, strict=True)
    ]


def detected(folder: Path, **boxes: list) -> Path:
    """MegaDetector's file: name of a picture to its boxes, all of them sure animals."""
    images = [
        {
            "file": name.replace("__", "/") + ".jpg",
            "detections": [{"category": "1", "conf": 0.9, "bbox": box} for box in some],
        }
        for name, some in boxes.items()
    ]
    (folder / "md.json").write_text(json.dumps({"images": images}))
    return folder / "md.json"


# -- a column -------------------------------------------------------------------------------------------


def test_a_list_of_boxes_in_pixels_and_shares(photos: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    (photos / "list.csv").write_text(
        'path,label,box\nfox/a.jpg,fox,"8,4,40,20"\nfox/a.jpg,,0.5 0.5 0.25 0.25\nunlabelled/b.jpg,,[0;0;80;40]\n'
        "unlabelled/c.jpg,,\n"
    )
    assert rows(read_csv_table(photos / "list.csv")) == [
        ("a.jpg", "0.1,0.1,0.5,0.5", "fox"),
        ("a.jpg", "0.5,0.5,0.25,0.25", ""),
        ("b.jpg", "0,0,1,1", ""),
    ]
    assert "Left out: 1 of the 4 rows of" in caplog.text
    assert "which have no box." in caplog.text
    assert rows(load_table(photos, photos / "list.csv"))[0][2] == "fox"
    assert "Left out: 2 of the 4 pictures, which have no box in" in caplog.text


def test_a_parquet_list_holds_lists_of_numbers(photos: Path) -> None:
    frame = pd.DataFrame({"path": ["fox/a.jpg"], "label": ["fox"], "box": [[8.0, 4.0, 40.0, 20.0]]})
    frame.to_parquet(photos / "list.parquet")
    assert rows(read_csv_table(photos / "list.parquet")) == [("a.jpg", "0.1,0.1,0.5,0.5", "fox")]


def test_paths_of_results_hold_their_boxes(photos: Path) -> None:
    (photos / "list.csv").write_text('path,label\n"fox/a.jpg#xywh=percent:10,10,50,50",fox\n')
    assert rows(load_table(photos, photos / "list.csv")) == [("a.jpg", "0.1,0.1,0.5,0.5", "fox")]


def test_the_same_box_twice_is_one_and_may_not_be_torn(photos: Path) -> None:
    (photos / "list.csv").write_text(
        'path,label,box\nfox/a.jpg,fox,"8,4,40,20"\nfox/a.jpg,fox,"0.1,0.1,0.5,0.5"\n'
    )
    assert len(read_csv_table(photos / "list.csv")) == 1
    (photos / "list.csv").write_text(
        'path,label,box\nfox/a.jpg,fox,"8,4,40,20"\nfox/a.jpg,deer,"0.1,0.1,0.5,0.5"\n'
    )
    with pytest.raises(InputError, match="more than once with different labels"):
        read_csv_table(photos / "list.csv")


def test_bad_boxes_are_told_with_their_lines(photos: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    (photos / "list.csv").write_text(
        'path,label,box\nfox/a.jpg,fox,"8,4,40,20"\nfox/a.jpg,,"70,4,40,20"\nfox/a.jpg,,"8,4,0,20"\nfox/a.jpg,,B12\n'
        'fox/a.jpg,,"nan,0,1,1"\n'
    )
    with pytest.raises(InputError) as told:
        read_csv_table(photos / "list.csv")
    assert "4 bad boxes" in str(told.value)
    assert "line 3 of" in str(told.value)
    assert "70, 4, 40, 20 lies outside the picture of 80 x 40 pixels; line 4" in str(told.value)
    assert "--skip-missing" in str(told.value)
    assert len(read_csv_table(photos / "list.csv", skip_missing=True)) == 1
    assert "Left out: 4 bad boxes" in caplog.text


def test_a_picture_that_cannot_be_read_keeps_its_row(photos: Path) -> None:
    (photos / "broken.jpg").write_bytes(b"no picture")
    (photos / "list.csv").write_text('path,label,box\nbroken.jpg,fox,"8,4,40,20"\n')
    assert rows(read_csv_table(photos / "list.csv")) == [("broken.jpg", "0,0,1,1", "fox")]


# -- a detector's file ----------------------------------------------------------------------------------


def test_detections_of_a_folder(photos: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    boxes = detected(
        photos, fox__a=[[0.1, 0.1, 0.5, 0.5], [0.6, 0.1, 0.2, 0.5]], unlabelled__b=[[0, 0, 1, 1]], deer__d=[]
    )
    assert rows(load_table(photos, boxes=boxes)) == [
        ("a.jpg", "0.1,0.1,0.5,0.5", "fox"),
        ("a.jpg", "0.6,0.1,0.2,0.5", "fox"),
        ("b.jpg", "0,0,1,1", ""),
    ]
    assert "3 boxes in 2 pictures. Left out: 2 pictures without a box." in caplog.text
    assert "1 labelled picture" in caplog.text
    assert "Left out: 1 class without a labelled box (deer)" in caplog.text
    assert load_table(photos, boxes=boxes).known == ("fox",)
    assert len(load_table(photos)) == 4  # nothing is looked for that nobody has named


def test_labels_may_be_of_pictures_or_of_boxes(photos: Path) -> None:
    boxes = detected(
        photos, fox__a=[[0.1, 0.1, 0.5, 0.5], [0.6, 0.1, 0.2, 0.5]], unlabelled__b=[[0, 0, 1, 1]]
    )
    labels = photos / "labels.csv"
    labels.write_text("path,label\nunlabelled/b.jpg,badger\n")
    assert [row[2] for row in rows(load_table(photos, labels, boxes=boxes))] == ["", "", "badger"]
    labels.write_text(
        'path,label,box\nfox/a.jpg,fox,"0.6,0.1,0.2,0.5"\nfox/a.jpg,hare,"0,0,8,8"\nunlabelled/b.jpg,badger,\n'
    )
    told = [
        ("a.jpg", "0.1,0.1,0.5,0.5", ""),
        ("a.jpg", "0.6,0.1,0.2,0.5", "fox"),
        ("a.jpg", "0,0,0.1,0.2", "hare"),
        ("b.jpg", "0,0,1,1", "badger"),
    ]
    assert rows(load_table(photos, labels, boxes=boxes)) == told
    assert rows(load_table(labels, boxes=boxes)) == told  # the label of one box says nothing of another one


def test_pictures_that_are_not_there_and_bad_boxes(photos: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    boxes = detected(photos, fox__a=[[0.1, 0.1, 0.5, 0.5], [0.6, 0.1, 0.9, 0.5]], gone=[[0, 0, 1, 1]])
    with pytest.raises(InputError, match="1 of the 2 pictures that"):
        load_table(photos, boxes=boxes)
    assert len(load_table(photos, boxes=boxes, skip_missing=True)) == 1
    assert "Left out: 1 bad box (box 2 of fox/a.jpg: 0.6, 0.1, 0.9, 0.5 lies outside" in caplog.text
    boxes = detected(photos, fox__a=[])
    with pytest.raises(InputError, match="has no box for any picture of photos"):
        load_table(photos, boxes=boxes)


def test_paths_of_another_machine(photos: Path) -> None:
    file = detected(photos, fox__a=[[0.1, 0.1, 0.5, 0.5]])
    file.write_text(file.read_text().replace("fox/a.jpg", "D:\\\\traps\\\\fox\\\\A.JPG"))
    assert len(load_table(photos, boxes=file)) == 1


def test_coco_boxes_are_shares_of_the_size_that_was_annotated(photos: Path) -> None:
    """The file speaks of 200 x 100 pixels, the copies here have 80 x 40."""
    for name in "abc":
        photograph(photos / "coco" / f"{name}.jpg", np.zeros((40, 80, 3), dtype=np.uint8))
    (photos / "coco" / "coco.json").write_text(json.dumps(COCO))
    assert rows(load_table(photos / "coco", boxes=photos / "coco" / "coco.json")) == [
        ("a.jpg", "0.1,0.1,0.2,0.3", ""),
        ("b.jpg", "0.0625,0.15,0.0875,0.2", ""),
    ]


def test_coco_boxes_of_a_picture_before_it_was_turned(photos: Path) -> None:
    photograph(photos / "coco" / "a.jpg", np.zeros((100, 200, 3), dtype=np.uint8), orientation=6)
    assert upright_size(str(photos / "coco" / "a.jpg")) == (100, 200)
    content = {**COCO, "images": COCO["images"][:1], "annotations": COCO["annotations"][:1]}
    (photos / "coco" / "coco.json").write_text(json.dumps(content))
    with pytest.raises(
        InputError, match="drawn on a picture of 200 x 100 pixels, which is 100 x 200 upright"
    ):
        load_table(photos / "coco", boxes=photos / "coco" / "coco.json")


def test_columns_name_the_picture_and_the_box() -> None:
    assert box_columns(["a.jpg", "b.jpg"]) == {}
    found = box_columns(["a.jpg#xywh=percent:10,10,50,50", "b.jpg"])
    assert list(found["file"]) == ["a.jpg", "b.jpg"]
    assert list(found["box"]) == ["0.1,0.1,0.5,0.5", ""]
