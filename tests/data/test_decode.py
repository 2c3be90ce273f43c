"""Every kind of image file becomes upright RGB, or an ImageProblem that says why not; no pickle runs code."""

import pickle
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data.containers import read_cifar_pickle, split_container
from holotype.data.decode import ImageProblem, read_image

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


# containers


def test_a_real_file_with_a_hash_wins(tmp_path: Path) -> None:
    Image.fromarray(gradient()).save(tmp_path / "a#1.png")
    Image.fromarray(gradient()).save(tmp_path / "b.npz#1", format="PNG")
    np.savez(tmp_path / "b.npz", x=np.zeros((2, 6, 9, 3), np.uint8))
    assert np.array_equal(read(tmp_path / "a#1.png")[0], gradient())
    assert np.array_equal(read(tmp_path / "b.npz#1")[0], gradient())
    assert not read(tmp_path / "b.npz#0")[0].any()


@pytest.mark.parametrize("path", ["a.png", "a#b", "#3", "a#", "a#-1", "a#1.png", "a#²"])
def test_paths_that_are_no_containers(path: str) -> None:
    assert split_container(path) is None


@pytest.mark.parametrize("shape", [(3, 5, 4), (3, 5, 4, 3)])
def test_npz(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=images)
    pixels, _ = read(f"{tmp_path}/a.npz#2")
    assert np.array_equal(pixels, images[2] if images.ndim == 4 else np.stack([images[2]] * 3, axis=-1))
    with pytest.raises(ImageProblem, match="no image 3"):
        read(f"{tmp_path}/a.npz#3")


def test_npz_that_changes_is_read_again(tmp_path: Path) -> None:
    for value in (1, 2):
        np.savez(tmp_path / "a.npz", x=np.full((value, 2, 2), value, np.uint8))
        assert (read(f"{tmp_path}/a.npz#0")[0] == value).all()


def test_npz_with_objects_or_other_types_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}], dtype=object))
    np.savez(tmp_path / "b.npz", x=np.zeros((2, 4, 4)))
    np.savez(tmp_path / "c.npz", y=np.zeros((2, 4, 4), np.uint8))
    for name in "abcd":
        with pytest.raises(ImageProblem, match=f"{name}.npz"):
            read(f"{tmp_path}/{name}.npz#0")


@pytest.mark.parametrize(("name", "header"), [("data_batch_1.bin", 1), ("train.bin", 2)])
def test_cifar_binary(name: str, header: int, tmp_path: Path) -> None:
    images = np.random.default_rng(2).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    records = [bytes([7] * header) + image.transpose(2, 0, 1).tobytes() for image in images]
    (tmp_path / name).write_bytes(b"".join(records))
    for i in range(3):
        assert np.array_equal(read(f"{tmp_path}/{name}#{i}")[0], images[i])
    with pytest.raises(ImageProblem, match="no CIFAR record 3"):
        read(f"{tmp_path}/{name}#3")
    (tmp_path / name).write_bytes(b"".join(records)[:-1])
    with pytest.raises(ImageProblem, match="cut off"):
        read(f"{tmp_path}/{name}#0")


def python2_pickle(images: np.ndarray, labels: list[int]) -> bytes:
    """The opcodes that Python 2 wrote for CIFAR: byte strings, and arrays through numpy.core.multiarray."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value  # SHORT_BINSTRING

    raw = images.transpose(0, 3, 1, 2).tobytes()
    number = b"".join(b"K" + bytes([c]) for c in labels)
    shape = b"K" + bytes([len(images)]) + b"M\x00\x0c\x86"  # (n, 3072)
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R" + b"(K\x03" + text(b"|") + b"NNN"
    dtype += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    items = (
        text(b"data") + array + text(b"labels") + b"](" + number + b"e" + text(b"batch_label") + text(b"x")
    )
    return b"\x80\x02}(" + items + b"u."


def test_cifar_pickles_of_python_2_and_3(tmp_path: Path) -> None:
    images = np.random.default_rng(3).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    flat = images.transpose(0, 3, 1, 2).reshape(4, 3072)
    (tmp_path / "data_batch_1").write_bytes(python2_pickle(images, [3, 1, 4, 1]))
    (tmp_path / "data_batch_2").write_bytes(
        pickle.dumps({b"data": flat, b"labels": [3, 1, 4, 1]}, protocol=3)
    )
    for name in ("data_batch_1", "data_batch_2"):
        content = read_cifar_pickle(tmp_path / name)
        assert content["labels"] == [3, 1, 4, 1]
        assert np.array_equal(content["data"], flat)
        assert np.array_equal(read(f"{tmp_path}/{name}#2")[0], images[2])
    # that the hand-written opcodes are what NumPy itself would read
    theirs = pickle.loads(python2_pickle(images, [3, 1, 4, 1]), encoding="bytes")
    assert np.array_equal(theirs[b"data"], flat)


class Calls:
    """Pickles as a call of `function` with `arguments`."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple:
        return self.call


def hostile(mark: Path) -> dict[str, bytes]:
    """Pickles that would create the file `mark` if anything in them ran."""
    import os

    code = f"open({str(mark)!r}, 'w')"
    touch = f"touch {mark}".encode()
    inner = f"import os; os.system('touch {mark}')"
    return {
        "os.system": pickle.dumps({b"data": Calls(os.system, f"touch {mark}")}),
        "posix": b"cposix\nsystem\n(S'" + touch + b"'\ntR.",
        "eval": pickle.dumps({b"data": Calls(eval, code)}),
        "builtins exec, text protocol": b'c__builtin__\nexec\n(S"' + inner.encode() + b'"\ntR.',
        "getattr": pickle.dumps(Calls(getattr, Calls(__import__, "os"), "system")),
        "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.tofile\x93.",
        "dotted gadget": b"\x80\x04\x8c\x05numpy\x8c\x0ef2py.os.system\x93.",
        "numpy gadget": b'cnumpy.testing._private.utils\nrunstring\n(S"' + inner.encode() + b'"\n}tR.',
        "numpy load": b"cnumpy\nload\n(S'x'\ntR.",
        "inst opcode": b"(S'" + touch + b"'\nios\nsystem\n.",
        "object array": pickle.dumps({b"data": np.array([Calls(eval, code)], dtype=object)}, protocol=3),
        "state for a class": b"cnumpy\nndarray\n}(S'x'\nK\x01ub.",
        "persistent id": b"Pabc\n.",
        "extension": b"\x82\x01.",
        "no dictionary": pickle.dumps([1, 2]),
        "empty": b"",
        "cut off": python2_pickle(np.zeros((2, 32, 32, 3), np.uint8), [0, 1])[:-40],
        "wrong size": python2_pickle(np.zeros((2, 32, 32, 3), np.uint8), [0, 1]).replace(
            b"M\x00\x0c", b"M\x01\x0c"
        ),
    }


@pytest.mark.parametrize("case", sorted(hostile(Path("x"))))
def test_hostile_pickles_are_refused(case: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "data_batch_1").write_bytes(hostile(mark)[case])
    with pytest.raises(ImageProblem, match="data_batch_1"):
        read(f"{tmp_path}/data_batch_1#0")
    assert not mark.exists()


@pytest.mark.parametrize("case", ["os.system", "posix", "eval", "inst opcode", "object array"])
def test_the_hostile_pickles_would_bite(case: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    pickle.loads(hostile(mark)[case])
    assert mark.exists()


def test_containers_from_several_threads(tmp_path: Path) -> None:
    images = np.random.default_rng(4).integers(0, 256, (3, 20, 4, 4, 3), dtype=np.uint8)
    for k in range(3):
        np.savez(tmp_path / f"{k}.npz", x=images[k])
    wrong = []

    def work(seed: int) -> None:
        for k, i in np.random.default_rng(seed).integers(0, (3, 20), (30, 2)):
            if not np.array_equal(read(f"{tmp_path}/{k}.npz#{i}")[0], images[k, i]):
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
