"""A plan says which image is in which slice, and a slice is read without the others."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import holotype.embeddings.shards as module
from holotype.data.load import load_table, stream_paths
from holotype.data.paths import Paths
from holotype.embeddings.shards import (
    PLAN_FILE,
    count_paths,
    existing_parts,
    part_file,
    read_shard_paths,
    write_shard_plan,
)
from holotype.errors import InputError

NAMES = ["b/2.png", "a/1.png", "a b.png", "Käfer/'x'.png", "a/10.png", "deep/er/est.png", "#1.png"]


def some(root: str = "/photos") -> Paths:
    return Paths(root, (f"{root}/{name}" for name in NAMES))


def test_each_slice_is_read_by_itself(tmp_path: Path) -> None:
    planned = write_shard_plan(tmp_path / PLAN_FILE, some(), 3)
    assert planned.n == 7
    read = [read_shard_paths(tmp_path / PLAN_FILE, number) for number in range(3)]
    assert [len(paths) for paths in read] == [3, 3, 1]
    assert [path for paths in read for path in paths] == [f"/photos/{name}" for name in NAMES]
    assert pq.ParquetFile(tmp_path / PLAN_FILE).num_row_groups == 3
    with pytest.raises(InputError, match="cannot be read"):
        read_shard_paths(tmp_path / PLAN_FILE, 3)


def test_the_digest_is_of_the_images_and_not_of_their_place(tmp_path: Path) -> None:
    planned = write_shard_plan(tmp_path / PLAN_FILE, some(), 3)
    assert count_paths(some()) == planned
    assert count_paths(some("/elsewhere/photos")) == planned
    assert count_paths(Paths("/photos", (f"/photos/{name}" for name in NAMES[::-1]))).digest != planned.digest
    outside = Paths("/photos", iter(["/photos/a.png", "/other/b.png"]))
    assert count_paths(outside).n == 2


def test_boxes_are_noticed() -> None:
    assert not count_paths(some()).boxed
    boxed = Paths("/p", iter(["/p/a.png", "/p/b.png#xywh=percent:1,2,30,40"]))
    assert count_paths(boxed).boxed


def test_the_plan_is_taken_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a slice of the stream is taken before it is written."""
    taken, most = 0, 0

    def stream():
        nonlocal taken
        for number in range(20):
            taken += 1
            yield f"/p/{number}.png"

    batches = module._batches

    def watched(paths, each):
        nonlocal most
        written = 0
        for batch in batches(paths, each):
            most = max(most, taken - written)
            written += len(batch)
            yield batch

    monkeypatch.setattr(module, "_batches", watched)
    monkeypatch.setattr(module, "IMAGES_PER_PLAN_SHARD", 9)
    write_shard_plan(tmp_path / PLAN_FILE, Paths("/p", stream()), 4)
    assert (taken, most) == (20, 8)
    assert [len(read_shard_paths(tmp_path / PLAN_FILE, number)) for number in range(5)] == [4] * 5


def test_a_damaged_plan_is_one_sentence(tmp_path: Path) -> None:
    write_shard_plan(tmp_path / PLAN_FILE, Paths("/p", (f"/p/{i * i * 7919}.png" for i in range(500))), 100)
    content = bytearray((tmp_path / PLAN_FILE).read_bytes())
    content[60] ^= 0xFF
    (tmp_path / PLAN_FILE).write_bytes(content)
    with pytest.raises(InputError, match=r"plan\.parquet cannot be read"):
        read_shard_paths(tmp_path / PLAN_FILE, 0)


def test_parts_are_known_by_their_names(tmp_path: Path) -> None:
    for number in (0, 7, 123456, 1234567):
        part_file(tmp_path, number).touch()
    for name in ("part-00001.parquet", "part-000002.parquet.x", ".part-000003.parquet.0.part", "x.parquet"):
        (tmp_path / name).touch()
    assert existing_parts(tmp_path) == {0, 7, 123456, 1234567}
    assert part_file(tmp_path, 7).name == "part-000007.parquet"


# -- sources as streams -----------------------------------------------------------------------------------


def png() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def make_tar(file: Path, names: list[str]) -> None:
    with tarfile.open(file, "w") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(png())
            tar.addfile(info, io.BytesIO(png()))


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    """A folder, a folder of tars, one tar, a Parquet file of images, a list of paths."""
    for name in NAMES:
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(png())
    (tmp_path / "folder" / "notes.txt").touch()
    (tmp_path / "tars").mkdir()
    for number in range(2):
        make_tar(tmp_path / "tars" / f"{number}.tar", [f"{number}-{i}.png" for i in range(3)])
    pq.write_table(pa.table({"image": [{"bytes": png()}] * 5}), tmp_path / "images.parquet")
    (tmp_path / "list.csv").write_text("path,label\nfolder/a b.png,x\nfolder/b/2.png,\n")
    return {
        "folder": tmp_path / "folder",
        "tars": tmp_path / "tars",
        "tar": tmp_path / "tars" / "1.tar",
        "parquet": tmp_path / "images.parquet",
        "list": tmp_path / "list.csv",
    }


@pytest.mark.parametrize("kind", ["folder", "tars", "tar", "parquet", "list"])
def test_a_stream_has_the_paths_of_the_table(kind: str, sources: dict[str, Path]) -> None:
    table, stream = load_table(sources[kind]), stream_paths(sources[kind])
    assert list(stream.each) == list(table.path)
    assert stream.root == table.root


def test_labels_are_heeded_where_they_matter(sources: dict[str, Path], tmp_path: Path) -> None:
    """A list of labels may have boxes, which are then the images."""
    (tmp_path / "labels.csv").write_text('path,label,box\na b.png,x,"0,0,0.5,0.5"\n')
    given = {"labels": tmp_path / "labels.csv"}
    stream = stream_paths(sources["folder"], **given)
    assert list(stream.each) == list(load_table(sources["folder"], **given).path)


def test_empty_and_broken_sources_say_the_same(sources: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    os.truncate(sources["tar"], 700)
    make_tar(tmp_path / "void.tar", [])
    pq.write_table(pa.table({"image": pa.array([], pa.binary())}), tmp_path / "void.parquet")
    pq.write_table(pa.table({"image": [b"no picture"]}), tmp_path / "words.parquet")
    for name in ("none", "tars", "void.tar", "void.parquet", "words.parquet", "absent"):
        with pytest.raises(InputError) as table:
            load_table(tmp_path / name)
        with pytest.raises(InputError) as stream:
            list(stream_paths(tmp_path / name).each)
        assert str(stream.value) == str(table.value)
