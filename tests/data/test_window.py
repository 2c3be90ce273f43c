"""Images of laboratories: 16 and 32 bits in a stated window, and scans of which a smaller page is read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin, TiffImagePlugin

from holotype.data import decode
from holotype.data.decode import ImageProblem, apply_window, open_image, read_image

VALUES = np.array([[0, 100, 200, 300], [400, 1000, 4000, 4095]], dtype=np.uint16)


def save_tiff(path: Path, values: np.ndarray, **tags: object) -> Path:
    info = TiffImagePlugin.ImageFileDirectory_v2()
    for tag, value in tags.items():
        info[int(tag.lstrip("t"))] = value
    Image.fromarray(values).save(path, tiffinfo=info)
    return path


def grey(path: Path) -> list[int]:
    return np.asarray(read_image(str(path))[0])[:, :, 0].ravel().tolist()


def loop(values: np.ndarray, low: float, high: float) -> list[int]:
    """Slowly, one value after the other."""
    return [round(min(max((float(v) - low) * 255 / (high - low), 0), 255)) for v in values.ravel()]


@pytest.mark.parametrize(
    ("tags", "window"),
    [
        ({"t270": "ImageJ=1.54f\nmin=100.0\nmax=1000.0\n"}, (100, 1000)),
        ({"t280": 100, "t281": 1000}, (100, 1000)),
        ({"t270": "ImageJ=1.54f\nmin=900.0\nmax=100.0\n"}, (0, 4095)),
        ({}, (0, 4095)),
    ],
)
def test_a_tiff_is_shown_in_its_window(tmp_path, tags, window) -> None:
    file = save_tiff(tmp_path / "cell.tif", VALUES, **tags)
    assert grey(file) == loop(VALUES, *window)
    assert f"from {window[0]:,} to {window[1]:,}" in read_image(str(file))[1]


def test_values_beyond_twelve_bits_are_of_sixteen(tmp_path) -> None:
    wide = VALUES * 16
    assert grey(save_tiff(tmp_path / "wide.tif", wide)) == loop(wide, 0, 65535)


def test_a_png_states_its_window_as_text(tmp_path) -> None:
    note = PngImagePlugin.PngInfo()
    note.add_text("window", "100, 1000")
    Image.fromarray(VALUES).save(tmp_path / "cell.png", pnginfo=note)
    assert grey(tmp_path / "cell.png") == loop(VALUES, 100, 1000)


def test_32_bits_need_a_stated_window(tmp_path) -> None:
    values = np.array([[0.0, 0.5], [1.0, np.nan]], dtype=np.float32)
    with pytest.raises(ImageProblem, match="window"):
        read_image(str(save_tiff(tmp_path / "plain.tif", values)))
    assert grey(save_tiff(tmp_path / "told.tif", values, t270="min=0.0\nmax=1.0\n")) == [0, 128, 255, 0]


def test_windows_keep_the_order_of_values() -> None:
    values = np.sort(np.random.default_rng(0).integers(0, 65536, 500)).astype(np.uint16)[None]
    shown = apply_window(values, (200, 40_000))
    assert (np.diff(shown[0].astype(int)) >= 0).all()
    assert (shown.min(), shown.max()) == (0, 255)


def test_of_a_scan_the_smallest_page_that_does_is_read(tmp_path, monkeypatch) -> None:
    """The label of the slide, of another shape, is no page of it."""
    pages = [Image.new("RGB", size, colour) for size, colour in (
        ((640, 320), "red"), ((100, 100), "blue"), ((160, 80), "green"), ((320, 160), "yellow"),
    )]  # fmt: skip
    file = tmp_path / "slide.tif"
    pages[0].save(file, save_all=True, append_images=pages[1:])

    def seen(min_side: int | None) -> tuple[tuple[int, int], tuple[int, ...]]:
        with open_image(str(file), min_side) as image, image.loaded():
            picture = image.rgb()
            return picture.size, picture.getpixel((0, 0))

    assert seen(None) == ((640, 320), (255, 0, 0))
    assert seen(80) == ((160, 80), (0, 128, 0))
    assert seen(81) == ((320, 160), (255, 255, 0))
    monkeypatch.setattr(decode, "MAX_PIXELS", 320 * 160)
    assert seen(81)[0] == (320, 160)
    with pytest.raises(ImageProblem, match="too large"):
        seen(None)


def test_a_huge_jpeg_is_read_smaller(tmp_path, monkeypatch) -> None:
    Image.new("RGB", (800, 400), "red").save(tmp_path / "wide.jpg")
    Image.new("RGB", (800, 400), "red").save(tmp_path / "wide.png")
    monkeypatch.setattr(decode, "MAX_PIXELS", 200 * 100)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100 * 100)  # Pillow refuses twice as many
    with open_image(str(tmp_path / "wide.jpg"), min_side=100) as image, image.loaded():
        assert image.rgb().size == (200, 100)
    for name, min_side in (("wide.jpg", None), ("wide.png", 100)):
        with pytest.raises(ImageProblem, match="too large"), open_image(str(tmp_path / name), min_side):
            pass
    assert Image.MAX_IMAGE_PIXELS == 100 * 100
