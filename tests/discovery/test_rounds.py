"""Rounds of a discovery: their folders, what they were begun with, the labels that lead from one to the next."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tools.torture.mutate import flipped

from holotype.config.schema import DiscoverConfig
from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.discovery import rounds
from holotype.discovery.collection import Collection, ImageEntry
from holotype.discovery.constraints import Constraints, read_constraints
from holotype.discovery.pipeline import discover_table
from holotype.discovery.plan import Round, RoundPlan
from holotype.discovery.rounds import (
    SHARED_FILES,
    EditHistory,
    StepTimer,
    check_complete,
    corrected_rounds,
    count_edits,
    edits_in,
    finished_rounds,
    last_round,
    link_round,
    pending_edits,
    replay_edits,
    round_folder,
    save_corrected,
    started_rounds,
)
from holotype.discovery.training_plan import RoundConfig
from holotype.errors import InputError, Interrupted, Stopped
from holotype.results.discovery import FEATURES, Discovery, write_features
from holotype.results.edits import Edit, append_edits, edits_csv
from holotype.runs.record import RunFolder
from tests.discovery.made_round import PATHS, edits_file, made_discovery, with_edits


def first() -> Discovery:
    return made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})


SETTINGS = {"k": 4, "bursts": "auto", "seeds": "auto"}
ASKED = RoundConfig(SETTINGS, SETTINGS, "cpu", "photos")


ONE_IMAGE = Collection("photos", {"a.png": ImageEntry("3-1", "1")})
TABLE = Table(path=np.array([], dtype=object), label=np.array([], dtype=object), known=())


def start(
    folder: Path, given: Constraints | None = None, seen: Collection = ONE_IMAGE, asked: RoundConfig = ASKED
) -> int:
    """Begin a round or resume it; its number."""
    history = EditHistory(given=given or Constraints())
    return RoundPlan(folder, DiscoverConfig(), TABLE, seen, asked, history).start()


def end_round(
    folder: Path, found: Discovery, labels: dict[str, str] | None = None, seen: Collection | None = None
) -> int:
    """A round that has come to its end."""
    number = start(folder, Constraints(labels or {}), seen or Collection("photos"))
    found.save(round_folder(folder, number))
    (round_folder(folder, number) / "scores.json").write_text("{}")
    return number


def edit(
    run: str, action: str, image: str = "", category: str = "", value: str = "", second: int = 0
) -> Edit:
    return Edit(run, f"2026-01-01T00:00:{second:02d}Z", action, image, category, value)


def test_rounds_are_numbered_and_know_what_they_were_given(tmp_path: Path) -> None:
    assert (started_rounds(tmp_path), finished_rounds(tmp_path), last_round(tmp_path)) == ([], [], 0)
    assert end_round(tmp_path, first()) == 1
    assert end_round(tmp_path, first(), {"04.png": "boots"}) == 2
    assert (finished_rounds(tmp_path), last_round(tmp_path)) == ([1, 2], 2)
    assert read_constraints(round_folder(tmp_path, 2)).labels == {"04.png": "boots"}
    for name, contents in (("labels.json", ("{", "[]", '{"a": 1}')), ("rejected.json", ("{}", "[1]"))):
        before = (tmp_path / "rounds" / "1" / name).read_text()
        for content in contents:
            (tmp_path / "rounds" / "1" / name).write_text(content)
            with pytest.raises(InputError, match=name):
                read_constraints(round_folder(tmp_path, 1))
        (tmp_path / "rounds" / "1" / name).write_text(before)


def test_a_stopped_round_goes_on_and_one_of_other_labels_or_images_is_left_alone(tmp_path: Path) -> None:
    """Nothing that was trained is ever taken for something else, and nothing is deleted."""
    boots = Constraints({"a.png": "boots"})
    other = Collection("photos", {"a.png": ImageEntry("3-1", "2")})
    assert start(tmp_path) == 1
    (round_folder(tmp_path, 1) / "state.json").write_text("{}")
    assert start(tmp_path, Constraints(names={"new-01": "hats"})) == 1  # a name changes nothing
    assert start(tmp_path, boots) == 2
    assert start(tmp_path, boots, other) == 3
    (round_folder(tmp_path, 3) / "round.json").unlink()  # killed while it was begun
    assert start(tmp_path, boots, other) == 3  # nothing was trained: it is begun anew
    (round_folder(tmp_path, 3) / "round.json").unlink()
    (round_folder(tmp_path, 3) / "identity.json").write_text("{}")  # was trained
    assert start(tmp_path, boots, other) == 4
    out = replace(boots, rejected=frozenset({"b.png"}))
    assert start(tmp_path, out, other) == 5
    assert start(tmp_path, out, other) == 5
    assert read_constraints(round_folder(tmp_path, 5)) == out
    assert started_rounds(tmp_path) == [1, 2, 3, 4, 5]
    assert (round_folder(tmp_path, 1) / "state.json").is_file()
    (round_folder(tmp_path, 5) / "scores.json").write_text("{}")
    assert (finished_rounds(tmp_path), last_round(tmp_path)) == ([5], 5)
    assert start(tmp_path, out, other) == 6  # a finished one is not gone on with


@pytest.mark.parametrize("change", [{"taken": SETTINGS | {"k": 5}}, {"device": "cuda"}, {"title": "archive"}])
def test_a_stopped_round_of_other_settings_is_left_alone(change: dict, tmp_path: Path) -> None:
    """Its training would be another one."""
    assert start(tmp_path) == 1
    assert start(tmp_path, asked=replace(ASKED, **change)) == 2


def test_a_stopped_round_whose_images_were_renamed_or_labelled_is_left_alone(tmp_path: Path) -> None:
    assert start(tmp_path) == 1
    for number, seen in enumerate(
        ({"b.png": ImageEntry("3-1", "1")}, {"b.png": ImageEntry("3-1", "1", "red")}), start=2
    ):
        assert start(tmp_path, seen=Collection("photos", seen)) == number
    touched = {"b.png": ImageEntry("3-2", "1", "red"), "c.png": ImageEntry("3-1", "2", here=False)}
    assert start(tmp_path, seen=Collection("archive", touched)) == 3


def test_a_later_label_counts_and_not_the_edit_before_it(tmp_path: Path) -> None:
    """A person moved two images in the report, and later gave one of them a label of its own."""
    found = first()
    found.facts = replace(found.facts, root="photos")
    end_round(tmp_path, found)
    found.save(tmp_path)
    said = [edit("r-1", "move", PATHS[4], "new-01", "a"), edit("r-1", "reject", PATHS[5], "new-01", "", 1)]
    append_edits(tmp_path, said)
    second = replace(found, run_id="r-2", facts=replace(found.facts, round=2, earlier_runs=("r-1",)))
    labelled = {
        "04.png": ImageEntry("1-1", "4", "b", relabelled=True),
        "05.png": ImageEntry("1-1", "5", "a", relabelled=True),
    }
    played = replay_edits(tmp_path)
    assert (played.given.labels, played.given.rejected) == ({"04.png": "a"}, {"05.png"})
    end_round(tmp_path, second, seen=Collection("photos", labelled))
    second.save(tmp_path)
    played = replay_edits(tmp_path)
    assert (played.given.labels, played.given.rejected) == ({}, frozenset())
    (line,) = played.told(3, {"04.png", "05.png"}, tmp_path)
    assert "take part in round 3: none; 2 more were overruled by later edits or labels" in line
    append_edits(tmp_path, [edit("r-2", "move", PATHS[4], "new-01", "a", 2)])
    assert replay_edits(tmp_path).given.labels == {"04.png": "a"}  # and this was said later still


def two_rounds(folder: Path) -> None:
    """In the second one new-01 is a class, and the other new category has kept its id."""
    end_round(folder, first())
    groups = {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]}
    second = made_discovery("r-2", groups, ("a", "new-01"))
    second.facts = replace(second.facts, earlier_runs=("r-1",), round=2)
    end_round(folder, second, {PATHS[4]: "new-01", PATHS[5]: "new-01"})
    second.save(folder)


def test_edits_of_all_rounds_add_up_and_the_later_one_wins(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    append_edits(
        tmp_path,
        [
            edit("r-1", "confirm", PATHS[4], "new-01", "new-01"),
            edit("r-1", "confirm", PATHS[5], "new-01", "new-01", 1),
            edit("r-2", "confirm", PATHS[5], "boots", "a", 2),
            edit("r-2", "rename", "", "new-02", "hats", 3),
            edit("r-2", "rename", "", "new-09", "caps", 4),
            edit("r-9", "rename", "", "new-02", "caps", 5),
        ],
    )
    played = replay_edits(tmp_path)
    assert played.given.labels == {PATHS[4]: "new-01", PATHS[5]: "a"}
    assert played.before.labels == {PATHS[4]: "new-01", PATHS[5]: "new-01"}
    assert played.runs == ("r-1", "r-2")
    assert played.taken >= {"a", "new-01", "new-02", "hats"}
    assert played.applied is not None
    assert played.applied.discovery.category("new-02").name == "hats"
    lines = played.told(3, set(PATHS), tmp_path)
    assert "2 confirmed" in lines[0]
    assert "1 renamed" in lines[0]
    assert "1 more was overruled" in lines[0]
    for words in ("'new-09' is not in this run", "1 edit of run 'r-9'"):
        assert len([line for line in lines if words in line]) == 1
    assert pending_edits(tmp_path) == (1, 0)


def test_a_file_of_the_round_before_is_not_lost(tmp_path: Path) -> None:
    """Somebody corrected the first report, and hands the file in when the second round is done."""
    two_rounds(tmp_path)
    file = tmp_path / "late.csv"
    file.write_text(
        edits_csv(
            [
                edit("r-1", "rename", "", "new-02", "hats"),
                edit("r-1", "rename", "", "new-01", "boots", 1),
                edit("r-1", "reject", PATHS[9], "new-02", "", 2),
                edit("r-1", "confirm", PATHS[4], "new-01", "new-01", 3),
                edit("r-1", "confirm", PATHS[5], "new-01", "new-01", 4),
            ]
        )
    )
    append_edits(tmp_path, edits_in(tmp_path, file))
    played = replay_edits(tmp_path)
    assert played.applied is not None
    assert {c.id: c.name for c in played.applied.discovery.categories} == {
        "a": "a",
        "new-01": "boots",
        "new-02": "hats",
    }
    assert played.given.rejected == {PATHS[9]}
    assert pending_edits(tmp_path) == (0, 1)


def test_what_a_late_file_takes_back_stays_taken_back(tmp_path: Path) -> None:
    """An image was rejected, and the second round was made without it; a file of the first report moves it, and comes
    when the second round is done."""
    two_rounds(tmp_path)
    own = round_folder(tmp_path, 2)
    second = Discovery.load(own)
    row = second.images.path == PATHS[9]
    second.images.loc[row, ["category", "category_id", "kind"]] = ""
    second.images.loc[row, "note"] = "rejected"
    second.save(own)
    append_edits(tmp_path, [edit("r-1", "reject", PATHS[9], "new-02")])
    assert replay_edits(tmp_path).given.rejected == {PATHS[9]}
    append_edits(tmp_path, [edit("r-1", "move", PATHS[9], "", "a", 1)])
    played = replay_edits(tmp_path)
    assert played.given.rejected == frozenset()
    assert played.given.labels == {PATHS[9]: "a"}
    append_edits(tmp_path, [edit("r-2", "reject", PATHS[8], "new-02", "", 2)])
    assert replay_edits(tmp_path).given.rejected == {PATHS[8]}


def test_the_corrected_table_of_a_round_is_kept(tmp_path: Path) -> None:
    end_round(tmp_path, first())
    first().save(tmp_path)
    append_edits(tmp_path, [edit("r-1", "merge", "", "new-01", "new-02")])
    assert corrected_rounds(tmp_path) == []
    save_corrected(tmp_path, replay_edits(tmp_path))
    (kept,) = corrected_rounds(tmp_path)
    assert Discovery.load(kept).category("new-02").n == 8
    assert Discovery.load(round_folder(tmp_path, 1)).category("new-02").n == 4


def test_a_file_of_edits_in_words() -> None:
    assert count_edits(3, 3) == "3 edits"
    assert count_edits(3, 1) == "3 edits, 1 of them new and the others applied already"
    assert count_edits(1, 0) == "1 edit, applied already"
    assert count_edits(0, 0) == "0 edits"


def test_labels_are_kept_by_path_from_the_root(tmp_path: Path) -> None:
    found = first()
    found.facts = replace(found.facts, root="photos")
    end_round(tmp_path, found)
    found.save(tmp_path)
    append_edits(tmp_path, [edit("r-1", "confirm", PATHS[4], "new-01", "boots")])
    assert replay_edits(tmp_path).given.labels == {"04.png": "boots"}


def test_edits_need_a_discovery_of_theirs(tmp_path: Path) -> None:
    file = tmp_path / "edits.csv"
    file.write_text(edits_csv([edit("r-1", "rename", "", "new-01", "boots")]))
    with pytest.raises(InputError, match="without --edits first"):
        edits_in(tmp_path / "run", file)


def test_what_a_round_was_given_reads_as_json(tmp_path: Path) -> None:
    start(tmp_path, Constraints({"Käfer.png": "=boots"}, frozenset({"ö.png"})))
    given = round_folder(tmp_path, 1)
    assert json.loads((given / "labels.json").read_text(encoding="utf-8"))["by_path"] == {
        "Käfer.png": "=boots"
    }
    assert json.loads((given / "rejected.json").read_text(encoding="utf-8"))["by_path"] == ["ö.png"]
    assert json.loads((given / "round.json").read_text(encoding="utf-8"))["settings"] == SETTINGS


# -- The run folder shares what its last round has, and nothing that something has changed since


@pytest.mark.parametrize("links", [True, False])
def test_the_run_folder_shares_what_its_last_round_has(tmp_path: Path, monkeypatch, links) -> None:
    if not links:

        def refuse(*_: object) -> None:
            raise OSError("no hard links here")

        monkeypatch.setattr(rounds.os, "link", refuse)
    for number in (1, 2):
        round_folder(tmp_path, number).mkdir(parents=True)
        for name in SHARED_FILES:
            (round_folder(tmp_path, number) / name).write_text(json.dumps({name: number}))
        write_features(round_folder(tmp_path, number), np.full((1, 2), number))
        for _ in range(2):
            link_round(tmp_path, number)
        for name in SHARED_FILES:
            source = round_folder(tmp_path, number) / name
            assert (tmp_path / name).read_bytes() == source.read_bytes()
            assert os.path.samefile(tmp_path / name, round_folder(tmp_path, number) / name) == links
    assert (round_folder(tmp_path, 1) / SHARED_FILES[0]).read_text() == json.dumps({SHARED_FILES[0]: 1})
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("name", "content"), [("scores.json", b"{"), ("model.json", b"{"), ("model.safetensors", b"0.7")]
)
def test_what_something_has_changed_in_a_round_does_not_spread(
    tmp_path: Path, name: str, content: bytes
) -> None:
    """It is noticed before the run folder has anything of the round."""
    own = RunFolder(round_folder(tmp_path, 1))
    own.write_json("scores.json", {"scores": {"all": 0.5}})
    (own.path / "model.safetensors").write_bytes(b"weights: 0.5")
    own.write_json("model.json", {"weights": hashlib.sha256(b"weights: 0.5").hexdigest()})
    check_complete(own.path)
    (own.path / name).write_bytes(b"{")
    with pytest.raises(InputError, match=f"rounds/1/{name}"):
        link_round(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["rounds"]


def test_damaged_features_of_a_round_are_told_and_stay_where_they_are(tmp_path: Path, caplog) -> None:
    own = round_folder(tmp_path, 1)
    own.mkdir(parents=True)
    for folder in (own, tmp_path):
        write_features(folder, np.ones((3, 4)))
    whole = (own / FEATURES).read_bytes()
    (own / FEATURES).write_bytes(flipped(whole, 8 * len(whole) - 500))
    link_round(tmp_path, 1)
    assert (tmp_path / FEATURES).read_bytes() == whole
    assert f"{own / FEATURES} was damaged" in caplog.text


@pytest.mark.parametrize("model", ["[1]", "{}", "null"])
def test_a_model_of_an_unknown_kind_is_left_to_those_who_read_it(tmp_path: Path, model: str) -> None:
    (tmp_path / "model.json").write_text(model)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    check_complete(tmp_path)


# -- Seconds by step, and Ctrl-C within one


def test_steps_are_added_up_and_a_stop_names_its_step():
    clock = StepTimer()
    for _ in range(2):
        with clock.step("counting"):
            pass
    assert clock.seconds == {"counting": 0.0}
    with pytest.raises(Stopped, match="counting"), clock.step("counting"):
        raise KeyboardInterrupt
    with pytest.raises(Stopped, match="counting") as stopped, clock.step("counting"):
        raise Interrupted(15)
    assert stopped.value.number == 15
    with pytest.raises(ValueError, match="other"), clock.step("counting"):
        raise ValueError("other")


# -- What a round starts from: the classes that are known by labels, by edits, or no more


@pytest.fixture
def photos(squares_folder, tmp_path) -> Path:
    return Path(shutil.copytree(squares_folder, tmp_path / "photos"))


@pytest.fixture
def go(photos, small, tmp_path):
    """The same command again and again; k-means takes an instant."""

    def command(
        edits: Path | None = None, unlabelled: tuple[str, ...] = (), labels: Path | None = None
    ) -> Discovery:
        table, asked = load_table(photos, labels, unlabelled=unlabelled), small(method="kmeans", k=4)
        return discover_table(table, asked, tmp_path / "run", progress=False, edits=edits)

    return command


@pytest.mark.parametrize("named", [False, True])
def test_a_heap_that_was_taken_for_a_class_hands_on_no_name_of_its_own(go, photos, tmp_path, named) -> None:
    """--unlabelled, the second time. A name that somebody gave in the report stays with the images."""
    heap = photos / "misc"
    heap.mkdir()
    for path in sorted((photos / "unlabelled").glob("blue-*.png")):
        path.rename(heap / path.name)
    assert "misc" in go().known
    if named:
        go(edits_file(tmp_path / "run", ("rename", "", "misc", "skies")))
    found = go(unlabelled=("misc",))
    (category,) = set(found.images.category[found.images.path.str.contains("/misc/")])
    assert found.known == ("green", "red")
    assert (category == "skies") if named else category.startswith("new-")


def test_classes_that_edits_have_made_are_classes_enough(go, photos, tmp_path) -> None:
    """Of those that images came with one is gone."""
    first = go()
    new = next(c for c in first.categories if c.kind == "novel")
    path = first.images.set_index("category_id").path[new.id].iloc[0]
    shutil.rmtree(photos / "red")
    with pytest.raises(InputError, match="Only one known class"):
        go()
    found = go(edits_file(tmp_path / "run", ("confirm", path, new.id, new.id)))
    assert set(found.known) == {"green", new.id}


def test_what_is_estimated_from_labels_does_not_ask_those_of_edits(round: Round) -> None:
    """Nine typical images of a category that was split are no sign that it is nine times as large as another."""
    came, picked = round.table.label, round.table.label.copy()
    free = np.flatnonzero(came == "")
    picked[free[:9]] = "new-01"
    table = replace(round.table, label=picked, known=(*round.table.known, "new-01"))
    paths = [Path(str(table.path[row])).relative_to(table.root).as_posix() for row in free]
    given = Constraints(labels=dict.fromkeys(paths[:9], "new-01"), rejected=frozenset(paths[-1:]))
    later = with_edits(replace(round, table=table), given)
    assert later.drawn.known == round.table.known
    assert (later.drawn.label == came).all()
    assert not later.drawn.usable[free[-1]]
    assert (round.drawn.label == came).all()


def test_edits_do_not_make_categories_differ_in_size(go, tmp_path, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(
        "holotype.discovery.round_runner.choose_long_tail",
        lambda _, table, __: (asked.append((table.known, int(table.labelled.sum()))), (False, ""))[1],
    )
    first = go()
    new = next(c for c in first.categories if c.kind == "novel")
    paths = list(first.images.set_index("category_id").path[new.id])
    go(edits_file(tmp_path / "run", *(("confirm", path, new.id, new.id) for path in paths[:3])))
    first_time, second_time = asked
    assert first_time == second_time


def test_a_folder_that_has_its_old_name_again_gives_it_back_to_the_class(go, photos, caplog) -> None:
    caplog.set_level("INFO", "holotype")
    go()
    for name, before in (("crimson", "red"), ("red", "crimson"), ("crimson", "red"), ("red", "crimson")):
        (photos / before).rename(photos / name)
        found = go()
        assert (found.facts.round, found.category("red").name) == (1, name)
        assert go().category("red").name == name
    assert caplog.text.count("The class red is labelled crimson now; it stays the same class") == 2
    assert caplog.text.count("The class red is labelled red again; it stays the same class") == 2


def test_a_list_of_labels_that_was_forgotten_once_takes_no_edit_away(go, photos, tmp_path, caplog) -> None:
    """Folder names were labels for one round. Then images have again those that they had when people corrected them."""
    caplog.set_level("INFO", "holotype")
    listed = tmp_path / "labels.csv"
    rows = [f"{path.relative_to(photos)},{path.parent.name}" for path in sorted(photos.glob("[gr]*/*.png"))]
    listed.write_text("\n".join(("path,label", *rows)) + "\n")
    for number, path in enumerate(sorted(photos.glob("[gr]*/*.png"))):
        to = photos / f"cam{number % 2}" / path.name
        to.parent.mkdir(exist_ok=True)
        path.rename(to)
        listed.write_text(
            listed.read_text().replace(f"{path.relative_to(photos)},", f"{to.relative_to(photos)},")
        )
    moved, rejected = str(photos / "cam0" / "red-00.png"), str(photos / "cam1" / "red-01.png")
    go(labels=listed)
    edits = edits_file(tmp_path / "run", ("move", moved, "red", "green"), ("reject", rejected, "red", ""))

    def places(**given: Path) -> list[str]:
        return list(go(**given).images.set_index("path").category_id[[moved, rejected]])

    assert places(labels=listed, edits=edits) == ["green", ""]
    assert places() == ["cam0", "cam1"]
    assert "Labels that are newer than edits of the same images count instead: cam0/red-00.png" in caplog.text
    caplog.clear()
    assert places(labels=listed) == ["green", ""]
    assert "newer than edits" not in caplog.text
    assert places(labels=listed) == ["green", ""]
