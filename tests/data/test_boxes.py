"""Boxes: how they are written, what is wrong with some, which pixels they mean, and files of detectors."""

import json
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotype.data.boxes import BadBox, Box, make_box, parse_numbers, split_box, with_box
from holotype.data.decode import ImageProblem, open_image, read_image
from holotype.data.detections import box_columns, read_detections
from holotype.data.exif import upright_sizes
from holotype.data.hashing import file_digest, file_stamps, image_digests
from holotype.data.image_files import file_of, image_exists
from holotype.data.labels import read_csv_table
from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.errors import InputError
from tests.data.cameras import photograph
from tests.data.packed import square, write_tar

SHARE = st.integers(0, 10**5).map(lambda n: n / 10**5)


@given(SHARE, SHARE, SHARE, SHARE)
def test_a_path_and_its_box_are_parted_again(x: float, y: float, w: float, h: float) -> None:
    path = with_box("/a b/#1 fox.jpg", Box(x, y, w, h))
    file, box = split_box(path)
    assert file == "/a b/#1 fox.jpg"
    assert box is not None
    assert (box.x, box.y, box.w, box.h) == pytest.approx((x, y, w, h), abs=1e-9)
    assert with_box(file, box) == path
    assert parse_numbers(box.text) == pytest.approx((x, y, w, h), abs=1e-9)


def test_other_paths_have_no_box_and_columns_name_the_picture_and_the_box() -> None:
    others = ("a.jpg", "a.npz#3", "a#xywh=1,2,3,4", "a.jpg#xywh=percent:1,2,3", "a#xywh=percent:1,2,3,4.jpg")
    for path in (*others, "a.jpg#xywh=percent:1,2,3,4..5"):
        assert split_box(path) == (path, None)
    assert box_columns(others) == {}
    found = box_columns(["a.jpg#xywh=percent:10,10,50,50", "b.jpg"])
    assert (list(found["file"]), list(found["box"])) == (["a.jpg", "b.jpg"], ["0.1,0.1,0.5,0.5", ""])


@pytest.mark.parametrize("text", ["1,2,3,4", "[1.0, 2, 3, 4e0]", " 1; 2; 3; 4 ", "1 2 3 4", "(1,2,3,4)"])
def test_four_numbers(text: str) -> None:
    assert parse_numbers(text) == (1, 2, 3, 4)
    for other in ("1,2,3", "1,2,3,4,5", "B12", "x=1 y=2 w=3 h=4", "left", "1-2"):
        with pytest.raises(BadBox, match="is not four numbers x, y, w, h"):
            parse_numbers(other)


@pytest.mark.parametrize(
    ("values", "size", "says"),
    [
        *(((1, 2, 0, 4), (9, 9), "1, 2, 0, 4 has no area"), ((0.1, 0.1, -0.1, 0.4), None, "has no area")),
        *(((x, 0, 1, 1), None, "holds something that is no number") for x in (float("nan"), float("inf"))),
        ((80, 10, 30, 10), (100, 100), "80, 10, 30, 10 lies outside the picture of 100 x 100 pixels"),
        ((0.9, 0, 0.2, 1), None, "lies outside the picture, whose sides are 1"),
        *(((-5, 0, 10, 10), (100, 100), "lies outside"), ((0.5, 0.5, 1e-9, 0.5), None, "has no area")),
    ],
)
def test_bad_boxes(values: tuple, size: tuple | None, says: str) -> None:
    with pytest.raises(BadBox, match=says):
        make_box(values, size)


def test_shares_and_pixels_are_one_and_a_cut_is_square_where_there_is_room() -> None:
    box = Box(0.1, 0.1, 0.3, 0.2)
    assert make_box((10, 20, 30, 40), (100, 200)) == make_box((0.1, 0.1, 0.3, 0.2), None) == box
    assert make_box((-0.004, 0, 1.009, 1), None) == Box(0, 0, 1, 1)
    assert Box(0.3, 0.4, 0.4, 0.2).cut((1000, 1000)) == (280, 280, 720, 720)
    assert Box(0.0, 0.0, 0.4, 0.2).cut((1000, 1000)) == (0, 0, 440, 440)
    assert Box(0.0, 0.4, 1.0, 0.2).cut((1000, 500)) == (0, 0, 1000, 500)


@given(st.tuples(SHARE, SHARE, SHARE, SHARE), st.integers(1, 3000), st.integers(1, 3000))
def test_a_cut_lies_in_the_picture_and_holds_the_box(values: tuple, width: int, height: int) -> None:
    x, y, w, h = values
    box = Box(x, y, max(min(w, 1 - x), 1e-5), max(min(h, 1 - y), 1e-5))
    left, top, right, bottom = box.cut((width, height))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    px, py, pw, ph = box.pixels((width, height))
    assert left <= px + 1e-3 < min(px + pw, width) + 2e-3 <= right + 3e-3
    assert top <= py + 1e-3 < min(py + ph, height) + 2e-3 <= bottom + 3e-3


def picture() -> np.ndarray:
    """(40, 80, 3): the right quarter is red, all else blue."""
    pixels = np.zeros((40, 80, 3), dtype=np.uint8)
    pixels[:, :, 2] = 255
    pixels[:, 60:] = (255, 0, 0)
    return pixels


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.npz#1"])
def test_pixels_are_those_of_the_box(tmp_path: Path, name: str) -> None:
    if name == "a.npz#1":
        np.savez(tmp_path / "a.npz", x=np.stack([255 - picture(), picture()]))
    else:
        photograph(tmp_path / name, picture())
    image, _ = read_image(with_box(str(tmp_path / name), Box(0.8, 0.2, 0.15, 0.3)))
    assert image.size == (14, 14)
    mean = np.asarray(image).mean((0, 1))
    assert mean[0] > 240 > 15 > mean[2]
    left, _ = read_image(with_box(str(tmp_path / name), Box(0, 0, 0.5, 1)))
    assert np.asarray(left).mean((0, 1))[2] > 240


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_are_those_of_the_upright_picture(tmp_path: Path, orientation: int) -> None:
    file = photograph(tmp_path / "a.png", picture(), orientation=orientation)
    whole, _ = read_image(str(file))
    box = Box(0.1, 0.6, 0.3, 0.3)
    part, _ = read_image(with_box(str(file), box))
    assert np.array_equal(np.asarray(part), np.asarray(whole.crop(box.cut(whole.size))))


def test_a_small_decoding_keeps_enough_of_the_box(tmp_path: Path) -> None:
    big = np.kron(picture(), np.ones((40, 40, 1), dtype=np.uint8))
    file = photograph(tmp_path / "a.jpg", big)
    with open_image(with_box(str(file), Box(0.9, 0.45, 0.05, 0.1)), min_side=64) as image, image.loaded():
        assert min(image.size) >= 64
        assert np.asarray(image.rgb()).mean((0, 1))[0] > 240
    with open_image(str(file), min_side=64) as image, image.loaded():
        assert max(image.size) < 800


def test_one_file_has_many_identities(tmp_path: Path) -> None:
    file = str(photograph(tmp_path / "a.png", picture()))
    paths = [file, with_box(file, Box(0, 0, 0.5, 0.5)), with_box(file, Box(0.5, 0, 0.5, 0.5))]
    stamps = file_stamps(paths)
    found = image_digests(paths, stamps, [None] * 3)
    assert (len(set(found)), len(set(stamps)), found[0]) == (3, 1, file_digest(file))
    assert image_digests(paths[1:], stamps[1:], [(stamps[1], "known"), None]) == ["known", found[2]]
    copy = str(photograph(tmp_path / "b.png", picture()))
    assert image_digests([with_box(copy, Box(0, 0, 0.5, 0.5))], [""], [None]) == [found[1]]
    assert (file_of(paths[1]), image_exists(paths[1])) == (file, True)
    Path(file).unlink()
    assert (image_exists(paths[1]), image_digests(paths[1:2], [""], [None])) == (False, [""])
    with pytest.raises(ImageProblem, match="is not a file"):
        read_image(paths[1])


def animal(*bbox: float, category: str = "1", conf: float = 0.9, **more: object) -> dict:
    return {"category": category, "conf": conf, "bbox": list(bbox), **more}


SEEN = [animal(0.1, 0.2, 0.3, 0.4), animal(0.5, 0.2, 0.1, 0.1, conf=0.15)]
SEEN += [animal(0.0, 0.0, 0.1, 0.5, category=other) for other in "23"]
MEGADETECTOR = {
    "detection_categories": {"1": "animal", "2": "person", "3": "vehicle"},
    "images": [
        {"file": "north/a.jpg", "detections": SEEN},
        {"file": "north/b.jpg", "detections": []},
        {"file": "north/c.jpg", "failure": "image access failure", "detections": None},
    ],
}
TWO = [{"category": name, "confidence": 0.9, "bbox": [10, 20, 40, 60]} for name in ("animal", "person")]
NEWER = [{"file": "a.jpg", "detections": TWO}, {"file": "b.jpg", "detections": []}]
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


def test_files_of_megadetector_old_and_new_and_of_coco(tmp_path: Path) -> None:
    found = read_detections(write(tmp_path, MEGADETECTOR))
    (box,) = found.boxes
    assert (box.file, box.values, box.fractions) == ("north/a.jpg", (0.1, 0.2, 0.3, 0.4), True)
    assert list(found.pictures) == ["north/a.jpg", "north/b.jpg", "north/c.jpg"]
    assert (found.left_out, found.unsure, found.failed) == ({"person": 1, "vehicle": 1}, 1, 1)
    assert len(read_detections(write(tmp_path, MEGADETECTOR), 0.1).boxes) == 2
    found = read_detections(write(tmp_path, NEWER))
    assert [(box.values, box.fractions) for box in found.boxes] == [((10, 20, 30, 40), False)]
    assert found.left_out == {"person": 1}
    found = read_detections(write(tmp_path, COCO))
    expected = [("a.jpg", (20, 10, 40, 30), (200, 100)), ("b.jpg", (5, 6, 7, 8), None)]
    assert [(one.file, one.values, one.size) for one in found.boxes] == expected
    assert list(found.pictures) == ["a.jpg", "b.jpg", "c.jpg"]
    assert (found.left_out, found.unsure) == ({"person": 1}, 1)


@pytest.mark.parametrize(
    "content",
    [
        *({}, [], {"images": []}, {"images": [{"file_name": "a.jpg"}]}, [3], "text"),
        {"images": [{"file": "a.jpg", "detections": [animal(1, 2)]}]},
        {"images": [{"file": "a.jpg", "detections": [{"category": "1", "bbox": [0, 0, 1, 1]}]}]},
        {"images": [], "annotations": [{"image_id": 3, "bbox": [1, 2, 3, 4]}]},
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: object) -> None:
    file = write(tmp_path, content)
    with pytest.raises(InputError, match="is neither MegaDetector's nor COCO"):
        read_detections(file)
    file.write_text('{"images": [')
    with pytest.raises(InputError, match="is not readable JSON"):
        read_detections(file)
    with pytest.raises(InputError, match="does not exist"):
        read_detections(tmp_path / "none.json")


@pytest.fixture
def photos(tmp_path: Path, caplog) -> Path:
    """Pictures of 80 x 40 pixels."""
    caplog.set_level(logging.INFO)
    for name in ("fox/a.jpg", "unlabelled/b.jpg", "unlabelled/c.jpg", "deer/d.jpg"):
        photograph(tmp_path / "photos" / name, np.zeros((40, 80, 3), dtype=np.uint8))
    return tmp_path / "photos"


def rows(table: Table) -> list[tuple[str, str, str]]:
    parts = [split_box(str(path)) for path in table.path]
    texts = [(Path(file).name, box.text if box else "") for file, box in parts]
    return [(*text, label) for text, label in zip(texts, table.label, strict=True)]


def listed(folder: Path, *lines: str, header: str = "path,label,box") -> Path:
    (folder / "list.csv").write_text("\n".join((header, *lines)) + "\n")
    return folder / "list.csv"


def detected(folder: Path, **boxes: list) -> Path:
    """MegaDetector's file: name of a picture to its boxes, all of them sure animals."""
    names = {name: name.replace("__", "/") + ".jpg" for name in boxes}
    images = [{"file": names[name], "detections": [animal(*b) for b in some]} for name, some in boxes.items()]
    return write(folder, {"images": images})


def test_a_list_of_boxes_in_pixels_and_shares(photos: Path, caplog) -> None:
    lines = ('fox/a.jpg,fox,"8,4,40,20"', "fox/a.jpg,,0.5 0.5 0.25 0.25", "unlabelled/b.jpg,,[0;0;80;40]")
    file = listed(photos, *lines, "unlabelled/c.jpg,,")
    expected = [("a.jpg", "0.1,0.1,0.5,0.5", "fox"), ("a.jpg", "0.5,0.5,0.25,0.25", "")]
    expected.append(("b.jpg", "0,0,1,1", ""))
    assert rows(read_csv_table(file)) == rows(load_table(photos, file)) == expected
    assert "Left out: 2 of the 4 pictures, which have no box in" in caplog.text
    # a Parquet file holds lists of numbers, and paths of results hold their boxes
    frame = pd.DataFrame({"path": ["fox/a.jpg"], "label": ["fox"], "box": [[8.0, 4.0, 40.0, 20.0]]})
    frame.to_parquet(photos / "list.parquet")
    file = listed(photos, '"fox/a.jpg#xywh=percent:10,10,50,50",fox', header="path,label")
    for table in (read_csv_table(photos / "list.parquet"), load_table(photos, file)):
        assert rows(table) == expected[:1]
    with pytest.raises(InputError, match="No picture has a box"):
        load_table(photos, listed(photos, "fox/a.jpg,fox,"))


def test_bad_boxes_are_told_with_their_lines(photos: Path, caplog) -> None:
    bad = ('"70,4,40,20"', '"8,4,0,20"', "B12", '"nan,0,1,1"')
    file = listed(photos, 'fox/a.jpg,fox,"8,4,40,20"', *(f"fox/a.jpg,,{box}" for box in bad))
    with pytest.raises(InputError) as told:
        read_csv_table(file)
    outside = "70, 4, 40, 20 lies outside the picture of 80 x 40 pixels; line 4"
    assert all(part in str(told.value) for part in ("4 bad boxes", "line 3 of", outside, "--skip-missing"))
    assert len(read_csv_table(file, skip_missing=True)) == 1
    assert "Left out: 4 bad boxes" in caplog.text
    (photos / "broken.jpg").write_bytes(b"no picture")  # one that cannot be read keeps its row
    broken = read_csv_table(listed(photos, 'broken.jpg,fox,"8,4,40,20"'))
    assert rows(broken) == [("broken.jpg", "0,0,1,1", "fox")]


def test_detections_of_a_folder(photos: Path, caplog) -> None:
    two = [[0.1, 0.1, 0.5, 0.5], [0.6, 0.1, 0.2, 0.5]]
    boxes = detected(photos, fox__a=two, unlabelled__b=[[0, 0, 1, 1]], deer__d=[])
    table = load_table(photos, boxes=boxes)
    expected = [("a.jpg", "0.1,0.1,0.5,0.5", "fox"), ("a.jpg", "0.6,0.1,0.2,0.5", "fox")]
    expected.append(("b.jpg", "0,0,1,1", ""))
    assert (rows(table), table.known) == (expected, ("fox",))
    assert "Left out: 1 class without a labelled box (deer)" in caplog.text
    assert len(load_table(photos)) == 4  # nothing is looked for that nobody has named
    boxes.write_text(boxes.read_text().replace("fox/a.jpg", "D:\\\\traps\\\\fox\\\\A.JPG"))
    assert rows(load_table(photos, boxes=boxes)) == expected  # paths of another machine
    labels = listed(photos, "unlabelled/b.jpg,badger", header="path,label")
    assert [row[2] for row in rows(load_table(photos, labels, boxes=boxes))] == ["", "", "badger"]
    lines = ('fox/a.jpg,fox,"0.6,0.1,0.2,0.5"', 'fox/a.jpg,hare,"0,0,8,8"', "unlabelled/b.jpg,badger,")
    labels, boxes = listed(photos, *lines), detected(photos, fox__a=two, unlabelled__b=[[0, 0, 1, 1]])
    told = [
        ("a.jpg", "0.1,0.1,0.5,0.5", ""),  # the label of one box says nothing of another one
        ("a.jpg", "0.6,0.1,0.2,0.5", "fox"),
        ("a.jpg", "0,0,0.1,0.2", "hare"),
        ("b.jpg", "0,0,1,1", "badger"),
    ]
    assert rows(load_table(photos, labels, boxes=boxes)) == rows(load_table(labels, boxes=boxes)) == told


def test_pictures_that_are_not_there_and_bad_boxes(photos: Path, caplog) -> None:
    boxes = detected(photos, fox__a=[[0.1, 0.1, 0.5, 0.5], [0.6, 0.1, 0.9, 0.5]], gone=[[0, 0, 1, 1]])
    with pytest.raises(InputError, match="1 of the 2 pictures that"):
        load_table(photos, boxes=boxes)
    assert len(load_table(photos, boxes=boxes, skip_missing=True)) == 1
    assert "Left out: 1 bad box (box 2 of fox/a.jpg: 0.6, 0.1, 0.9, 0.5 lies outside" in caplog.text
    with pytest.raises(InputError, match="has no box for any picture of photos"):
        load_table(photos, boxes=detected(photos, fox__a=[]))
    tar = write_tar(photos / "a.tar", [("1.png", square())])
    with pytest.raises(InputError, match="--boxes takes pictures in a folder"):
        load_table(tar, boxes=boxes)


def test_coco_boxes_are_shares_of_the_size_that_was_annotated(photos: Path) -> None:
    """The file speaks of 200 x 100 pixels, the copies here have 80 x 40; one that was turned since is refused."""
    for name in "abc":
        photograph(photos / "coco" / f"{name}.jpg", np.zeros((40, 80, 3), dtype=np.uint8))
    file = write(photos / "coco", COCO)
    expected = [("a.jpg", "0.1,0.1,0.2,0.3", ""), ("b.jpg", "0.0625,0.15,0.0875,0.2", "")]
    assert rows(load_table(photos / "coco", boxes=file)) == expected
    photograph(photos / "coco" / "a.jpg", np.zeros((100, 200, 3), dtype=np.uint8), orientation=6)
    assert upright_sizes([turned := str(photos / "coco" / "a.jpg")]) == {turned: (100, 200)}
    with pytest.raises(InputError, match="drawn on a picture of 200 x 100 pixels, which is 100 x 200 up"):
        load_table(photos / "coco", boxes=file)
