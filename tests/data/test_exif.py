"""Time, place and camera from the heads of files: sound ones, odd ones and broken ones."""

import io
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import IFDRational

from holotype.data.exif import NO_EXIF, ExifData, read_exif_all, upright_sizes
from tests.data.cameras import photograph
from tests.data.packed import write_tar

KITE = (IFDRational(52), IFDRational(5), IFDRational(30))
FOUR = (IFDRational(4), IFDRational(0), IFDRational(0))
TAKEN = "2024:05:31 08:25:38"


def test_all_that_a_camera_tells(tmp_path: Path) -> None:
    told = {"taken": TAKEN, "offset": "+02:00", "make": "RECONYX", "model": "HP2X", "serial": "P8\0"}
    file = photograph(tmp_path / "a.jpg", **told, gps={1: "N", 2: KITE, 3: "W", 4: FOUR})
    expected = ExifData("2024-05-31T08:25:38+02:00", 52.091667, -4.0, "RECONYX HP2X P8", True)
    assert read_exif_all([str(file)])[0] == expected
    file = photograph(tmp_path / "a.jpg", make="Canon Inc.", model="Canon EOS 80D")
    assert read_exif_all([str(file)])[0] == ExifData(camera="Canon EOS 80D")  # the make is said once


@pytest.mark.parametrize(
    ("name", "taken", "offset", "told"),
    [
        ("a.jpg", "2024-05-31 08:25:38", "", "2024-05-31T08:25:38"),
        ("a.JPEG", TAKEN, "", "2024-05-31T08:25:38"),
        ("a.webp", TAKEN, "", "2024-05-31T08:25:38"),
        ("a.jpg", "2024/05/31T08:25:38.250", "+05:30", "2024-05-31T08:25:38+05:30"),
        ("a.jpg", TAKEN, "+0530", "2024-05-31T08:25:38+05:30"),
        ("a.jpg", TAKEN, "-03:30", "2024-05-31T08:25:38-03:30"),
        ("a.jpg", TAKEN, "+05", "2024-05-31T08:25:38"),
        ("a.jpg", TAKEN, "+25:00", "2024-05-31T08:25:38"),
        # nor is a day alone a time: all pictures of it would be of one second, and of one burst
        *(("a.jpg", odd, "", "") for odd in ("0000:00:00 00:00:00", "2024:13:41 08:25:38", "yesterday", "")),
        *(("a.jpg", odd, "", "") for odd in ("2024:05:31", "2024:05:31 08:25")),
    ],
)
def test_times_and_offsets_as_devices_write_them(tmp_path, name, taken, offset, told) -> None:
    file = photograph(tmp_path / name, taken=taken, offset=offset, model="HP2X")
    assert read_exif_all([str(file)])[0] == ExifData(told, camera="HP2X")


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
    shot = read_exif_all([str(photograph(tmp_path / "a.jpg", taken=TAKEN, gps=gps))])[0]
    assert math.isnan(shot.latitude)
    assert math.isnan(shot.longitude)
    assert shot.taken == "2024-05-31T08:25:38"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_broken_files_say_nothing(tmp_path: Path) -> None:
    whole = photograph(tmp_path / "a.jpg", taken=TAKEN, model="HP2X").read_bytes()
    for cut in range(0, min(len(whole), 400), 7):
        wrong = bytearray(whole)
        wrong[cut] ^= 0xFF
        for content in (whole[:cut], bytes(wrong)):
            (tmp_path / "odd.jpg").write_bytes(content)
            read_exif_all([str(tmp_path / "odd.jpg")])[0]
    (tmp_path / "empty.jpg").write_bytes(b"")
    Image.new("RGB", (8, 8)).save(tmp_path / "plain.png")
    np.savez(tmp_path / "a.npz", x=np.zeros((1, 6, 4), np.uint8))
    for name in ("empty.jpg", "plain.png", "gone.jpg", "a.npz#0"):
        found = read_exif_all([str(tmp_path / name)])[0]
        assert (found.taken, found.camera) == ("", "")
    assert list(upright_sizes([f"{tmp_path}/a.npz#0", "gone.jpg"]).values()) == [(4, 6), None]


def test_many_keep_their_order_and_a_tar_has_heads_as_well(tmp_path: Path) -> None:
    files = [str(photograph(tmp_path / f"{n}.jpg", model=f"trap {n}")) for n in range(40)]
    files = [files[0], *files]
    assert [shot.camera for shot in read_exif_all(files)] == ["trap 0", *(f"trap {n}" for n in range(40))]
    assert list(read_exif_all([])) == []
    assert NO_EXIF.camera == ""
    exif, stream = Image.Exif(), io.BytesIO()
    exif[0x010F], exif[0x0110], exif[0x0112] = "Reconyx", "HC600", 6
    Image.new("RGB", (6, 4)).save(stream, format="JPEG", exif=exif)
    tar = write_tar(tmp_path / "a.tar", [("1.jpg", stream.getvalue())])
    assert read_exif_all([f"{tar}#1"])[0].camera == "Reconyx HC600"
    assert upright_sizes([f"{tar}#1"]) == {f"{tar}#1": (4, 6)}


def test_a_turned_tiff_is_measured_as_it_is_shown(tmp_path: Path) -> None:
    """Pillow turns the pixels of a TIFF file while it reads them."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (6, 4)).save(tmp_path / "a.tiff", exif=exif)
    with Image.open(tmp_path / "a.tiff") as image:
        image.load()
        shown = image.size
    assert upright_sizes([str(tmp_path / "a.tiff")]) == {str(tmp_path / "a.tiff"): shown}
