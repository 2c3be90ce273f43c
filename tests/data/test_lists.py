"""Lists as people hold them: found by their last parts, told with lines. What is refused: test_sources.py."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd
import pytest

from holotype.data.lists import match, read_list
from holotype.data.sources import load_table
from holotype.errors import InputError

from .test_sources import rows, touch, write


def test_a_list_of_another_base_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = touch(tmp_path / "photos", "fox/1.png", "fox/2.png", "owl/1.png", "heap/3.png")
    text = "path;label\nD:\\old\\fox\\1.PNG;fox\nD:\\old\\owl\\1.PNG;owl\n"
    with caplog.at_level(logging.INFO, "holotype"):
        table = load_table(root, write(tmp_path / "l.csv", text))
    assert rows(table, root) == {"fox/1.png": "fox", "fox/2.png": "", "heap/3.png": "", "owl/1.png": "owl"}
    (line,) = caplog.messages
    assert line.startswith("2 paths of")
    assert f"(line 2) is {root / 'fox' / '1.png'}." in line


def test_a_table_of_another_base_folder(tmp_path: Path) -> None:
    root = touch(tmp_path / "photos", "fox/1.png", "owl/1.png")
    file = write(root / "l.csv", "path,label,truth\n/old/fox/1.png,fox,fox\n/old/owl/1.png,,owl\n")
    table = load_table(file)
    assert rows(table, root) == {"fox/1.png": "fox", "owl/1.png": ""}
    assert table.to_frame().truth.tolist() == ["fox", "owl"]


def test_rows_that_say_the_same_count_once(tmp_path: Path) -> None:
    root = touch(tmp_path / "photos", "fox/1.png", "owl/1.png")
    file = write(tmp_path / "l.csv", "path,label\nfox/1.png,fox\nfox\\1.png,fox\n")
    assert rows(load_table(root, file), root) == {"fox/1.png": "fox", "owl/1.png": ""}
    file = write(tmp_path / "l.csv", "path,label,truth\nfox/1.png,fox,fox\nfox/1.png,fox,owl\n")
    with pytest.raises(InputError, match="'fox / fox', line 3: 'fox / owl'"):
        load_table(root, file)


def test_rows_of_parquet_are_counted_as_such(tmp_path: Path) -> None:
    pd.DataFrame({"path": ["a.png", "b.png"], "label": ["x", "y"]}).to_parquet(tmp_path / "l.parquet")
    with pytest.raises(
        InputError, match=r"2 of the 2 things are gone, for example 'a.png' \(row 1\), 'b.png'"
    ):
        match(
            read_list(tmp_path / "l.parquet"),
            (tmp_path,),
            lambda path: False,
            list,
            missing="things are gone",
        )
