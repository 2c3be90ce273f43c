"""Digests of images: equal for equal content, and no file is read that has not changed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from holotype.data import hashing as module
from holotype.data.hashing import file_digest, file_stamps, image_digests


def write(folder: Path, **contents: bytes) -> list[str]:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [str(folder / name) for name in contents]


def test_the_content_decides_and_not_the_name(tmp_path: Path) -> None:
    paths = write(tmp_path, a=b"one", b=b"one", c=b"two", d=b"")
    found = image_digests(paths, file_stamps(paths), [None] * 4)
    assert found[0] == found[1]
    assert len(set(found)) == 3
    assert all(len(digest) == 32 for digest in found)


def test_what_cannot_be_read_has_none(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    paths = [str(tmp_path / "nowhere.png"), str(tmp_path / "folder"), "a\0b"]
    assert image_digests(paths, file_stamps(paths), [None] * 3) == ["", "", ""]


def test_a_file_of_the_same_size_and_time_is_not_read_again(tmp_path: Path, monkeypatch) -> None:
    paths = write(tmp_path, a=b"one", b=b"two", c=b"three")
    stamp = file_stamps(paths)
    first = image_digests(paths, stamp, [None] * 3)
    read: list[str] = []

    def watched(path: str) -> str:
        read.append(path)
        return file_digest(path)

    monkeypatch.setattr(module, "file_digest", watched)
    known = list(zip(stamp, first, strict=True))
    assert image_digests(paths, stamp, known) == first
    assert read == []
    write(tmp_path, b=b"other")
    again = image_digests(paths, file_stamps(paths), known)
    assert read == [paths[1]]
    assert (again[0], again[2]) == (first[0], first[2])
    assert again[1] != first[1]
    read.clear()
    assert (
        image_digests(paths[:1], stamp[:1], [(stamp[0], "")]) == first[:1]
    )  # it could not be read the last time
    assert read == paths[:1]


def test_images_of_a_container_are_known_one_by_one(tmp_path: Path) -> None:
    images = np.arange(4 * 5 * 5, dtype=np.uint8).reshape(4, 5, 5)
    images[3] = images[1]
    np.savez(tmp_path / "all.npz", x=images)
    paths = [f"{tmp_path / 'all.npz'}#{i}" for i in range(5)]
    found = [file_digest(path) for path in paths]
    assert found[1] == found[3]
    assert len(set(found)) == 4
    assert found[4] == ""  # there is no such image
    np.savez(tmp_path / "some.npz", x=images[2:])
    assert file_digest(f"{tmp_path / 'some.npz'}#0") == found[2]


@pytest.mark.parametrize("size", [0, 1, 1 << 18, (1 << 18) + 1])
def test_files_of_any_size_are_read_to_their_end(size: int, tmp_path: Path) -> None:
    (path,) = write(tmp_path, a=b"x" * size)
    before = file_digest(path)
    write(tmp_path, a=b"x" * size + b"y")
    assert file_digest(path) != before


def test_a_stamp_is_size_and_time(tmp_path: Path) -> None:
    file = tmp_path / "a #1.jpg"
    file.write_bytes(b"12345")
    os.utime(file, ns=(1, 1_700_000_000_123_456_789))
    assert file_stamps([str(file), str(tmp_path / "gone.jpg"), "\0"]) == ["5-1700000000123456789", "", ""]
    os.utime(file, ns=(2, 1_700_000_000_123_456_790))
    assert file_stamps([str(file)]) == ["5-1700000000123456790"]


def test_images_of_a_container_have_its_stamp(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 4, 4), np.uint8))
    one, two, itself = file_stamps([f"{tmp_path}/a.npz#0", f"{tmp_path}/a.npz#1", f"{tmp_path}/a.npz"])
    assert one == two == itself != ""
    assert file_stamps([f"{tmp_path}/b.npz#0"]) == [""]
