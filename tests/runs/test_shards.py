"""A folder of parts knows of what they are, which are missing and what failed; several commands may fill it at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holotype.data.paths import Paths
from holotype.embeddings.executor import run_shards
from holotype.embeddings.shards import (
    PLAN_FILE,
    ShardFolder,
    ShardRequest,
    part_file,
    prepare_shards,
    read_shard_paths,
)
from holotype.errors import InputError
from holotype.utils.serialization import read_json

FACTS = {"format": 3, "network": "tiny"}
TOLD = {"format": "the version of their format", "network": "the network"}


def wanted(n: int = 10, root: str = "/p", **more) -> ShardRequest:
    def paths() -> Paths:
        return Paths(root, (f"{root}/{i}.png" for i in range(n)))

    return ShardRequest(**({"facts": FACTS, "told": TOLD, "source": root, "paths": paths, "each": 3} | more))


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
    ("changed", "says"),
    [
        ({"facts": FACTS | {"network": "large"}}, "the network"),
        ({"n": 9}, "the list of images, the number of images"),
        ({"facts": FACTS | {"format": 4}}, "the version of their format"),
    ],
)
def test_something_else_is_refused_and_nothing_lost(changed: dict, says: str, tmp_path: Path) -> None:
    fill(prepare_shards(tmp_path, wanted()))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=rf"something else \(not the same: {says}\)"):
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
    with pytest.raises(InputError, match="nobody knows of what"):
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
    said = folder.sentence(failed)
    assert said.startswith("2 of the 4 slices could not be done, as slice 1 (ValueError: not this one);")
    assert "the same command tries them again" in said
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
    with pytest.raises(InputError, match="the network"):
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
def test_a_damaged_plan_is_made_anew(place: float | None, tmp_path: Path, caplog) -> None:
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
    assert "is gone or was damaged, and is made again" in caplog.text
    assert read_shard_paths(plan, 3) == ["/p/9.png"]
