"""Time, place and camera of a collection: read once for each content, kept, and in the tables of the run."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL.TiffImagePlugin import IFDRational

from holotype.data.exif import ExifData
from holotype.data.load import load_table
from holotype.discovery import exif_cache
from holotype.discovery.exif_cache import EXIF_FILE, ExifTable, load_exif_table
from holotype.discovery.pipeline import discover_table
from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Discovery
from tests.conftest import COLOURS, KNOWN
from tests.data.cameras import photograph


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten coloured squares of each kind, half of those of known kinds labelled, as two cameras take them."""
    noise = np.random.default_rng(0)
    for kind, (name, colour) in enumerate(COLOURS.items()):
        for number in range(10):
            pixels = np.clip(np.array(colour) + noise.integers(-30, 30, (40, 40, 3)), 0, 255).astype(np.uint8)
            folder = name if name in KNOWN and number < 5 else "unlabelled"
            photograph(
                tmp_path / "photos" / folder / f"{name}-{number}.jpg", pixels,
                taken=f"2024:05:{number + 1:02d} 0{kind}:00:00", model=f"trap {number % 2}",
                gps={1: "N", 2: (IFDRational(52),) * 3, 3: "E", 4: (IFDRational(4),) * 3} if number else None,
            )  # fmt: skip
    return tmp_path / "photos"


def test_heads_are_read_once_for_each_content(photos: Path, tmp_path: Path, monkeypatch) -> None:
    table = load_table(photos)
    digest = [f"d{row}" for row in range(len(table))]
    first = load_exif_table(tmp_path / "run", table, digest)
    assert first.each[0].taken.startswith("2024-05-")
    assert math.isfinite(first.each[1].latitude)
    asked = []
    monkeypatch.setattr(
        exif_cache,
        "read_exif_all",
        lambda paths, _: [asked.append(path) or ExifData("new") for path in paths],
    )
    assert load_exif_table(tmp_path / "run", table, digest) is not None
    assert asked == []
    again = load_exif_table(tmp_path / "run", table, ["other", *digest[1:]])
    assert asked == [table.path[0]]
    assert [shot.taken for shot in again.each] == ["new", *(shot.taken for shot in first.each[1:])]
    (tmp_path / "run" / EXIF_FILE).write_bytes(b"no")
    load_exif_table(tmp_path / "run", table, digest)
    assert len(asked) == 1 + len(table)


def test_a_changed_camera_is_noticed_and_read_again(photos: Path, tmp_path: Path, caplog) -> None:
    table, file = load_table(photos), tmp_path / "run" / EXIF_FILE
    digest = [f"d{row}" for row in range(len(table))]
    first = load_exif_table(tmp_path / "run", table, digest)
    content = file.read_bytes()
    assert content.count(b"trap 1") >= 1
    file.write_bytes(content.replace(b"trap 1", b"trap 3"))
    assert load_exif_table(tmp_path / "run", table, digest) == first
    assert "cannot be read, and is made again" in caplog.text
    assert file.read_bytes() == content


def test_only_what_is_known_becomes_a_column() -> None:
    assert ExifTable([ExifData(), ExifData()]).columns() == {}
    assert ExifTable([ExifData(), ExifData()]).words() == ""
    found = ExifTable([ExifData("2024-05-01T00:00:00"), ExifData(camera="trap")])
    assert list(found.columns()) == ["taken", "camera"]
    assert list(found.columns()["taken"]) == ["2024-05-01T00:00:00", ""]
    assert "2024-05-01" in found.words()


@pytest.mark.parametrize(
    ("head", "column", "words"),
    [
        (ExifData(camera="EPSON V850"), "camera", "camera 1 of 2"),
        (ExifData("", 52.0, 4.0), "latitude", "where 1 of 2"),
    ],
)
def test_a_head_without_a_time_is_told_of_as_well(head: ExifData, column: str, words: str) -> None:
    found = ExifTable([ExifData(), head])
    assert column in found.columns()
    assert words in found.words()
    assert "when" not in found.words()


def test_the_tables_of_a_discovery(photos: Path, tmp_path: Path, small, caplog) -> None:
    caplog.set_level("INFO")
    found = discover_table(load_table(photos), small(method="kmeans"), tmp_path / "run", progress=False)
    assert "when 40 of 40 images were taken (2024-05-01 to 2024-05-10), where 36 were" in caplog.text
    table = pd.read_csv(tmp_path / "run" / "assignments.csv")
    assert list(table.columns) == [*IMAGE_TABLE_COLUMNS, "taken", "latitude", "longitude", "camera"]
    blue = table[table.path.str.endswith("blue-3.jpg")].iloc[0]
    assert (blue.taken, blue.camera) == ("2024-05-04T02:00:00", "trap 1")
    assert blue.latitude == pytest.approx(52.881111)
    assert Discovery.load(tmp_path / "run").images.latitude.isna().sum() == 4
    assert found.images.camera.nunique() == 2


def test_without_heads_the_table_is_as_it_was(run: Path) -> None:
    assert list(pd.read_csv(run / "assignments.csv").columns) == list(IMAGE_TABLE_COLUMNS)
