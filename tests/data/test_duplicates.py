"""Copies are found whatever their size and compression; pictures of one kind are no copies."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data import duplicates
from holotype.data.decode import save_images
from holotype.data.duplicates import ThumbnailScan, is_readable, same_files, same_pictures, scan_thumbnails
from holotype.data.exif import NO_EXIF, read_exif
from tests.data.cameras import photograph


def picture(seed: int, size: tuple[int, int] = (160, 120)) -> Image.Image:
    """Patches of colour with soft edges, as of a photograph out of focus."""
    noise = np.random.default_rng(seed).integers(0, 255, (6, 7, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


def written(folder: Path, **pictures: Image.Image) -> list[str]:
    paths = []
    for name, image in pictures.items():
        file = folder / name.replace("_", ".")
        image.save(file, quality=60) if file.suffix == ".jpg" else image.save(file)
        paths.append(str(file))
    return paths


def test_files_of_the_same_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = written(tmp_path, a_png=picture(0), b_png=picture(1), c_jpg=picture(0))
    for name in ("d.png", "e.png"):
        shutil.copy(paths[0], tmp_path / name)
        paths.append(str(tmp_path / name))
    for name in ("empty", "also empty"):
        (tmp_path / name).touch()
        paths.append(str(tmp_path / name))
    paths.append(str(tmp_path / "gone.png"))
    read = []
    digest = duplicates._digest
    monkeypatch.setattr(duplicates, "_digest", lambda path: read.append(path) or digest(path))
    assert same_files(paths) == [[0, 3, 4]]
    assert set(read) == {paths[0], paths[3], paths[4]}  # no other file has the size of another


def test_images_of_one_container_are_not_one_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "pack.npz", x=np.random.default_rng(0).integers(0, 255, (3, 8, 8), dtype=np.uint8))
    assert same_files([f"{tmp_path / 'pack.npz'}#{i}" for i in range(3)]) == []


def test_copies_of_another_size_and_compression(tmp_path: Path) -> None:
    original = picture(0)
    paths = written(
        tmp_path,
        a_png=original,
        b_jpg=original,
        c_png=original.resize((80, 60), Image.Resampling.BICUBIC),
        d_jpg=original.resize((640, 480), Image.Resampling.BICUBIC),
        e_png=picture(1),
        f_png=original.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    )
    assert same_pictures(scan_thumbnails(paths)) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_other_colours_are_another_picture(tmp_path: Path) -> None:
    """Plain pictures have no lines to tell them apart by, and pictures of a kind have the same ones."""
    red, blue = Image.new("RGB", (40, 40), (200, 40, 40)), Image.new("RGB", (40, 40), (40, 60, 200))
    dark = picture(0).point(lambda value: value // 2)
    paths = written(tmp_path, a_png=red, b_png=blue, c_png=red.resize((30, 30)), d_png=picture(0), e_png=dark)
    assert same_pictures(scan_thumbnails(paths)) == [(0, 2)]


def test_noise_and_photographs_are_all_different(tmp_path: Path) -> None:
    paths = save_images([picture(seed) for seed in range(200)], tmp_path)
    assert same_pictures(scan_thumbnails(paths)) == []
    assert same_files(paths) == []


def test_turned_by_its_camera(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    original = picture(0)
    original.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.jpg", exif=exif, quality=90)
    original.save(tmp_path / "upright.png")
    assert same_pictures(scan_thumbnails([str(tmp_path / "turned.jpg"), str(tmp_path / "upright.png")])) == [
        (0, 1)
    ]


def test_what_cannot_be_read_has_a_problem_and_no_copies(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_bytes(b"no image")
    picture(0, (640, 480)).save(tmp_path / "cut.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:2000])
    Image.new("RGB", (40, 40)).save(tmp_path / "black.png")
    names = ("empty.jpg", "text.jpg", "cut.jpg", "black.png", "gone.jpg")
    seen = scan_thumbnails([str(tmp_path / name) for name in names])
    words = ("is empty", "is not an image", "cut off", "", "is not a file")
    assert all(word in problem for word, problem in zip(words, seen.problem, strict=True))
    assert [bool(problem) for problem in seen.problem] == [True, True, True, False, True]
    assert same_pictures(seen) == []  # a broken one is not black


def test_thousands_that_look_the_same_are_no_quadratic_work() -> None:
    n = duplicates.MAX_SIMILAR + 50
    seen = ThumbnailScan(np.full((n, 8, 9, 3), 7, np.uint8), np.full(n, "", object), [NO_EXIF] * n)
    pairs = same_pictures(seen)
    assert {row for pair in pairs for row in pair} == set(range(n))
    assert len(pairs) < n * n / 2
    nothing = ThumbnailScan(np.zeros((0, 8, 9, 3), np.uint8), np.full(0, "", object), [])
    assert same_pictures(nothing) == []


def test_one_image_can_be_asked_about_alone(tmp_path: Path) -> None:
    (sound,) = written(tmp_path, a_png=picture(1))
    (tmp_path / "broken.png").write_bytes(b"none")
    asked = (sound, str(tmp_path / "broken.png"), str(tmp_path / "gone.png"))
    assert [is_readable(path) for path in asked] == [True, False, False]


def test_a_sound_file_is_opened_once_for_its_picture_and_its_head(tmp_path: Path, monkeypatch) -> None:
    """The head says what it says alone, in every kind of file, and the picture is that of a file without one."""
    pixels, told = np.asarray(picture(3)), {"taken": "2024:05:01 08:00:00", "model": "trap 1", "serial": "77"}
    names = ("a.jpg", "b.tif", "c.png", "d.webp")
    paths = [str(photograph(tmp_path / name, pixels, **told)) for name in names]
    bare = [str(photograph(tmp_path / "bare" / name, pixels)) for name in names]
    alone = [read_exif(path) for path in paths]
    plain = scan_thumbnails(bare)
    seen, opens = Image.open, []
    monkeypatch.setattr(Image, "open", lambda file, **how: opens.append(file) or seen(file, **how))
    found = scan_thumbnails(paths)
    assert sorted(opens) == sorted(paths)
    assert found.shots == alone
    assert all(shot.camera.startswith("trap 1") for shot in found.shots)
    assert plain.shots == [read_exif(path) for path in bare]
    np.testing.assert_array_equal(found.colours, plain.colours)


def test_a_picture_that_is_cut_off_keeps_its_head(tmp_path: Path) -> None:
    whole = photograph(tmp_path / "cut.jpg", np.asarray(picture(0, (640, 480))), taken="2024:05:01 08:00:00")
    whole.write_bytes(whole.read_bytes()[:3000])
    seen = scan_thumbnails([str(whole)])
    assert seen.problem[0]
    assert seen.shots[0].taken == "2024-05-01T08:00:00"
