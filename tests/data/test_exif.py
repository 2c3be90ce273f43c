"""Time, place and camera from the heads of files: sound ones, odd ones and broken ones."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

from holotype.data.exif import NO_EXIF, ExifData, read_exif, read_exif_all
from tests.data.cameras import photograph

KITE = (IFDRational(52), IFDRational(5), IFDRational(30))


def test_all_that_a_camera_tells(tmp_path: Path) -> None:
    file = photograph(
        tmp_path / "a.jpg", taken="2024:05:31 08:25:38", offset="+02:00", make="RECONYX", model="HP2X", serial="P8\0",
        gps={1: "N", 2: KITE, 3: "W", 4: (IFDRational(4), IFDRational(0), IFDRational(0))},
    )  # fmt: skip
    assert read_exif(str(file)) == ExifData(
        "2024-05-31T08:25:38+02:00", 52.091667, -4.0, "RECONYX HP2X P8", True
    )


def test_the_make_is_said_once(tmp_path: Path) -> None:
    file = photograph(tmp_path / "a.jpg", make="Canon Inc.", model="Canon EOS 80D")
    assert read_exif(str(file)) == ExifData(camera="Canon EOS 80D")


@pytest.mark.parametrize("kind", ["a.jpg", "a.JPEG", "a.webp"])
def test_kinds_of_files(tmp_path: Path, kind: str) -> None:
    assert (
        read_exif(str(photograph(tmp_path / kind, taken="2024:05:31 08:25:38"))).taken
        == "2024-05-31T08:25:38"
    )


@pytest.mark.parametrize(
    "taken",
    ["0000:00:00 00:00:00", "2024:13:41 08:25:38", "yesterday", "", "2024:05:31", "2024:05:31 08:25"],
)
def test_a_clock_that_makes_no_sense_is_none(tmp_path: Path, taken: str) -> None:
    """Nor is a day alone: all pictures of it would be of one second, and of one burst."""
    shot = read_exif(str(photograph(tmp_path / "a.jpg", taken=taken, model="HP2X")))
    assert shot == ExifData(camera="HP2X")


@pytest.mark.parametrize(
    ("taken", "offset", "told"),
    [
        ("2024-05-31 08:25:38", "", "2024-05-31T08:25:38"),
        ("2024/05/31T08:25:38.250", "+05:30", "2024-05-31T08:25:38+05:30"),
        ("2024:05:31 08:25:38", "+0530", "2024-05-31T08:25:38+05:30"),
        ("2024:05:31 08:25:38", "-03:30", "2024-05-31T08:25:38-03:30"),
        ("2024:05:31 08:25:38", "+05", "2024-05-31T08:25:38"),
        ("2024:05:31 08:25:38", "+25:00", "2024-05-31T08:25:38"),
    ],
)
def test_times_and_offsets_as_devices_write_them(tmp_path: Path, taken: str, offset: str, told: str) -> None:
    file = photograph(tmp_path / "a.jpg", taken=taken, offset=offset)
    assert read_exif(str(file)).taken == told


@pytest.mark.parametrize(
    "gps",
    [
        {1: "N", 2: (IFDRational(0, 0), IFDRational(0), IFDRational(0)), 3: "E", 4: KITE},
        {1: "N", 2: (IFDRational(95), IFDRational(0), IFDRational(0)), 3: "E", 4: KITE},
        {1: "N", 2: (IFDRational(0),) * 3, 3: "E", 4: (IFDRational(0),) * 3},
        {1: "?", 2: KITE, 3: "E", 4: KITE},
        {2: KITE},
    ],
)
def test_a_place_that_makes_no_sense_is_none(tmp_path: Path, gps: dict) -> None:
    shot = read_exif(str(photograph(tmp_path / "a.jpg", taken="2024:05:31 08:25:38", gps=gps)))
    assert math.isnan(shot.latitude)
    assert math.isnan(shot.longitude)
    assert shot.taken == "2024-05-31T08:25:38"


def test_broken_files_say_nothing(tmp_path: Path) -> None:
    whole = photograph(tmp_path / "a.jpg", taken="2024:05:31 08:25:38", model="HP2X").read_bytes()
    for cut in range(0, min(len(whole), 400), 7):
        (tmp_path / "cut.jpg").write_bytes(whole[:cut])
        read_exif(str(tmp_path / "cut.jpg"))
        wrong = bytearray(whole)
        wrong[cut] ^= 0xFF
        (tmp_path / "wrong.jpg").write_bytes(bytes(wrong))
        read_exif(str(tmp_path / "wrong.jpg"))
    (tmp_path / "empty.jpg").write_bytes(b"")
    Image.new("RGB", (8, 8)).save(tmp_path / "plain.png")
    for name in ("empty.jpg", "plain.png", "gone.jpg"):
        assert read_exif(str(tmp_path / name)).taken == "" == read_exif(str(tmp_path / name)).camera


def test_many_keep_their_order(tmp_path: Path) -> None:
    files = [photograph(tmp_path / f"{n}.jpg", model=f"trap {n}") for n in range(70)]
    assert [shot.camera for shot in read_exif_all([str(file) for file in files])] == [
        f"trap {n}" for n in range(70)
    ]
    assert list(read_exif_all([])) == []
    assert NO_EXIF.camera == ""
