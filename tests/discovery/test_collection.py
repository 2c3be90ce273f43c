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
    CollectionDiff,
    ImageEntry,
    compare_labels,
    diff_collections,
    index_images,
    read_collection,
    shown_names,
    with_digests,
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


# -- What has changed in a collection: every image is followed by its content


def look(root: str = "photos", gone: str = "", **images: str) -> Collection:
    """images: path to "content" or "content label"; gone: paths that are, with + between them."""
    words = {path: (*value.split(), "") for path, value in images.items()}
    return Collection(
        root,
        {
            path: ImageEntry("1-1", one, label, here=path not in gone.split("+"))
            for path, (one, label, *_) in words.items()
        },
    )


def test_nothing_has_changed() -> None:
    before = look(a="1", b="2 red")
    found = diff_collections(before, look(a="1", b="2 red"))
    compare_labels(found, before, look(a="1", b="2 red"))
    assert (found.words, found.trains, found.moves) == ("", False, {})


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (look(a="1", b="2", c="3", d="3"), "2 images new"),
        (look(a="1"), "1 image gone"),
        (look(a="1", b="9"), "1 image repaired"),
        (look(a="1", z="2"), "1 image renamed"),
        (look(b="1", a="2"), "2 images renamed"),  # swapped
        (look(a="9", z="1", b="2"), "1 image new, 1 renamed"),  # filed away, and a new one of its name
        (look(a="1 red", b="2"), "1 label new"),
        (look(a="1", z="2 red", c="3 red"), "1 image new, 1 renamed, 2 labels new"),
    ],
)
def test_one_line_says_all(now: Collection, words: str) -> None:
    before = look(a="1", b="2")
    found = diff_collections(before, now)
    compare_labels(found, before, now)
    assert found.words == words
    assert found.trains == (words not in ("1 image renamed", "2 images renamed"))


def test_an_image_goes_by_content_first_and_by_path_last() -> None:
    """a was repaired; b was renamed to c; c was filed away."""
    found = diff_collections(look(a="1", b="2", c="3"), look(a="9", c="2", **{"old/c": "3"}))
    assert found.then == {"a": "a", "c": "b", "old/c": "c"}
    assert found.moves == {"b": "c", "c": "old/c"}
    assert (found.repaired, found.new, found.gone) == (["a"], [], [])


def test_copies_are_as_many_images_as_there_are_files() -> None:
    before = look(a="1", b="1", **{"x/c": "1"})
    assert diff_collections(before, look(a="1", b="1", d="1", **{"x/c": "1"})).new == ["d"]
    assert diff_collections(before, look(b="1", **{"x/c": "1"})).gone == ["a"]
    found = diff_collections(before, look(a="1", d="1", **{"y/c": "1"}))
    assert found.moves == {"b": "d", "x/c": "y/c"}  # the same file name goes before the order


def test_what_was_gone_comes_back_under_any_name() -> None:
    before = look(gone="b", a="1", b="2")
    for path in ("b", "z"):
        found = diff_collections(before, look(a="1", **{path: "2"}))
        assert (found.back, found.new, found.renamed) == ([path], [], [])
        assert found.words == "1 image back"
        assert found.trains
    assert diff_collections(before, look(a="1")).words == ""


def test_another_picture_at_the_path_of_one_that_was_gone_is_another_image() -> None:
    """What was said of the first is kept apart from the second, and counts again when the first comes back."""
    before = look(gone="b", a="1", b="2")
    found = diff_collections(before, look(a="1", b="7"))
    assert (found.new, found.repaired, found.gone) == (["b"], [], [])
    assert found.moves == {"b": "b (gone 2)"}
    again = diff_collections(
        look(gone="b (gone 2)", a="1", b="7", **{"b (gone 2)": "2"}), look(a="1", b="7", c="2")
    )
    assert (again.back, again.moves) == (["c"], {"b (gone 2)": "c"})


def test_files_that_cannot_be_read_are_known_by_path_and_stamp() -> None:
    before = Collection(
        "photos", {"a": ImageEntry("1-1", ""), "b": ImageEntry("1-1", ""), "c": ImageEntry("1-1", "")}
    )
    now = Collection(
        "photos", {"a": ImageEntry("1-1", ""), "b": ImageEntry("1-1", "2"), "c": ImageEntry("2-1", "")}
    )
    assert diff_collections(before, now).repaired == ["b", "c"]


def test_the_folder_was_moved() -> None:
    before = look("photos", a="1", **{"b/c": "2"})
    found = diff_collections(before, look("archive/photos", a="1", **{"b/c": "2"}))
    assert (found.words, found.moves) == ("", {})
    found = diff_collections(before, look("archive/photos", a="1", **{"d/c": "2"}))
    assert (found.words, found.moves) == ("1 image renamed", {"b/c": "d/c"})


def test_the_same_files_seen_from_another_root_are_not_renamed() -> None:
    """A list of images that lies elsewhere now, or one more folder."""
    found = diff_collections(
        look("photos/2025", a="1", b="2"), look("photos", **{"2025/a": "1", "2025/b": "9", "2026/c": "3"})
    )
    assert found.words == "1 image new, 1 repaired"
    assert found.moves == {"a": "2025/a", "b": "2025/b"}


def test_a_class_is_gone_where_labels_were_taken_away_and_not_where_images_went() -> None:
    before = look(a="1 red", b="2 blue", c="3 green", d="4 green")
    now = look(a="1", c="3", d="4 green")
    found = diff_collections(before, now)
    compare_labels(found, before, now)
    assert found.classes_gone == {"red"}


def test_labels_are_new_changed_or_taken_away() -> None:
    before = look(gone="e", a="1", b="2 red", c="3 red", d="4 red", e="5 red")
    now = look(a="1 red", z="2 blue", c="3", d="4 red", e="5 red", f="6 red")
    found = diff_collections(before, now)
    compare_labels(found, before, now)
    assert (found.labels_new, found.labels_changed, found.labels_gone) == (["a", "f"], ["z"], ["c"])
    assert found.classes_gone == frozenset()  # others are red
    assert found.relabelled == {"a", "z"}  # f is new, so that nobody can have said anything of it
    assert found.words == "1 image new, 1 back, 1 renamed, 2 labels new, 1 label changed, 1 label taken away"
    marked = with_digests(now, dict.fromkeys(now.images, "red"), found.relabelled)
    assert {path for path, seen in marked.images.items() if seen.relabelled} == {"a", "z"}
    assert {seen.label for seen in marked.images.values()} == {"red"}


def test_boxes_that_a_detector_has_moved_a_little_are_the_same() -> None:
    def box(*numbers: float) -> str:
        return "a.jpg#xywh=percent:" + ",".join(map(str, numbers))

    def seen(*boxes: str) -> Collection:
        return Collection("photos", {one: ImageEntry("1-1", f"digest of {one}") for one in boxes})

    fox, hare = box(10, 10, 30, 30), box(60, 10, 20, 20)
    found = diff_collections(
        seen(fox, hare, "b.jpg"), seen(box(61, 9, 20, 21), box(11, 11, 30, 29), box(0, 80, 9, 9), "b.jpg")
    )
    assert found.moves == {fox: box(11, 11, 30, 29), hare: box(61, 9, 20, 21)}
    assert found.words == "1 image new, 2 repaired"
    found = diff_collections(seen(fox), seen(box(35, 35, 30, 30)))
    assert found.words == "1 image new, 1 gone"


def test_boxes_that_were_moved_a_little_follow_a_picture_that_was_renamed() -> None:
    """Whoever renames pictures runs the detector again, since its file calls them by their names."""

    def seen(**stamps: str) -> Collection:
        """Pictures with one box each. stamps: by picture; those before n have moved their boxes."""
        ends = {
            name: ".jpg#xywh=percent:" + ("11,11,30,29" if name < "n" else "10,10,30,30") for name in stamps
        }
        return Collection(
            "photos", {name + ends[name]: ImageEntry(stamp, name) for name, stamp in stamps.items()}
        )

    found = diff_collections(seen(x="7-1", y="8-2"), seen(a="7-1", b="8-2"))
    assert {then[0]: now[0] for then, now in found.moves.items()} == {"x": "a", "y": "b"}
    assert found.words == "2 images repaired"
    twins = diff_collections(seen(x="7-1"), seen(a="7-1", b="7-1"))
    assert twins.words == "2 images new, 1 gone"  # nobody knows which it was


def test_a_few_are_shown() -> None:
    assert shown_names(["a", "b"]) == "a, b"
    assert shown_names("abcde") == "a, b, c and 2 more"
    assert CollectionDiff().words == ""
