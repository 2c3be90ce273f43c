"""The photographs: sides and bytes as promised, different from each other, the same every time."""

from __future__ import annotations

from pathlib import Path

import jpegs
import numpy as np
import pytest
from PIL import Image

from holotype.errors import InputError


def test_sides_and_bytes_are_about_those_of_cub(tmp_path: Path) -> None:
    made = jpegs.make_photographs(tmp_path, 30, threads=2)
    sides = [Image.open(path).size for path in made.paths]
    assert {max(side) for side in sides} == {500}
    assert all(330 <= min(side) <= 420 for side in sides)
    assert {width > height for width, height in sides} == {True, False}
    assert made.mean_bytes == pytest.approx(np.mean([Path(path).stat().st_size for path in made.paths]))
    assert 85_000 < made.mean_bytes < 115_000
    assert all(60_000 < Path(path).stat().st_size < 140_000 for path in made.paths)
    assert "30 JPEG files" in made.description
    assert "Fashion-MNIST" in made.description


def test_files_are_different_and_can_be_made_again(tmp_path: Path) -> None:
    first = jpegs.make_photographs(tmp_path / "a", 12, threads=2, longer=80)
    again = jpegs.make_photographs(tmp_path / "b", 12, threads=1, longer=80)
    content = [Path(path).read_bytes() for path in first.paths]
    assert content == [Path(path).read_bytes() for path in again.paths]
    assert len(set(content)) == 12


def test_more_files_than_pictures(tmp_path: Path) -> None:
    """The pictures of a folder are used over and over, each time with grain of its own."""
    Image.new("RGB", (20, 30), (200, 30, 30)).save(tmp_path / "red.png")
    made = jpegs.make_photographs(tmp_path / "out", 3, images=tmp_path, threads=1, longer=64)
    pixels = [np.asarray(Image.open(path).convert("RGB"), dtype=float) for path in made.paths]
    assert all(one.mean((0, 1)) == pytest.approx((200, 30, 30), abs=15) for one in pixels)
    assert not np.array_equal(pixels[1][:40, :40], pixels[2][:40, :40])
    assert f"folder {tmp_path.name}," in made.description


def test_bad_input_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--n-images"):
        jpegs.make_photographs(tmp_path, 0)
    with pytest.raises(InputError, match="--images"):
        jpegs.make_photographs(tmp_path / "out", 2, images=tmp_path / "nowhere")
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(InputError, match=r"broken\.png.*--images"):
        jpegs.make_photographs(tmp_path / "out", 2, images=tmp_path)
