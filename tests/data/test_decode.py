"""Every kind of image file becomes upright RGB, or an ImageProblem that says why not."""

from __future__ import annotations

import struct
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data import decode
from holotype.data.decode import ImageProblem, open_image, read_image, save_images
from holotype.errors import InputError

RED, WHITE = (255, 0, 0), (255, 255, 255)


def read(path: Path | str) -> tuple[np.ndarray, str]:
    image, note = read_image(str(path))
    assert image.mode == "RGB"
    return np.asarray(image), note


def gradient(height: int = 6, width: int = 9) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "ppm"])
def test_plain_images_are_exact(suffix: str, tmp_path: Path) -> None:
    Image.fromarray(gradient()).save(tmp_path / f"a.{suffix}")
    pixels, note = read(tmp_path / f"a.{suffix}")
    assert np.array_equal(pixels, gradient())
    assert note == ""


def test_the_content_counts_not_the_name(tmp_path: Path) -> None:
    Image.fromarray(gradient()).save(tmp_path / "a.jpg", format="WEBP", lossless=True)
    assert np.array_equal(read(tmp_path / "a.jpg")[0], gradient())


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation(orientation: int, tmp_path: Path) -> None:
    upright = gradient()
    # how a camera that needs this orientation stores the upright picture
    undo = [
        lambda a: a,
        lambda a: a[:, ::-1],
        lambda a: a[::-1, ::-1],
        lambda a: a[::-1],
        lambda a: a.transpose(1, 0, 2),
        lambda a: a.transpose(1, 0, 2)[::-1],
        lambda a: a.transpose(1, 0, 2)[::-1, ::-1],
        lambda a: a.transpose(1, 0, 2)[:, ::-1],
    ][orientation - 1]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(undo(upright))).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read(tmp_path / "a.png")[0], upright)


def test_cmyk_jpeg(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=100)
    assert np.abs(read(tmp_path / "a.jpg")[0].astype(int) - RED).max() <= 3


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bit_grey_is_scaled(suffix: str, tmp_path: Path) -> None:
    values = np.array([[0, 128, 129, 257, 32768, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / f"a.{suffix}")
    pixels, note = read(tmp_path / f"a.{suffix}")
    assert pixels[0, :, 0].tolist() == np.rint(values[0] / 257).astype(int).tolist()
    assert (pixels == pixels[..., :1]).all()
    assert "16-bit" in note


def test_32_bit_values_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.ones((4, 4), dtype=np.float32)).save(tmp_path / "f.tif")
    with pytest.raises(ImageProblem, match="8 or 16 bits"):
        read(tmp_path / "f.tif")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "1", "L"])
def test_transparency_lies_on_white(mode: str, tmp_path: Path) -> None:
    layer = Image.new("RGBA", (4, 2), (*RED, 0))
    layer.paste((0, 0, 0, 255), (0, 0, 2, 2))
    Image.Image.save(layer.convert(mode) if mode in ("RGBA", "LA") else palette(mode), tmp_path / "a.png")
    pixels, _ = read(tmp_path / "a.png")
    assert (pixels[:, :2] == 0).all()
    assert (pixels[:, 2:] == WHITE).all()


def palette(mode: str) -> Image.Image:
    """Left half black, right half white; as P the right half is a red that is marked transparent."""
    image = Image.new(mode, (4, 2), 0)
    if mode == "P":
        image.putpalette([0, 0, 0, *RED])
        image.info["transparency"] = 1
    image.paste(1 if mode in ("P", "1") else 255, (2, 0, 4, 2))
    return image


def test_half_transparent_is_mixed_with_white(tmp_path: Path) -> None:
    Image.new("RGBA", (2, 2), (0, 0, 0, 51)).save(tmp_path / "a.png")
    assert (read(tmp_path / "a.png")[0] == 204).all()


def test_first_frame_with_a_note(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), color) for color in (RED, (0, 255, 0), (0, 0, 255))]
    for name in ("a.gif", "a.webp", "a.tif", "a.png"):
        extra = {"lossless": True} if name.endswith("webp") else {}
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **extra)
        pixels, note = read(tmp_path / name)
        assert (pixels == RED).all(), name
        assert note == "first of 3 frames used", name


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp", "bmp"])
def test_truncated_files(suffix: str, tmp_path: Path) -> None:
    Image.fromarray(gradient(64, 64)).save(tmp_path / f"a.{suffix}")
    whole = (tmp_path / f"a.{suffix}").read_bytes()
    (tmp_path / f"a.{suffix}").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ImageProblem, match=f"a.{suffix}"):
        read(tmp_path / f"a.{suffix}")


def test_files_that_are_no_images(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("hello" * 100)
    (tmp_path / "folder.jpg").mkdir()
    for name, message in [
        ("empty.jpg", "0 bytes"),
        ("text.jpg", "not an image"),
        ("folder.jpg", "not a file"),
        ("absent.jpg", "not a file"),
    ]:
        with pytest.raises(ImageProblem, match=message):
            read(tmp_path / name)


def test_huge_images_are_refused(tmp_path: Path) -> None:
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    Image.new("RGB", (1, 1)).save(tmp_path / "a.png")
    raw = (tmp_path / "a.png").read_bytes()
    import zlib

    chunk = b"IHDR" + header
    (tmp_path / "a.png").write_bytes(raw[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + raw[33:])
    with pytest.raises(ImageProblem, match="too large"):
        read(tmp_path / "a.png")


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize(
    "exif", [b"Exif\x00\x00MM\x00*\xff\xff\xff\xff garbage", b"Exif\x00\x00no TIFF header at all"]
)
def test_broken_exif_does_not_lose_the_image(exif: bytes, tmp_path: Path) -> None:
    Image.fromarray(gradient()).save(tmp_path / "a.png", exif=exif)
    pixels, note = read(tmp_path / "a.png")
    assert np.array_equal(pixels, gradient())
    assert note in ("", "unreadable EXIF data ignored")


def test_a_rotated_16_bit_image_gets_both_treatments(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(np.array([[0, 65535]], dtype=np.uint16)).save(tmp_path / "a.png", exif=exif)
    assert read(tmp_path / "a.png")[0][0, :, 0].tolist() == [255, 0]


# -- what a file may start, and how much it may take ---------------------------------------------------


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 40 40
%%EndComments
0 0 moveto 40 40 lineto stroke
showpage
%%EOF
"""


def test_a_disguised_file_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    for name in ("Popen", "run", "call", "check_call", "check_output"):
        monkeypatch.setattr(subprocess, name, lambda *words, **named: started.append(words))
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # Pillow asks once whether Ghostscript is there
    (tmp_path / "photo.jpg").write_bytes(EPS)
    with pytest.raises(ImageProblem, match=r"photo\.jpg is not an image of a kind that can be read\.$"):
        read(tmp_path / "photo.jpg")
    assert started == []


@pytest.mark.parametrize("kind", ["ICO", "TGA", "PCX", "SGI", "PDF"])
def test_no_other_decoder_sees_a_file(kind: str, tmp_path: Path) -> None:
    Image.fromarray(gradient(32, 32)).save(tmp_path / "a.png", format=kind)
    with pytest.raises(ImageProblem, match="not an image of a kind"):
        read(tmp_path / "a.png")


@pytest.mark.parametrize(
    ("kind", "ending"), [("JPEG", "jfif"), ("JPEG", "jpe"), ("BMP", "dib"), ("DIB", "dib")]
)
def test_further_endings(kind: str, ending: str, tmp_path: Path) -> None:
    Image.new("RGB", (16, 16), RED).save(tmp_path / f"a.{ending}", format=kind)
    assert np.abs(read(tmp_path / f"a.{ending}")[0].astype(int) - RED).max() <= 3


def test_what_cannot_be_opened_or_vanishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is there when it is looked for and gone when it is read."""
    monkeypatch.setattr(decode.os.path, "isfile", lambda path: True)
    with pytest.raises(ImageProblem, match=r"gone\.jpg cannot be read \(No such file or directory\)"):
        read(tmp_path / "gone.jpg")


def test_warnings_that_are_errors_become_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    Image.fromarray(gradient(6, 9)).save(tmp_path / "a.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ImageProblem, match="is too large"):
            read(tmp_path / "a.png")


@pytest.mark.parametrize(("pixels", "nbytes"), [(53, 10**9), (10**9, 215)])
def test_what_would_take_too_much_is_refused(
    pixels: int, nbytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(gradient(6, 9)).save(tmp_path / "a.png")
    assert read(tmp_path / "a.png")[0].shape == (6, 9, 3)
    monkeypatch.setattr(decode, "MAX_PIXELS", pixels)
    monkeypatch.setattr(decode, "MAX_BYTES", nbytes)
    with pytest.raises(ImageProblem, match=r"a\.png is too large \(9 x 6 pixels, 0\.0 GB to decode\)"):
        read(tmp_path / "a.png")


# -- in strips, the same pixels ---------------------------------------------------------------------------


def picture(mode: str) -> Image.Image:
    """50 x 37 random pixels in a mode that files have, with transparency where there is any."""
    noise = np.random.default_rng(1).integers(0, 256, (37, 50, 4), dtype=np.uint8)
    if mode == "I;16":
        return Image.fromarray(noise[..., 0].astype(np.uint16) * 256 + noise[..., 1])
    if mode in ("LA", "P"):
        image = Image.fromarray(noise).convert("LA") if mode == "LA" else Image.fromarray(noise[..., 0])
        if mode == "P":
            image.putpalette(np.random.default_rng(2).integers(0, 256, 768).tolist())
            image.info["transparency"] = bytes(range(256))
        return image
    return Image.fromarray(noise).convert(mode)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "L", "1", "P", "I;16", "CMYK"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_strips_change_no_bit(
    mode: str, orientation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = picture(mode)
    file = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    image.save(file, exif=exif, **{k: v for k, v in image.info.items() if k == "transparency"})
    whole, _ = read_image(str(file))
    monkeypatch.setattr(decode, "STRIP", 5 * 50)
    in_parts, _ = read_image(str(file))
    assert in_parts.tobytes() == whole.tobytes()
    with open_image(str(file)) as source, source.loaded():
        assert source.size == whole.size
        small = source.resized((8, 6), Image.Resampling.BICUBIC, (4.25, 3.5, 30.75, 31.25))
    assert (
        small.tobytes() == whole.resize((8, 6), Image.Resampling.BICUBIC, (4.25, 3.5, 30.75, 31.25)).tobytes()
    )


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_turn_in_strips(orientation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "STRIP", 20)
    test_exif_rotation(orientation, tmp_path)


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
