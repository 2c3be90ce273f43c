"""Lists as people hold them: found by their last parts, told with lines. What is refused: test_load.py."""

from __future__ import annotations

import logging
import unicodedata
from pathlib import Path

import pandas as pd
import pytest

from holotype.data.labels import LabelFile, match_labels, read_list
from holotype.data.load import load_table
from holotype.errors import InputError

from .test_load import rows, touch, write


def test_a_list_of_another_base_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = touch(tmp_path / "photos", "fox/1.png", "fox/2.png", "owl/1.png", "heap/3.png")
    text = "path;label\nD:\\old\\fox\\1.PNG;fox\nD:\\old\\owl\\1.PNG;owl\n"
    with caplog.at_level(logging.INFO, "holotype"):
        table = load_table(root, write(tmp_path / "l.csv", text))
    assert rows(table, root) == {"fox/1.png": "fox", "fox/2.png": "", "heap/3.png": "", "owl/1.png": "owl"}
    (line,) = caplog.messages
    assert line.startswith("2 paths of")
    assert f"for example 'D:\\old\\fox\\1.PNG' (line 2) is {root / 'fox' / '1.png'}." in line


def test_a_table_of_another_base_folder(tmp_path: Path) -> None:
    root = touch(tmp_path / "photos", "fox/1.png", "owl/1.png")
    file = write(root / "l.csv", "path,label,truth\n/old/fox/1.png,fox,fox\n/old/owl/1.png,,owl\n")
    table = load_table(file)
    assert rows(table, root) == {"fox/1.png": "fox", "owl/1.png": ""}
    assert table.to_frame().truth.tolist() == ["fox", "owl"]


def test_empty_cells_that_a_spreadsheet_leaves_say_nothing(tmp_path: Path) -> None:
    """Rows and columns of nothing at the end, and rows whose last cells are empty and not written."""
    root = touch(tmp_path / "photos", "fox/1.png", "owl/1.png", "owl/2.png")
    text = "path;label;group;;\nfox/1.png;fox;n-1;;\n;;;;\nowl/1.png;owl\nowl/2.png\n ; ;;;\n"
    table = load_table(root, write(tmp_path / "l.csv", text))
    assert rows(table, root) == {"fox/1.png": "fox", "owl/1.png": "owl", "owl/2.png": ""}
    file = write(tmp_path / "l.csv", "path,label\n,\n\nfox/9.png,fox\n")
    with pytest.raises(InputError, match=r"'fox/9.png' \(line 4\)"):
        load_table(root, file)


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
        match_labels(
            read_list(tmp_path / "l.parquet"),
            (tmp_path,),
            lambda path: False,
            list,
            missing="things are gone",
        )


def test_rows_without_an_image_may_be_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    touch(tmp_path / "photos", "1.png", "2.png", "3.png")
    text = "path,label\n1.png,x\n9.png,x\n2.png,y\n8.png,z\n"
    file = write(tmp_path / "photos" / "l.csv", text)
    with pytest.raises(
        InputError, match=r"2 of the 4 .*'9.png' \(line 3\), '8.png' \(line 5\).*--skip-missing"
    ):
        load_table(tmp_path / "photos", file)
    with caplog.at_level(logging.INFO, "holotype"):
        both = load_table(tmp_path / "photos", file, skip_missing=True)
        alone = load_table(file, skip_missing=True)
    assert rows(both, tmp_path / "photos") == {"1.png": "x", "2.png": "y", "3.png": ""}
    assert rows(alone, tmp_path / "photos") == {"1.png": "x", "2.png": "y"}
    assert both.known == ("x", "y")
    assert [line.startswith("Left out: 2 of the 4 ") for line in caplog.messages] == [True, True]
    with pytest.raises(InputError, match="None of the images"):
        load_table(write(tmp_path / "m.csv", "path,label\n7.png,x\n"), skip_missing=True)


def test_labels_of_heaps_are_taken_away(tmp_path: Path) -> None:
    root = touch(tmp_path / "photos", "fox/1.png", "Unsorted/2.png", "misc/3.png")
    table = load_table(root, unlabelled=["unsorted", "misc"])
    assert rows(table, root) == {"Unsorted/2.png": "", "fox/1.png": "fox", "misc/3.png": ""}
    assert table.known == ("fox",)
    file = write(tmp_path / "l.csv", "path,label\nfox/1.png,fox\nmisc/3.png,?\n")
    assert load_table(root, file, unlabelled=["?"]).known == ("fox",)
    with pytest.raises(InputError, match="did you mean Unsorted"):
        load_table(root, unlabelled=["unsort"])


def test_accents_that_a_mac_writes_apart_are_the_same_letters(tmp_path: Path) -> None:
    """Folders have them apart, and lists mostly not; a name that the shell completes is as that of the folder."""
    apart = unicodedata.normalize("NFD", "Goéland")
    root = touch(tmp_path / "photos", f"{apart}/1.png", f"{apart}/2.png", "fox/1.png", "heap/3.png")
    assert load_table(root).known == ("Goéland", "fox", "heap")
    assert load_table(root, unlabelled=[apart]).known == ("fox", "heap")
    file = write(
        tmp_path / "l.csv", f"path,label\n{apart}/1.png,{apart}\nGoéland/2.png,Goéland\nfox/1.png,fox\n"
    )
    assert load_table(root, file).known == ("Goéland", "fox")


@pytest.mark.parametrize("whole", [True, False])
def test_pictures_without_a_box_stay_where_they_are_asked_for(tmp_path: Path, whole: bool) -> None:
    paths = [f"/photos/{row}.jpg" for row in range(4)]
    box = ["", "0 0 0.5 0.5", " ", ""]
    listed = LabelFile(tmp_path / "l.csv", paths, [""] * 4, None, list(range(4)), box=box)
    found = match_labels(listed, (tmp_path,), set(paths).__contains__, list, missing="", whole=whole)
    cut = [path for path in found.path if path not in paths]
    assert len(cut) == 1
    assert found.path == ([paths[0], *cut, *paths[2:]] if whole else cut)
