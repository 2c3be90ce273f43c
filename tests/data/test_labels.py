"""Lists as people hold them: found by their last parts, told with lines. What is refused: test_load.py."""

from __future__ import annotations

import logging
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from holotype.data.labels import (
    LabelFile,
    check_target,
    match_labels,
    read_list,
    read_sample_info,
    stream_list,
    write_sample_file,
)
from holotype.data.load import load_table, stream_paths
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


def test_written_and_known_again(tmp_path: Path) -> None:
    file = tmp_path / "sample.parquet"
    write_sample_file(
        file, ["a.jpg", "b.jpg"], ["", "fox"], np.array([2.5, 1.0]), np.array([0, 3]), {"seed": 4}
    )
    frame = pd.read_parquet(file)
    assert frame.to_dict("list") == {
        "path": ["a.jpg", "b.jpg"],
        "label": ["", "fox"],
        "weight": [2.5, 1.0],
        "cell": [0, 3],
    }
    assert read_sample_info(file) == {"seed": 4}
    with pytest.raises(InputError, match="--overwrite"):
        check_target(file)
    check_target(file, overwrite=True)


def test_a_column_weight_alone_makes_no_sample(tmp_path: Path) -> None:
    """Somebody's list of animals may say what they weigh."""
    file = tmp_path / "animals.parquet"
    pd.DataFrame({"path": ["a.jpg"], "label": [""], "weight": [12.0]}).to_parquet(file)
    assert read_sample_info(file) is None
    (tmp_path / "broken.parquet").write_bytes(b"nothing")
    assert read_sample_info(tmp_path / "broken.parquet") is None
    assert read_sample_info(tmp_path / "absent.parquet") is None
    with pytest.raises(InputError, match=r"as \.parquet"):
        check_target(tmp_path / "sample.csv")


def test_a_column_weight_of_ones_own_is_left_alone(tmp_path: Path) -> None:
    """What an animal weighs is no weight of a sample, nor need it be a number."""
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text("path,label,weight\na.png,fox,heavy\n")
    assert load_table(tmp_path / "list.csv").weight is None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.png", "b c.png", "deep/d,e.png", 'quote".png'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


PLAIN = {
    "paths.csv": "path\na.png\nb c.png\n",
    "labels.csv": 'label,path\nx,a.png\n,"deep/d,e.png"\n',
    "named.csv": "file_name,label,truth\ndeep/../a.png,x,y\n",
    "tabs.tsv": "path\tlabel\r\na.png\tx\r\nb c.png\t\r\n",
    "points.csv": "path;label\na.png;x\n\nb c.png;y\n",
    "mark.csv": "\ufeffPath,Label\na.png,x\n",
    "quote.csv": 'path\n"quote"".png"\n',
}
ODD = {
    "missing.csv": "path\na.png\nabsent.png\n",
    "twice.csv": "path,label\na.png,x\n./a.png,x\n",
    "box.csv": 'path,label,box\na.png,,"0,0,0.5,0.5"\n',
    "inside.csv": "path\na.png#xywh=percent:0,0,50,50\n",
    "windows.csv": "path\ndeep\\d,e.png\n",
    "empty.csv": "path\n",
    "short.csv": "path,label\na.png\n",
    "column.csv": "file\na.png\n",
    "more.csv": "path,species\na.png,fox\n",
    "nothing.csv": "",
    "address.csv": "path\ns3://bucket/a.png\n",
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_list_is_the_table_in_a_stream(name: str, folder: Path) -> None:
    (folder / name).write_text(PLAIN[name], encoding="utf-8", newline="")
    found = stream_list(str(folder / name))
    assert found is not None
    table = load_table(folder / name)
    assert list(found.each) == list(table.path)
    assert found.root == table.root


@pytest.mark.parametrize("name", ODD)
def test_what_is_not_plain_is_left_to_the_table(name: str, folder: Path) -> None:
    (folder / name).write_text(ODD[name], encoding="utf-8", newline="")
    assert stream_list(str(folder / name)) is None


def test_other_encodings_are_left_to_the_table(folder: Path) -> None:
    (folder / "wide.csv").write_text("path\na.png\n", encoding="utf-16")
    assert list(stream_paths(folder / "wide.csv").each) == [str(folder / "a.png")]
    (folder / "latin.csv").write_bytes("path\nKäfer.png\n".encode("latin1"))
    assert stream_list(str(folder / "latin.csv")) is None


def test_a_parquet_list(folder: Path) -> None:
    frame = pd.DataFrame({"label": ["x", None], "path": ["a.png", str(folder / "b c.png")]})
    frame.to_parquet(folder / "list.parquet")
    found = stream_list(str(folder / "list.parquet"))
    assert found is not None
    assert list(found.each) == list(load_table(folder / "list.parquet").path)
    frame.assign(path=["a.png", None]).to_parquet(folder / "gap.parquet")
    assert stream_list(str(folder / "gap.parquet")) is None


def test_a_list_of_rows_of_a_container(folder: Path) -> None:
    """One picture of many in a file is an image of its own."""
    (folder / "x.npz").touch()
    (folder / "list.csv").write_text("path\nx.npz#0\nx.npz#1\n")
    found = stream_list(str(folder / "list.csv"))
    assert found is not None
    assert list(found.each) == list(load_table(folder / "list.csv").path)
