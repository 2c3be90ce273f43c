"""The index of a collection, what has changed in it, where images lie now, and what labels mean."""

import os
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holotype.data.table import Table
from holotype.discovery.collection import (
    COLLECTION_FILE,
    Collection,
    CollectionDiff,
    ImageEntry,
    LabelAliases,
    compare_labels,
    diff_collections,
    index_images,
    read_collection,
    resolve_aliases,
    with_current_paths,
    with_labels,
)
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from tests.discovery.made_round import made_discovery


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
    seen = {"a.png": ImageEntry("1-1", "aa", "red"), "Käfer.png": ImageEntry("2-1", "")}
    for images in (seen, {}):
        written = Collection("photos", images, {"hats": "new-01"}, {"new-01": "hats"}, {"aa": "bb"})
        written.save(tmp_path)
        assert read_collection(tmp_path) == written
    (tmp_path / COLLECTION_FILE).write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"collection.parquet cannot be read"):
        read_collection(tmp_path)


def test_files_are_read_once_while_size_and_time_are_the_same(table: Table, monkeypatch) -> None:
    os.utime(table.path[0], ns=(7, 7))
    seen = index_images(table)
    assert (seen.root, list(seen.images)) == (table.root, ["a.png", "b.png", "c.png"])
    assert (seen.images["a.png"].stamp, seen.images["a.png"].label) == ("3-7", "red")
    assert len(set(seen.keys)) == 3
    monkeypatch.setattr("holotype.data.hashing.file_digest", lambda path: pytest.fail(f"read {path} again"))
    assert index_images(table, seen) == seen
    monkeypatch.setattr("holotype.data.hashing.file_digest", lambda path: "anew")
    Path(table.path[1]).write_bytes(b"repaired")
    Path(table.path[2]).write_bytes(b"")
    assert [entry.digest for entry in index_images(table, seen).images.values()] == [seen.keys[0], "anew", ""]


def test_copies_share_a_key_and_the_path_stands_in_for_what_cannot_be_read() -> None:
    seen = index(a="1", b="1 red", c="2", d="")
    assert seen.keys == ["1", "1", "2", "d"]
    assert seen.paths == {"1": ["a", "b"], "2": ["c"], "d": ["d"]}
    assert seen.labels == {"1": "red", "2": "", "d": ""}


def test_an_image_is_followed_through_repairs_there_and_back() -> None:
    """1 was repaired to 2 and 2 to 3; another copy of 1 became 4; 5 was damaged, and is whole again."""
    aliases = {"2": "1", "3": "2", "4": "1", "d": "5", "5": "d"}
    seen = replace(index(a="3", b="4", d="5"), aliases=aliases)
    assert list(seen.ancestors("3")) == ["2", "1"]
    assert list(seen.ancestors("5")) == ["d"]
    assert {key: sorted(now) for key, now in seen.heirs.items()} == {"1": ["3", "4"], "2": ["3"], "d": ["5"]}
    assert [seen.present(key) for key in ("1", "2", "3", "9")] == ["3", "3", "3", "9"]


# -- what has changed: every image is followed by its content


def index(root: str = "photos", **images: str) -> Collection:
    """images: path to "content" or "content label"."""
    words = {path: (*value.split(" "), "") for path, value in images.items()}
    return Collection(root, {path: ImageEntry("1-1", one, label) for path, (one, label, *_) in words.items()})


def compared(before: Collection, now: Collection) -> CollectionDiff:
    found = diff_collections(before, now)
    compare_labels(found, before, now)
    return found


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (index(a="1", b="2"), ""),
        (index(a="1", b="2", c="3", d="3"), "2 images new"),
        (index(a="1"), "1 image gone"),
        (index(a="1", b="9"), "1 image repaired"),
        (index(a="1", z="2"), "1 image renamed"),
        (index(b="1", a="2"), "2 images renamed"),  # swapped
        (index(a="9", z="1", b="2"), "1 image new, 1 renamed"),  # filed away, and a new one of its name
        (index(a="1 red", b="2"), "1 label new"),
        (index(a="1", z="2 red", c="3 red"), "1 image new, 1 renamed, 2 labels new"),
        (index("archive", a="1", z="2"), "1 image renamed"),  # the folder was moved
        (index("photos/..", **{"photos/a": "1", "photos/b": "9"}), "1 image repaired"),  # the same files
    ],
)
def test_one_line_says_all(now: Collection, words: str) -> None:
    found = compared(index(a="1", b="2"), now)
    assert found.words == words
    assert found.trains == (words not in ("", "1 image renamed", "2 images renamed"))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        # a was repaired; b was renamed to c; c was filed away
        (
            index(a="1", b="2", c="3"),
            index(a="9", c="2", **{"old/c": "3"}),
            {"then": {"a": "a", "c": "b", "old/c": "c"}, "repaired": ["a"], "aliases": {"9": "1"}, "new": []},
        ),
        # copies are as many images as there are files
        (index(a="1", b="1"), index(a="1", b="1", d="1"), {"new": ["d"], "gone": []}),
        (index(a="1", b="1"), index(b="1"), {"new": [], "gone": ["a"]}),
        # of each copy something else became
        (
            index(a="1", b="1", **{"x/c": "1"}),
            index(a="7", b="8", d="1"),
            {"renamed": ["d"], "aliases": {"7": "1", "8": "1"}},
        ),
    ],
)
def test_an_image_goes_by_content_first_and_by_path_last(before, now, expected) -> None:
    found = diff_collections(before, now)
    assert {name: getattr(found, name) for name in expected} == expected


def test_files_that_cannot_be_read_are_known_by_path_and_stamp() -> None:
    before = Collection("photos", {name: ImageEntry("1-1", "") for name in "abc"})
    now = {"a": ImageEntry("1-1", ""), "b": ImageEntry("1-1", "2"), "c": ImageEntry("2-1", "")}
    found = diff_collections(before, Collection("photos", now))
    assert (found.repaired, found.aliases) == (["b", "c"], {"2": "b"})


def test_labels_are_new_changed_or_taken_away() -> None:
    before = index(a="1", b="2 red", c="3 red", d="4 red", g="7 grey", h="8 black")
    found = compared(before, index(a="1 red", z="2 blue", c="3", d="4 red", f="6 red", g="7"))
    assert (found.labels_new, found.labels_changed, found.labels_gone) == (["a", "f"], ["z"], ["c", "g"])
    assert found.classes_gone == {"grey"}  # others are red, and the black one went with its image
    assert found.words.endswith("2 labels new, 1 label changed, 2 labels taken away")
    assert not found.labels_are_others
    assert compared(index(a="1 x", b="2 x", c="3 y"), index(a="1", b="2 y", c="3")).labels_are_others
    other = with_labels(before, "abcdef", aliases={"1": "2"})
    assert ([e.label for e in other.images.values()], other.aliases) == (list("abcdef"), {"1": "2"})


def boxes(picture: str, *places: tuple[float, ...], stamp: str = "1-1") -> dict[str, ImageEntry]:
    paths = [f"{picture}#xywh=percent:{','.join(map(str, place))}" for place in places]
    return {path: ImageEntry(stamp, f"digest of {path}") for path in paths}


def test_boxes_that_a_detector_has_moved_a_little_are_the_same() -> None:
    fox, hare = (10, 10, 30, 30), (60, 10, 20, 20)
    before = Collection("photos", boxes("a.jpg", fox, hare))
    now = Collection("photos", boxes("a.jpg", (61, 9, 20, 21), (11, 11, 30, 29), (0, 80, 9, 9)))
    found = diff_collections(before, now)
    one, two, other = now.images
    assert [list(before.images).index(found.then[path]) for path in (one, two)] == [1, 0]
    assert (found.new, len(found.aliases)) == ([other], 2)
    far = diff_collections(before, Collection("photos", boxes("a.jpg", (35, 35, 30, 30), hare)))
    assert far.words == "1 image new, 1 gone"
    # whoever renames pictures runs the detector again, since its file calls them by their names
    before = Collection("photos", boxes("x.jpg", fox, stamp="7-1"))
    moved = boxes("a.jpg", (11, 11, 30, 29), stamp="7-1")
    assert diff_collections(before, Collection("photos", moved)).words == "1 image repaired"
    twins = Collection("photos", moved | boxes("b.jpg", (11, 11, 30, 29), stamp="7-1"))
    assert diff_collections(before, twins).words == "2 images new, 1 gone"  # nobody knows which it was


# -- where the images of a round lie now


def of_round(root: str = "/photos", digests: str = "0123456789ab") -> Discovery:
    paths = [f"/photos/{i:02d}.png" for i in range(12)]
    found = made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": list(range(4, 12))}, paths=paths)
    found.images["digest"] = list(digests)
    found.category("new-01").exemplars, found.category("new-01").borderline = paths[4:6], paths[6:7]
    return replace(found, facts=replace(found.facts, root=root))


def now_at(root: str, **moved: str) -> Collection:
    """moved: digest to path, where that is another one; "" = gone."""
    places = {digest: moved.get(f"d{digest}", f"{i:02d}.png") for i, digest in enumerate("0123456789ab")}
    return Collection(root, {path: ImageEntry("1-1", digest) for digest, path in places.items() if path})


def test_a_discovery_speaks_of_the_paths_of_today_and_the_round_stays_as_it_was() -> None:
    found = of_round()
    assert with_current_paths(found, now_at("/photos")) is found
    moved = with_current_paths(found, now_at("/archive", d4="fox/1.png", d5="04.png", d6="", d7="06.png"))
    names = [*(f"{i:02d}.png" for i in range(4)), "fox/1.png", "04.png", "", "06.png"]
    expected = [f"/archive/{name}" if name else "/photos/06.png" for name in names]
    assert list(moved.images.path[:8]) == expected
    assert moved.category("new-01").exemplars == ["/archive/fox/1.png", "/archive/04.png"]
    assert moved.category("new-01").borderline == ["/photos/06.png"]
    assert moved.facts.root == "/archive"
    assert list(found.images.path)[4] == "/photos/04.png"
    taken = with_current_paths(found, now_at("/photos", d6="", d7="06.png"))
    assert list(taken.images.path[6:8]) == ["/photos/06.png (gone)", "/photos/06.png"]


def test_copies_keep_their_own_paths_and_repaired_images_theirs() -> None:
    found = of_round(digests="001123456789")
    now = {f"{i:02d}.png": d for i, d in enumerate("001x23456789")} | {"new.png": "0"}
    del now["00.png"]
    images = {path: ImageEntry("1-1", digest) for path, digest in now.items()}
    moved = with_current_paths(found, Collection("/photos", images, aliases={"x": "1"}))
    names = ["new.png", "01.png", "02.png", "03.png"]  # the fourth was a copy of the third, and was repaired
    assert list(moved.images.path[:4]) == [f"/photos/{name}" for name in names]


def test_pictures_of_boxes_and_names_of_bursts_follow_too() -> None:
    """Both stand in the table of images beside its path; a word that people gave to a burst is no path."""
    found, box = of_round(), "#xywh=percent:10,10,30,30"
    found.images["path"] += box
    found.images = found.images.assign(
        file="", box="0.1,0.1,0.3,0.3", group=["04.png" + box, "n-17", *[""] * 10]
    )
    plain = now_at("/archive", d4="fox/1.png")
    now = replace(plain, images={path + box: entry for path, entry in plain.images.items()})
    images = with_current_paths(found, now).images
    assert list(images.file[4:6]) == ["/archive/fox/1.png", "/archive/05.png"]
    assert list(images.group[:2]) == ["fox/1.png" + box, "n-17"]


# -- what labels mean: ids stay where people call a class otherwise


def labelled(*labels: str) -> Collection:
    return index(**{f"{i}.png": f"{i} {label}" for i, label in enumerate(labels)})


def meant(
    now: Collection, before: Collection, last: LabelAliases | None = None, **names: str
) -> LabelAliases:
    """names: of categories in the report; new-01 is written new_01."""
    found = made_discovery("r", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})
    found = found.called({id.replace("_", "-"): name for id, name in names.items()})
    known = Collection(means=last.means, spoken=last.spoken) if last else Collection()
    return resolve_aliases(now, before, {path: path for path in before.images}, known, found)


def test_the_name_of_a_category_means_it() -> None:
    """Somebody called new-01 hats in the report, and later sorts pictures into a folder hats."""
    words = meant(labelled("a", "a", "hats"), labelled("a", "a", ""), new_01="hats")
    assert (words.means, words.names) == ({"hats": "new-01"}, {})
    again = meant(labelled("a", "a", "hats"), labelled("a", "a", "new-01"), words, new_01="caps")
    assert (again.means, again.names) == ({"hats": "new-01"}, {})  # whatever the report calls it by now
    by_id = labelled("a", "new-01", "new-01")  # and an id takes no name away
    assert meant(by_id, by_id, words, new_01="hats").names == {}


def test_accents_that_a_mac_writes_apart_are_the_same_letters() -> None:
    apart = unicodedata.normalize("NFD", "é")
    assert meant(labelled("a", "é"), labelled("a", ""), new_01=apart).means == {"é": "new-01"}
    assert meant(labelled("a", "é"), labelled("a", apart)).means == {"é": apart}  # the id comes from an edit
    assert meant(labelled("a", "é"), labelled(apart, "é")).means == {}  # two classes then


def test_a_class_that_is_renamed_and_back_has_its_name_again() -> None:
    """A folder that was called otherwise for a while, or a list of labels that was forgotten once."""
    before, red, name, last = labelled("a", "a", "b"), labelled("crimson", "crimson", "b"), "a", None
    for now, new in ((red, "crimson"), (before, "a"), (red, "crimson")):
        last = meant(now, before, last, a=name)
        assert (last.means, last.names) == ({"crimson": "a"}, {"a": new})
        name = new
        assert meant(now, before, last, a=name).names == {}
        assert meant(now, before, last, a="scarlet").names == {}  # said later, in the report


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (("a", "a", "new-01"), ("a", "a", "")),
        (("a", "c", "b", "b"), ("a", "a", "b", "b")),  # one of two
        (("c", "d", "b", "b"), ("a", "a", "b", "b")),  # to different ones
        (("b", "b", "b", "b"), ("a", "a", "b", "b")),  # to one that was there
        (("", "", "b", "b"), ("a", "a", "b", "b")),
        (("c", "", "b", "b"), ("a", "", "b", "b")),  # a single image says little
    ],
)
def test_a_label_that_was_corrected_is_not_a_renamed_class(now, before) -> None:
    found = meant(labelled(*now), labelled(*before))
    assert (found.means, found.names) == ({}, {})
    # two classes cannot both be the renamed one
    assert meant(labelled("c", "c", "c", "c"), labelled("a", "a", "b", "b")).names == {"a": "c"}


def test_a_table_speaks_of_ids() -> None:
    label = np.array(["hats", "a", "", "b"], dtype=object)
    table = Table(np.array(list("1234"), dtype=object), label, ("a", "b", "hats"))
    spoken = LabelAliases({"hats": "new-01", "caps": "new-02", "b": "a"}).apply(table)
    assert list(spoken.label) == ["new-01", "a", "", "a"]
    assert spoken.known == ("a", "new-01")
