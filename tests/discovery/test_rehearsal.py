"""The rehearsal: which labels are hidden, when an image counts as right, and whom the hidden labels trust."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from holotype.data.table import Table
from holotype.discovery.rehearsal import choose_blend, hidden_right, hide_labels
from holotype.results.ensemble import Training
from holotype.results.frozen import BLENDS

K, KNOWN, EACH, LABELLED = 12, 8, 30, 15


def make_table(labelled: int = LABELLED, known: int = KNOWN) -> tuple[Table, np.ndarray]:
    truth = np.repeat(np.arange(K), EACH)
    names = np.array([f"c{i:02d}" for i in range(K)], dtype=object)
    has = (truth < known) & (np.arange(K * EACH) % EACH < labelled)
    label = np.where(has, names[truth], "")
    paths = np.array([f"{i}.png" for i in range(K * EACH)], dtype=object)
    return Table(paths, label, tuple(names[:known])), truth


def test_a_quarter_of_the_classes_and_a_fifth_of_the_other_labels_are_hidden() -> None:
    table, _ = make_table()
    hidden = hide_labels(table, seed=3)
    assert hidden is not None
    assert len(hidden.known) == 6
    assert set(hidden.label) - {""} == set(hidden.known) < set(table.known)
    for name in hidden.known:
        assert (hidden.label == name).sum() == 12
    away = hidden.label != table.label
    assert (hidden.label[away] == "").all()
    assert (hide_labels(table, seed=3).label == hidden.label).all()
    assert (hide_labels(table, seed=4).label != hidden.label).any()


@pytest.mark.parametrize(
    ("labelled", "known"),
    [(4, KNOWN), (EACH, 3), (EACH, 4)],
    ids=["14 labels", "no class is hidden", "48 labels"],
)
def test_few_labels_of_either_kind_are_not_judged_by(labelled: int, known: int) -> None:
    """Of four classes with thirty labels each one is hidden, and six labels of each other one."""
    assert (hide_labels(make_table(labelled, known)[0], seed=0) is None) == (known < 4 or labelled < 5)


def test_a_class_of_few_labels_hides_one() -> None:
    """Else the hidden classes alone would judge."""
    many = Table(
        np.array([f"{i}.png" for i in range(240)], dtype=object),
        np.repeat(np.array([f"c{i:02d}" for i in range(60)], dtype=object), 4),
        tuple(f"c{i:02d}" for i in range(60)),
    )
    hidden = hide_labels(many, seed=0)
    assert hidden is not None
    assert Counter(Counter(hidden.label[hidden.label != ""]).values()) == {3: 45}


def test_frames_of_a_burst_lose_their_label_together() -> None:
    table, _ = make_table(labelled=EACH)
    group = np.array([f"b{i // 5}" for i in range(len(table))], dtype=object)
    hidden = hide_labels(dataclasses.replace(table, group=group), seed=0)
    assert hidden is not None
    for name in set(group):
        rows = (group == name) & (table.label != "")
        assert len(set(hidden.label[rows])) <= 1


def test_a_hidden_class_is_right_in_the_category_that_is_matched_with_it() -> None:
    label = np.array(["x", "x", "y", "y", "y", "x"], dtype=object)
    table = Table(np.array(list("abcdef"), dtype=object), label, ("x", "y"))
    left = np.array(["x", "", "", "", "", "x"], dtype=object)
    hidden = dataclasses.replace(table, label=left, known=("x",))
    # x is 0; the class y was hidden: two of its three images lie in category 2
    right = hidden_right(table, hidden, np.array([0, 0, 2, 2, 1, 0]))
    assert right.tolist() == [True, True, True, False]
    assert hidden_right(table, hidden, np.array([0, 1, 0, 0, 0, 0])).tolist() == [False] * 4


@pytest.mark.parametrize(
    ("trained", "noise", "name"),
    [("truth", 3.0, "trainings"), ("one class", 0.1, "frozen"), ("truth", 0.1, "together")],
)
def test_the_side_that_places_hidden_labels_right_is_taken(trained, noise, name) -> None:
    table, truth = make_table()
    random = np.random.default_rng(0)
    hidden = hide_labels(table, seed=0)
    assert hidden is not None
    index = {c: i for i, c in enumerate(hidden.known)}
    new = iter(range(len(hidden.known), K))
    own = np.array([index[f"c{i:02d}"] if f"c{i:02d}" in index else next(new) for i in range(K)])
    category = own[truth] if trained == "truth" else np.full(len(truth), own[0])
    features = (np.eye(K, 24)[truth] + noise * random.normal(size=(len(truth), 24))).astype(np.float32)
    said = Training(category, np.ones(len(truth), np.float32))
    found = choose_blend(table, hidden, [said], features, K, "cpu", "together")
    assert found.name == name
    assert found.judged == int((table.label != hidden.label).sum())
    assert found.right is not None
    _, trainings, frozen = found.right
    taken = found.right[list(BLENDS).index(name)]
    assert np.mean([test.right for test in found.rehearsed]) == pytest.approx(taken)
    assert (trainings > frozen) == (name == "trainings") or name == "together"
    assert all(0 <= share <= 1 for share in found.right)
