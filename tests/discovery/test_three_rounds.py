"""No correction is ever lost: three rounds with every kind of edit, looked at in every place that shows them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
import pytest

from holotype.data.load import load_table
from holotype.discovery.collection import Collection, ImageEntry
from holotype.discovery.estimator import Discoverer
from holotype.discovery.pipeline import discover_table
from holotype.discovery.rounds import replay_edits, round_folder
from holotype.export.assign import assign_images
from holotype.results.apply_edits import apply_log
from holotype.results.discovery import Discovery, safe_cell
from holotype.results.edits import Edit, append_edits, edits_csv
from tests.discovery.made_round import PATHS
from tests.discovery.made_year import Pictures, homes
from tests.discovery.test_rounds import edit, end_round, first, two_rounds

REJECTED = ""


@dataclass
class Held:
    """What people have said so far, and what must hold from then on."""

    place: dict[str, str] = field(default_factory=dict)
    """Image to the id of its category; REJECTED = none."""
    names: dict[str, str] = field(default_factory=dict)
    """Id to name."""
    gone: set[str] = field(default_factory=set)
    """Ids that no image has any more."""
    said: dict[str, str] = field(default_factory=dict)
    """Images that a later edit says something else of."""


@pytest.fixture
def go(small, squares_folder, tmp_path) -> Callable[..., Discovery]:
    """Runs the command in tmp_path/run; k-means finds several new categories in an instant."""
    table = load_table(squares_folder / "squares.csv")

    def command(*edits: tuple[str, str, str, str]) -> Discovery:
        file = edits_of(tmp_path / "run", *edits) if edits else None
        return discover_table(
            table, small(method="kmeans", k=7), tmp_path / "run", progress=False, edits=file
        )

    return command


def edits_of(run: Path, *rows: tuple[str, str, str, str]) -> Path:
    found = Discovery.load(run)
    file = run.parent / f"edits-{found.facts.round}.csv"
    file.write_text(edits_csv([Edit(found.run_id, f"t{i:02d}", *row) for i, row in enumerate(rows)]))
    return file


def of(found: Discovery, id: str, labelled: bool = False) -> list[str]:
    """Its images, the most typical first."""
    images = found.images[(found.images.category_id == id) & ((found.images.label != "") == labelled)]
    return list(images.sort_values("typicality", ascending=False, kind="stable").path)


def page(run: Path) -> dict:
    text = (run / "report" / "data.js").read_text()
    return dict(json.loads(text[len("window.HOLOTYPE = ") :].rstrip().rstrip(";")))


def check(run: Path, held: Held) -> None:
    """In the table, in the report, in Python, and for images that are placed anew."""
    sheet = pd.read_csv(run / "assignments.csv", keep_default_na=False).set_index("path")
    data, loaded = page(run), Discoverer.load(run)
    shown = dict(
        zip(
            (os.path.join(loaded.discovery_.facts.root, path) for path in data["images"]["path"]),
            data["images"]["category"],
            strict=True,
        )
    )
    ids = dict(zip(loaded.discovery_.images.path, loaded.discovery_.images.category_id, strict=True))
    for path, id in held.place.items():
        assert sheet.loc[path, "category_id"] == ids[path] == id, path
        assert sheet.loc[path, "category"] == safe_cell(held.names.get(id, id)), path
        assert (data["categories"][shown[path]]["id"] if shown[path] >= 0 else "") == id, path
    called = {category.id: category.name for category in loaded.categories_}
    assert {category["id"]: category["name"] for category in data["categories"]} == called
    assert len(set(called.values())) == len(called)
    for id, name in held.names.items():
        assert called[id] == name
    assert not held.gone & (called.keys() | set(ids.values()))
    loaded.device = "cpu"
    placed = loaded.place(list(held.place))
    assigned = pd.read_csv(
        assign_images(run, write_list(run, list(held.place)), overwrite=True, device="cpu").out,
        keep_default_na=False,
    )
    assert list(assigned.category_id) == list(placed.category_id)
    assert set(placed.category_id) <= {*called, ""}
    assert list(placed.category) == [called.get(id, "") for id in placed.category_id]
    assert list(assigned.category) == [safe_cell(name) for name in placed.category]


def write_list(run: Path, paths: list[str]) -> Path:
    file = run.parent / "list.csv"
    file.write_text("path\n" + "\n".join(paths) + "\n")
    return file


def first_edits(found: Discovery, held: Held) -> list[tuple[str, str, str, str]]:
    """Every kind of edit, of labelled images too."""
    one, two, three, four, *_ = [c.id for c in found.categories if c.kind == "novel"]
    a, b, c, d = (of(found, id) for id in (one, two, three, four))
    red, green = of(found, "red", labelled=True), of(found, "green", labelled=True)
    held.place |= dict.fromkeys([*a[1:8], *d[:3]], one)  # merged: the typical ones of both parts speak for it
    held.place |= dict.fromkeys([b[0], b[1], red[2]], "odd ones")  # split: of the others nothing is said
    held.place |= {a[0]: "green", green[0]: "red"}  # moved
    held.place |= {c[1]: three, red[1]: "red", green[1]: "green"}  # confirmed, and left alone
    held.place |= {c[0]: REJECTED, red[0]: REJECTED}
    held.names |= {"red": "crimson", one: "=gold <b>"}
    held.gone |= {four}
    held.said = {"confirmed": c[1], "rejected": c[0], "split off": b[0]}
    return [
        ("rename", "", "red", "crimson"),
        ("rename", "", one, "=gold <b>"),
        ("merge", "", four, one),
        ("move", b[0], two, "odd ones"),
        ("move", b[1], two, "odd ones"),
        ("move", red[2], "red", "odd ones"),
        ("move", a[0], one, "green"),
        ("move", green[0], "green", "red"),
        ("confirm", c[1], three, three),
        ("reject", c[0], three, ""),
        ("reject", red[0], "red", ""),
    ]


def second_edits(found: Discovery, held: Held) -> list[tuple[str, str, str, str]]:
    """Some of it is taken back, more is said of the classes that edits have made, and a whole category goes."""
    (fresh, *_) = [c.id for c in found.categories if c.kind == "novel"]
    held.place |= dict.fromkeys(of(found, fresh), REJECTED)
    held.place |= {
        held.said["rejected"]: "green",
        held.said["split off"]: "else",
        held.said["confirmed"]: REJECTED,
    }
    held.names |= {"odd ones": "odder ones"}
    held.gone |= {fresh}
    return [
        ("reject", "", fresh, ""),
        ("confirm", held.said["rejected"], "", "green"),
        ("move", held.said["split off"], "odd ones", "else"),
        ("reject", held.said["confirmed"], "", ""),
        ("rename", "", "odd ones", "odder ones"),
    ]


def third_edits(found: Discovery, held: Held) -> list[tuple[str, str, str, str]]:
    """What holotype report applies without training."""
    novel = [c.id for c in found.categories if c.kind == "novel"]
    limes = of(found, "green")[:3]
    held.place |= dict.fromkeys(limes, "limes")
    held.gone |= set(novel)
    return [
        *(("merge", "", id, "odd ones") for id in novel),
        *(("move", path, "green", "limes") for path in limes),
    ]


def test_three_rounds_with_every_kind_of_edit(go, holotype, tmp_path, caplog) -> None:
    run, held = tmp_path / "run", Held()
    caplog.set_level("INFO", "holotype")
    first = first_edits(go(), held)
    second = go(*first)
    assert second.facts.round == 2
    said = "Edits that take part in round 2: 2 renamed, 1 merged, 5 moved, 2 rejected, 1 confirmed."
    assert said in caplog.text
    check(run, held)
    kept = Discovery.load(run / "rounds" / "1" / "corrected")
    assert kept.images.set_index("path").category_id[list(held.place)].to_dict() == held.place
    frame = pd.read_csv(run / "rounds" / "2" / "changes.csv", keep_default_na=False)
    assert {*frame.category_id} == {"", *(c.id for c in kept.categories), *held.gone}
    assert set(frame.became[frame.category_id.isin(["red", "green", "odd ones"])]) <= {"kept", "split"}
    assert "Kept from round 1" in caplog.text
    assert go().run_id == second.run_id  # nothing more was said
    third = go(*second_edits(second, held))
    assert third.facts.round == 3
    assert set(third.known) >= {"green", "red", "odd ones", "else"}
    check(run, held)
    words = ("--edits", edits_of(run, *third_edits(third, held)), "--no-progress", "--device", "cpu")
    outcome = holotype("report", run, *words)
    assert outcome.code == 0, outcome.err
    assert "in the next round: run the holotype discover command again." in outcome.out
    check(run, held)
    assert "limes" in set(
        Discoverer.load(run).place([p for p, id in held.place.items() if id == "limes"]).category
    )


def test_a_split_leaves_the_rest_a_new_category(small, tmp_path) -> None:
    """It keeps its id, its name and what can be done with it; labels are those of the images that were moved."""
    pictures, run = Pictures(tmp_path / "photos", tmp_path / "away"), tmp_path / "run"
    pictures.arrive(4, "{kind}", ("red", "green"))
    pictures.arrive(16, kinds=("red", "green", "purple", "pink"))
    table = load_table(pictures.root)

    def go(k: int | str, *edits: tuple[str, str, str, str]) -> Discovery:
        file = edits_of(run, *edits) if edits else None
        return discover_table(table, small(method="kmeans", k=k), run, progress=False, edits=file)

    first = go(3)
    assert homes(first, pictures) == {"red": "red", "green": "green", "purple": "new-01", "pink": "new-01"}
    moved = [path for path in of(first, "new-01") if pictures.kind()[path] == "pink"][:8]
    moves = [("move", path, "new-01", "pinks") for path in moved]
    second = go("auto", ("rename", "", "new-01", "plum"), *moves)
    assert second.facts.k == 4
    assert set(second.known) == {"red", "green", "pinks"}
    images = second.images.set_index("path")
    assert set(images.category_id[moved]) == {"pinks"}
    assert set(images.index[images.label != ""]) == {*table.path[table.labelled], *moved}
    assert homes(second, pictures) == {"red": "red", "green": "green", "purple": "new-01", "pink": "pinks"}
    rest = second.category("new-01")
    assert (rest.kind, rest.name) == ("novel", "plum")
    third = go("auto", ("merge", "", "new-01", "pinks"))
    assert third.facts.k == 3
    assert "new-01" not in {category.id for category in third.categories}


class Killed(BaseException):
    """As good as kill -9: nothing is told, nothing is tidied up."""


@pytest.mark.parametrize("step", ["begin_round", "run_round", "link_round", "write_changes", "build_report"])
def test_a_kill_loses_no_edit(step, go, tmp_path, monkeypatch) -> None:
    """The file of edits is given once; the command without it goes on."""
    run, held = tmp_path / "run", Held()
    edits = first_edits(go(), held)

    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(f"holotype.discovery.pipeline.{step}", kill)
        with pytest.raises(Killed):
            go(*edits)
    assert go().facts.round == 2
    check(run, held)
    assert (run / "rounds" / "2" / "changes.csv").is_file()


# -- What the rounds of a discovery and their edits come to where images have copies and files of ed


def test_a_name_that_comes_late_is_in_the_words_of_the_round_after_it(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    second = Discovery.load(round_folder(tmp_path, 2))
    second.category("new-02").words, second.category("new-02").suggested = (
        "closest to new-01 0.50 and a 0.40",
        "near new-01, new 1",
    )
    second.save(round_folder(tmp_path, 2))
    append_edits(tmp_path, [edit("r-1", "rename", "", "new-01", "boots")])
    played = replay_edits(tmp_path)
    assert played.applied is not None
    told = (played.applied.discovery, apply_log(tmp_path, played.before.names).discovery)
    for category in (found.category("new-02") for found in told):
        assert (category.words, category.suggested) == (
            "closest to boots 0.50 and a 0.40",
            "near boots, new 1",
        )


def test_a_round_knows_copies_by_the_content_that_it_saw(tmp_path: Path) -> None:
    """What a person said of one of two copies is not contradicted by what follows from a merge of the other's."""
    names = [Path(path).name for path in PATHS]
    same = {"05.png": "4"}
    seen = Collection("photos", {name: ImageEntry("1", same.get(name, str(int(name[:2])))) for name in names})
    found = first()
    found.facts = replace(found.facts, root="photos")
    end_round(tmp_path, found, seen=seen)
    append_edits(
        tmp_path,
        [edit("r-1", "move", PATHS[4], "new-01", "odd"), edit("r-1", "merge", "", "new-02", "new-01")],
    )
    merged = dict.fromkeys(names[6:], "new-01")
    assert replay_edits(tmp_path).given.labels == {"04.png": "odd"} | merged


def test_an_edit_counts_again_when_the_label_that_overruled_it_is_taken_away(tmp_path: Path) -> None:
    """As where --unlabelled was forgotten once: a heap was a class for a round, and nobody meant it."""
    found = first()
    found.facts = replace(found.facts, root="photos")
    end_round(tmp_path, found)
    append_edits(
        tmp_path,
        [edit("r-1", "confirm", PATHS[4], "new-01", "a"), edit("r-1", "reject", PATHS[5], "new-01", "", 1)],
    )
    heap = {name: ImageEntry("1-1", name, "heap", relabelled=True) for name in ("04.png", "05.png")}
    second = replace(found, run_id="r-2", facts=replace(found.facts, round=2, earlier_runs=("r-1",)))
    end_round(tmp_path, second, seen=Collection("photos", heap))
    Collection("photos", heap).save(tmp_path)
    assert (replay_edits(tmp_path).given.labels, replay_edits(tmp_path).given.rejected) == ({}, frozenset())
    Collection("photos", heap | {"05.png": ImageEntry("1-1", "05.png")}).save(tmp_path)
    assert (replay_edits(tmp_path).given.labels, replay_edits(tmp_path).given.rejected) == ({}, {"05.png"})
    played = replay_edits(tmp_path, labels={"04.png": "", "05.png": ""})
    assert (played.given.labels, played.given.rejected) == ({"04.png": "a"}, {"05.png"})
    assert "1 rejected, 1 confirmed. They give 1 label" in played.told(3, heap.keys(), tmp_path)[0]
