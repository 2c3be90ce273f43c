"""Size, kind and time of an image from the head of its file."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.export.image_header import (
    CAMERA_CLOCK,
    CAMERA_CLOCK_NO_ZONE,
    FILE_CLOCK,
    read_header,
    read_headers,
)

WRITTEN = datetime(2021, 4, 18, 20, 25, tzinfo=UTC)


def photo(path: Path, exif: dict[int, str] | None = None, orientation: int = 1, **how) -> str:
    image, data = Image.new("RGB", (40, 30)), Image.Exif()
    data[0x0112] = orientation
    data.get_ifd(0x8769).update(exif or {})
    data[0x8769] = 0  # TIFF is written without its EXIF data otherwise
    image.save(path, exif=data, **how)
    os.utime(path, (WRITTEN.timestamp(), WRITTEN.timestamp()))
    return str(path)


TAKEN = "2020:05:30 04:57:37"


@pytest.mark.parametrize("zone", ["+02:00", "-03:30"])
def test_the_cameras_time_with_its_zone(tmp_path, zone) -> None:
    head = read_header(photo(tmp_path / "a.jpg", {0x9003: TAKEN, 0x9011: zone}))
    assert head.time.isoformat() == f"2020-05-30T04:57:37{zone}"
    assert (head.clock, head.mediatype, head.width, head.height) == (CAMERA_CLOCK, "image/jpeg", 40, 30)


@pytest.mark.parametrize("kind", ["jpeg", "png", "tiff", "webp"])
def test_without_a_zone_that_of_the_computer(tmp_path, kind) -> None:
    head = read_header(photo(tmp_path / f"a.{kind}", {0x9004: f"{TAKEN}\0"}))
    assert (head.clock, head.mediatype) == (CAMERA_CLOCK_NO_ZONE, f"image/{kind}")
    assert head.time == datetime(2020, 5, 30, 4, 57, 37).astimezone()
    assert head.time.tzinfo is not None


@pytest.mark.parametrize("told", [{}, {0x9003: "0000:00:00 00:00:00"}, {0x9003: "yesterday"}])
def test_without_a_time_that_of_the_file_and_a_turned_image_is_measured_upright(tmp_path, told) -> None:
    head = read_header(photo(tmp_path / "a.jpg", told, orientation=6))
    assert (head.clock, head.time, head.width, head.height) == (FILE_CLOCK, WRITTEN, 30, 40)


def test_what_is_no_image_has_no_size(tmp_path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no image")
    (tmp_path / "b.xyz").write_bytes(b"")
    heads = [read_header(str(tmp_path / name)) for name in ("a.jpg", "b.xyz")]
    assert [(h.width, h.height, h.clock, h.mediatype) for h in heads] == [
        (0, 0, FILE_CLOCK, "image/jpeg"),
        (0, 0, FILE_CLOCK, "image/unknown"),
    ]


def test_an_image_inside_a_container(tmp_path) -> None:
    np.savez(tmp_path / "pack.npz", x=np.zeros((2, 5, 7), dtype=np.uint8))
    first, beyond = (read_header(f"{tmp_path / 'pack.npz'}#{i}") for i in (1, 2))
    assert (first.width, first.height, first.mediatype, first.clock) == (7, 5, "image/png", FILE_CLOCK)
    assert beyond.width == 0


def test_many_come_in_their_order(tmp_path) -> None:
    for side in range(1, 6):
        Image.new("RGB", (side, side)).save(tmp_path / f"{side}.png")
    paths = [str(tmp_path / f"{i % 5 + 1}.png") for i in range(2500)]
    assert [head.width for head in read_headers(paths, progress=False)] == [i % 5 + 1 for i in range(2500)]
