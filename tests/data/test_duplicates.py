"""Copies are found whatever their size and compression; digests are equal for equal content, and few files are read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data import duplicates, hashing
from holotype.data.arrays import save_images
from holotype.data.duplicates import ThumbnailScan, is_readable, same_pictures, scan_thumbnails
from holotype.data.exif import NO_EXIF, read_exif_all
from holotype.data.hashing import file_digest, file_stamps, image_digests
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


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of which a digest was made."""
    seen: list[str] = []
    monkeypatch.setattr(hashing, "file_digest", lambda path: seen.append(path) or file_digest(path))
    return seen


def test_copies_of_another_size_and_compression_and_turned_by_a_camera(tmp_path: Path) -> None:
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
    turned = np.asarray(original.transpose(Image.Transpose.ROTATE_90))
    paths[1] = str(photograph(tmp_path / "turned.png", turned, orientation=6))
    assert same_pictures(scan_thumbnails(paths)) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_other_colours_and_pictures_of_one_kind_are_other_pictures(tmp_path: Path) -> None:
    """Plain pictures have no lines to tell them apart by, and pictures of a kind have the same ones."""
    red, blue = Image.new("RGB", (40, 40), (200, 40, 40)), Image.new("RGB", (40, 40), (40, 60, 200))
    dark = picture(0).point(lambda value: value // 2)
    paths = written(tmp_path, a_png=red, b_png=blue, c_png=red.resize((30, 30)), d_png=picture(0), e_png=dark)
    assert same_pictures(scan_thumbnails(paths)) == [(0, 2)]
    paths = save_images([picture(seed, (40, 30)) for seed in range(100)], tmp_path)
    assert same_pictures(scan_thumbnails(paths)) == []


def test_what_cannot_be_read_has_a_problem_and_no_copies(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_bytes(b"no image")
    cut = photograph(tmp_path / "cut.jpg", np.asarray(picture(0, (640, 480))), taken="2024:05:01 08:00:00")
    cut.write_bytes(cut.read_bytes()[:3000])
    Image.new("RGB", (40, 40)).save(tmp_path / "black.png")
    names = ("empty.jpg", "text.jpg", "cut.jpg", "black.png", "gone.jpg")
    seen = scan_thumbnails([str(tmp_path / name) for name in names])
    words = ("is empty", "is not an image", "cut off", "", "is not a file")
    assert all(word in problem for word, problem in zip(words, seen.problem, strict=True))
    assert [bool(problem) for problem in seen.problem] == [True, True, True, False, True]
    assert [is_readable(str(tmp_path / name)) for name in names] == [False, False, False, True, False]
    assert same_pictures(seen) == []  # a broken one is not black
    assert seen.shots[2].taken == "2024-05-01T08:00:00"  # the head may be sound where the picture is not


def test_thousands_that_look_the_same_are_no_quadratic_work() -> None:
    n = duplicates.MAX_SIMILAR + 50
    seen = ThumbnailScan(np.full((n, 8, 9, 3), 7, np.uint8), np.full(n, "", object), [NO_EXIF] * n)
    pairs = same_pictures(seen)
    assert {row for pair in pairs for row in pair} == set(range(n))
    assert len(pairs) < n * n / 2
    nothing = ThumbnailScan(np.zeros((0, 8, 9, 3), np.uint8), np.full(0, "", object), [])
    assert same_pictures(nothing) == []


def test_a_sound_file_is_opened_once_for_its_picture_and_its_head(tmp_path: Path, monkeypatch) -> None:
    """The head says what it says alone, in every kind of file, and the picture is that of a file without one."""
    pixels, told = np.asarray(picture(3)), {"taken": "2024:05:01 08:00:00", "model": "trap 1", "serial": "77"}
    names = ("a.jpg", "b.tif", "c.png", "d.webp")
    paths = [str(photograph(tmp_path / name, pixels, **told)) for name in names]
    bare = [str(photograph(tmp_path / "bare" / name, pixels)) for name in names]
    alone, plain = [read_exif_all([path])[0] for path in paths], scan_thumbnails(bare)
    seen, opens = Image.open, []
    monkeypatch.setattr(Image, "open", lambda file, **how: opens.append(file) or seen(file, **how))
    found = scan_thumbnails(paths)
    assert sorted(opens) == sorted(paths)
    assert found.shots == alone
    assert all(shot.camera.startswith("trap 1") for shot in found.shots)
    assert plain.shots == [read_exif_all([path])[0] for path in bare]
    np.testing.assert_array_equal(found.colours, plain.colours)


def write(folder: Path, **contents: bytes) -> list[str]:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [str(folder / name) for name in contents]


def test_a_file_of_the_same_size_and_time_is_not_read_again(tmp_path: Path, read: list[str]) -> None:
    paths = write(tmp_path, a=b"one", b=b"two", c=b"three")
    stamp = file_stamps(paths)
    first = image_digests(paths, stamp, [None] * 3)
    read.clear()
    known = list(zip(stamp, first, strict=True))
    assert image_digests(paths, stamp, known) == first
    assert read == []
    write(tmp_path, b=b"other")
    again = image_digests(paths, file_stamps(paths), known)
    assert read == [paths[1]]
    assert (again[0], again[1] != first[1], again[2]) == (first[0], True, first[2])
    assert file_stamps([str(tmp_path / "gone.jpg"), "\0"]) == ["", ""]
    # one that could not be read the last time
    assert image_digests(paths[:1], stamp[:1], [(stamp[0], "")]) == first[:1]


def test_images_of_a_container_are_known_one_by_one_and_have_its_stamp(tmp_path: Path) -> None:
    images = np.arange(4 * 5 * 5, dtype=np.uint8).reshape(4, 5, 5)
    images[3] = images[1]
    np.savez(tmp_path / "all.npz", x=images)
    found = [file_digest(f"{tmp_path}/all.npz#{i}") for i in range(5)]
    assert found[1] == found[3]
    assert len(set(found)) == 4
    assert found[4] == ""  # there is no such image
    np.savez(tmp_path / "some.npz", x=images[2:])
    assert file_digest(f"{tmp_path}/some.npz#0") == found[2]
    one, two, itself = file_stamps([f"{tmp_path}/all.npz#0", f"{tmp_path}/all.npz#1", f"{tmp_path}/all.npz"])
    assert one == two == itself != ""
