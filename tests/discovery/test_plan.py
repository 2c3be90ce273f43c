"""A discovery goes on with a collection that changes: images, labels, folders, settings; or it says why not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import holotype.embeddings.store as module
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


def test_folders_of_like_names_have_runs_of_their_own() -> None:
    names = {default_folder(Path(name)) for name in ("photos.v1", "photos.v2", "photos", "photos.csv")}
    assert len(names) == 4
    assert default_folder(Path("photos.v1")) == Path("runs") / "photos.v1-discover"


def test_a_discovery_goes_on_where_its_images_were_moved(photos, small, tmp_path, monkeypatch) -> None:
    run, table = tmp_path / "run", load_table(photos)
    novel = next(
        c for c in discover_table(table, small(), run, progress=False).categories if c.kind == "novel"
    )
    image = str(photos / "unlabelled" / "blue-03.png")
    file = edits_file(run, ("confirm", image, "", novel.id), ("rename", "", novel.id, "sky"))
    assert discover_table(table, small(), run, progress=False, edits=file).facts.round == 2
    elsewhere = tmp_path / "archive" / "photos"
    elsewhere.parent.mkdir()
    photos.rename(elsewhere)
    with monkeypatch.context() as patch:
        patch.setattr("holotype.discovery.pipeline.run_round", lambda round: pytest.fail("trained again"))
        found = discover_table(load_table(elsewhere), small(), run, progress=False, edits=file)
    assert found.category(novel.id).name == "sky"
    assert all(Path(path).is_file() for path in found.images.path)
    now = str(elsewhere / "unlabelled" / "blue-03.png")
    assert list(found.images.set_index("path").loc[now, ["category", "label"]]) == ["sky", novel.id]
    kept = Discovery.load(run / "rounds" / "1" / "corrected")
    assert all(Path(path).is_file() for path in kept.images.path)
    assert list(kept.facts.edits.confirmed) == [now]
    assert all(Path(path).is_file() for category in found.categories for path in category.exemplars)
    # a file that was exported before the images were moved still counts
    blue = [str(photos / "unlabelled" / f"blue-{i:02d}.png") for i in range(8, 14)]
    file = edits_file(run, *[("confirm", path, "", "blue") for path in blue])
    monkeypatch.setattr("holotype.embeddings.store.embed_rows", lambda *_: pytest.fail("embedded again"))
    again = discover_table(load_table(elsewhere), small(), run, progress=False, edits=file)
    assert again.facts.confirmed_labels == 7
    assert "blue" in again.known


def test_edits_may_name_images_where_they_lie_now(photos, small, tmp_path) -> None:
    """The folder was renamed, and a file of edits was written by hand before the discovery knows of it."""
    run, config = tmp_path / "run", small(method="kmeans")
    first = discover_table(load_table(photos), config, run, progress=False)
    elsewhere = photos.rename(tmp_path / "archive")
    image = str(elsewhere / "unlabelled" / "blue-03.png")
    file = edits_file(run, ("reject", image, "", ""))
    plan = plan_round(run, load_table(elsewhere), config, file)
    assert (plan.trains, plan.given.rejected) == (True, {"unlabelled/blue-03.png"})
    second = discover_table(load_table(elsewhere), config, run, progress=False, edits=file)
    assert (first.facts.round, second.facts.round) == (1, 2)
    assert second.images.set_index("path").category_id[image] == ""


def test_images_that_were_replaced_lead_to_another_round(photos, small, tmp_path, caplog) -> None:
    """Once: the round after that keeps what it has."""
    run, image = tmp_path / "run", photos / "unlabelled" / "blue-00.png"
    before = discover_table(load_table(photos), small(), run, progress=False)
    Image.new("RGB", (40, 40), (200, 40, 40)).save(image)
    caplog.set_level("INFO", "holotype")
    found = discover_table(load_table(photos), small(), run, progress=False)
    assert "Since round 1: 1 image repaired." in caplog.text
    assert "read again: unlabelled/blue-00.png." in caplog.text
    assert (found.facts.round, found.facts.earlier_runs) == (2, (before.run_id,))
    again = discover_table(load_table(photos), small(), run, progress=False)
    assert again.run_id == found.run_id


# -- a collection that changes --------------------------------------------------------------------------------


@pytest.fixture
def go(photos, small, tmp_path, caplog) -> Callable[..., Discovery]:
    """The same command again and again; k-means takes an instant."""
    caplog.set_level("INFO", "holotype")

    def command(folder: Path = photos, edits: Path | None = None, **settings) -> Discovery:
        caplog.clear()
        asked = small(**{"method": "kmeans", "k": 4, **settings})
        return discover_table(load_table(folder), asked, tmp_path / "run", progress=False, edits=edits)

    return command


def paint(path: Path, colour: tuple[int, int, int], number: int) -> None:
    noise = np.random.default_rng(number).integers(-30, 30, (40, 40, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(path)


def id_of(found: Discovery, path: Path) -> str:
    return str(found.images.set_index("path").category_id[str(path)])


def test_images_come_go_are_repaired_renamed_and_labelled(
    go, small, photos, tmp_path, caplog, monkeypatch
) -> None:
    first, heap = go(), photos / "unlabelled"
    for number in range(4):
        paint(heap / f"blue-9{number}.png", COLOURS["blue"], 90 + number)
    (heap / "red-15.png").unlink()
    paint(heap / "red-14.png", COLOURS["red"], 99)
    (heap / "blue-00.png").rename(heap / "sky.png")
    (heap / "green-15.png").rename(photos / "green" / "green-15.png")
    (photos / "red" / "red-00.png").rename(photos / "green" / "red-00.png")
    read: list[str] = []
    embed = module.decode_in_order
    monkeypatch.setattr(
        module,
        "decode_in_order",
        lambda paths, *rest, **named: read.extend(paths) or embed(paths, *rest, **named),
    )
    run, said = tmp_path / "run", "4 images new, 1 gone, 1 repaired, 3 renamed, 1 label new, 1 label changed."
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    asked = small(method="kmeans")
    assert plan_round(run, load_table(photos), asked).lines()[0] == f"Since round 1: {said}"
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    second = go()
    assert f"Since round 1: {said}" in caplog.text
    assert not plan_round(run, load_table(photos), asked).trains
    assert {Path(path).name for path in read} == {*(f"blue-9{i}.png" for i in range(4)), "red-14.png"}
    assert (second.facts.round, len(second.images)) == (2, 67)
    assert id_of(second, photos / "green" / "red-00.png") == "green"
    assert id_of(second, heap / "sky.png") == id_of(first, heap / "blue-00.png")
    assert {c.id for c in second.categories} == {c.id for c in first.categories}
    for _ in range(2):
        assert go().run_id == second.run_id
        assert "Nothing has changed since round 2: its result stands." in caplog.text


def test_a_touched_file_is_the_same_image(go, photos, caplog, monkeypatch) -> None:
    """As after a copy, or a restored backup: other times, the same content."""
    first = go()
    for path in photos.rglob("*.png"):
        os.utime(path)
    assert go().run_id == first.run_id
    assert "Nothing has changed" in caplog.text
    monkeypatch.setattr("holotype.data.hashing.file_digest", lambda path: pytest.fail("read again"))
    go()


def test_edits_follow_images_and_wait_for_those_that_are_gone(go, photos, tmp_path, caplog) -> None:
    run, heap = tmp_path / "run", photos / "unlabelled"
    found = go()
    one, two, three = (str(heap / f"yellow-0{i}.png") for i in range(3))
    file = edits_file(run, ("move", one, "", "red"), ("confirm", two, "", "suns"), ("reject", three, "", ""))
    assert go(edits=file).facts.round == 2
    (heap / "yellow-00.png").rename(heap / "first.png")
    (heap / "yellow-01.png").rename(tmp_path / "away.png")
    (heap / "yellow-02.png").rename(tmp_path / "too.png")
    found = go()
    assert id_of(found, heap / "first.png") == "red"
    assert "1 edit of" not in caplog.text
    assert "2 edits of 2 images now gone will count again" in caplog.text
    assert "take part in round 3: 1 moved. They give 1 label and keep 0 images out." in caplog.text
    paint(heap / "yellow-01.png", COLOURS["blue"], 7)  # another picture of that name
    found = go()
    assert "Since round 3: 1 image new." in caplog.text
    assert id_of(found, heap / "yellow-01.png") != "suns"
    (tmp_path / "away.png").rename(heap / "back.png")
    (tmp_path / "too.png").rename(heap / "yellow-02.png")
    found = go()
    assert "Since round 4: 2 images back." in caplog.text
    assert id_of(found, heap / "back.png") == "suns"
    assert id_of(found, heap / "yellow-02.png") == ""
    # the file is handed in once more: it speaks of paths that mean something else by now
    again = go(edits=file)
    assert again.run_id == found.run_id
    assert "3 edits, applied already" in caplog.text


def test_a_later_label_is_heard(go, photos, tmp_path, caplog) -> None:
    run, heap = tmp_path / "run", photos / "unlabelled"
    go()
    path = heap / "yellow-00.png"
    assert id_of(go(edits=edits_file(run, ("move", str(path), "", "red"))), path) == "red"
    path.rename(photos / "green" / "yellow-00.png")
    found = go()
    assert id_of(found, photos / "green" / "yellow-00.png") == "green"
    assert (
        "Labels that are newer than edits of the same images count instead: green/yellow-00.png."
        in caplog.text
    )
    assert go().run_id == found.run_id


def test_a_class_that_is_called_otherwise_stays_the_same(go, photos, tmp_path, caplog) -> None:
    """Its folder has another name, and what was said of it still counts; so does the name that the report gave."""
    run, heap = tmp_path / "run", photos / "unlabelled"
    novel = next(c.id for c in go().categories if c.kind == "novel")
    path = heap / "yellow-00.png"
    go(edits=edits_file(run, ("move", str(path), "", "red"), ("rename", "", novel, "suns")))
    (photos / "red").rename(photos / "crimson")
    found = go()
    assert "The class red is labelled crimson now" in caplog.text
    assert "Since round 2: 8 images renamed." in caplog.text
    assert (found.facts.round, found.category("red").name, id_of(found, path)) == (2, "crimson", "red")
    found = go(edits=edits_file(run, ("rename", "", "red", "scarlet")))
    assert (found.facts.round, found.category("red").name) == (2, "scarlet")  # this was said later
    (photos / "suns").mkdir()
    path.rename(photos / "suns" / path.name)
    found = go()
    assert id_of(found, photos / "suns" / path.name) == novel
    assert found.category(novel).name == "suns"
    assert len({c.name for c in found.categories}) == len(found.categories)
    assert go().run_id == found.run_id


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"k": 5}, "--k 5 (was 4)"),
        ({"seed": 1}, "--seed 1 (was 0)"),
        ({"steps": 5, "method": "simgcd"}, "--steps 5 (was 12), --method simgcd (was kmeans)"),
        ({"long_tail": True, "method": "simgcd"}, "--method simgcd (was kmeans), --long-tail yes (was auto)"),
    ],
)
def test_other_settings_are_another_round(settings, said, go, photos, tmp_path, caplog, monkeypatch) -> None:
    first = go()
    novel = next(c.id for c in first.categories if c.kind == "novel")
    file = edits_file(tmp_path / "run", ("rename", "", novel, "suns"))
    monkeypatch.setattr("holotype.embeddings.store.embed_rows", lambda *_: pytest.fail("embedded again"))
    second = go(edits=file, **settings)
    assert f"Settings that differ from round 1: {said}." in caplog.text
    assert (second.facts.round, second.facts.earlier_runs) == (2, (first.run_id,))
    assert go(**settings).run_id == second.run_id


def test_what_cannot_go_on_is_said_before_anything_is_trained(go, tmp_path, monkeypatch) -> None:
    go()
    monkeypatch.setattr("holotype.discovery.pipeline.run_round", lambda round: pytest.fail("trained"))
    for settings, said in (
        ({"k": 1}, "smaller than the 2 known classes"),
        ({"long_tail": True}, "--long-tail is not for kmeans"),
        ({"method": "magic"}, "There is no method"),
        ({"backbone": "embedded"}, "was begun with backbone"),
    ):
        with pytest.raises(InputError, match=said):
            go(**settings)
    assert go().facts.round == 1


def test_a_moved_folder_in_which_images_were_renamed_too(go, photos, tmp_path, caplog) -> None:
    first = go()
    elsewhere = tmp_path / "archive"
    shutil.copytree(photos, elsewhere)  # other times, and the old folder is still there
    (elsewhere / "unlabelled" / "blue-00.png").rename(elsewhere / "unlabelled" / "sky.png")
    found = go(elsewhere)
    assert f"The images are in {elsewhere} now." in caplog.text
    assert "Since round 1: 1 image renamed." in caplog.text
    assert (found.run_id, found.facts.root) == (first.run_id, str(elsewhere))
    assert {str(Path(path).parent.parent) for path in found.images.path} == {str(elsewhere)}


def test_a_round_that_does_not_know_its_images_is_told(run, squares_folder, small) -> None:
    (run / "rounds" / "1" / "collection.parquet").unlink()
    with pytest.raises(InputError, match="does not say which images"):
        discover_table(load_table(squares_folder / "squares.csv"), small(), run, progress=False)
