"""Every kind of image file becomes upright RGB, or an ImageProblem that says why not; pixels in memory become files."""

import struct
import subprocess
import sys
import types
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data import decode, image_files
from holotype.data.arrays import save_images
from holotype.data.decode import ImageProblem, decoding_bytes, open_image, read_image
from holotype.data.image_files import (
    HEIF,
    IMAGE_EXTENSIONS,
    decoders,
    install_hint,
)
from holotype.errors import InputError
from tests.data.cameras import photograph

RED, WHITE = (255, 0, 0), (255, 255, 255)
DOCS = Path(__file__).parents[2] / "docs" / "data.md"


def read(path: Path | str) -> tuple[np.ndarray, str]:
    image, note = read_image(str(path))
    assert image.mode == "RGB"
    return np.asarray(image), note


def problem(path: Path | str) -> str:
    with pytest.raises(ImageProblem) as error:
        read(path)
    assert str(path) in str(error.value)
    return str(error.value)


def gradient(height: int = 6, width: int = 9) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "ppm", "jpg"])
def test_plain_images_are_exact_and_the_content_counts_not_the_name(suffix: str, tmp_path: Path) -> None:
    how = {"format": "WEBP", "lossless": True} if suffix == "jpg" else {}
    Image.fromarray(gradient()).save(tmp_path / f"a.{suffix}", **how)
    pixels, note = read(tmp_path / f"a.{suffix}")
    assert np.array_equal(pixels, gradient())
    assert note == ""


def stored(upright: np.ndarray, orientation: int) -> np.ndarray:
    """As a camera that needs this orientation stores the upright picture."""
    turned = upright.transpose(1, 0, 2) if orientation > 4 else upright
    down, across = orientation in (3, 4, 6, 7), orientation in (2, 3, 7, 8)
    return np.ascontiguousarray(turned[:: -1 if down else 1, :: -1 if across else 1])


@pytest.mark.parametrize("strip", [20, 1 << 20])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_as_a_whole_and_in_strips(orientation: int, strip: int, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(decode, "STRIP", strip)
    file = photograph(tmp_path / "a.png", stored(gradient(), orientation), orientation=orientation)
    assert np.array_equal(read(file)[0], gradient())
    with Image.open(file) as image:  # one that is held in memory is turned as its file would be
        (path,) = save_images([image], tmp_path / "written")
    assert np.array_equal(read(path)[0], gradient())


def picture(mode: str) -> Image.Image:
    """50 x 37 random pixels in a mode that files have, with transparency where there is any."""
    noise = np.random.default_rng(1).integers(0, 256, (37, 50, 4), dtype=np.uint8)
    if mode == "I;16":
        return Image.fromarray(noise[..., 0].astype(np.uint16) * 256 + noise[..., 1])
    if mode != "P":
        return Image.fromarray(noise).convert(mode)
    image = Image.fromarray(noise[..., 0])
    image.putpalette(np.random.default_rng(2).integers(0, 256, 768).tolist())
    image.info["transparency"] = bytes(range(256))
    return image


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "L", "1", "P", "I;16", "CMYK"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_strips_change_no_bit(mode: str, orientation: int, tmp_path: Path, monkeypatch) -> None:
    exif, image = Image.Exif(), picture(mode)
    exif[0x0112] = orientation
    file = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    image.save(file, exif=exif, **{k: v for k, v in image.info.items() if k == "transparency"})
    whole, _ = read_image(str(file))
    monkeypatch.setattr(decode, "STRIP", 5 * 50)
    assert read_image(str(file))[0].tobytes() == whole.tobytes()
    with open_image(str(file)) as source, source.loaded():
        assert source.size == whole.size


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bit_grey_is_scaled_and_turned_and_32_bits_are_refused(suffix: str, tmp_path: Path) -> None:
    values = np.array([[0, 128, 129, 257, 32768, 65535]], dtype=np.uint16)
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(values[:, ::-1]).save(tmp_path / f"a.{suffix}", exif=exif)
    pixels, note = read(tmp_path / f"a.{suffix}")
    assert pixels[0, :, 0].tolist() == np.rint(values[0] / 257).astype(int).tolist()
    assert (pixels == pixels[..., :1]).all()
    assert "0 to 65,535" in note
    Image.fromarray(np.ones((4, 4), dtype=np.float32)).save(tmp_path / "f.tif")
    assert "8 or 16 bits" in problem(tmp_path / "f.tif")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "1", "L"])
def test_transparency_lies_on_white(mode: str, tmp_path: Path) -> None:
    """Left half black, right half white, or transparent: as P it is a red that is marked so."""
    if mode in ("RGBA", "LA"):
        layer = Image.new("RGBA", (4, 2), (*RED, 0))
        layer.paste((0, 0, 0, 255), (0, 0, 2, 2))
        image = layer.convert(mode)
    else:
        image = Image.new(mode, (4, 2), 0)
        if mode == "P":
            image.putpalette([0, 0, 0, *RED])
            image.info["transparency"] = 1
        image.paste(1 if mode in ("P", "1") else 255, (2, 0, 4, 2))
    image.save(tmp_path / "a.png")
    pixels, _ = read(tmp_path / "a.png")
    assert (pixels[:, :2] == 0).all()
    assert (pixels[:, 2:] == WHITE).all()
    Image.new("RGBA", (2, 2), (0, 0, 0, 51)).save(tmp_path / "half.png")
    assert (read(tmp_path / "half.png")[0] == 204).all()


def test_first_frame_with_a_note_and_what_is_no_image_or_vanishes(tmp_path: Path, monkeypatch) -> None:
    frames = [Image.new("RGB", (4, 4), color) for color in (RED, (0, 255, 0), (0, 0, 255))]
    for name in ("a.gif", "a.webp", "a.tif", "a.png"):
        extra = {"lossless": True} if name.endswith("webp") else {}
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **extra)
        pixels, note = read(tmp_path / name)
        assert (pixels == RED).all(), name
        assert note == "first of 3 frames used", name
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("hello" * 100)
    (tmp_path / "a.heic").write_text("hello" * 100)
    (tmp_path / "folder.jpg").mkdir()
    said = {"empty.jpg": "0 bytes", "text.jpg": "not an image", "folder.jpg": "a file"}
    said["gone.jpg"] = "not a file"
    for name, message in said.items():
        assert message in problem(tmp_path / name)
    told = "pillow-heif>=1.3 would read it" in problem(tmp_path / "a.heic")
    assert (".heic" in IMAGE_EXTENSIONS) is not told
    monkeypatch.setattr(decode.os.path, "isfile", lambda path: True)
    assert "cannot be read (No such file or directory)" in problem(tmp_path / "gone.jpg")


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize(
    "exif", [b"Exif\x00\x00MM\x00*\xff\xff\xff\xff garbage", b"Exif\x00\x00no TIFF header"]
)
def test_broken_exif_does_not_lose_the_image(exif: bytes, tmp_path: Path) -> None:
    Image.fromarray(gradient()).save(tmp_path / "a.png", exif=exif)
    pixels, note = read(tmp_path / "a.png")
    assert np.array_equal(pixels, gradient())
    assert note in ("", "unreadable EXIF data ignored")


@pytest.mark.parametrize("kind", ["EPS", "ICO", "TGA", "PCX", "SGI", "PDF"])
def test_no_other_decoder_sees_a_disguised_file_and_no_program_starts(kind, tmp_path, monkeypatch) -> None:
    started = []
    for name in ("Popen", "run", "call", "check_call", "check_output"):
        monkeypatch.setattr(subprocess, name, lambda *words, **named: started.append(words))
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # Pillow asks once whether Ghostscript is there
    Image.fromarray(gradient(32, 32)).save(tmp_path / "photo.jpg", format=kind)
    assert problem(tmp_path / "photo.jpg").endswith("is not an image of a kind that can be read.")
    assert started == []


def test_huge_images_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.png"
    Image.new("RGB", (1, 1)).save(file)
    raw, chunk = file.read_bytes(), b"IHDR" + struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    file.write_bytes(raw[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + raw[33:])
    assert "too large" in problem(file)
    Image.fromarray(gradient(6, 9)).save(file)
    assert read(file)[0].shape == (6, 9, 3)
    for pixels, nbytes in ((53, 10**9), (10**9, 215)):
        monkeypatch.setattr(decode, "MAX_PIXELS", pixels)
        monkeypatch.setattr(decode, "MAX_BYTES", nbytes)
        assert "is too large (9 x 6 pixels, 0.0 GB to decode)" in problem(file)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # warnings that are errors become problems
        assert "is too large" in problem(file)


def test_costly_decoders_are_known(tmp_path: Path) -> None:
    """Bytes per pixel as measured; a progressive JPEG keeps all coefficients, WebP several pictures. What is not RGB
    or not upright is there twice."""
    assert 4 * decode.MAX_PIXELS < decode.MAX_BYTES <= 10**9
    turned = Image.Exif()
    turned[0x0112] = 6
    cases = {
        "a.jpg": ("RGB", {}, 4),
        "b.jpg": ("RGB", {"progressive": True}, 10),
        "a.png": ("RGB", {}, 4),
        "a.webp": ("RGB", {}, 16),
        "a.tif": ("RGB", {"compression": "tiff_lzw", "strip_size": 10**6}, 9),
        "c.jpg": ("RGB", {"exif": turned}, 8),
        "c.png": ("RGB", {"exif": turned}, 8),
        "l.png": ("L", {}, 5),
    }
    for name, (mode, options, expected) in cases.items():
        Image.fromarray(gradient(64, 80)).convert(mode).save(tmp_path / name, **options)
        with Image.open(tmp_path / name) as file:
            assert decoding_bytes(file, file.size) == expected * 64 * 80, name


def test_endings_decoders_and_the_documentation_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    Image.init()
    kinds_of, asked = Image.registered_extensions(), {*decoders(), "MPO"}  # JPEG's decoder opens MPO
    assert [ending for ending in IMAGE_EXTENSIONS if kinds_of[ending] not in asked] == []
    assert not set(decoders()) & {"EPS", "WMF", "PSD", "FPX", "MIC", "PDF", "JPEG2000", "ICNS", "IM"}
    text = DOCS.read_text(encoding="utf-8")
    assert [ending for ending in {*IMAGE_EXTENSIONS, *HEIF} if f"`{ending}`" not in text] == []
    assert install_hint("IMG_1.HEIC") == ("" if ".heic" in IMAGE_EXTENSIONS else "pillow-heif>=1.3")
    assert install_hint("scan.dcm") == ("" if ".dcm" in IMAGE_EXTENSIONS else "holotype[dicom]")
    assert install_hint("a.jpg") == install_hint("a.mov") == install_hint("") == ""
    registered, module = [], types.ModuleType("pillow_heif")
    module.register_heif_opener = lambda: registered.append("HEIF")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pillow_heif", module)
    monkeypatch.setattr(image_files, "HAS_HEIF", True)
    monkeypatch.setitem(Image.OPEN, "HEIF", (None, None))
    assert "HEIF" in decoders.__wrapped__()
    assert registered == ["HEIF"]


@pytest.mark.parametrize("shape", [(3, 5, 4), (3, 5, 4, 3)])
def test_npz(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=images)
    expected = images[2] if images.ndim == 4 else np.stack([images[2]] * 3, axis=-1)
    assert np.array_equal(read(f"{tmp_path}/a.npz#2")[0], expected)
    with pytest.raises(ImageProblem, match="no image 3"):
        read(f"{tmp_path}/a.npz#3")
    np.savez(tmp_path / "a.npz", x=np.full((1, 2, 2), 7, np.uint8))  # one that changes is read again
    assert (read(f"{tmp_path}/a.npz#0")[0] == 7).all()
    objects, small = np.array([{"a": 1}], dtype=object), np.zeros((2, 4, 4), np.uint8)
    odd = ({"x": objects}, {"x": np.zeros((2, 4, 4))}, {"y": small})
    for number, arrays in enumerate(odd):
        np.savez(tmp_path / f"{number}.npz", **arrays)
        with pytest.raises(ImageProblem, match=f"{number}.npz"):
            read(f"{tmp_path}/{number}.npz#0")


@pytest.mark.parametrize(("name", "header"), [("data_batch_1.bin", 1), ("train.bin", 2)])
def test_cifar_binary(name: str, header: int, tmp_path: Path, monkeypatch) -> None:
    images = np.random.default_rng(2).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    records = [bytes([7] * header) + image.transpose(2, 0, 1).tobytes() for image in images]
    file = tmp_path / name
    file.write_bytes(b"".join(records))
    for i in range(3):
        assert np.array_equal(read(f"{file}#{i}")[0], images[i])
    with pytest.raises(ImageProblem, match="no CIFAR record 3"):
        read(f"{file}#3")
    file.write_bytes(b"".join(records)[:-1])
    with pytest.raises(ImageProblem, match="cut off"):
        read(f"{file}#0")
    monkeypatch.setattr(decode, "split_archive", lambda path: (str(tmp_path / "gone.bin"), 0))
    with pytest.raises(ImageProblem, match="No such file"):  # one that vanishes
        read(f"{file}#0")


def test_arrays_and_pil_images_keep_their_pixels(tmp_path: Path) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    grey = rgb[:, :, 0]
    three, opaque = np.stack([grey] * 3, -1), np.dstack([rgb, np.full((5, 7), 255, np.uint8)])
    integers, pil = rgb.astype(np.int64), Image.fromarray(rgb)
    pictures = [rgb, rgb / 255, integers, rgb.tolist(), pil, Image.fromarray(opaque)]
    cases = [(picture, rgb) for picture in pictures] + [(grey, three), (grey[:, :, None], three)]
    cases += [(Image.fromarray(rgb).convert("CMYK"), None), (Image.fromarray(grey).convert("P"), None)]
    for number, (one, wanted) in enumerate(cases):
        (path,) = save_images([one], tmp_path / str(number))
        found = read(path)[0]
        assert found.shape == (5, 7, 3)
        assert wanted is None or np.array_equal(found, wanted), number


def test_paths_stay_where_they_are_and_no_file_is_ever_replaced(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = save_images(["a b.png", tmp_path / "c.png", "s3://bucket/d.png"], tmp_path / "written")
    assert paths == [str(tmp_path / "a b.png"), str(tmp_path / "c.png"), "s3://bucket/d.png"]
    assert not (tmp_path / "written").exists()
    assert len(set(save_images(np.zeros((3, 4, 4)), "run"))) == 3
    first = save_images([np.zeros((4, 4))], "run")
    before = Path(first[0]).stat().st_mtime_ns
    assert Path(first[0]).is_absolute()
    assert save_images([np.ones((4, 4))], "run") != first == save_images([np.zeros((4, 4))], "run")
    assert Path(first[0]).stat().st_mtime_ns == before
    assert np.asarray(Image.open(first[0])).max() == 0


@pytest.mark.parametrize(
    ("pictures", "says"),
    [
        ("one.png", "put it into a list"),
        *(([np.zeros(shape)], "has the shape") for shape in ((2, 3, 4, 5), (3, 32, 32), (0, 4))),
        *(([np.full((4, 4), value)], "values") for value in (300, -0.5, np.nan, "x")),
        ([None], "has the shape"),
        ([[[1], [2, 3]]], "not a path, a PIL image or an array"),
    ],
)
def test_what_is_not_a_picture_is_one_sentence(pictures, says, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        save_images(pictures, tmp_path)
