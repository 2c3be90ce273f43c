"""A look at a collection: written, read, and made without reading files again."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from holotype.data.table import Table
from holotype.discovery.collection import (
    COLLECTION_FILE,
    Collection,
    ImageEntry,
    index_images,
    read_collection,
)
from holotype.errors import InputError


@pytest.fixture
def table(tmp_path: Path) -> Table:
    root = tmp_path / "photos"
    root.mkdir()
    for name in ("a", "b", "c"):
        (root / f"{name}.png").write_bytes(name.encode() * 3)
    paths = np.array([str(root / f"{name}.png") for name in "abc"], dtype=object)
    return Table(paths, np.array(["red", "", ""], dtype=object), ("red",), root=str(root))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_collection(tmp_path) is None
    seen = {
        "a.png": ImageEntry("1-1", "aa", "red"),
        "Käfer.png": ImageEntry("2-1", "", here=False, relabelled=True),
    }
    for images in (seen, {}):
        one = Collection("photos", images, {"hats": "new-01"})
        one.save(tmp_path)
        assert read_collection(tmp_path) == one
    (tmp_path / COLLECTION_FILE).write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"collection.parquet cannot be read"):
        read_collection(tmp_path)


def test_a_look_tells_stamp_content_and_label(table: Table, monkeypatch) -> None:
    os.utime(table.path[0], ns=(7, 7))
    seen = index_images(table)
    assert (seen.root, list(seen.images)) == (table.root, ["a.png", "b.png", "c.png"])
    assert (seen.images["a.png"].stamp, seen.images["a.png"].label) == ("3-7", "red")
    assert len({one.digest for one in seen.images.values()}) == 3
    monkeypatch.setattr("holotype.data.hashing.file_digest", lambda path: pytest.fail(f"read {path} again"))
    assert index_images(table, seen) == seen
    monkeypatch.setattr("holotype.data.hashing.file_digest", lambda path: "anew")
    Path(table.path[1]).write_bytes(b"repaired")
    assert [one.digest == "anew" for one in index_images(table, seen).images.values()] == [False, True, False]


def test_what_is_gone_stays_known() -> None:
    before = Collection(
        "photos", {"a": ImageEntry("1", "x"), "b": ImageEntry("2", "y", "red", relabelled=True)}
    )
    now = Collection("photos", {"a": ImageEntry("3", "z")}).with_gone(before)
    assert now.images == {"a": ImageEntry("3", "z"), "b": ImageEntry("2", "y", "red", here=False)}
    assert list(now.here) == ["a"]
    assert list(now.moved({"b": "c"}, "archive").images) == ["a", "c"]
