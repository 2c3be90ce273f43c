"""Pictures in memory become files with the same pixels; what is not a picture is one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data.decode import read_image, save_images
from holotype.errors import InputError


def pixels_of(picture: object, folder) -> np.ndarray:
    (path,) = save_images([picture], folder)
    return np.asarray(read_image(path)[0])


def test_arrays_and_pil_images_keep_their_pixels(tmp_path) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    grey = rgb[:, :, 0]
    for number, (picture, wanted) in enumerate(
        [
            (rgb, rgb),
            (grey, np.stack([grey] * 3, -1)),
            (grey[:, :, None], np.stack([grey] * 3, -1)),
            (rgb / 255, rgb),
            (rgb.astype(np.int64), rgb),
            (Image.fromarray(rgb), rgb),
            (Image.fromarray(rgb).convert("CMYK"), None),
            (Image.fromarray(np.dstack([rgb, np.full((5, 7), 255, np.uint8)])), rgb),
            (rgb.tolist(), rgb),
            (Image.fromarray(grey).convert("P"), None),
        ]
    ):
        found = pixels_of(picture, tmp_path / str(number))
        assert found.shape == (5, 7, 3)
        assert wanted is None or np.array_equal(found, wanted), number


def test_a_photograph_that_lies_on_its_side_is_turned_as_its_file_would_be(tmp_path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "side.png", exif=exif)
    by_path = np.asarray(read_image(str(tmp_path / "side.png"))[0])
    assert by_path.shape == (7, 5, 3)
    with Image.open(tmp_path / "side.png") as picture:
        assert np.array_equal(pixels_of(picture, tmp_path / "written"), by_path)


def test_paths_stay_where_they_are(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = save_images(["a b.png", tmp_path / "c.png"], tmp_path / "written")
    assert paths == [str(tmp_path / "a b.png"), str(tmp_path / "c.png")]
    assert not (tmp_path / "written").exists()
    assert len(set(save_images(np.zeros((3, 4, 4)), tmp_path / "written"))) == 3


def test_other_pictures_never_replace_those_that_are_there(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = save_images([np.zeros((4, 4))], "run")
    assert Path(first[0]).is_absolute()
    before = Path(first[0]).stat().st_mtime_ns
    other = save_images([np.ones((4, 4))], "run")
    assert first != other
    assert save_images([np.zeros((4, 4))], "run") == first
    assert Path(first[0]).stat().st_mtime_ns == before
    assert np.asarray(Image.open(first[0])).max() == 0


@pytest.mark.parametrize(
    ("pictures", "says"),
    [
        ("one.png", "put it into a list"),
        ([np.zeros((2, 3, 4, 5))], "has the shape"),
        ([np.zeros((3, 32, 32), dtype=np.uint8)], "has the shape"),
        ([np.zeros((0, 4))], "has the shape"),
        ([np.full((4, 4), 300)], "from 300 to 300"),
        ([np.full((4, 4), -0.5)], "from -0.5"),
        ([np.full((4, 4), np.nan)], "values from nan"),
        ([np.full((4, 4), "x")], "values"),
        ([None], "has the shape"),
    ],
)
def test_what_is_not_a_picture_is_one_sentence(pictures, says, tmp_path) -> None:
    with pytest.raises(InputError, match=says):
        save_images(pictures, tmp_path)
