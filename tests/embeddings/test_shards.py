"""A plan says which image is in which slice; what fails is tried once more and listed; shares work side by side."""

import os
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from holotype.data.load import load_table, stream_paths
from holotype.data.paths import Paths
from holotype.embeddings import shards as module
from holotype.embeddings.executor import MAX_CONSECUTIVE_FAILURES, error_reason, run_shards, shard_of_process
from holotype.embeddings.shards import (
    PLAN_FILE,
    ShardFolder,
    ShardRequest,
    part_file,
    prepare_shards,
    read_shard_paths,
)
from holotype.errors import InputError, Stopped
from holotype.utils.serialization import read_json

NAMES = ["b/2.png", "a/1.png", "a b.png", "Käfer/'x'.png", "a/10.png", "deep/er/est.png", "#1.png"]


def some(root: str = "/photos", names: list[str] = NAMES) -> Paths:
    return Paths(root, (f"{root}/{name}" for name in names))


def test_each_slice_is_read_by_itself(tmp_path: Path) -> None:
    planned = module.write_shard_plan(tmp_path / PLAN_FILE, some(), 3)
    assert (planned["n"], planned["boxed"]) == (7, False)
    read = [read_shard_paths(tmp_path, number) for number in range(3)]
    assert [len(paths) for paths in read] == [3, 3, 1]
    assert [path for paths in read for path in paths] == [f"/photos/{name}" for name in NAMES]
    with pytest.raises(InputError, match="cannot be read"):
        read_shard_paths(tmp_path, 3)
    # the digest is of the images and not of their place
    assert module.write_shard_plan(tmp_path / "moved", some("/elsewhere/photos"), 2) == planned
    turned = module.write_shard_plan(tmp_path / "turned", some(names=NAMES[::-1]), 3)
    assert turned["images"] != planned["images"]
    outside = Paths("/photos", iter(["/photos/a.png", "/other/b.png#xywh=percent:1,2,30,40"]))
    found = module.write_shard_plan(tmp_path / "outside", outside, 3)
    assert (found["n"], found["boxed"]) == (2, True)
    places = [module.absolute_source(source) for source in ("s3://bucket/photos", "photos")]
    assert places == ["s3://bucket/photos", os.path.abspath("photos")]


def test_the_plan_is_taken_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than some slices of the stream are taken before they are written."""
    taken: list[int] = []
    seen: list[int] = []

    def stream():
        for number in range(20):
            taken.append(number)
            yield f"/p/{number}.png"

    names = module._names
    monkeypatch.setattr(module, "_names", lambda batch, root: seen.append(len(taken)) or names(batch, root))
    monkeypatch.setattr(module, "IMAGES_PER_PLAN_SHARD", 9)
    module.write_shard_plan(tmp_path / PLAN_FILE, Paths("/p", stream()), 4)
    assert seen == [8, 16, 20]
    assert [len(read_shard_paths(tmp_path, number)) for number in range(5)] == [4] * 5


def make_tar(file: Path, image: Path, names: list[str]) -> None:
    with tarfile.open(file, "w") as tar:
        for name in names:
            tar.add(image, name)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder, a folder of tars, a Parquet file of images, lists of paths."""
    for name in NAMES:
        (file := tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(file)
    (tmp_path / "folder" / "notes.txt").touch()
    (tmp_path / "tars").mkdir()
    for number in range(2):
        make_tar(tmp_path / "tars" / f"{number}.tar", file, [f"{number}-{i}.png" for i in range(3)])
    pq.write_table(pa.table({"image": [{"bytes": file.read_bytes()}] * 5}), tmp_path / "images.parquet")
    (tmp_path / "list.csv").write_text("path,label\nfolder/a b.png,x\nfolder/b/2.png,\n")
    (tmp_path / "labels.csv").write_text('path,label,box\na b.png,x,"0,0,0.5,0.5"\n')
    return tmp_path


def test_a_stream_has_the_paths_of_the_table(sources: Path) -> None:
    for name in ("folder", "tars", "tars/1.tar", "images.parquet", "list.csv"):
        table, stream = load_table(sources / name), stream_paths(sources / name)
        assert list(stream.each) == list(table.path), name
        assert stream.root == table.root
    labels = {"labels": sources / "labels.csv"}  # which may have boxes, which are then the images
    stream = stream_paths(sources / "folder", **labels)
    assert list(stream.each) == list(load_table(sources / "folder", **labels).path)


def test_empty_and_broken_sources_say_the_same(sources: Path) -> None:
    (sources / "none").mkdir()
    os.truncate(sources / "tars" / "1.tar", 700)
    make_tar(sources / "void.tar", sources, [])
    pq.write_table(pa.table({"image": pa.array([], pa.binary())}), sources / "void.parquet")
    pq.write_table(pa.table({"image": [b"no picture"]}), sources / "words.parquet")
    for name in ("none", "tars", "void.tar", "void.parquet", "words.parquet", "absent"):
        with pytest.raises(InputError) as table:
            load_table(sources / name)
        with pytest.raises(InputError) as stream:
            list(stream_paths(sources / name).each)
        assert str(stream.value) == str(table.value)


FACTS = {"format": 3, "network": "tiny"}


def wanted(n: int = 10, root: str = "/p", **more) -> ShardRequest:
    def paths() -> Paths:
        return Paths(root, (f"{root}/{i}.png" for i in range(n)))

    return ShardRequest(**({"facts": FACTS, "source": root, "paths": paths, "each": 3} | more))


def fill(folder: ShardFolder, fails: tuple[int, ...] = (), tries: list[int] | None = None) -> dict[int, str]:
    def job(number: int) -> None:
        if tries is not None:
            tries.append(number)
        if number in fails:
            raise ValueError("not this one")
        part_file(folder.folder, number).touch()

    return folder.run(lambda *both: run_shards(job, *both), lambda *_: None)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def test_a_new_folder_the_same_again_and_something_else(tmp_path: Path) -> None:
    folder = prepare_shards(tmp_path, wanted())
    assert (folder.n, folder.each, len(folder.own), folder.own_images) == (10, 3, 4, 10)
    assert fill(folder) == {}
    assert prepare_shards(tmp_path, wanted(each=7)) == folder  # it knows the size of its slices
    manifest = read_json(tmp_path / "manifest.json")
    assert (manifest["n"], manifest["images_per_shard"], manifest["network"]) == (10, 3, "tiny")
    before = contents(tmp_path)
    changes = [{"facts": FACTS | {"network": "large"}}, {"n": 9}, {"facts": FACTS | {"format": 4}}]
    for changed in changes:
        with pytest.raises(InputError, match="not the same"):
            prepare_shards(tmp_path, wanted(**changed))
    assert contents(tmp_path) == before  # nothing is lost
    moved = prepare_shards(tmp_path, wanted(root="/elsewhere"))
    assert moved.root == "/elsewhere"
    assert read_shard_paths(tmp_path, 0)[0] == "/elsewhere/0.png"
    for name in ("part-1234567.parquet", "part-00001.parquet", ".part-000009.parquet.0.part", "x.parquet"):
        (tmp_path / name).touch()
    assert module.existing_parts(tmp_path) == {0, 1, 2, 3, 1234567}  # moved images keep their parts
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        prepare_shards(tmp_path, wanted())
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(InputError, match="no manifest"):
        prepare_shards(tmp_path, wanted())


def test_failed_slices_are_tried_again_and_listed_until_they_are_done(tmp_path: Path) -> None:
    folder, tries = prepare_shards(tmp_path, wanted()), []
    for number in (0, 2):
        part_file(tmp_path, number).touch()
    failed = fill(folder, (1, 3), tries)
    assert tries == [1, 3, 0, 2, 1, 3]  # missing ones come first
    assert failed == {1: "ValueError: not this one", 3: "ValueError: not this one"}
    assert read_json(tmp_path / "failed.json")["slices"] == {str(n): text for n, text in failed.items()}
    assert "ValueError: not this one" in folder.sentence(failed)
    assert fill(folder) == {}
    assert not (tmp_path / "failed.json").exists()
    for number in range(4):
        part_file(tmp_path, number).unlink()
    left = folder.run(lambda *both: run_shards(lambda number: None, *both), lambda *_: None)
    assert sorted(left) == [0, 1, 2, 3]  # a worker that writes to a disk of its own
    assert "its part is not in" in left[0]


def test_shares_are_disjoint_and_whole_and_believe_the_plan(tmp_path: Path) -> None:
    folders = [prepare_shards(tmp_path, wanted(n=100), (i, 3)) for i in range(3)]
    assert sorted(number for one in folders for number in one.own) == list(range(34))
    assert [one.own_images for one in folders] == [12 * 3 - 2, 11 * 3, 11 * 3]
    assert [fill(one) for one in folders] == [{}, {}, {}]
    assert len(module.existing_parts(tmp_path)) == 34
    nothing = prepare_shards(tmp_path / "few", wanted(n=3), (5, 9))
    assert (len(nothing.own), nothing.own_images, fill(nothing)) == (0, 0, {})

    def paths() -> Paths:
        raise AssertionError("the images were listed again")

    assert prepare_shards(tmp_path, wanted(paths=paths), (1, 2)).n == 100
    with pytest.raises(InputError, match="network"):
        prepare_shards(tmp_path, wanted(paths=paths, facts=FACTS | {"network": "large"}), (1, 2))
    for i in range(2):
        fill(prepare_shards(tmp_path, wanted(), (i, 2)), fails=(0, 1))
    names = sorted(path.name for path in tmp_path.glob("failed*"))
    assert names == ["failed-1-of-2.json", "failed-2-of-2.json"]


def test_of_many_that_come_at_once_one_writes_the_plan(tmp_path: Path) -> None:
    begun: list[int] = []
    together = threading.Barrier(4)

    def paths() -> Paths:
        begun.append(1)
        return Paths("/p", (f"/p/{i}.png" for i in range(1000)))

    def one(i: int) -> None:
        together.wait()
        fill(prepare_shards(tmp_path, wanted(paths=paths), (i, 4)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(4)))
    assert (begun, len(module.existing_parts(tmp_path))) == ([1], 334)


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9, None])
def test_a_damaged_plan_is_made_anew(place: float | None, tmp_path: Path) -> None:
    """Else the same command would fail for ever. With --only the sentence says what to do."""
    fill(prepare_shards(tmp_path, wanted()), fails=(1,))
    plan = tmp_path / PLAN_FILE
    whole = plan.read_bytes()
    at = int(len(whole) * (place or 0))
    plan.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]) if place else plan.unlink()
    if place != 0.1:
        with pytest.raises(InputError, match=r"plan\.parquet cannot be read .* without --only"):
            _ = [read_shard_paths(tmp_path, number) for number in range(4)]
    prepare_shards(tmp_path, wanted())
    assert plan.read_bytes() == whole
    assert read_shard_paths(tmp_path, 3) == ["/p/9.png"]


def test_slices_one_after_the_other() -> None:
    told: list[tuple[int, int]] = []

    def job(number: int) -> int:
        if number == 1:
            raise OSError("the disk\nis gone")
        return number * 10

    assert run_shards(job, [3, 1, 2], lambda *both: told.append(both)) == {1: "OSError: the disk is gone"}
    assert told == [(3, 30), (2, 20)]
    assert error_reason(InputError("A sentence.")) == "A sentence."

    def stops(number: int) -> None:
        raise Stopped("image 3 of 7")

    with pytest.raises(Stopped):
        run_shards(stops, range(3), lambda *_: None)


def test_where_all_slices_fail_the_rest_is_not_tried_and_shares_in_words() -> None:
    def job(number: int) -> None:
        if number != 5:
            raise OSError("no space left")

    for numbers, before in ((range(100), 5), (range(10, 100), 0)):
        assert len(run_shards(job, numbers, lambda *_: None)) == MAX_CONSECUTIVE_FAILURES + before
    assert [shard_of_process(text) for text in ("1/1", "2/4", "4/4")] == [(0, 1), (1, 4), (3, 4)]
    for text in ("0/4", "5/4", "x", "1", "1/", "-1/4", "1/0", "1.5/4", "", "1/4/2", "٣/4"):
        with pytest.raises(InputError, match="is no share of the work"):
            shard_of_process(text)
