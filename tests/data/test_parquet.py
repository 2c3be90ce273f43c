"""Parquet files that hold images: what is an image, which rows there are, and a discovery from end to end."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holotype.data.decode import ImageProblem, read_image
from holotype.data.hashing import file_digest
from holotype.data.load import load_table
from holotype.data.readers import parquet
from holotype.errors import InputError
from holotype.results.discovery import Discovery

from .packed import images_of, square, write_parquet


def test_rows_are_images_with_the_names_of_their_classes(tmp_path: Path) -> None:
    rows = [("a", square((1, 2, 3)), "fox"), ("b", square((4, 5, 6)), ""), ("c", square((7, 8, 9)), "owl")]
    table = load_table(write_parquet(tmp_path / "train.parquet", rows, group=2))
    assert list(table.path) == [f"{tmp_path}/train.parquet#{row}" for row in range(3)]
    assert list(table.label) == ["fox", "", "owl"]
    assert (table.known, table.name, table.root) == (("fox", "owl"), "train", str(tmp_path))
    assert [read_image(path)[0].getpixel((0, 0)) for path in table.path] == [(1, 2, 3), (4, 5, 6), (7, 8, 9)]


def test_plain_bytes_and_labels_as_text(tmp_path: Path) -> None:
    rows = [("a", square(), "fox"), ("b", square(), "")]
    table = load_table(write_parquet(tmp_path / "a.parquet", rows, plain=True))
    assert list(table.label) == ["fox", ""]
    assert read_image(table.path[1])[0].size == (8, 8)


def test_text_that_was_written_as_bytes_is_text(tmp_path: Path) -> None:
    """Some programs write all texts so; no label is none, and no class called b''."""
    pq.write_table(pa.table({"image": [square()] * 2, "label": [b"fox", b""]}), tmp_path / "t.parquet")
    assert list(load_table(tmp_path / "t.parquet").label) == ["fox", ""]
    (tmp_path / "1.png").write_bytes(square())
    pq.write_table(pa.table({"path": [b"1.png"], "label": [b"F\xc3\xbcchse"]}), tmp_path / "l.parquet")
    assert list(load_table(tmp_path / "l.parquet").label) == ["Füchse"]
    pq.write_table(pa.table({"image": [square()], "label": [b"F\xfcchse"]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match="in the column label is not valid UTF-8"):
        load_table(tmp_path / "t.parquet")


def test_a_folder_of_parquet_files_is_one_collection(tmp_path: Path) -> None:
    for part, colour in (("train-00000", (1, 1, 1)), ("train-00001", (2, 2, 2))):
        write_parquet(tmp_path / "set" / "data" / f"{part}.parquet", [("a", square(colour), "fox")])
    table = load_table(tmp_path / "set")
    assert [read_image(path)[0].getpixel((0, 0)) for path in table.path] == [(1, 1, 1), (2, 2, 2)]
    assert table.name == "set"
    both = load_table(str(tmp_path / "set" / "data" / "train-{00000..00001}.parquet"))
    assert list(both.path) == list(table.path)


def test_a_list_of_paths_stays_one_beside_other_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(square())
    pq.write_table(pa.table({"path": ["a.png"], "label": ["fox"], "hash": [b"123"]}), tmp_path / "l.parquet")
    assert list(load_table(tmp_path / "l.parquet").path) == [str(tmp_path / "a.png")]


def test_the_same_bytes_are_the_same_image_in_a_file_and_in_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(square())
    file = write_parquet(tmp_path / "t.parquet", [("a", square(), "")])
    assert file_digest(f"{file}#0") == file_digest(str(tmp_path / "a.png")) != ""


def test_a_row_group_is_read_once_for_its_rows_and_few_are_kept(tmp_path: Path, monkeypatch) -> None:
    noise = np.random.default_rng(0)
    rows = [(str(i), noise.bytes(1000), "") for i in range(40)]
    file = str(write_parquet(tmp_path / "t.parquet", rows, group=10))
    monkeypatch.setattr(parquet, "CACHED_BYTES", 25_000)
    read = []
    original = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, n, **how: read.append(n) or original(self, n, **how)
    )
    assert [parquet.read_row(file, str(i)) for i in range(40)] == [content for _, content, _ in rows]
    assert read == [0, 1, 2, 3]
    assert sum(values.nbytes for values in parquet._groups.values()) <= 25_000


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    file = str(write_parquet(tmp_path / "t.parquet", [("a", square((1, 1, 1)), "")]))
    assert read_image(f"{file}#0")[0].getpixel((0, 0)) == (1, 1, 1)
    write_parquet(tmp_path / "t.parquet", [("a", square((250, 3, 77), side=9), ""), ("b", square(), "")])
    assert read_image(f"{file}#0")[0].getpixel((0, 0)) == (250, 3, 77)


def test_labels_of_a_list_replace_those_of_the_file(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "t.parquet", [("a", square(), "fox"), ("b", square(), "fox")])
    (tmp_path / "l.csv").write_text("path,label\nt.parquet#1,owl\n")
    assert list(load_table(file, tmp_path / "l.csv").label) == ["", "owl"]


def test_a_list_without_truth_and_bursts_leaves_those_of_the_file(tmp_path: Path) -> None:
    columns = {"image": [square()] * 2, "truth": ["fox", "owl"], "group": ["b1", "b1"]}
    pq.write_table(pa.table(columns), tmp_path / "train.parquet")
    labels = tmp_path / "l.csv"
    labels.write_text("path,label\ntrain.parquet#0,fox\n")
    table = load_table(tmp_path / "train.parquet", labels)
    assert list(table.label) == ["fox", ""]
    assert list(table.truth) == ["fox", "owl"]
    assert list(table.group) == ["b1", "b1"]


# -- what is wrong --------------------------------------------------------------------------------------


def test_without_a_column_of_images_the_columns_are_named(tmp_path: Path, holotype) -> None:
    pq.write_table(pa.table({"id": [1], "species": ["fox"]}), tmp_path / "t.parquet")
    outcome = holotype("embed", tmp_path / "t.parquet", "--no-progress")
    assert outcome.code == 2
    assert "only 'id', 'species'" in outcome.err
    assert "Traceback" not in outcome.err


def test_bytes_that_are_no_images_are_refused_at_once(tmp_path: Path, holotype) -> None:
    file = write_parquet(tmp_path / "t.parquet", [(str(i), b"not an image", "") for i in range(20)])
    outcome = holotype("estimate-k", file, "--no-progress")
    assert (outcome.code, len(outcome.err.strip().splitlines())) == (2, 1)
    assert "bytes that are no image" in outcome.err
    assert not (tmp_path / "runs").exists()


def test_a_single_row_that_is_no_image_is_a_problem_of_that_image(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "t.parquet", [("a", square(), ""), ("b", b"hello", ""), ("c", b"", "")])
    assert len(load_table(file)) == 3
    with pytest.raises(ImageProblem, match="#1 is not an image"):
        read_image(f"{file}#1")
    with pytest.raises(ImageProblem, match="empty"):
        read_image(f"{file}#2")
    with pytest.raises(ImageProblem, match="3 rows, counted from 0"):
        read_image(f"{file}#3")


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "t.parquet", [("a", square(), "")])
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        load_table(file)


# -- from end to end ------------------------------------------------------------------------------------


def test_discover_report_and_assign(
    tmp_path: Path, squares_folder: Path, tiny_backbone_file, holotype
) -> None:
    rows = images_of(squares_folder)
    file = write_parquet(tmp_path / "squares.parquet", rows)
    flags = ("--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress")
    words = ("discover", file, "--out", tmp_path / "run", "--k", 4, "--method", "kmeans", *flags)
    assert holotype(*words).code == 0
    found = Discovery.load(tmp_path / "run")
    as_files = load_table(squares_folder)
    assert found.known == as_files.known
    assert (found.images["problem"] == "").all()
    # each kind of square is one category, as in a folder
    truth = [rows[int(path.rpartition("#")[2])][0].split("-")[0] for path in found.images["path"]]
    assert len(set(zip(truth, found.images["category_id"], strict=True))) == 4
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "squares.parquet#" in page or "#0" in page
    assert list((tmp_path / "run").rglob("00000.jpg")), "a sheet of thumbnails"
    before = hashlib.sha256((tmp_path / "run" / "discovery.json").read_bytes()).hexdigest()
    new = write_parquet(tmp_path / "new.parquet", rows[::7])
    out = tmp_path / "new.csv"
    outcome = holotype("assign", tmp_path / "run", new, "--out", out, "--device", "cpu", "--no-progress")
    assert outcome.code == 0
    assert len(out.read_text().splitlines()) == 1 + len(rows[::7])
    assert (
        holotype("assign", tmp_path / "run", f"{new}#3", "--out", out, "--overwrite", "--device", "cpu").code
        == 0
    )
    assert f"{new}#3" in out.read_text()
    assert before == hashlib.sha256((tmp_path / "run" / "discovery.json").read_bytes()).hexdigest()
