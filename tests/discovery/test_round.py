"""What a round starts from: the classes that are known by labels, by edits, or no more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holotype.data.sources import load_table
from holotype.discovery.workflow import discover_table
from holotype.errors import InputError
from tests.discovery.made_round import edits_file


@pytest.fixture
def photos(squares_folder, tmp_path) -> Path:
    return Path(shutil.copytree(squares_folder, tmp_path / "photos"))


@pytest.fixture
def go(photos, small, tmp_path):
    """The same command again and again; k-means takes an instant."""

    def command(edits: Path | None = None, unlabelled: tuple[str, ...] = ()):
        table, asked = load_table(photos, unlabelled=unlabelled), small(method="kmeans", k=4)
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
