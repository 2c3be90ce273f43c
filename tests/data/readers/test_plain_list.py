"""Plain lists are streamed and say what the table says; all others are left to the table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from holotype.data.labels import stream_list
from holotype.data.load import load_table, stream_paths


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
