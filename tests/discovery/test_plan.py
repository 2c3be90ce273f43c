"""A discovery goes on with a collection that changes: images, labels, folders, settings; or it says why not."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import holotype.embeddings.store as store
from holotype.data import hashing
from holotype.data.load import load_table
from holotype.discovery.pipeline import default_folder, discover_table
from holotype.discovery.plan import plan_round
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from tests.conftest import COLOURS
from tests.discovery.made_round import edits_file


@pytest.fixture
def photos(squares_folder, tmp_path) -> Path:
    return Path(shutil.copytree(squares_folder, tmp_path / "photos.v1"))


@pytest.fixture
def go(photos, small, tmp_path, caplog) -> Callable[..., Discovery]:
    """The same command again and again; k-means takes an instant."""
    caplog.set_level("INFO", "holotype")

    def command(
        folder: Path = photos,
        edits: Path | None = None,
        labels: Path | None = None,
        unlabelled: tuple[str, ...] = (),
        **settings,
    ) -> Discovery:
        caplog.clear()
        table = load_table(folder, labels, unlabelled=unlabelled)
        config = small(**{"method": "kmeans", **settings})
        return discover_table(table, config, tmp_path / "run", progress=False, edits=edits)

    return command


def paint(path: Path, colour: tuple[int, int, int], number: int) -> None:
    noise = np.random.default_rng(number).integers(-30, 30, (40, 40, 3))
    Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(path)


def id_of(found: Discovery, path: Path) -> str:
    return str(found.images.set_index("path").category_id[str(path)])


def new_id(found: Discovery) -> str:
    return next(category.id for category in found.categories if category.kind == "novel")


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_folders_of_like_names_have_runs_of_their_own() -> None:
    names = {default_folder(Path(name)) for name in ("photos.v1", "photos.v2", "photos", "photos.csv")}
    assert len(names) == 4
    assert default_folder(Path("photos.v1")) == Path("runs") / "photos.v1-discover"


# -- images


def test_images_come_go_are_repaired_renamed_and_labelled(go, small, photos, tmp_path, caplog, monkeypatch):
    first, heap, run = go(), photos / "unlabelled", tmp_path / "run"
    for number in range(4):
        paint(heap / f"blue-9{number}.png", COLOURS["blue"], 90 + number)
    (heap / "red-15.png").unlink()
    paint(heap / "red-14.png", COLOURS["red"], 99)
    (heap / "blue-00.png").rename(heap / "sky.png")
    (heap / "green-15.png").rename(photos / "green" / "green-15.png")
    (photos / "red" / "red-00.png").rename(photos / "green" / "red-00.png")
    read: list[str] = []
    embed = store.decode_in_order
    watched = lambda paths, *a, **b: read.extend(paths) or embed(paths, *a, **b)  # noqa: E731
    monkeypatch.setattr(store, "decode_in_order", watched)
    words = "4 images new, 1 gone, 1 repaired, 3 renamed, 1 label new, 1 label changed."
    before = written(run)
    assert plan_round(run, load_table(photos), small(method="kmeans")).lines()[0].endswith(words)
    assert written(run) == before
    second = go()
    assert f"Since round 1: {words}" in caplog.text
    assert "read again: unlabelled/red-14.png." in caplog.text
    assert not plan_round(run, load_table(photos), small(method="kmeans")).trains
    assert {Path(path).name for path in read} == {*(f"blue-9{i}.png" for i in range(4)), "red-14.png"}
    assert (second.facts.round, second.facts.earlier_runs, len(second.images)) == (2, (first.run_id,), 67)
    assert id_of(second, photos / "green" / "red-00.png") == "green"
    assert id_of(second, heap / "sky.png") == id_of(first, heap / "blue-00.png")
    assert {c.id for c in second.categories} == {c.id for c in first.categories}
    for _ in range(2):
        assert go().run_id == second.run_id
        assert "Nothing has changed since round 2: its result stands." in caplog.text


def test_a_moved_folder_needs_nothing_written_anew(go, photos, tmp_path, caplog, monkeypatch) -> None:
    run, heap = tmp_path / "run", "unlabelled"
    novel = new_id(go())
    old = [str(photos / heap / f"blue-{i:02d}.png") for i in range(16)]
    file = edits_file(run, ("confirm", old[3], "", novel), ("rename", "", novel, "sky"))
    second = go(edits=file)
    before, log = written(run / "rounds"), (run / "edits.csv").read_bytes()
    archive = tmp_path / "archive"
    shutil.copytree(photos, archive)  # other times, and the old folder is still there
    (archive / heap / "blue-00.png").rename(archive / heap / "sky.png")
    found = go(archive, edits=file)
    assert f"The images are in {archive} now." in caplog.text
    assert "Since round 2: 1 image renamed." in caplog.text
    assert (found.run_id, found.facts.root) == (second.run_id, str(archive))
    assert (written(run / "rounds"), (run / "edits.csv").read_bytes()) == (before, log)
    assert {str(Path(path).parent.parent) for path in found.images.path} == {str(archive)}
    now = found.images.set_index("path").loc[str(archive / heap / "blue-03.png")]
    assert (now.category, now.label) == ("sky", novel)
    assert all(Path(path).is_file() for category in found.categories for path in category.exemplars)
    # a file that was exported before still counts, and one that somebody writes by hand now
    file = edits_file(run, *[("confirm", path, "", "blue") for path in old[8:13]])
    with monkeypatch.context() as patch:
        patch.setattr("holotype.embeddings.store.embed_rows", lambda *_: pytest.fail("embedded again"))
        assert go(archive, edits=file).facts.confirmed_labels == 6
    file = edits_file(run, ("reject", str(archive / heap / "blue-13.png"), "", ""))
    assert id_of(go(archive, edits=file), archive / heap / "blue-13.png") == ""


def test_each_image_is_hashed_once_in_a_command_and_a_touched_one_is_the_same(
    go, photos, holotype, tmp_path, caplog, monkeypatch
) -> None:
    """Touched as after a copy, or a restored backup: other times, the same content."""
    read: list[str] = []
    digest = hashing.file_digest
    monkeypatch.setattr(hashing, "file_digest", lambda path: read.append(path) or digest(path))
    (photos / "unlabelled" / "copy.png").write_bytes((photos / "unlabelled" / "blue-00.png").read_bytes())
    every = sorted(map(str, photos.rglob("*.png")))
    outcome = holotype("discover", photos, "--dry-run", "--out", tmp_path / "none", "--no-progress")
    assert (outcome.code, "The same file" in outcome.out) == (0, True)
    assert sorted(read) == every
    read.clear()
    first = go()
    assert sorted(read) == every
    for path in every:
        os.utime(path)
    assert go().run_id == first.run_id
    assert "Nothing has changed" in caplog.text
    read.clear()
    go()
    assert read == []


# -- labels


@pytest.mark.parametrize("named", [False, True])
def test_a_heap_that_was_taken_for_a_class_hands_on_no_name_of_its_own(go, photos, tmp_path, named) -> None:
    """--unlabelled, the second time. A name that somebody gave in the report stays with the images."""
    heap = photos / "misc"
    heap.mkdir()
    for path in sorted((photos / "unlabelled").glob("blue-*.png")):
        path.rename(heap / path.name)
    assert "misc" in go().known
    if named:
        go(edits=edits_file(tmp_path / "run", ("rename", "", "misc", "skies")))
    found = go(unlabelled=("misc",))
    (category,) = set(found.images.category[found.images.path.str.contains("/misc/")])
    assert found.known == ("green", "red")
    assert (category == "skies") if named else category.startswith("new-")


def test_classes_that_edits_have_made_are_classes_enough(go, photos, tmp_path) -> None:
    """Of those that images came with one is gone."""
    first = go()
    novel = new_id(first)
    path = first.images.set_index("category_id").path[novel].iloc[0]
    shutil.rmtree(photos / "red")
    with pytest.raises(InputError, match="Only one known class"):
        go()
    edits = edits_file(tmp_path / "run", ("confirm", path, novel, novel))
    assert set(go(edits=edits).known) == {"green", novel}


# -- settings, and what cannot go on
