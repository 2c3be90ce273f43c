"""A user's folder or file becomes the table they meant, or a sentence that says what to change."""

import os
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data import load
from holotype.data.decode import read_image
from holotype.data.labels import read_csv_table
from holotype.data.load import (
    BUILTIN_READERS,
    Reader,
    check_trainable,
    collection_name,
    find_reader,
    folder_name,
    load_table,
    with_readable_classes,
)
from holotype.data.readers.folder import read_folder
from holotype.data.storage import expand_braces, source_files
from holotype.data.table import Table
from holotype.errors import InputError


def touch(root: Path, *names: str) -> Path:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        kind = None if file.suffix.lower() in (".png", ".dib") else "JPEG"
        Image.new("RGB", (4, 4)).save(file, format=kind)
    return root


def write(file: Path, text: str, encoding: str = "utf-8") -> Path:
    file.write_bytes(text.encode(encoding))
    return file


def rows(table: Table, root: Path) -> dict[str, str]:
    return {Path(p).relative_to(root).as_posix(): c for p, c in zip(table.path, table.label, strict=True)}


def test_folder_names_are_labels(tmp_path: Path) -> None:
    names = ("b/2.png", "b/deep/1.PNG", "a/1.png", "loose.png", "unlabelled/x/9.png", "Ödland ü/ä 1.png")
    touch(tmp_path, *names, "a/.2.png", ".cache/3.png", "__MACOSX/a/4.png")
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    (tmp_path / "a" / "up").symlink_to(tmp_path)  # links are followed once
    table = read_folder(tmp_path)
    labels = {"a/1.png": "a", "b/2.png": "b", "b/deep/1.PNG": "b", "loose.png": ""}
    labels |= {"unlabelled/x/9.png": "", "Ödland ü/ä 1.png": "Ödland ü"}
    assert rows(table, tmp_path) == labels
    assert (table.known, table.name) == (("a", "b", "Ödland ü"), tmp_path.name)


def test_a_hash_in_a_name_means_nothing(tmp_path: Path) -> None:
    """Neither in the folder that is given nor below it, nor in a table file."""
    root = touch(tmp_path / "disk #1", "fox#2/1.png", "fox#2/3#4.png", "5#6.png", "7#8/9.png")
    expected = {"5#6.png": "", "7#8/9.png": "7#8", "fox#2/1.png": "fox#2", "fox#2/3#4.png": "fox#2"}
    text = "path,label\n" + "".join(f"{path},{label}\n" for path, label in expected.items())
    listed = read_csv_table(write(root / "l#1.csv", text))
    for table in (read_folder(root), listed, load_table(root, write(tmp_path / "l.csv", text))):
        assert rows(table, root) == expected
    assert all(read_image(path)[0].size == (4, 4) for path in read_folder(root).path)


def test_folders_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with pytest.raises(InputError, match="does not exist"):
        read_folder(tmp_path / "absent")
    with pytest.raises(InputError, match=r"no image in .*\.jpeg"):
        read_folder(tmp_path)
    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(InputError, match="may not be read"):
        read_folder(tmp_path)


def test_a_folder_gives_images_and_a_file_gives_labels(tmp_path: Path) -> None:
    root = touch(tmp_path / "photos", "s/1.png", "s/2.png", "t/3.png", "4.png")
    text = f"path,label\ns/1.png,x\nphotos/t/3.png,y\n{root / '4.png'},x\n"
    file = write(tmp_path / "l.csv", text)
    table = load_table(root, file)
    assert rows(table, root) == {"4.png": "x", "s/1.png": "x", "s/2.png": "", "t/3.png": "y"}
    known = [one.known for one in (table, load_table(file), load_table(root))]
    assert known == [("x", "y"), ("x", "y"), ("s", "t")]
    with pytest.raises(InputError, match="holds labels already"):
        load_table(file, file)
    for text, message in (
        ("9.png,x\n4.png,x\n", "1 of the 2 images .* are not in .*'9.png'"),
        ("4.png,x\n./4.png,y\n", "more than once with different labels"),
    ):
        with pytest.raises(InputError, match=message):
            load_table(root, write(tmp_path / "l.csv", f"path,label\n{text}"))


def table(*label: str, problem: tuple[str, ...] = ()) -> Table:
    path = [f"{i}.png" for i in range(len(label))]
    known = tuple(sorted(set(label) - {""}))
    return Table(np.array(path, object), np.array(label, object), known, problem=np.array(problem, object))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (table("", ""), "No usable image is labelled"),
        (table("a", "a", ""), r"Only one known class \('a'\)"),
        (table("a", "b"), "nothing is left"),
        (table("a", "b", "", problem=("", "broken", "")), "Only one known class"),
        (table("a", "b", "", problem=("", "", "broken")), "nothing is left"),
    ],
)
def test_untrainable_tables_are_refused(given: Table, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_trainable(given)
    check_trainable(table("a", "b", ""))


def test_classes_that_cannot_be_read_are_no_classes() -> None:
    given = table("a", "b", "b", "c", "", problem=("", "broken", "", "broken", ""))
    kept, gone = with_readable_classes(given)
    assert (kept.known, gone) == (("a", "b"), ["c"])
    assert kept.label.tolist() == ["a", "b", "b", "", ""]
    assert kept.problem.tolist() == given.problem.tolist()
    assert with_readable_classes(kept) == (kept, [])


def name_of(source: object) -> str:
    return find_reader(str(source)).name


def test_each_source_has_its_reader(tmp_path: Path) -> None:
    for name in ("a.csv", "a.TSV", "a.parquet", "a.tar", "a.tar.gz", "a.xls"):
        (tmp_path / name).touch()
    assert name_of(tmp_path) == "folders of images"
    assert [name_of(tmp_path / name) for name in ("a.csv", "a.TSV")] == ["lists of paths"] * 2
    assert name_of(tmp_path / "a.parquet") == name_of("s3://bucket/a.parquet?region=eu") == "Parquet files"
    assert name_of(tmp_path / "a.tar") == name_of("gs://bucket/{0..9}.tar") == "tars"
    assert name_of("s3://bucket/photos") == name_of("hf://datasets/owner/set") == "stores on the network"
    for source, message in (
        ("absent", "does not exist; give a folder"),
        ("https://host/photos", "in no store"),
        (tmp_path / "a.tar.gz", "compressed"),
        (tmp_path / "a.xls", "neither a folder nor"),
    ):
        with pytest.raises(InputError, match=message):
            name_of(source)


@pytest.mark.parametrize("ending", [".tar", ".zip"])
def test_another_package_brings_a_reader(monkeypatch, tmp_path: Path, holotype, ending: str) -> None:
    touch(tmp_path, "fox/1.png")
    (tmp_path / "a.zip").touch()
    theirs = Reader("their files", (ending,), lambda source, how: read_folder(Path(source).parent))
    monkeypatch.setattr(EntryPoint, "load", lambda self: theirs)
    monkeypatch.setattr(load, "entry_points", lambda group: [EntryPoint("theirs", "theirs:reader", group)])
    load.readers.cache_clear()
    try:
        if ending == ".zip":
            assert load_table(tmp_path / "a.zip").known == ("fox",)
            assert collection_name(tmp_path / "a.zip") == "a"
            with pytest.raises(InputError, match=r"nor a \.csv, .*, \.tar or \.zip file"):
                load_table(touch(tmp_path, "1.png") / "1.png")
        else:
            outcome = holotype("discover", tmp_path)
            assert (outcome.code, outcome.err.count("\n")) == (2, 1)
            assert "Two readers claim .tar: tars and their files" in outcome.err
    finally:
        load.readers.cache_clear()
    assert all(reader.name != "their files" for reader in BUILTIN_READERS)


def test_braces_mean_what_they_mean_in_a_shell(tmp_path: Path) -> None:
    assert expand_braces("s-{008..011}.tar") == ["s-008.tar", "s-009.tar", "s-010.tar", "s-011.tar"]
    assert expand_braces("{a,b}/{1..2}") == ["a/1", "a/2", "b/1", "b/2"]
    assert expand_braces("plain") == ["plain"]
    with pytest.raises(InputError, match="smaller number first"):
        expand_braces("{9..1}.tar")
    with pytest.raises(InputError, match="more than 1,000,000 files"):
        expand_braces("{1..9999}{1..9999}.tar")
    with pytest.raises(InputError, match="No file is called"):
        source_files(str(tmp_path / "*.tar"))
    odd = tmp_path / "{1..3}.tar"  # a file with braces in its name is itself
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
