"""The file of a shard: what was written is read, what has changed since is told, and so is damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holotype.embeddings.extract import Embeddings, ShardFile


def empty(n: int, kind: type = np.float32) -> Embeddings:
    return Embeddings(np.zeros((n, 3), kind), np.full(n, "", dtype=object), np.full(n, "", dtype=object))


def written(folder: Path, kind: type = np.float32) -> tuple[ShardFile, Embeddings]:
    """Four images, of which the second could not be read."""
    shard = ShardFile(folder / "part.parquet", list("abcd"), ["1", "2", "3", "4"])
    found = Embeddings(
        np.arange(12).reshape(4, 3).astype(kind),
        np.array(["", "damaged", "", ""], dtype=object),
        np.array(["", "", "turned", ""], dtype=object),
    )
    shard.write(found)
    return shard, found


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_what_was_written_is_read(tmp_path: Path, kind: type) -> None:
    shard, wrote = written(tmp_path, kind)
    found = empty(4, kind)
    assert len(shard.read(found)) == 0
    assert np.array_equal(found.features, wrote.features)
    assert found.features.dtype == kind
    assert (list(found.problem), list(found.note)) == (list(wrote.problem), list(wrote.note))


def test_a_part_of_all_embeddings_is_written_where_it_belongs(tmp_path: Path) -> None:
    shard, wrote = written(tmp_path)
    whole = empty(9)
    assert len(shard.read(whole.of(slice(3, 7)))) == 0
    assert np.array_equal(whole.features[3:7], wrote.features)
    assert whole.problem[4] == "damaged"
    assert not whole.features[[0, 1, 2, 7, 8]].any()


def test_images_that_have_changed_are_told_and_left_out(tmp_path: Path) -> None:
    shard, wrote = written(tmp_path)
    found = empty(4)
    changed = replace(shard, path=["a", "b", "z", "d"], stamp=["1", "9", "3", "4"]).read(found)
    assert changed.tolist() == [1, 2]
    assert np.array_equal(found.features[[0, 3]], wrote.features[[0, 3]])
    assert not found.features[[1, 2]].any()
    assert (list(found.problem), list(found.note)) == ([""] * 4, [""] * 4)


def test_nothing_there_and_what_is_of_another_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shard, _ = written(tmp_path)
    assert replace(shard, file=tmp_path / "none.parquet").read(empty(4)).tolist() == [0, 1, 2, 3]
    assert not caplog.messages
    longer = replace(shard, path=list("abcde"), stamp=list("12345"))
    found = empty(5)
    assert longer.read(found).tolist() == [0, 1, 2, 3, 4]
    assert not found.features.any()
    shard.file.write_bytes(shard.file.read_bytes()[:-40])
    assert shard.read(empty(4)).tolist() == [0, 1, 2, 3]
    assert len(caplog.messages) == 2
    assert all("cannot be read" in line and "made again" in line for line in caplog.messages)
