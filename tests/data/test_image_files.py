"""Which endings are read, which decoders are asked, and what to install for the others."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data import image_files as formats
from holotype.data.decode import ImageProblem, read_image
from holotype.data.image_files import (
    IMAGE_EXTENSIONS,
    decoders,
    file_of,
    image_exists,
    install_hint,
    split_archive,
)

DOCS = Path(__file__).parents[2] / "docs" / "data.md"


def test_every_ending_belongs_to_a_decoder() -> None:
    Image.init()
    kinds_of = Image.registered_extensions()
    asked = {*decoders(), "MPO"}  # JPEG's decoder opens it
    assert [ending for ending in IMAGE_EXTENSIONS if kinds_of[ending] not in asked] == []


def test_decoders_that_start_programs_or_read_anything_are_not_asked() -> None:
    assert not set(decoders()) & {"EPS", "WMF", "PSD", "FPX", "MIC", "PDF", "JPEG2000", "ICNS", "IM"}
    assert set(decoders()) >= {"JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM"}


def test_the_documentation_lists_the_endings() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [
        ending
        for ending in (*formats.PILLOW_FORMATS, *formats.AVIF, *formats.HEIF)
        if f"`{ending}`" not in text
    ] == []


def test_pillow_heif_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the module's name is known here; its opener is asked to register itself before the first image is read."""
    registered = []
    module = types.ModuleType("pillow_heif")
    module.register_heif_opener = lambda: registered.append("HEIF")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pillow_heif", module)
    monkeypatch.setattr(formats, "HAS_HEIF", True)
    monkeypatch.setitem(Image.OPEN, "HEIF", (None, None))
    assert "HEIF" in decoders.__wrapped__()
    assert registered == ["HEIF"]


def test_what_to_install() -> None:
    assert install_hint("IMG_1.HEIC") == ("" if ".heic" in IMAGE_EXTENSIONS else "pillow-heif")
    assert install_hint("a.jpg") == install_hint("a.mov") == install_hint("") == ""


def test_an_old_pillow_has_no_avif() -> None:
    code = (
        "from PIL import features; features.modules.pop('avif', None);"
        "from holotype.data.image_files import IMAGE_EXTENSIONS, install_hint;"
        "assert '.avif' not in IMAGE_EXTENSIONS; print(install_hint('x.avif'))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "pillow 11.3 or later\n"


def read(path: Path | str) -> np.ndarray:
    image, _ = read_image(str(path))
    assert image.mode == "RGB"
    return np.asarray(image)


def gradient(height: int = 6, width: int = 9) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_a_real_file_with_a_hash_wins(tmp_path: Path) -> None:
    Image.fromarray(gradient()).save(tmp_path / "a#1.png")
    Image.fromarray(gradient()).save(tmp_path / "b.npz#1", format="PNG")
    np.savez(tmp_path / "b.npz", x=np.zeros((2, 6, 9, 3), np.uint8))
    assert np.array_equal(read(tmp_path / "a#1.png"), gradient())
    assert np.array_equal(read(tmp_path / "b.npz#1"), gradient())
    assert not read(tmp_path / "b.npz#0").any()


@pytest.mark.parametrize(
    "path", ["a.png", "a#b", "#3", "a#", "a#-1", "a#1.png", "a#²", "a.npz#1", "set #2/train"]
)
def test_paths_that_are_no_containers(path: str) -> None:
    assert split_archive(path) is None
    assert file_of(path) == path


def test_only_files_of_a_known_kind_are_containers(tmp_path: Path) -> None:
    names = ("x.npz", "data_batch_1", "train", "train.bin", "notes.txt", "photo", "roll")
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    split = [name for name in names if split_archive(f"{tmp_path / name}#3") == (str(tmp_path / name), 3)]
    assert split == ["x.npz", "train.bin"]
    assert not image_exists(f"{tmp_path}/roll#3")


def test_folders_with_a_hash_and_a_number(tmp_path: Path) -> None:
    """ "camera #2" is a folder, and what lies in it is read."""
    folder = tmp_path / "camera #2" / "roll#7"
    folder.mkdir(parents=True)
    Image.fromarray(gradient()).save(folder / "a.png")
    np.savez(folder / "pack.npz", x=gradient()[None])
    for path in (f"{folder}/a.png", f"{folder}/pack.npz#0"):
        assert image_exists(path)
        assert np.array_equal(read(path), gradient())
    assert file_of(f"{folder}/pack.npz#0") == f"{folder}/pack.npz"


def test_a_container_that_vanishes_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.bin").write_bytes(bytes(3074))
    real = open

    def gone(file, *rest, **named):
        if str(file).endswith("train.bin"):
            raise FileNotFoundError(2, "No such file or directory", file)
        return real(file, *rest, **named)

    monkeypatch.setattr("builtins.open", gone)
    with pytest.raises(ImageProblem, match="No such file"):
        read(f"{tmp_path}/train.bin#0")


@pytest.mark.parametrize("shape", [(3, 5, 4), (3, 5, 4, 3)])
def test_npz(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=images)
    pixels = read(f"{tmp_path}/a.npz#2")
    assert np.array_equal(pixels, images[2] if images.ndim == 4 else np.stack([images[2]] * 3, axis=-1))
    with pytest.raises(ImageProblem, match="no image 3"):
        read(f"{tmp_path}/a.npz#3")


def test_npz_that_changes_is_read_again(tmp_path: Path) -> None:
    for value in (1, 2):
        np.savez(tmp_path / "a.npz", x=np.full((value, 2, 2), value, np.uint8))
        assert (read(f"{tmp_path}/a.npz#0") == value).all()


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
        assert np.array_equal(read(f"{tmp_path}/{name}#{i}"), images[i])
    with pytest.raises(ImageProblem, match="no CIFAR record 3"):
        read(f"{tmp_path}/{name}#3")
    (tmp_path / name).write_bytes(b"".join(records)[:-1])
    with pytest.raises(ImageProblem, match="cut off"):
        read(f"{tmp_path}/{name}#0")


def test_containers_from_several_threads(tmp_path: Path) -> None:
    images = np.random.default_rng(4).integers(0, 256, (3, 20, 4, 4, 3), dtype=np.uint8)
    for k in range(3):
        np.savez(tmp_path / f"{k}.npz", x=images[k])
    wrong = []

    def work(seed: int) -> None:
        for k, i in np.random.default_rng(seed).integers(0, (3, 20), (30, 2)):
            if not np.array_equal(read(f"{tmp_path}/{k}.npz#{i}"), images[k, i]):
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
