"""What a round starts from: the classes that are known by labels, by edits, or no more."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holotype.data.load import load_table
from holotype.discovery.constraints import Constraints
from holotype.discovery.pipeline import discover_table
from holotype.discovery.round_runner import Round
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from tests.discovery.made_round import edits_file, with_edits


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
