"""Answers lie in tables called after their images, and none is written over that of other images."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.errors import InputError
from holotype.placing.answers import FILE, own_answer


@pytest.fixture
def sources(tmp_path) -> list[Path]:
    """Two folders of one name, and a list that is called like them."""
    folders = [tmp_path / "May" / "new", tmp_path / "June" / "new"]
    for folder in folders:
        folder.mkdir(parents=True)
    listed = tmp_path / "new.parquet"
    listed.touch()
    return [*folders, listed]


def test_each_source_has_a_table_of_its_own_and_keeps_it(tmp_path, sources, monkeypatch) -> None:
    run = tmp_path / "run"
    names = ["new.csv", "new (2).csv", "new (3).csv"]
    assert [own_answer(run, str(source)).name for source in sources] == names
    assert [own_answer(run, str(source)).name for source in reversed(sources)] == names[::-1]
    monkeypatch.chdir(tmp_path / "June")
    assert own_answer(run, "new/").name == own_answer(run, "../June/new").name == "new (2).csv"


def test_the_list_does_not_say_where_images_lie(tmp_path, sources) -> None:
    own_answer(tmp_path / "run", str(sources[0]))
    assert sources[0].parent.name not in (tmp_path / "run" / "assigned" / "sources.json").read_text()


def test_what_the_list_does_not_know_stays(tmp_path, sources) -> None:
    run = tmp_path / "run"
    (run / "assigned").mkdir(parents=True)
    (run / "assigned" / "new.csv").write_text("mine")
    assert own_answer(run, str(sources[0])).name == "new (2).csv"
    (run / "assigned" / FILE).write_text("{")
    (run / "assigned" / "new (2).csv").write_text("an answer")
    assert own_answer(run, str(sources[1])).name == "new (3).csv"


def test_a_store_is_known_by_its_address(tmp_path) -> None:
    first, second = "s3://bucket/2025/new", "s3://bucket/2026/new"
    names = [own_answer(tmp_path, source).name for source in (first, second, first)]
    assert names == ["new.csv", "new (2).csv", "new.csv"]


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path, sources) -> None:
    (tmp_path / "assigned").touch()
    with pytest.raises(InputError, match=r"assigned cannot be written .*--out"):
        own_answer(tmp_path, str(sources[0]))
