"""A plan says which image is in which slice, and a slice is read without the others."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import holotype.embeddings.shards as module
from holotype.data.load import load_table, stream_paths
from holotype.data.paths import Paths
from holotype.embeddings.executor import run_shards
from holotype.embeddings.shards import (
    PLAN_FILE,
    ShardFolder,
    ShardRequest,
    existing_parts,
    part_file,
    prepare_shards,
    read_shard_paths,
    write_shard_plan,
)
from holotype.errors import InputError
from holotype.utils.serialization import read_json

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
    assert not planned.boxed
    assert write_shard_plan(tmp_path / "moved", some("/elsewhere/photos"), 2) == planned
    turned = Paths("/photos", (f"/photos/{name}" for name in NAMES[::-1]))
    assert write_shard_plan(tmp_path / "turned", turned, 3).digest != planned.digest
    outside = Paths("/photos", iter(["/photos/a.png", "/other/b.png"]))
    assert write_shard_plan(tmp_path / "outside", outside, 3).n == 2


def test_boxes_are_noticed(tmp_path: Path) -> None:
    boxed = Paths("/p", iter(["/p/a.png", "/p/b.png#xywh=percent:1,2,30,40"]))
    assert write_shard_plan(tmp_path / PLAN_FILE, boxed, 3).boxed


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


# -- the folder -------------------------------------------------------------------------------------------

FACTS = {"format": 3, "network": "tiny"}


def wanted(n: int = 10, root: str = "/p", **more) -> ShardRequest:
    def paths() -> Paths:
        return Paths(root, (f"{root}/{i}.png" for i in range(n)))

    return ShardRequest(**({"facts": FACTS, "source": root, "paths": paths, "each": 3} | more))


def fill(folder: ShardFolder, fails: tuple[int, ...] = ()) -> dict[int, str]:
    def job(number: int) -> None:
        if number in fails:
            raise ValueError("not this one")
        part_file(folder.folder, number).touch()

    return folder.run(lambda *both: run_shards(job, *both), lambda *_: None)


def test_a_new_folder_and_the_same_again(tmp_path: Path) -> None:
    folder = prepare_shards(tmp_path / "f", wanted())
    assert (folder.n, folder.each, folder.slices, folder.own_images) == (10, 3, 4, 10)
    assert fill(folder) == {}
    again = prepare_shards(tmp_path / "f", wanted(each=7))  # the folder knows the size of its slices
    assert again == folder
    manifest = read_json(tmp_path / "f" / "manifest.json")
    assert (manifest["n"], manifest["images_per_shard"], manifest["network"]) == (10, 3, "tiny")


def test_missing_slices_come_first(tmp_path: Path) -> None:
    folder = prepare_shards(tmp_path, wanted())
    for number in (0, 2):
        part_file(tmp_path, number).touch()
    assert list(folder.numbers()) == [1, 3, 0, 2]


@pytest.mark.parametrize(
    "changed", [{"facts": FACTS | {"network": "large"}}, {"n": 9}, {"facts": FACTS | {"format": 4}}]
)
def test_something_else_is_refused_and_nothing_lost(changed: dict, tmp_path: Path) -> None:
    fill(prepare_shards(tmp_path, wanted()))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match="not the same"):
        prepare_shards(tmp_path, wanted(**changed))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_moved_images_get_a_new_plan_and_keep_their_parts(tmp_path: Path) -> None:
    fill(prepare_shards(tmp_path, wanted()))
    moved = prepare_shards(tmp_path, wanted(root="/elsewhere"))
    assert moved.root == "/elsewhere"
    assert read_shard_paths(tmp_path / PLAN_FILE, 0)[0] == "/elsewhere/0.png"
    assert all(part_file(tmp_path, number).exists() for number in range(4))


def test_odd_manifests_are_one_sentence(tmp_path: Path) -> None:
    fill(prepare_shards(tmp_path, wanted()))
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        prepare_shards(tmp_path, wanted())
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(InputError, match="no manifest"):
        prepare_shards(tmp_path, wanted())


def test_a_source_that_cannot_be_read_leaves_nothing(tmp_path: Path) -> None:
    def paths() -> Paths:
        raise InputError("There is no image.")

    with pytest.raises(InputError, match="no image"):
        prepare_shards(tmp_path / "f", wanted(paths=paths))
    assert not (tmp_path / "f").exists()


# -- what failed ------------------------------------------------------------------------------------------


def test_failed_slices_are_listed_until_they_are_done(tmp_path: Path) -> None:
    folder = prepare_shards(tmp_path, wanted())
    failed = fill(folder, fails=(1, 3))
    assert failed == {1: "ValueError: not this one", 3: "ValueError: not this one"}
    assert read_json(tmp_path / "failed.json")["slices"] == {str(n): text for n, text in failed.items()}
    assert "ValueError: not this one" in folder.sentence(failed)
    assert fill(folder) == {}
    assert not (tmp_path / "failed.json").exists()


def test_a_part_that_nobody_sees_counts_as_failed(tmp_path: Path) -> None:
    """A worker that writes to a disk of its own."""
    folder = prepare_shards(tmp_path, wanted())
    left = folder.run(lambda *both: run_shards(lambda number: None, *both), lambda *_: None)
    assert sorted(left) == [0, 1, 2, 3]
    assert "its part is not in" in left[0]


# -- several at once --------------------------------------------------------------------------------------


def test_shares_are_disjoint_and_whole(tmp_path: Path) -> None:
    folders = [prepare_shards(tmp_path, wanted(n=100), (i, 3)) for i in range(3)]
    assert sorted(number for one in folders for number in one.own) == list(range(34))
    assert [one.own_images for one in folders] == [12 * 3 - 2, 11 * 3, 11 * 3]
    for one in folders:
        assert fill(one) == {}
    assert len(list(tmp_path.glob("part-*"))) == 34


def test_a_share_with_nothing_to_do(tmp_path: Path) -> None:
    folder = prepare_shards(tmp_path, wanted(n=3), (5, 9))
    assert (len(folder.own), folder.own_images) == (0, 0)
    assert fill(folder) == {}


def test_the_second_share_believes_the_plan(tmp_path: Path) -> None:
    prepare_shards(tmp_path, wanted(), (0, 2))

    def paths() -> Paths:
        raise AssertionError("the images were listed again")

    assert prepare_shards(tmp_path, wanted(paths=paths), (1, 2)).n == 10
    with pytest.raises(InputError, match="network"):
        prepare_shards(tmp_path, wanted(paths=paths, facts=FACTS | {"network": "large"}), (1, 2))


def test_of_many_that_come_at_once_one_writes_the_plan(tmp_path: Path) -> None:
    begun: list[int] = []
    together = threading.Barrier(4)

    def paths() -> Paths:
        begun.append(1)
        return Paths("/p", (f"/p/{i}.png" for i in range(1000)))

    def one(i: int) -> None:
        together.wait()
        fill(prepare_shards(tmp_path, wanted(paths=paths), (i, 4)))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert begun == [1]
    assert len(list(tmp_path.glob("part-*.parquet"))) == 334


def test_failures_of_shares_lie_apart(tmp_path: Path) -> None:
    for i in range(2):
        fill(prepare_shards(tmp_path, wanted(), (i, 2)), fails=(0, 1))
    assert sorted(path.name for path in tmp_path.glob("failed*")) == [
        "failed-1-of-2.json",
        "failed-2-of-2.json",
    ]


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9, None])
def test_a_damaged_plan_is_made_anew(place: float | None, tmp_path: Path) -> None:
    """Else the same command would fail for ever. With --only the sentence says what to do."""
    folder = prepare_shards(tmp_path, wanted())
    fill(folder, fails=(1,))
    plan = tmp_path / PLAN_FILE
    whole = plan.read_bytes()
    if place is None:
        plan.unlink()
    else:
        at = int(len(whole) * place)
        plan.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
    prepare_shards(tmp_path, wanted())
    assert plan.read_bytes() == whole
    assert read_shard_paths(plan, 3) == ["/p/9.png"]
