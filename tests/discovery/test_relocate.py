"""Images that were moved or renamed: paths, edits, what rounds were given, and names follow them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from holotype.discovery.collection import Collection, ImageEntry, read_collection
from holotype.discovery.constraints import read_path_map, write_path_map
from holotype.discovery.relocate import (
    RELOCATION_FILE,
    Relocation,
    commit_relocation,
    read_previous_paths,
    resolve_edit_paths,
    rewrite_paths,
)
from holotype.errors import InputError
from holotype.results.apply_edits import apply_log
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, append_edits, read_log
from tests.discovery.made_round import made_discovery

PATHS = [f"/photos/{i:02d}.png" for i in range(12)]


def found_in(root: str) -> Discovery:
    found = made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": list(range(4, 12))}, paths=PATHS)
    found.category("new-01").exemplars, found.category("new-01").borderline = PATHS[4:6], PATHS[6:7]
    found.facts = replace(found.facts, root=root)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with one round and two edits."""
    own = tmp_path / "rounds" / "1"
    found_in("/photos").save(own)
    found_in("/photos").save(tmp_path)
    write_path_map(own / "labels.json", {"04.png": "a"})
    write_path_map(own / "rejected.json", ["05.png"])
    Collection("/photos", {"04.png": ImageEntry("1-1", "4"), "05.png": ImageEntry("1-1", "5")}).save(own)
    append_edits(tmp_path, [Edit("r-1", "t", "move", PATHS[4], "new-01", "a")])
    append_edits(tmp_path, [Edit("r-1", "t", "rename", "", "new-01", "hats")])
    return tmp_path


def test_a_round_and_its_edits_follow_a_folder_that_was_moved(run: Path) -> None:
    own = run / "rounds" / "1"
    now = [path.replace("/photos", "/archive/photos") for path in PATHS]
    rewrite_paths(run, [own], "/photos", Relocation("/archive/photos"))
    for folder in (own, run):
        moved = Discovery.load(folder)
        assert list(moved.images.path) == now
        assert moved.category("new-01").exemplars == now[4:6]
        assert moved.category("new-01").borderline == now[6:7]
        assert (moved.facts.root, moved.facts.earlier_roots) == ("/archive/photos", ("/photos",))
    assert [edit.image for edit in read_log(run)] == [now[4], ""]
    seen = read_collection(own)
    assert seen is not None
    assert (seen.root, list(seen.images)) == ("/archive/photos", ["04.png", "05.png"])
    rewrite_paths(run, [own], "/archive/photos", Relocation("/photos"))
    assert Discovery.load(own).facts.earlier_roots == ("/archive/photos",)


def test_where_an_image_was_taken_from_goes_with_it(run: Path) -> None:
    apply_log(run)
    rewrite_paths(run, [run / "rounds" / "1"], "/photos", Relocation("/archive/photos"))
    assert Discovery.load(run).facts.edits.came_from == {"/archive" + PATHS[4]: "new-01"}


def test_an_edit_of_an_image_that_nobody_knew_comes_to_mean_no_other_one(run: Path, monkeypatch) -> None:
    """It was refused; read from where the command is typed, or from the new root, it would have named an image."""
    monkeypatch.chdir("/")
    unknown = ["photos/06.png", "/elsewhere/07.png", "/photos/none.png"]
    append_edits(run, [Edit("r-1", "t", "reject", image, "new-01") for image in unknown])
    rewrite_paths(run, [run / "rounds" / "1"], "/photos", Relocation("/archive/photos"))
    assert [edit.image for edit in read_log(run)] == ["/archive/photos/04.png", "", *unknown]


SWAPPED = {"04.png": "05.png", "05.png": "04.png", "06.png": "old/six.png"}


def test_all_that_was_said_of_an_image_goes_with_its_content(run: Path) -> None:
    """Two images have changed names with each other, and a third has another name."""
    own = run / "rounds" / "1"
    before = Discovery.load(own).images.assign(typicality=range(12))
    replace(Discovery.load(own), images=before).save(own)
    rewrite_paths(run, [own], "/photos", Relocation("/photos", SWAPPED))
    paths = list(Discovery.load(own).images.sort_values("typicality").path)
    assert paths == [*PATHS[:4], PATHS[5], PATHS[4], "/photos/old/six.png", *PATHS[7:]]
    assert read_log(run)[0].image == PATHS[5]
    assert read_path_map(own / "labels.json", dict[str, str]) == {"05.png": "a"}
    assert read_path_map(own / "rejected.json", list[str]) == ["04.png"]
    seen = read_collection(own)
    assert seen is not None
    assert {path: one.digest for path, one in seen.images.items()} == {"05.png": "4", "04.png": "5"}


@pytest.mark.parametrize("after", range(4))
def test_a_kill_while_files_take_their_places_is_made_good(after: int, run: Path, monkeypatch) -> None:
    """Even where names were swapped: doing it twice would undo it."""
    own, rename, done = run / "rounds" / "1", os.replace, []

    def kill(source, target) -> None:
        if RELOCATION_FILE in Path(source).parts and len(done) == after:
            raise KeyboardInterrupt
        done.append(target) if RELOCATION_FILE in Path(source).parts else None
        rename(source, target)

    monkeypatch.setattr("holotype.discovery.relocate.os.replace", kill)
    with pytest.raises(KeyboardInterrupt):
        rewrite_paths(run, [own], "/photos", Relocation("/photos", SWAPPED))
    monkeypatch.undo()
    for _ in range(2):
        commit_relocation(run)
        assert read_log(run)[0].image == PATHS[5]
        assert read_path_map(own / "labels.json", dict[str, str]) == {"05.png": "a"}
        assert "/photos/old/six.png" in set(Discovery.load(own).images.path)
        assert not (run / RELOCATION_FILE).exists()


def test_edits_made_in_an_old_report_find_their_images() -> None:
    found = found_in("/photos")
    found.facts = replace(found.facts, earlier_roots=("/once", "/before/photos"))
    edits = [
        Edit("r-1", "t", "move", image, "", "a")
        for image in ("/before/photos/04.png", PATHS[5], "nowhere.png", "/before/photos/older.png")
    ]
    earlier = {"older.png": ["gone.png", "06.png"]}
    assert [edit.image for edit in resolve_edit_paths(edits, [found], earlier)] == [
        PATHS[4],
        PATHS[5],
        "nowhere.png",
        PATHS[6],
    ]
    rename = Edit("r-1", "t", "rename", "", "new-01", "hats")
    assert resolve_edit_paths([rename], [found], {}) == [rename]


def test_a_name_that_another_image_has_now_means_the_one_of_its_round(run: Path) -> None:
    """IMG_0004 was filed away and a new one came; the file of edits is of the report before that."""
    own = run / "rounds" / "1"
    rewrite_paths(run, [own], "/photos", Relocation("/photos", {"04.png": "filed/04.png"}))
    rewrite_paths(
        run, [own], "/photos", Relocation("/photos", {"04.png": "filed too/04.png"})
    )  # and so again
    first = Discovery.load(own)
    second = replace(
        made_discovery("r-2", {"a": list(range(12))}, paths=PATHS), facts=replace(first.facts, round=2)
    )
    edits = [Edit(run_id, "t", "reject", PATHS[4]) for run_id in ("r-1", "r-2")]
    found = resolve_edit_paths(edits, [first, second], read_previous_paths(run))
    assert [edit.image for edit in found] == ["/photos/filed/04.png", PATHS[4]]


def test_a_short_name_is_one_from_the_root_wherever_the_command_is_typed(tmp_path, monkeypatch) -> None:
    """Pages call images by short names. One of them was renamed since; another of the same name lies further down."""
    paths = [str(tmp_path / name) for name in ("filed/fox.png", "owl.png", "sub/owl.png")]
    found = made_discovery("r-1", {"a": [0, 1, 2]}, paths=paths)
    found.facts = replace(found.facts, root=str(tmp_path))
    edits = [Edit("r-1", "t", "reject", image) for image in ("fox.png", "owl.png", "nowhere.png")]
    (tmp_path / "sub").mkdir()
    for place in (tmp_path, tmp_path / "sub", tmp_path.parent):
        monkeypatch.chdir(place)
        there = resolve_edit_paths(edits, [found], {"fox.png": ["filed/fox.png"]})
        assert [edit.image for edit in there] == [*paths[:2], "nowhere.png"]


def test_a_name_leads_to_its_image_though_the_next_name_has_another_one_by_now(run: Path) -> None:
    """fox.png became 04.png, and 04.png and 05.png were swapped later; the file of edits is older than both."""
    own = run / "rounds" / "1"
    for moves in ({"fox.png": "04.png"}, {"04.png": "05.png", "05.png": "04.png"}, {"05.png": "owl.png"}):
        rewrite_paths(run, [own], "/photos", Relocation("/photos", moves))
    edits = [Edit("r-1", "t", "reject", image) for image in ("fox.png", "/photos/fox.png")]
    found = resolve_edit_paths(edits, [Discovery.load(own)], read_previous_paths(run))
    assert [edit.image for edit in found] == ["/photos/owl.png"] * 2


def test_pictures_of_boxes_and_names_of_bursts_follow_too(run: Path) -> None:
    """Both stand in the table of images beside its path; a word that people gave to a burst is no path."""
    own, box = run / "rounds" / "1", "#xywh=percent:10,10,30,30"
    found = Discovery.load(own)
    path = [f"{one}{box}" for one in PATHS]
    group = ["04.png" + box, "04.png" + box, "n-17", "n-17", *[""] * 8]
    images = found.images.assign(path=path, file=PATHS, box="0.1,0.1,0.3,0.3", group=group)
    replace(found, images=images).save(own)
    rewrite_paths(run, [own], "/photos", Relocation("/archive", {"04.png" + box: "fox/1.png" + box}))
    images = Discovery.load(own).images
    assert images.path[4] == f"/archive/fox/1.png{box}"
    assert list(images.file[4:6]) == ["/archive/fox/1.png", "/archive/05.png"]
    assert list(images.group[:4]) == ["fox/1.png" + box, "fox/1.png" + box, "n-17", "n-17"]
    assert set(images.box) == {"0.1,0.1,0.3,0.3"}


# -- Lists by path: what was written comes back, and damage is told by the name of the file


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (dict[str, str], {"a/Käfer.png": "=boots", "format": "a label"}),
        (dict[str, str], {}),
        (list[str], ["b.png", "ö.png"]),
        (dict[str, list[str]], {"a.png": ["b.png", "c.png"]}),
    ],
)
def test_what_was_written_comes_back(tmp_path, kind, content):
    write_path_map(tmp_path / "new.json", content)
    assert read_path_map(tmp_path / "new.json", kind) == content


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": 1}', "7", '{"format": 9, "by_path": {}}'])
def test_what_is_something_else_is_told(tmp_path, content):
    (tmp_path / "labels.json").write_text(content)
    for kind in (dict[str, str], list[str]):
        with pytest.raises(InputError, match=r"labels\.json"):
            read_path_map(tmp_path / "labels.json", kind)
