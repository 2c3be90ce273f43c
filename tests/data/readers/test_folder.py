"""Folders of packed images; those of plain images are in ../test_load.py."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from holotype.data.readers.folder import folder_label, read_folder
from holotype.errors import InputError

from ..packed import square, write_parquet, write_tar


def test_images_of_their_own_win_over_packed_ones(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("1.png", square())])
    assert [Path(path).name for path in read_folder(tmp_path).path] == ["a.tar#1"]
    (tmp_path / "2.png").write_bytes(square())
    assert [Path(path).name for path in read_folder(tmp_path).path] == ["2.png"]


def test_two_kinds_of_packed_images_are_not_mixed(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("1.png", square())])
    write_parquet(tmp_path / "b.parquet", [("1", square(), "")])
    with pytest.raises(InputError, match="both Parquet files"):
        read_folder(tmp_path)


def test_a_folder_that_was_made_on_a_mac_has_the_label_that_people_type() -> None:
    assert folder_label((unicodedata.normalize("NFD", "Goéland"), "1.jpg")) == "Goéland"


def test_labels_of_folders() -> None:
    assert [
        folder_label(parts) for parts in (("fox", "1.jpg"), ("1.jpg",), ("Unlabelled", "a", "1.jpg"))
    ] == [
        "fox",
        "",
        "",
    ]
