"""Thumbnails lie where the page looks for them, upright and whole, and are made once."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from holotype.report import thumbs
from holotype.report.thumbs import CELL, GRID, SIDE, make_thumbs, sheet_name


def paint(folder, n: int) -> list[str]:
    """n pictures, each of one colour that tells its number."""
    files = []
    for i in range(n):
        file = folder / f"{i}.png"
        Image.new("RGB", (40, 20 + i % 3 * 20), (i * 3 % 256, 80, 160)).save(file)
        files.append(str(file))
    return files


def cut(folder, made, i: int) -> np.ndarray:
    sheet, place = divmod(int(made.cell[i]), GRID**2)
    left, top = place % GRID * CELL, place // GRID * CELL
    with Image.open(folder / sheet_name(sheet)) as image:
        return np.asarray(image.crop((left, top, left + int(made.width[i]), top + int(made.height[i]))), int)


def test_each_thumbnail_is_its_image(tmp_path):
    files = paint(tmp_path, 70)  # more than one sheet
    made = make_thumbs(files, files, tmp_path / "thumbs", progress=False)
    for i in range(70):
        colour = cut(tmp_path / "thumbs", made, i).mean(axis=(0, 1))
        np.testing.assert_allclose(colour, (i * 3 % 256, 80, 160), atol=4)
        assert max(made.width[i], made.height[i]) == SIDE
        assert made.width[i] / made.height[i] == pytest.approx(40 / (20 + i % 3 * 20), rel=0.02)


def test_what_cannot_be_read_has_no_thumbnail(tmp_path):
    files = paint(tmp_path, 3)
    (tmp_path / "1.png").write_bytes(b"no image")
    made = make_thumbs(files, files, tmp_path / "thumbs", progress=False)
    assert made.cell.tolist() == [0, -1, 2]


def test_photographs_stand_upright(tmp_path):
    """Camera on its side: EXIF says so, and the quick way through JPEG heeds it."""
    image = Image.new("RGB", (800, 400), (200, 40, 40))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.jpg", exif=exif)
    made = make_thumbs(["a"], [str(tmp_path / "a.jpg")], tmp_path / "thumbs", progress=False)
    assert (made.width[0], made.height[0]) == (SIDE // 2, SIDE)


def test_thumbnails_are_made_once_for_the_same_images(tmp_path, monkeypatch):
    files = paint(tmp_path, 5)
    first = make_thumbs(files, files, tmp_path / "thumbs", progress=False)

    def never(file: str) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(thumbs, "_thumbnail", never)
    order = [3, 1, 4, 0, 2]
    again = make_thumbs(
        [files[i] for i in order], [files[i] for i in order], tmp_path / "thumbs", progress=False
    )
    assert again.cell.tolist() == first.cell[order].tolist()
    with pytest.raises(AssertionError, match="decoded again"):
        make_thumbs(files[:3], files[:3], tmp_path / "thumbs", progress=False)


def test_a_smaller_collection_leaves_no_old_sheets(tmp_path):
    files = paint(tmp_path, 70)
    make_thumbs(files, files, tmp_path / "thumbs", progress=False)
    make_thumbs(files[:2], files[:2], tmp_path / "thumbs", progress=False)
    assert [file.name for file in (tmp_path / "thumbs").glob("*.jpg")] == [sheet_name(0)]
