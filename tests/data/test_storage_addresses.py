"""Images as text: what is a file, what lies inside one, what is an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.data.image_files import file_of, has_own_file
from holotype.data.paths import absolute, relative
from holotype.data.storage import (
    is_address,
    object_address,
    object_name,
    split_member,
    split_query,
    with_query,
)


def test_addresses_are_told_from_paths() -> None:
    assert is_address("s3://bucket/a.jpg")
    assert not any(
        is_address(path) for path in ("/photos/a.jpg", "C:\\photos\\a.jpg", "a://", "photos//a.jpg")
    )


def test_inside_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.tar").touch()
    (tmp_path / "b.PARQUET").touch()
    assert split_member(f"{tmp_path}/a.tar#fox/1.left") == ("tar", f"{tmp_path}/a.tar", "fox/1.left")
    assert split_member(f"{tmp_path}/b.PARQUET#12") == ("parquet", f"{tmp_path}/b.PARQUET", "12")
    assert split_member(f"{tmp_path}/absent.tar#1") is None
    assert split_member(f"{tmp_path}/a.tar") is None
    address = "s3://bucket/a.tar?region=eu#key"
    assert split_member(address) == ("tar", "s3://bucket/a.tar?region=eu", "key")
    assert file_of(address) == "s3://bucket/a.tar?region=eu"


def test_only_a_file_of_its_own_can_be_linked_to(tmp_path: Path) -> None:
    (tmp_path / "a.tar").touch()
    assert has_own_file(f"{tmp_path}/a.jpg#xywh=percent:0,0,50,50")
    assert not has_own_file(f"{tmp_path}/a.tar#1")
    assert not has_own_file("s3://bucket/a.jpg")


@pytest.mark.parametrize("name", ["a b/ü.jpg", "100% #1?.jpg", "x=1&y.jpg"])
def test_any_name_of_an_object_survives(name: str) -> None:
    address = object_address("s3://bucket/", name, "region=eu")
    assert split_member(address) is None
    bare, query = split_query(address)
    assert (object_name(bare.removeprefix("s3://bucket/")), query) == (name, "region=eu")
    assert with_query(bare, query) == address


@pytest.mark.parametrize("root", ["s3://bucket/photos", "s3://bucket/photos?region=eu", "/photos"])
def test_seen_from_the_root_and_back(root: str) -> None:
    for below in ("fox/1.jpg", "a.tar#key", "train.parquet#0"):
        path = absolute(below, root)
        assert relative([path], root) == [below]
    assert relative(["s3://other/1.jpg"], root) == ["s3://other/1.jpg"]
