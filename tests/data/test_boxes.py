"""Boxes: how they are written, what is wrong with some, and which pixels they mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from holotype.data.boxes import BadBox, Box, are_fractions, make_box, parse_numbers, split_box, with_box
from holotype.data.decode import ImageProblem, open_image, read_image
from holotype.data.hashing import file_digest, file_stamps, image_digests
from holotype.data.image_files import file_of, image_exists
from tests.data.cameras import photograph

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


def test_other_paths_have_no_box() -> None:
    for path in (
        "a.jpg",
        "a.npz#3",
        "a#xywh=1,2,3,4",
        "a.jpg#xywh=percent:1,2,3",
        "a#xywh=percent:1,2,3,4.jpg",
    ):
        assert split_box(path) == (path, None)


@pytest.mark.parametrize("text", ["1,2,3,4", "[1.0, 2, 3, 4e0]", " 1; 2; 3; 4 ", "1 2 3 4", "(1,2,3,4)"])
def test_four_numbers(text: str) -> None:
    assert parse_numbers(text) == (1, 2, 3, 4)


@pytest.mark.parametrize("text", ["1,2,3", "1,2,3,4,5", "B12", "x=1 y=2 w=3 h=4", "left", "1-2"])
def test_what_is_not_four_numbers(text: str) -> None:
    with pytest.raises(BadBox, match="is not four numbers x, y, w, h"):
        parse_numbers(text)


def test_shares_and_pixels_are_one() -> None:
    assert (
        make_box((10, 20, 30, 40), (100, 200))
        == make_box((0.1, 0.1, 0.3, 0.2), None)
        == Box(0.1, 0.1, 0.3, 0.2)
    )
    assert make_box((-0.004, 0, 1.009, 1), None) == Box(0, 0, 1, 1)
    assert are_fractions((0, 0, 1, 1))
    assert not are_fractions((0, 0, 2, 1))


@pytest.mark.parametrize(
    ("values", "size", "says"),
    [
        ((1, 2, 0, 4), (9, 9), "1, 2, 0, 4 has no area"),
        ((0.1, 0.1, -0.1, 0.4), None, "has no area"),
        ((float("nan"), 0, 1, 1), None, "nan, 0, 1, 1 holds something that is no number"),
        ((float("inf"), 0, 1, 1), None, "no number"),
        ((80, 10, 30, 10), (100, 100), "80, 10, 30, 10 lies outside the picture of 100 x 100 pixels"),
        ((0.9, 0, 0.2, 1), None, "lies outside the picture, whose sides are 1"),
        ((-5, 0, 10, 10), (100, 100), "lies outside"),
        ((0.5, 0.5, 1e-9, 0.5), None, "has no area"),
    ],
)
def test_bad_boxes(values: tuple, size: tuple | None, says: str) -> None:
    with pytest.raises(BadBox, match=says):
        make_box(values, size)


@given(st.tuples(SHARE, SHARE, SHARE, SHARE), st.integers(1, 3000), st.integers(1, 3000))
def test_a_cut_lies_in_the_picture_and_holds_the_box(values: tuple, width: int, height: int) -> None:
    x, y, w, h = values
    box = Box(x, y, max(min(w, 1 - x), 1e-5), max(min(h, 1 - y), 1e-5))
    left, top, right, bottom = box.cut((width, height))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    px, py, pw, ph = box.pixels((width, height))
    assert left <= px + 1e-3
    assert right >= min(px + pw, width) - 1e-3
    assert top <= py + 1e-3
    assert bottom >= min(py + ph, height) - 1e-3


def test_a_cut_is_square_where_there_is_room() -> None:
    assert Box(0.3, 0.4, 0.4, 0.2).cut((1000, 1000)) == (280, 280, 720, 720)
    assert Box(0.0, 0.0, 0.4, 0.2).cut((1000, 1000)) == (0, 0, 440, 440)
    assert Box(0.0, 0.4, 1.0, 0.2).cut((1000, 500)) == (0, 0, 1000, 500)


def picture() -> np.ndarray:
    """(40, 80, 3): the right quarter is red, all else blue."""
    pixels = np.zeros((40, 80, 3), dtype=np.uint8)
    pixels[:, :, 2] = 255
    pixels[:, 60:] = (255, 0, 0)
    return pixels


@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_pixels_are_those_of_the_box(tmp_path: Path, name: str) -> None:
    file = photograph(tmp_path / name, picture())
    image, _ = read_image(with_box(str(file), Box(0.8, 0.2, 0.15, 0.3)))
    assert image.size == (14, 14)
    mean = np.asarray(image).mean((0, 1))
    assert mean[0] > 240 > 15 > mean[2]
    left, _ = read_image(with_box(str(file), Box(0, 0, 0.5, 1)))
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
    with open_image(with_box(str(file), Box(0.9, 0.45, 0.05, 0.1)), about=64) as image, image.loaded():
        assert min(image.size) >= 64
        assert np.asarray(image.rgb()).mean((0, 1))[0] > 240
    with open_image(str(file), about=64) as image, image.loaded():
        assert max(image.size) < 800


def test_one_file_has_many_identities(tmp_path: Path) -> None:
    file = str(photograph(tmp_path / "a.png", picture()))
    paths = [file, with_box(file, Box(0, 0, 0.5, 0.5)), with_box(file, Box(0.5, 0, 0.5, 0.5))]
    found = image_digests(paths, file_stamps(paths), [None] * 3)
    assert len(set(found)) == 3
    assert found[0] == file_digest(file)
    assert len(set(file_stamps(paths))) == 1
    assert image_digests(paths[1:], file_stamps(paths[1:]), [(file_stamps(paths)[1], "known"), None]) == [
        "known",
        found[2],
    ]
    copy = str(tmp_path / "b.png")
    Path(copy).write_bytes(Path(file).read_bytes())
    assert image_digests([with_box(copy, Box(0, 0, 0.5, 0.5))], [""], [None]) == [found[1]]
    assert file_of(paths[1]) == file
    assert image_exists(paths[1])
    Path(file).unlink()
    assert not image_exists(paths[1])
    assert image_digests(paths[1:2], [""], [None]) == [""]
    with pytest.raises(ImageProblem, match="is not a file"):
        read_image(paths[1])


def test_boxes_in_containers(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.stack([picture(), 255 - picture()]))
    image, _ = read_image(with_box(f"{tmp_path}/a.npz#1", Box(0.8, 0.2, 0.15, 0.3)))
    assert np.asarray(image).mean((0, 1)).tolist() == [0, 255, 255]
    assert Image.fromarray(picture()).size == (80, 40)
