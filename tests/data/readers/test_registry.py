"""Which reader reads what, and what several files are called."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from holotype.data import load as registry
from holotype.data.load import (
    BUILTIN_READERS,
    Reader,
    Registry,
    collection_name,
    expand_braces,
    folder_name,
    source_files,
)
from holotype.errors import InputError


def name_of(source: object) -> str:
    return Registry(BUILTIN_READERS).find(str(source)).name


def test_each_source_has_its_reader(tmp_path: Path) -> None:
    for name in ("a.csv", "a.TSV", "a.parquet", "a.tar"):
        (tmp_path / name).touch()
    assert name_of(tmp_path) == "folders of images"
    assert [name_of(tmp_path / name) for name in ("a.csv", "a.TSV")] == ["lists of paths"] * 2
    assert name_of(tmp_path / "a.parquet") == name_of("s3://bucket/a.parquet?region=eu") == "Parquet files"
    assert name_of(tmp_path / "a.tar") == name_of("gs://bucket/{0..9}.tar") == "tars"
    assert name_of("s3://bucket/photos") == name_of("hf://datasets/owner/set") == "stores on the network"


def test_two_readers_of_one_kind_are_refused_and_nothing_changes() -> None:
    readers = Registry(BUILTIN_READERS)
    mine = Reader("my archives", (".zip", ".tar"), BUILTIN_READERS[0].read)
    with pytest.raises(InputError, match=r"Two readers claim \.tar: tars and my archives; remove one"):
        readers.register(mine)
    with pytest.raises(InputError, match=r"neither a folder nor"):
        readers.find(__file__)
    assert readers.find("s3://bucket/a.tar").name == "tars"
    assert ".zip" not in readers._by_claim


def test_another_package_brings_a_reader(monkeypatch, tmp_path: Path, holotype) -> None:
    taken = Reader("their tars", (".tar",), BUILTIN_READERS[0].read)
    monkeypatch.setattr(EntryPoint, "load", lambda self: taken)
    entry = EntryPoint("theirs", "theirs:reader", registry.PLUGINS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    registry.readers.cache_clear()
    try:
        outcome = holotype("discover", tmp_path)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert "Two readers claim .tar" in outcome.err
    finally:
        registry.readers.cache_clear()


def test_what_nobody_reads() -> None:
    with pytest.raises(InputError, match="does not exist; give a folder"):
        name_of("absent")
    with pytest.raises(InputError, match="in no store"):
        name_of("https://host/photos")


def test_braces_mean_what_they_mean_in_a_shell() -> None:
    assert expand_braces("s-{008..011}.tar") == ["s-008.tar", "s-009.tar", "s-010.tar", "s-011.tar"]
    assert expand_braces("{a,b}/{1..2}") == ["a/1", "a/2", "b/1", "b/2"]
    assert expand_braces("plain") == ["plain"]
    with pytest.raises(InputError, match="smaller number first"):
        expand_braces("{9..1}.tar")
    with pytest.raises(InputError, match="more than 1,000,000 files"):
        expand_braces("{1..9999}{1..9999}.tar")


def test_a_file_with_braces_in_its_name_is_itself(tmp_path: Path) -> None:
    odd = tmp_path / "{1..3}.tar"
    odd.touch()
    assert source_files(str(odd)) == [str(odd)]


@pytest.mark.parametrize(
    ("source", "name", "folder"),
    [
        ("photos/", "photos", "photos"),
        ("lists/a.csv", "a", "a.csv"),
        ("shards/train-{000..099}.tar", "train-000-099", "train-000-099"),
        ("s3://bucket/photos/?region=eu", "photos", "photos"),
        ("hf://datasets/owner/set", "set", "set"),
        ("gs://bucket/set/*.parquet", "images", "images"),
    ],
)
def test_names_of_sources(source: str, name: str, folder: str) -> None:
    assert (collection_name(source), folder_name(source)) == (name, folder)
