"""Rounds of a discovery: their folders, what they were begun with, and what the edits of all of them come to."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tools.torture.inputs import flipped

from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery import rounds
from holotype.discovery.collection import Collection, ImageEntry
from holotype.discovery.constraints import Constraints
from holotype.discovery.plan import (
    Round,
    RoundConfig,
    RoundPlan,
    pending_edits,
    read_round_config,
    stated_groups,
)
from holotype.discovery.rounds import (
    CHANGES_FILE,
    MAX_CHANGE_LINES,
    REFUSED_FILE,
    SHARED_FILES,
    CategoryChange,
    EditHistory,
    apply_log,
    category_changes,
    changes_text,
    check_complete,
    finished_rounds,
    identify_images,
    last_round,
    link_round,
    next_constraints,
    read_edits_of,
    read_refused,
    replay_edits,
    round_folder,
    started_rounds,
    store_refused,
    unreported,
    write_changes,
)
from holotype.errors import InputError
from holotype.results.discovery import FEATURES, Discovery, write_features
from holotype.results.edits import Edit, append_edits, apply_edits, edits_csv, read_log
from holotype.runs.record import RunFolder
from tests.discovery.made_round import made_discovery, with_edits

NAMES = [f"{i:02d}.png" for i in range(12)]
PATHS = [f"/photos/{name}" for name in NAMES]
KEYS = [f"d{i}" for i in range(12)]
GROUPS = {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]}
SETTINGS = {"k": 4, "bursts": "auto", "seeds": "auto"}
INPUTS = RoundConfig(SETTINGS, SETTINGS, "cpu", "photos")
ONE_IMAGE = Collection("photos", {"a.png": ImageEntry("3-1", "1")})
TABLE = Table(path=np.array([], dtype=object), label=np.array([], dtype=object), known=())


def images(**labels: str) -> Collection:
    """Of the twelve; labels: by key."""
    pairs = zip(NAMES, KEYS, strict=True)
    return Collection("/photos", {name: ImageEntry("1-1", key, labels.get(key, "")) for name, key in pairs})


def a_round(run: str = "r-1", known: tuple[str, ...] = ("a",), **facts: object) -> Discovery:
    found = made_discovery(run, GROUPS, known, PATHS)
    found.images["digest"] = KEYS
    return replace(found, facts=replace(found.facts, root="/photos", **facts))


def start(folder: Path, seen: Collection = ONE_IMAGE, **changes: object) -> int:
    """Begin a round or resume it; its number."""
    inputs = replace(INPUTS, **changes)
    return RoundPlan(folder, DiscoverConfig(), TABLE, seen, inputs).start()


def end_round(
    folder: Path, found: Discovery, seen: Collection | None = None, labels: dict[str, str] | None = None
) -> int:
    """A round that has come to its end."""
    number = start(folder, seen or images(), labels=labels or {})
    found.save(round_folder(folder, number))
    (round_folder(folder, number) / "scores.json").write_text("{}")
    found.save(folder)
    (seen or images()).save(folder)
    return number


def edit(
    run: str, action: str, image: int | None = None, category: str = "", value: str = "", second: int = 0
) -> Edit:
    path, digest = ("", "") if image is None else (PATHS[image], KEYS[image])
    return Edit(run, f"2026-01-01T00:00:{second:02d}Z", action, path, category, value, digest)


# -- folders


def test_rounds_are_numbered_and_know_what_they_were_given(tmp_path: Path) -> None:
    assert (started_rounds(tmp_path), finished_rounds(tmp_path), last_round(tmp_path)) == ([], [], 0)
    assert end_round(tmp_path, a_round()) == 1
    assert end_round(tmp_path, a_round(), labels={"d4": "=Käfer"}) == 2
    assert (finished_rounds(tmp_path), last_round(tmp_path)) == ([1, 2], 2)
    assert read_round_config(round_folder(tmp_path, 2)).given.labels == {"d4": "=Käfer"}
    assert read_round_config(round_folder(tmp_path, 3)) is None
    file = round_folder(tmp_path, 2) / "round.json"
    assert json.loads(file.read_text(encoding="utf-8"))["settings"] == SETTINGS
    wrong = file.read_text().replace('"rejected": []', '"rejected": [1]')
    for content in ("{", "[]", '{"format": 2}', wrong):
        file.write_text(content)
        with pytest.raises(InputError, match=r"round\.json"):
            read_round_config(round_folder(tmp_path, 2))


def test_a_stopped_round_goes_on_and_one_of_other_inputs_is_left_alone(tmp_path: Path) -> None:
    """Nothing that was trained is ever taken for something else, and nothing is deleted."""
    boots, other = {"labels": {"1": "boots"}}, Collection("photos", {"a.png": ImageEntry("3-1", "2")})
    more = boots | {"rejected": ["2"]}
    assert start(tmp_path) == 1
    (round_folder(tmp_path, 1) / "state.json").write_text("{}")
    assert start(tmp_path) == 1
    assert start(tmp_path, **boots) == 2
    assert start(tmp_path, other, **boots) == 3
    (round_folder(tmp_path, 3) / "round.json").unlink()  # killed while it was begun
    assert start(tmp_path, other, **boots) == 3  # nothing was trained: it is begun anew
    (round_folder(tmp_path, 3) / "round.json").unlink()
    (round_folder(tmp_path, 3) / "identity.json").write_text("{}")  # was trained
    assert start(tmp_path, other, **boots) == 4
    for _ in range(2):
        assert start(tmp_path, other, **more) == 5
    changes = ({"taken": SETTINGS | {"k": 5}}, {"device": "cuda"}, {"title": "archive"})
    for number, change in enumerate(changes, start=6):
        assert start(tmp_path, other, **more, **change) == number
    renamed = Collection("photos", {"b.png": ImageEntry("3-1", "2")})
    touched = Collection("archive", {"b.png": ImageEntry("3-2", "2")})
    assert start(tmp_path, renamed, **more) == start(tmp_path, touched, **more) == 9
    file = round_folder(tmp_path, 9) / "round.json"
    whole = file.read_text()
    file.write_text("{")  # nobody knows what it trains on
    assert RoundPlan(tmp_path, DiscoverConfig(), TABLE, touched, INPUTS).next_number == 10
    file.write_text(whole)
    assert started_rounds(tmp_path) == [*range(1, 10)]
    assert (round_folder(tmp_path, 1) / "state.json").is_file()
    (round_folder(tmp_path, 9) / "scores.json").write_text("{}")
    assert (finished_rounds(tmp_path), last_round(tmp_path)) == ([9], 9)
    assert start(tmp_path, renamed, **more) == 10  # a finished one is not gone on with


def configured(**settings) -> RoundConfig:
    return RoundConfig.of(DiscoverConfig(device="cpu", **settings), "photos")


def test_settings_that_differ_are_told_as_flags() -> None:
    """The usual number of steps said aloud, and the usual number on another device, are no difference."""
    before = configured(k=10)
    assert configured(k=10).others(before) == []
    assert configured(k=12, seed=1).others(before) == ["--k 12 (was 10)", "--seed 1 (was 0)"]
    assert before.others(configured(k=10, steps=7)) == ["--steps as usual (was 7)"]
    # what it means is said by steps and trainings
    assert configured(effort="quick").others(configured()) == []
    assert configured(steps=1000).others(configured()) == []
    elsewhere = replace(configured(), taken={**configured().taken, "steps": 6000}, device="cuda")
    assert configured().others(elsewhere) == []


def test_groups_are_known_by_the_content_of_their_images() -> None:
    """Names of groups, of files and their order make no difference, nor does a group of one."""

    def told(group: list[str] | None, content: str = "abcde") -> str:
        paths, label = np.array(list("12345"), dtype=object), np.array([""] * 5, dtype=object)
        table = Table(paths, label, (), group=None if group is None else np.array(group, dtype=object))
        entries = {str(i): ImageEntry("", digest) for i, digest in enumerate(content)}
        return stated_groups(table, Collection("", entries))

    assert told(None) == told([""] * 5) == told([*"vwxyz"]) == ""
    first = told(["x", "x", "y", "y", ""])
    assert first == told(["n", "n", "m", "m", "o"]) == told(["", "y", "y", "x", "x"], "edcba") != ""
    assert first != told(["x", "x", "y", "", "y"])
    grouped = replace(configured(), groups=first)
    assert grouped.others(configured()) == configured().others(grouped) == ["other groups"]
    assert configured(bursts="no").others(grouped) == ["--bursts no (was auto)"]


# -- which images edits speak of


def test_an_edit_without_a_digest_speaks_of_the_images_of_its_round_then_of_todays(tmp_path: Path) -> None:
    """04.png was filed away since, 05.png came to its place, and the folder was moved."""
    end_round(tmp_path, a_round())
    second = a_round("r-2", round=2, earlier_runs=("r-1",))
    second.images.loc[4:5, "path"] = ["/photos/filed/04.png", "/photos/04.png"]
    end_round(tmp_path, second)
    now = Collection("/archive", {"04.png": ImageEntry("1-1", "d5"), "new.png": ImageEntry("1-1", "d4")})

    def digests(run: str, *names: str) -> list[str]:
        edits = [Edit(run, "t", "reject", name) for name in names]
        return [found.digest for found in identify_images(tmp_path, edits, now)]

    for name in (PATHS[4], "04.png"):  # as a report that was mailed calls it
        assert (digests("r-1", name), digests("r-2", name)) == (["d4"], ["d5"])
    assert digests("r-9", PATHS[4]) == ["d5"]  # of the last one
    assert digests("r-1", "/archive/new.png", "new.png", "/archive/04.png", "x.png") == ["d4", "d4", "d5", ""]
    same = [edit("r-1", "reject", 4), edit("r-1", "rename", None, "a", "b")]
    assert identify_images(tmp_path, same) == same


# -- the edits of all rounds


def two_rounds(folder: Path) -> None:
    """In the second one new-01 is a class, and the other new category has kept its id."""
    end_round(folder, a_round())
    second = a_round("r-2", ("a", "new-01"), round=2, earlier_runs=("r-1",))
    end_round(folder, second, labels={"d4": "new-01", "d5": "new-01"})


def pending(folder: Path) -> tuple[int, int]:
    return pending_edits(folder, next_constraints(folder))


def test_edits_of_all_rounds_add_up_and_the_later_one_wins(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    edits = [
        edit("r-1", "confirm", 4, "new-01", "new-01"),
        edit("r-1", "confirm", 5, "new-01", "new-01", 1),
        edit("r-2", "confirm", 5, "boots", "a", 2),
        edit("r-2", "rename", None, "new-02", "hats", 3),
        edit("r-2", "rename", None, "new-09", "caps", 4),
        edit("r-9", "rename", None, "new-02", "caps", 5),
    ]
    append_edits(tmp_path, edits)
    history = replay_edits(tmp_path)
    assert history.given.labels == {"d4": "new-01", "d5": "a"}
    assert history.runs == ("r-1", "r-2")
    assert history.taken >= {"a", "new-01", "new-02", "hats"}
    assert history.discovery is not None
    assert history.discovery.category("new-02").name == "hats"
    lines = history.lines(3, images(), tmp_path)
    for words in ("2 confirmed", "1 renamed", "1 more was overruled"):
        assert words in lines[0]
    for words in ("'new-09' is not in this run", "1 edit of run 'r-9'"):
        assert len([line for line in lines if words in line]) == 1
    assert pending(tmp_path) == (1, 0)
    assert replay_edits(tmp_path, until=1).given.labels == {"d4": "new-01", "d5": "new-01"}


def test_a_file_of_the_round_before_is_not_lost(tmp_path: Path) -> None:
    """Somebody corrected the first report, and hands the file in when the second round is done."""
    two_rounds(tmp_path)
    second = Discovery.load(round_folder(tmp_path, 2))
    category = second.category("new-02")
    category.words, category.suggested = "closest to new-01 0.50 and a 0.40", "near new-01, new 1"
    second.images.loc[0, "note"] = "the model would say new-02"
    second.save(round_folder(tmp_path, 2))
    late = [
        edit("r-1", "rename", None, "new-02", "hats"),
        edit("r-1", "rename", None, "new-01", "boots", 1),
        edit("r-1", "reject", 9, "new-02", "", 2),
        edit("r-1", "confirm", 4, "new-01", "new-01", 3),
        edit("r-1", "confirm", 5, "new-01", "new-01", 4),
    ]
    (tmp_path / "late.csv").write_text(edits_csv(late))
    append_edits(tmp_path, read_edits_of(tmp_path, tmp_path / "late.csv", images()))
    history = replay_edits(tmp_path)
    assert (history.given.rejected, pending(tmp_path)) == ({"d9"}, (0, 1))
    for found in (history.discovery, apply_log(tmp_path).discovery):
        assert found is not None
        assert {c.id: c.name for c in found.categories} == {"a": "a", "new-01": "boots", "new-02": "hats"}
        assert found.category("new-02").words == "closest to boots 0.50 and a 0.40"
        assert found.category("new-02").suggested == "near boots, new 1"
        assert found.images.note[0] == "the model would say hats"


def test_what_a_late_file_takes_back_stays_taken_back(tmp_path: Path) -> None:
    """An image was rejected, and the second round was made without it; a file of the first report moves it, and comes
    when the second round is done."""
    two_rounds(tmp_path)
    second = Discovery.load(round_folder(tmp_path, 2))
    second.images.loc[9, ["category", "category_id", "kind"]] = ""
    second.images.loc[9, "note"] = "rejected"
    second.save(round_folder(tmp_path, 2))
    append_edits(tmp_path, [edit("r-1", "reject", 9, "new-02")])
    assert replay_edits(tmp_path).given.rejected == {"d9"}
    append_edits(tmp_path, [edit("r-1", "move", 9, "", "a", 1)])
    given = replay_edits(tmp_path).given
    assert (given.rejected, given.labels) == (frozenset(), {"d9": "a"})
    append_edits(tmp_path, [edit("r-2", "reject", 8, "new-02", "", 2)])
    assert replay_edits(tmp_path).given.rejected == {"d8"}


def test_a_newer_label_counts_and_not_the_edit_before_it_while_it_is_there(tmp_path: Path) -> None:
    """As where --unlabelled was forgotten once: a heap was a class for a round, and nobody meant it."""
    end_round(tmp_path, a_round(), images(d6="a"))
    said = [edit("r-1", "move", 4, "new-01", "a"), edit("r-1", "reject", 5, "new-01", "", 1)]
    append_edits(tmp_path, [*said, edit("r-1", "move", 6, "new-01", "new-02", 2)])
    history = replay_edits(tmp_path)

    def given(**labels: str) -> tuple[dict[str, str], frozenset[str]]:
        return history.of_today(images(**labels)).given.of_images(set(KEYS))

    assert given(d6="a") == given() == ({"d4": "a", "d6": "new-02"}, {"d5"})
    assert given(d4="b", d5="b", d6="a") == ({"d6": "new-02"}, frozenset())
    assert given(d4="b", d6="b") == ({}, {"d5"})
    line = history.of_today(images(d4="b", d5="b", d6="b")).lines(3, images(), tmp_path)[0]
    assert "take part in round 3: none; 3 more were overruled by later edits or labels" in line
    second = a_round("r-2", round=2, earlier_runs=("r-1",))
    end_round(tmp_path, second, images(d4="b", d6="a"))
    append_edits(tmp_path, [edit("r-2", "move", 4, "new-01", "a", 3)])  # and this was said later still
    history = replay_edits(tmp_path)
    assert given(d4="b", d6="a") == ({"d4": "a", "d6": "new-02"}, {"d5"})


def test_what_was_said_of_a_repaired_image_counts_and_its_label_is_compared_too(tmp_path: Path) -> None:
    end_round(tmp_path, a_round())
    append_edits(tmp_path, [edit("r-1", "move", 4, "new-01", "a")])
    entries = images().images | {"04.png": ImageEntry("2-2", "d99")}
    now = replace(images(), images=entries, aliases={"d99": "d4"})
    history = replay_edits(tmp_path).of_today(now)
    assert history.given.of_images(now.paths.keys()) == ({"d99": "a"}, frozenset())
    assert history.lines(2, now, tmp_path)[0].endswith("1 moved. They give 1 label and keep 0 images out.")
    labelled = replace(now, images=entries | {"04.png": ImageEntry("2-2", "d99", "b")})
    assert replay_edits(tmp_path).of_today(labelled).given.of_images({"d99"}) == ({}, frozenset())


def test_edits_are_counted_by_kind_and_those_of_images_that_are_gone_wait(tmp_path: Path) -> None:
    end_round(tmp_path, a_round())
    rows = [("confirm", 4, "a"), ("move", 4, "a"), ("move", 5, "a"), ("reject", 6, ""), ("confirm", 7, "a")]
    edits = [edit("r-1", action, image, "", value, n) for n, (action, image, value) in enumerate(rows)]
    edits.append(edit("r-1", "merge", None, "new-02", "new-01", 8))
    append_edits(tmp_path, [*edits, edit("r-1", "rename", None, "new-09", "x", 9)])
    history = replay_edits(tmp_path)
    line, refused, *_ = history.lines(2, images(), tmp_path)
    assert "round 2: 1 merged, 2 moved, 1 rejected, 1 confirmed; 1 more was overruled by later ones" in line
    assert "'new-09' is not in this run" in refused
    gone = replace(images(), images=dict(list(images().images.items())[:6]))
    line, waiting, *_ = history.lines(2, gone, tmp_path)
    assert "1 merged, 2 moved; 1 more" in line
    assert waiting.startswith("2 edits of 2 images now gone")
    assert waiting.endswith("06.png, 07.png.")
    assert EditHistory().lines(1, images(), tmp_path) == []


def test_an_edit_that_cannot_take_part_is_told_once_and_counted_from_then_on(tmp_path) -> None:
    first = ["Rename of 'new-01' to 'a' was not applied: it is taken.", "Move of '9' was not applied: gone."]
    assert read_refused(tmp_path) == []
    assert unreported(tmp_path, first) == first
    store_refused(tmp_path, first)
    assert unreported(tmp_path, []) == []
    (again,) = unreported(tmp_path, first[:1])
    assert again.startswith("1 edit is still not applied")
    assert REFUSED_FILE in again
    changed = [first[0], "Move of '9' was not applied: it was rejected.", "2 edits of run 'x' cannot."]
    *fresh, others = unreported(tmp_path, changed)
    assert (fresh, others[:15]) == (changed[1:], "1 edit is still")
    store_refused(tmp_path, changed)
    assert (tmp_path / REFUSED_FILE).read_text().splitlines() == changed


def test_the_log_is_applied_to_what_the_round_found(tmp_path: Path) -> None:
    """Again and again: the folder rounds/1 stays as it was, and the outcome lies in the run folder, with the paths of
    today."""
    end_round(tmp_path, a_round())
    moved = Collection("/archive", {f"x/{path}": entry for path, entry in images().images.items()})
    moved.save(tmp_path)
    append_edits(tmp_path, [edit("r-1", "merge", None, "new-01", "new-02")])
    for _ in range(2):
        outcome = apply_log(tmp_path)
        assert (outcome.count, outcome.problems) == (1, [])
    kept, now = Discovery.load(round_folder(tmp_path, 1)), Discovery.load(tmp_path)
    assert (kept.category("new-02").n, now.category("new-02").n) == (4, 8)
    assert (kept.images.path[0], now.images.path[0]) == ("/photos/00.png", "/archive/x/00.png")
    merge = read_log(tmp_path)[0]
    append_edits(tmp_path, [Edit("r-1", "later", "undo", "", "new-01", merge.time)])
    assert apply_log(tmp_path).count == 0
    assert Discovery.load(tmp_path).category("new-02").n == 4
    made_discovery("r-7", GROUPS).save(tmp_path / "trained")  # a run without rounds
    append_edits(tmp_path / "trained", [Edit("r-7", "t", "rename", "", "new-01", "Owl")])
    for count in (1, 0):
        outcome = apply_log(tmp_path / "trained")
        assert (outcome.count, outcome.discovery.category("new-01").name) == (count, "Owl")


def test_what_is_estimated_from_labels_does_not_ask_those_of_edits(round: Round) -> None:
    """Nine typical images of a category that was split are no sign that it is nine times as large as another."""
    came, picked = round.table.label, round.table.label.copy()
    free = np.flatnonzero(came == "")
    picked[free[:9]] = "new-01"
    table = replace(round.table, label=picked, known=(*round.table.known, "new-01"))
    keys = [round.images.keys[row] for row in free]
    given = Constraints(labels=dict.fromkeys(keys[:9], "new-01"), rejected=frozenset(keys[-1:]))
    later = with_edits(replace(round, table=table), given)
    assert later.drawn.known == round.table.known
    assert (later.drawn.label == came).all()
    assert not later.drawn.usable[free[-1]]
    assert (round.drawn.label == came).all()


# -- the run folder shares what its last round has, and nothing that something has changed since


@pytest.mark.parametrize("links", [True, False])
def test_the_run_folder_shares_what_its_last_round_has(tmp_path: Path, monkeypatch, links) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no hard links here")

    if not links:
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
            assert os.path.samefile(tmp_path / name, source) == links
    assert (round_folder(tmp_path, 1) / SHARED_FILES[0]).read_text() == json.dumps({SHARED_FILES[0]: 1})
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["scores.json", "model.json", "model.safetensors"])
def test_what_something_has_changed_in_a_round_does_not_spread(tmp_path: Path, name: str) -> None:
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
    for model in ("[1]", "{}", "null"):  # of an unknown kind: left to those who read it
        (tmp_path / "model.json").write_text(model)
        (tmp_path / "model.safetensors").write_bytes(b"weights")
        check_complete(tmp_path)


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


# -- what became of each category

NUMBERS = [f"{i:02d}" for i in range(32)]
BEFORE = {"a": [*range(4)]} | {f"new-0{n}": [*range(4 * n, 4 * n + 4)] for n in range(1, 8)}
AFTER = {
    "a": [0, 1, 2, 3, 4, 5],
    "new-01": [6, 7],  # has lost half to a
    "new-08": [8, 9, 16],  # new-02 fell apart
    "new-09": [10, 11, 17],
    "new-03": [12, 13, 14, 15, 18],
    "new-10": [19, 20, 21, 22, 23],  # has all of new-05
    "new-06": [24, 25, 26, 27, 28, 29, 30, 31],  # took new-07 in, by hand
}
MERGE = Edit("r-1", "t", "merge", "", "new-07", "new-06")
RENAME = Edit("r-1", "t", "rename", "", "new-02", "=hats")


def rows(changes: list[CategoryChange], *ids: str) -> list[tuple[str, str, str, str, int]]:
    every = [(c.category_id, c.became, c.by, c.now_id, c.shared) for c in changes]
    return [row for row in every if not ids or row[0] in ids]


def compared(after: dict[str, list[int]], *edits: Edit, gone: tuple[str, ...] = ()) -> list[CategoryChange]:
    found = made_discovery("r-1", BEFORE, paths=NUMBERS)
    now = made_discovery("r-2", after, ("a", "new-06"), NUMBERS)
    now.images = now.images[~now.images.path.isin(gone)]
    return category_changes(found, apply_edits(found, edits).discovery, now)


def test_every_category_of_before_and_every_new_one_is_told(tmp_path: Path) -> None:
    changes = compared(AFTER, MERGE, RENAME)
    assert rows(changes) == [
        ("a", "kept", "training", "a", 4),
        ("new-01", "split", "training", "new-01", 2),
        ("new-01", "split", "training", "a", 2),
        ("new-02", "split", "training", "new-08", 2),
        ("new-02", "split", "training", "new-09", 2),
        ("new-03", "kept", "training", "new-03", 4),
        ("new-04", "gone", "training", "", 0),
        ("new-05", "merged", "training", "new-10", 4),
        ("new-06", "kept", "training", "new-06", 8),
        ("new-07", "merged", "edits", "new-06", 0),
        *(("", "new", "training", id, 0) for id in ("new-08", "new-09", "new-10")),
    ]
    lines = changes_text(changes, 1, tmp_path / CHANGES_FILE)
    assert lines[0] == "Kept from round 1: 3 categories (a, new-03, new-06)."
    assert lines[2] == "=hats was split into new-08 (2 images) and new-09 (2 images)."
    assert lines[-1] == "New: new-08 (3 images), new-09 (3 images), new-10 (5 images)."
    many = [CategoryChange(f"new-{i}", f"new-{i}", 1, "gone", "training") for i in range(30)]
    lines = changes_text(many, 1, tmp_path / CHANGES_FILE)
    assert len(lines) == MAX_CHANGE_LINES + 1
    assert lines[-1].startswith("19 more lines are in ")


def test_few_images_do_not_speak_for_a_category_and_edits_end_some() -> None:
    """Most files of new-01 and new-02 were taken away, and what is left lies elsewhere."""
    left = {"a": [*range(9)], "new-03": [*range(9, 32)]}
    changes = compared(left, gone=(*NUMBERS[5:8], *NUMBERS[10:12]))
    assert [row[1] for row in rows(changes, "new-01", "new-02")] == ["gone", "gone"]
    edits = [Edit("r-1", "t", "reject", "", "new-01")]
    edits += [Edit("r-1", "t", "move", NUMBERS[i], "new-02", "a") for i in BEFORE["new-02"]]
    changes = compared({"a": [*range(32)]}, *edits)
    ended = [row[1:3] for row in rows(changes, "new-01", "new-02")]
    assert ended == [("rejected", "edits"), ("gone", "edits")]


def test_the_table_of_changes_is_written_once_and_safe_for_spreadsheets(tmp_path: Path) -> None:
    for number, groups in enumerate((BEFORE, AFTER), start=1):
        made_discovery(f"r-{number}", groups, paths=NUMBERS).save(round_folder(tmp_path, number))
        (round_folder(tmp_path, number) / "scores.json").write_text("{}")
    append_edits(tmp_path, [RENAME])
    assert write_changes(tmp_path, 1, Collection()) == []
    assert write_changes(tmp_path, 2, Collection())[0].startswith("Kept from round 1")
    assert write_changes(tmp_path, 2, Collection()) == []
    frame = pd.read_csv(round_folder(tmp_path, 2) / CHANGES_FILE, keep_default_na=False)
    assert set(frame.category_id) == {*BEFORE, ""}
    assert "'=hats" in set(frame.category)
