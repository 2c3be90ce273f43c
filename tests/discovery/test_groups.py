"""Folders without labels, or with one class: groups are proposed, names make classes of them."""

from pathlib import Path

import pytest

from holotype.data.load import load_table
from holotype.discovery.groups import METHOD
from holotype.discovery.pipeline import discover_table
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, append_edits
from tests.conftest import COLOURS, draw_squares


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """The squares in one folder, without labels."""
    folder, kept = tmp_path / "drawn", tmp_path / "photos" / "unlabelled"
    kept.mkdir(parents=True)
    for path, _, _ in draw_squares(folder):
        (folder / path).rename(kept / Path(path).name)
    return kept.parent


@pytest.fixture
def go(small, tmp_path: Path):
    def command(images: Path, **settings: object) -> Discovery:
        table = load_table(images)
        return discover_table(table, small(**{"seeds": 1, **settings}), tmp_path / "run", progress=False)

    return command


def colours(found: Discovery) -> dict[str, set[str]]:
    """Which colours each category holds."""
    held: dict[str, set[str]] = {}
    for path, id in zip(found.images["path"], found.images["category_id"], strict=True):
        held.setdefault(id, set()).add(Path(path).name.partition("-")[0])
    return held


def label(flat: Path, colour: str, name: str) -> None:
    """Put half of the images of a colour into a class."""
    (flat / name).mkdir()
    for image in sorted((flat / "unlabelled").glob(f"{colour}-*"))[::2]:
        image.rename(flat / name / image.name)


def test_groups_get_names_and_then_are_trained(flat, go, tmp_path) -> None:
    found = go(flat)
    assert (found.known, found.facts.method, found.facts.steps) == ((), METHOD, 0)
    groups = colours(found)
    assert sorted(map(sorted, groups.values())) == sorted([colour] for colour in COLOURS)
    assert (tmp_path / "run" / "model.safetensors").is_file()
    red, green = (next(id for id, held in groups.items() if held == {colour}) for colour in ("red", "green"))
    moment = "2026-01-01T00:00:0{}Z"
    append_edits(tmp_path / "run", [Edit(found.run_id, moment.format(1), "rename", "", red, "rose")])
    assert go(flat).facts.method == METHOD  # one class is still too few
    append_edits(tmp_path / "run", [Edit(found.run_id, moment.format(2), "rename", "", green, "leaf")])
    trained = go(flat)
    assert set(trained.known) == {red, green}
    assert trained.facts.method != METHOD
    assert trained.facts.confirmed_labels == 18
    names = {category.name: category.id for category in trained.categories}
    assert "red" in colours(trained)[names["rose"]]
    assert "green" in colours(trained)[names["leaf"]]


def test_only_shown_images_become_labels_where_some_were_confirmed(flat, go, tmp_path) -> None:
    found = go(flat)
    ids = [category.id for category in found.categories][:2]
    edits = []
    for second, id in enumerate(ids):
        path = found.images.loc[found.images["category_id"] == id, "path"].iloc[0]
        moment = f"2026-01-01T00:00:0{second}Z"
        edits += [
            Edit(found.run_id, moment, "rename", "", id, f"name {second}"),
            Edit(found.run_id, moment, "confirm", path, id, id),
        ]
    append_edits(tmp_path / "run", edits)
    assert go(flat).facts.confirmed_labels == 2


def test_one_class_keeps_its_name(flat, go) -> None:
    label(flat, "red", "rose")
    found = go(flat)
    assert found.known == ("rose",)
    held = colours(found)
    assert held["rose"] == {"red"}
    assert len(held) == len(COLOURS)


def test_what_was_trained_is_not_replaced_by_groups(flat, go) -> None:
    label(flat, "red", "rose")
    label(flat, "green", "leaf")
    assert go(flat).facts.method != METHOD
    for image in (flat / "leaf").iterdir():
        image.unlink()
    with pytest.raises(InputError, match="Only one known class"):
        go(flat)
