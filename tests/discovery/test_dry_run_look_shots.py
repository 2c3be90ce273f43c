"""Times and bursts before anything is embedded: what the heads of the files tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.config.schema import DiscoverConfig
from holotype.data.load import load_table
from holotype.discovery.dry_run import exif_summary, inspect_collection
from tests.data.cameras import photograph


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three frames two seconds apart, one half a minute later, one of another camera at the same time."""
    for name, second, camera in (
        ("a", 0, "trap 1"),
        ("b", 2, "trap 1"),
        ("c", 4, "trap 1"),
        ("d", 34, "trap 1"),
        ("e", 4, "trap 2"),
    ):
        photograph(tmp_path / f"{name}.jpg", taken=f"2024:05:01 08:00:{second:02d}", model=camera)
    return tmp_path


def lines(photos: Path, **settings: object) -> list[str]:
    table, config = load_table(photos), DiscoverConfig(**settings)
    return exif_summary(table, config, inspect_collection(table, config).shots)


def test_times_and_bursts_are_told(photos: Path) -> None:
    said, bursts = lines(photos)
    assert said.startswith("The files say when 5 of 5 images were taken (2024-05-01 to 2024-05-01)")
    assert bursts.startswith("3 frames of 1 burst of up to 3 (one camera, at most 10 seconds apart;")


def test_seconds_are_those_of_the_setting(photos: Path) -> None:
    assert lines(photos, bursts="30")[1].startswith("4 frames of 1 burst of up to 4")
    assert len(lines(photos, bursts="1")) == 1
    assert len(lines(photos, bursts="no")) == 1


def test_a_column_of_groups_decides(photos: Path) -> None:
    listed = photos / "list.csv"
    listed.write_text("path,label,group\na.jpg,,x\nd.jpg,,x\ne.jpg,,\n")
    told = lines(listed)[-1]
    assert told.startswith("2 frames of 1 burst of up to 2 (as the column group says).")


def test_files_that_say_nothing_have_no_line(tmp_path: Path) -> None:
    for name in "ab":
        photograph(tmp_path / f"{name}.jpg")
    assert lines(tmp_path) == []
