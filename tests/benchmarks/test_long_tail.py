"""The two collections of the long tail: sizes, labels, and that they hold as many images."""

from __future__ import annotations

import numpy as np
import pytest
from long_tail import Tail, choose_classes, run, thin

from holotype.data.sources import load_table
from holotype.data.table import Table
from holotype.runs.prepared import Data, Shelf


@pytest.fixture
def table() -> Table:
    """Ten classes of 40 images, the first five known; labels do not matter, they are drawn anew."""
    truth = np.array([f"c{i % 10}" for i in range(400)], dtype=object)
    known = tuple(f"c{i}" for i in range(5))
    return Table(np.array([f"{i}.png" for i in range(400)]), np.full(400, ""), known, truth, name="t")


def test_sizes_fall_in_equal_ratios() -> None:
    sizes = Tail(classes=40, largest=200, ratio=20).sizes()
    assert (len(sizes), sizes[0], sizes[-1]) == (20, 200, 10)
    assert np.allclose(sizes[1:] / sizes[:-1], 20 ** (-1 / 19), atol=0.05)


def test_both_collections_hold_the_same_classes_and_about_as_many_images(table) -> None:
    tail = Tail(classes=8, largest=40, ratio=20)
    names = choose_classes(table, 8, seed=0)
    long, flat = (thin(table, names, sizes, seed=0) for sizes in (tail.sizes(), tail.balanced()))
    assert set(long.truth) == set(flat.truth) == {*names[0], *names[1]}
    assert set(long.known) == set(names[0]) <= set(table.known)
    assert not set(names[1]) & set(table.known)
    assert abs(len(long) - len(flat)) <= 4
    for group in names:
        assert [int((long.truth == name).sum()) for name in group] == tail.sizes().tolist()


def test_half_of_the_known_images_are_labelled_and_rightly(table) -> None:
    names = choose_classes(table, 6, seed=1)
    found = thin(table, names, np.array([40, 9, 1]), seed=0)
    assert (found.label[found.labelled] == found.truth[found.labelled]).all()
    assert [int((found.label == name).sum()) for name in names[0]] == [20, 4, 1]
    assert not found.labelled[np.isin(found.truth, names[1])].any()


def test_a_run_gives_its_record_and_what_became_of_each_class(squares_folder, tiny_backbone_file) -> None:
    data = Data(load_table(squares_folder / "squares.csv"), 4)
    changes = {"seed": 0, "backbone.name": str(tiny_backbone_file), "device": "cpu", "cache_views": "off"}
    record, classes = run(data, Shelf(data=data), "simgcd", changes, steps=1)
    assert record.identity.data["name"] == "squares"
    assert {key: getattr(record.scores, key) is not None for key in ("all", "old", "new")} == {
        "all": True,
        "old": True,
        "new": True,
    }
    assert {one["class"] for one in classes} == {"red", "green", "blue", "yellow"}
    assert sum(one["correct"] for one in classes) == round(record.scores.all * record.scores.n)
