"""Many images in order, and large JPEG files with nearly the pixels of whole ones."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data.decode import (
    DRAFT,
    DRAFT_ERROR,
    DecodedImages,
    decode_in_order,
    decode_one,
)

from .noise import odd_files, write_noise

SHORT = 36


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("images")
    return [*write_noise(folder, [(40 + number, 50) for number in range(6)], seed=1), *odd_files(folder)]


def chequers(height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return np.stack([((y // 13 + x // 13) % 2 * 255).astype(np.uint8)] * 3, axis=-1)


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("draw", [chequers, noise])
@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("size", [(8 * 2 * SHORT, 8 * 3 * SHORT), (4 * SHORT + 3, 9 * SHORT + 5)])
def test_large_jpeg_files_keep_their_pixels_within_the_bound(draw, orientation, size, tmp_path) -> None:
    file, exif = tmp_path / "large.jpg", Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(draw(*size)).save(file, quality=90, exif=exif)
    whole, drafted = (decode_one(str(file), SHORT, draft) for draft in (0, DRAFT))
    assert drafted.pixels.shape == whole.pixels.shape
    assert drafted.note == whole.note
    error = np.abs(drafted.pixels.astype(int) - whole.pixels)
    assert 0 < error.mean() <= DRAFT_ERROR[0]
    assert error.max() <= DRAFT_ERROR[1]


def test_smaller_jpeg_files_are_as_they_always_were(tmp_path) -> None:
    file = tmp_path / "small.jpg"
    Image.fromarray(noise(2 * DRAFT * SHORT - 1, 6 * SHORT)).save(file)
    assert np.array_equal(*(decode_one(str(file), SHORT, draft).pixels for draft in (0, DRAFT)))


def test_only_the_middle_of_a_long_photograph_is_used_whatever_its_scale(tmp_path) -> None:
    file = tmp_path / "long.jpg"
    Image.fromarray(chequers(8 * SHORT, 80 * SHORT)).save(file)
    whole, drafted = (decode_one(str(file), SHORT, draft) for draft in (0, DRAFT))
    assert drafted.pixels.shape == whole.pixels.shape == (SHORT, 4 * SHORT, 3)
    assert drafted.note == whole.note
    assert np.abs(drafted.pixels.astype(int) - whole.pixels).mean() <= DRAFT_ERROR[0]


def test_what_was_read_once_is_not_read_again(paths, tmp_path) -> None:
    file = Path(write_noise(tmp_path, [(40, 50)], seed=2)[0])
    image = decode_one(str(file), SHORT)
    decoded = DecodedImages(image.pixels.nbytes)
    decoded.add(str(file), SHORT, image)
    decoded.add(paths[0], SHORT, image)  # for which there is no room
    file.unlink()
    first, second = decode_in_order([str(file), paths[0]], SHORT, 1, False, decoded=decoded)
    assert np.array_equal(first.pixels, image.pixels)
    assert not np.array_equal(second.pixels, image.pixels)
    assert decoded.take(str(file), SHORT) is None
