"""No correction is ever lost: three rounds with every kind of edit, looked at in every place that shows them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest

from holotype.data.load import load_table
from holotype.discovery.estimator import Discoverer
from holotype.discovery.pipeline import discover_table
from holotype.discovery.rounds import replay_edits
from holotype.export.assign import assign_images
from holotype.report.build import read_data
from holotype.results.discovery import Discovery, safe_cell
from holotype.results.edits import Edit, edits_csv

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
        run = tmp_path / "run"
        file = edits_of(run, *edits) if edits else None
        return discover_table(table, small(method="kmeans", k=7), run, progress=False, edits=file)

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


def check(run: Path, held: Held) -> None:
    """In the table, in the report, in Python, and for images that are placed anew."""
    sheet = pd.read_csv(run / "assignments.csv", keep_default_na=False).set_index("path")
    data, loaded = read_data(run), Discoverer.load(run)
    root, images = loaded.discovery_.facts.root, data["images"]
    paths = [os.path.join(root, path) for path in images["path"]]
    shown = dict(zip(paths, images["category"], strict=True))
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
    file = run.parent / "list.csv"
    file.write_text("path\n" + "\n".join(held.place) + "\n")
    assigned = pd.read_csv(assign_images(run, file, overwrite=True, device="cpu").out, keep_default_na=False)
    assert list(assigned.category_id) == list(placed.category_id)
    assert set(placed.category_id) <= {*called, ""}
    assert list(placed.category) == [called.get(id, "") for id in placed.category_id]
    assert list(assigned.category) == [safe_cell(name) for name in placed.category]


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
        ("rename", "", "new-77", "Boots"),  # it is told that there is no such category
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
    held.place |= {held.said["rejected"]: "green", held.said["split off"]: "else"}
    held.place |= {held.said["confirmed"]: REJECTED}
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
    assert caplog.text.count("'new-77' is not in this run") == 1
    check(run, held)
    kept = replay_edits(run, until=1).discovery
    assert kept is not None
    assert kept.images.set_index("path").category_id[list(held.place)].to_dict() == held.place
    frame = pd.read_csv(run / "rounds" / "2" / "changes.csv", keep_default_na=False)
    assert {*frame.category_id} == {"", *(c.id for c in kept.categories), *held.gone}
    assert set(frame.became[frame.category_id.isin(["red", "green", "odd ones"])]) <= {"kept", "split"}
    assert "Kept from round 1" in caplog.text
    assert go().run_id == second.run_id  # nothing more was said
    third = go(*second_edits(second, held))
    assert third.facts.round == 3
    assert caplog.text.count("'new-77' is not in this run") == 1
    assert "1 edit is still not applied" in caplog.text
    assert "'new-77'" in (run / "refused.txt").read_text()
    assert set(third.known) >= {"green", "red", "odd ones", "else"}
    check(run, held)
    words = ("--edits", edits_of(run, *third_edits(third, held)), "--no-progress", "--device", "cpu")
    outcome = holotype("report", run, *words)
    assert outcome.code == 0, outcome.err
    assert "in the next round: run the holotype discover command again." in outcome.out
    check(run, held)
    limes = [path for path, id in held.place.items() if id == "limes"]
    assert "limes" in set(Discoverer.load(run).place(limes).category)
