"""A user's folder or file becomes the table they meant, or a sentence that says what to change."""

from __future__ import annotations

import logging
import os
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from holotype.data import load as registry
from holotype.data.decode import read_image
from holotype.data.labels import read_csv_table
from holotype.data.load import (
    BUILTIN_READERS,
    Reader,
    Registry,
    check_trainable,
    collection_name,
    expand_braces,
    folder_name,
    load_table,
    source_files,
    with_readable_classes,
)
from holotype.data.readers.folder import read_folder
from holotype.data.table import Table
from holotype.errors import InputError


def touch(root: Path, *names: str) -> Path:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(
            file, format=None if file.suffix.lower() in (".png", ".dib") else "JPEG"
        )
    return root


def rows(table: Table, root: Path) -> dict[str, str]:
    return {Path(p).relative_to(root).as_posix(): c for p, c in zip(table.path, table.label, strict=True)}


# folders


def test_folder_names_are_labels(tmp_path: Path) -> None:
    touch(
        tmp_path, "b/2.png", "b/deep/1.PNG", "a/1.png", "loose.png", "unlabelled/x/9.png", "Ödland ü/ä 1.png"
    )
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    table = read_folder(tmp_path)
    assert rows(table, tmp_path) == {
        "a/1.png": "a",
        "b/2.png": "b",
        "b/deep/1.PNG": "b",
        "loose.png": "",
        "unlabelled/x/9.png": "",
        "Ödland ü/ä 1.png": "Ödland ü",
    }
    assert table.known == ("a", "b", "Ödland ü")
    assert table.name == tmp_path.name


def test_folder_order_is_sorted_and_the_same_elsewhere(tmp_path: Path) -> None:
    first = touch(tmp_path / "x", "b/1.png", "a/2.png", "a/10.png", "a-b/1.png")
    second = touch(tmp_path / "y", "a-b/1.png", "a/10.png", "a/2.png", "b/1.png")
    assert list(rows(read_folder(first), first)) == ["a/10.png", "a/2.png", "a-b/1.png", "b/1.png"]
    assert read_folder(first).fingerprint() == read_folder(second).fingerprint()


def test_hidden_files_are_skipped_and_links_followed_once(tmp_path: Path) -> None:
    touch(tmp_path / "real", "c/1.png")
    touch(tmp_path / "set", "a/1.png", "a/.2.png", ".cache/3.png", "__MACOSX/a/4.png")
    (tmp_path / "set" / "linked").symlink_to(tmp_path / "real" / "c")
    (tmp_path / "set" / "a" / "up").symlink_to(tmp_path / "set")
    assert list(rows(read_folder(tmp_path / "set"), tmp_path / "set")) == ["a/1.png", "linked/1.png"]


def test_a_hash_in_a_name_means_nothing(tmp_path: Path) -> None:
    """Neither in the folder that is given nor below it, nor in a table file."""
    root = touch(tmp_path / "disk #1", "fox#2/1.png", "fox#2/3#4.png", "5#6.png", "7#8/9.png")
    expected = {"5#6.png": "", "7#8/9.png": "7#8", "fox#2/1.png": "fox#2", "fox#2/3#4.png": "fox#2"}
    assert rows(read_folder(root), root) == expected
    text = "".join(f"{path},{label}\n" for path, label in expected.items())
    for table in (
        read_csv_table(write(root / "l#1.csv", f"path,label\n{text}")),
        load_table(root, write(tmp_path / "l.csv", f"path,label\n{text}")),
    ):
        assert rows(table, root) == expected
    assert all(read_image(path)[0].size == (4, 4) for path in read_folder(root).path)


def test_what_is_passed_over_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    touch(tmp_path, "a/1.png", "a/2.jfif", "b/3.JPE", "b/4.dib")
    for name in ("a/5.mov", "a/6.MOV", "b/labels.csv", "b/.hidden.mov", "notes.txt"):
        (tmp_path / name).write_text("x")
    with caplog.at_level(logging.INFO, "holotype"):
        table = load_table(tmp_path)
    assert list(rows(table, tmp_path)) == ["a/1.png", "a/2.jfif", "b/3.JPE", "b/4.dib"]
    assert caplog.messages == ["Skipped: 2 .mov files, 1 .txt file."]


def test_nothing_passed_over_is_no_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holotype"):
        load_table(touch(tmp_path, "a/1.png"))
    assert caplog.messages == []


def test_missing_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_folder(tmp_path / "absent")
    with pytest.raises(InputError, match=r"no image in .*\.jpeg"):
        read_folder(tmp_path)


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    touch(tmp_path, "a/1.png")
    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(InputError, match="may not be read"):
        read_folder(tmp_path)


# files


def write(file: Path, text: str, encoding: str = "utf-8") -> Path:
    file.write_bytes(text.encode(encoding))
    return file


def test_csv_labels_stay_text(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{i}.png" for i in range(7)))
    names = ["NA", "null", "1", "001", "nan", "", " x "]
    write(tmp_path / "l.csv", "path,label\n" + "".join(f"{i}.png,{c}\n" for i, c in enumerate(names)))
    table = read_csv_table(tmp_path / "l.csv")
    assert table.label.tolist() == ["NA", "null", "1", "001", "nan", "", "x"]
    assert table.known == ("001", "1", "NA", "nan", "null", "x")


def test_labels_that_a_spreadsheet_would_take_for_formulas(tmp_path: Path) -> None:
    """In a CSV file an apostrophe stands before them; in Parquet a label is what it is."""
    touch(tmp_path, *(f"{i}.png" for i in range(5)))
    names = ["'=1+1", "''quoted", "'Oumuamua", "-x", "'-x"]
    write(tmp_path / "l.csv", "path,label\n" + "".join(f"{i}.png,{c}\n" for i, c in enumerate(names)))
    assert read_csv_table(tmp_path / "l.csv").label.tolist() == ["=1+1", "'quoted", "'Oumuamua", "-x", "-x"]
    frame = pd.DataFrame({"path": [f"{i}.png" for i in range(5)], "label": names})
    frame.to_parquet(tmp_path / "l.parquet")
    assert read_csv_table(tmp_path / "l.parquet").label.tolist() == names


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffpath,label\n鳥 1.png,Größe\n",
        "file_name,label\r\n鳥 1.png,Größe\r\n\r\n",
        'Path , Label\n"鳥 1.png","Größe"',
        "label,path,extra\nGröße,./鳥 1.png,7\n",
        "path;label\n鳥 1.png;Größe\n",
        "\ufeffpath;label;note\r\n鳥 1.png;Größe;7,5\r\n",
        "path\tlabel\n鳥 1.png\tGröße\n",
        'path, label\n "鳥 1.png" , "Größe" \n',
        "path,label\n 鳥 1.png , 'Größe' \n",
        "path,label\n鳥 1.png,Größe\n鳥 1.png,Größe\n",
        "path,label\n.\\鳥 1.PNG,Größe\n",
    ],
)
def test_csv_dialects(text: str, tmp_path: Path) -> None:
    touch(tmp_path, "鳥 1.png")
    assert rows(read_csv_table(write(tmp_path / "l.csv", text)), tmp_path) == {"鳥 1.png": "Größe"}


def test_csv_root_truth_and_containers(tmp_path: Path) -> None:
    touch(tmp_path / "images", "a.png")
    np.savez(tmp_path / "images" / "pack.npz", x=np.zeros((2, 4, 4), np.uint8))
    file = write(tmp_path / "l.csv", "path,label,truth\na.png,x,x\npack.npz#1,,y\n")
    table = read_csv_table(file, tmp_path / "images")
    assert table.labelled.tolist() == [True, False]
    assert table.to_frame()["truth"].tolist() == ["x", "y"]
    moved = read_csv_table(write(tmp_path / "images" / "l.csv", file.read_text()))
    assert moved.fingerprint() == table.fingerprint()


def test_parquet_numbers_become_names(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b.png", "c.png")
    path = ["a.png", "b.png", "c.png"]
    pd.DataFrame({"path": path, "label": [3, None, 12]}).to_parquet(tmp_path / "l.parquet")
    assert read_csv_table(tmp_path / "l.parquet").label.tolist() == ["3", "", "12"]


def test_a_file_of_paths_only_is_unlabelled(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    assert read_csv_table(write(tmp_path / "l.csv", "path\na.png\n")).label.tolist() == [""]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image;label\na.png;x\n", "no column 'path' or 'file_name', only 'image', 'label'"),
        ("path,class\na.png,x\n", "no column 'label', only 'path', 'class'"),
        ("path,label\na.png,x,y\n", "Line 2 of .* has 3 cells where the header has 2"),
        ("path,label,label\na.png,x,y\n", "more than one column called 'label'"),
        ("path,label\na.png,x\na.png,y\n", "more than once .* 'a.png' \\(line 2: 'x', line 3: 'y'\\)"),
        (
            "path,label\nb.png,x\na.png,y\nc.png,y\n",
            "2 of the 3 paths .* do not exist, for example 'b.png' \\(line 2\\), 'c.png' \\(line 4\\)",
        ),
        ("path,label\n,x\n", "Line 2 of .* has no path"),
        ("path,label\n", "lists no image"),
        ("", "is empty"),
        ('path,label\n"a.png,x\n', "not a readable CSV"),
    ],
)
def test_bad_files_say_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    with pytest.raises(InputError, match=message):
        read_csv_table(write(tmp_path / "l.csv", text))


def test_other_encodings_and_missing_roots(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    with pytest.raises(InputError, match="not UTF-8"):
        read_csv_table(write(tmp_path / "l.csv", "path,label\na.png,Größe\n", "latin1"))
    with pytest.raises(InputError, match=r"folder .* does not exist"):
        read_csv_table(tmp_path / "l.csv", tmp_path / "absent")


def test_a_spreadsheets_unicode_text(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    file = write(tmp_path / "l.csv", "path\tlabel\r\na.png\tGröße\r\n", "utf-16")
    assert read_csv_table(file).label.tolist() == ["Größe"]


# both


def test_folder_gives_images_and_file_gives_labels(tmp_path: Path) -> None:
    touch(tmp_path / "photos", "s/1.png", "s/2.png", "t/3.png", "4.png")
    absolute = tmp_path / "photos" / "4.png"
    text = f"path,label\ns/1.png,x\nphotos/t/3.png,y\n{absolute},x\n"
    table = load_table(tmp_path / "photos", write(tmp_path / "l.csv", text))
    assert rows(table, tmp_path / "photos") == {"4.png": "x", "s/1.png": "x", "s/2.png": "", "t/3.png": "y"}
    assert table.known == ("x", "y")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label\n9.png,x\n1.png,x\n", "1 of the 2 images .* are not in .*'9.png'"),
        ("path,label\n1.png,x\n./1.png,y\n", "more than once with different labels"),
    ],
)
def test_labels_that_do_not_fit_the_folder(text: str, message: str, tmp_path: Path) -> None:
    touch(tmp_path / "photos", "1.png")
    with pytest.raises(InputError, match=message):
        load_table(tmp_path / "photos", write(tmp_path / "l.csv", text))


def test_load_table_takes_each_kind(tmp_path: Path) -> None:
    touch(tmp_path / "photos", "a/1.png")
    file = write(tmp_path / "l.csv", "path,label\nphotos/a/1.png,b\n")
    assert load_table(tmp_path / "photos").known == ("a",)
    assert load_table(file).known == ("b",)
    with pytest.raises(InputError, match="holds labels already"):
        load_table(file, file)
    with pytest.raises(InputError, match="does not exist"):
        load_table(tmp_path / "absent")
    with pytest.raises(InputError, match="neither a folder nor"):
        load_table(tmp_path / "photos" / "a" / "1.png")


# what training needs


def table(*label: str, problem: tuple[str, ...] = ()) -> Table:
    path = [f"{i}.png" for i in range(len(label))]
    known = tuple(sorted(set(label) - {""}))
    return Table(np.array(path, object), np.array(label, object), known, problem=np.array(problem, object))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (table("", ""), "No usable image is labelled"),
        (table("a", "a", ""), "Only one known class \\('a'\\)"),
        (table("a", "b"), "nothing is left"),
        (table("a", "b", "", problem=("", "broken", "")), "Only one known class"),
        (table("a", "b", "", problem=("", "", "broken")), "nothing is left"),
    ],
)
def test_untrainable_tables_are_refused(given: Table, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_trainable(given)


def test_classes_that_cannot_be_read_are_no_classes() -> None:
    given = table("a", "b", "b", "c", "", problem=("", "broken", "", "broken", ""))
    kept, gone = with_readable_classes(given)
    assert (kept.known, gone) == (("a", "b"), ["c"])
    assert kept.label.tolist() == ["a", "b", "b", "", ""]
    assert kept.problem.tolist() == given.problem.tolist()
    assert with_readable_classes(kept) == (kept, [])


def test_trainable_table_passes() -> None:
    check_trainable(table("a", "b", ""))


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
