"""The number of categories: an estimate that is kept, what corrections have left, and whether sizes differ."""

import json
import logging
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from holotype.clustering.k_curve import CountEstimate
from holotype.data.table import Table
from holotype.discovery import round_runner as module
from holotype.discovery.constraints import Constraints, without_edit_labels
from holotype.discovery.plan import Round
from holotype.discovery.round_runner import (
    COUNT_FILE,
    categories_left,
    choose_k,
    corrected_k,
    count_categories,
)
from holotype.results.discovery import Category, Discovery, RunFacts
from tests.discovery.made_round import with_edits


def change(round: Round, **settings: object) -> Round:
    return replace(round, config=replace(round.config, **settings))


def estimate(best: int) -> CountEstimate:
    return CountEstimate(best=best, low=best, high=best, words="So many.", points=[], by="class sizes")


@pytest.fixture
def features() -> np.ndarray:
    return torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).numpy()


def test_an_estimate_is_kept_and_made_anew_for_other_input(round: Round, features, monkeypatch) -> None:
    first = count_categories(round, features)
    assert json.loads((round.folder / COUNT_FILE).read_text())["best"] == first.best
    seen = []
    monkeypatch.setattr(module, "write_count", lambda *_: None)
    monkeypatch.setattr(module, "estimate_table", lambda *given, **_: seen.append(len(given[1])))
    assert count_categories(round, features) == first
    assert seen == []
    count_categories(change(round, seed=1), features)
    less = with_edits(round, Constraints(rejected=frozenset(round.images.keys[:10])))
    assert less.out.tolist() == [True] * 10 + [False] * 54
    assert list(np.flatnonzero(less.active.usable)) == [*range(10, 64)]
    count_categories(less, features)  # rejected images are not counted
    (round.folder / COUNT_FILE).write_text("{")
    count_categories(round, features)
    assert seen == [64, 54, 64]


def test_a_given_k_counts_at_least_the_known_classes(round: Round, features, caplog) -> None:
    assert choose_k(change(round, k=4), features) == (4, None)
    assert choose_k(change(round, k=1), features) == (2, None)
    assert "--k 1 becomes 2" in caplog.text


def test_corrections_decide_instead_of_the_count(round: Round, features, monkeypatch, caplog) -> None:
    """Twelve were counted and five are left: five are trained with."""
    seen = []

    def count_twelve(table, *_, **__):
        seen.append(int(table.labelled.sum()))
        return estimate(12)

    monkeypatch.setattr(module, "estimate_table", count_twelve)
    monkeypatch.setattr(module, "write_count", lambda *_: None)
    came, known = round.table.label, round.table.known
    free = np.flatnonzero(came == "")[:3]
    picked = came.copy()
    picked[free] = known[0]
    places = [dict(zip(("cat", "dog"), known, strict=True)).get(place, place) for place in PLACES]
    before = found([*places, *["new-01"] * (64 - len(places))], known, counted=12)
    before.images["path"] = round.table.path
    before = replace(before, facts=replace(before.facts, root=round.table.root))
    given = Constraints(labels={round.images.keys[row]: known[0] for row in free})
    corrected = with_edits(replace(round, table=replace(round.table, label=picked)), given, before)
    with caplog.at_level(logging.INFO):
        assert choose_k(corrected, features)[0] == 5
    assert seen == [int((came != "").sum())]
    assert "Corrections have left 5 categories. Training with 5." in caplog.text
    assert choose_k(with_edits(corrected, Constraints(), before), features)[0] == 12


# -- after corrections: what people have left, not what their labels make of the count

CAME = np.array(["cat", "cat", "dog", "", "", "", "", ""], dtype=object)
PLACES = ["cat", "cat", "dog", "new-01", "new-01", "new-02", "new-02", "new-03"]


def table_of(label: list[str], group: list[str] | None = None, more: int = 0) -> Table:
    label = [*label, *[""] * more]
    path = np.array([f"{i}.png" for i in range(len(label))], dtype=object)
    grouped = None if group is None else np.array(group, dtype=object)
    return Table(path, np.array(label, dtype=object), tuple(sorted(set(label) - {""})), group=grouped)


def found(places: list[str], known: tuple[str, ...] = ("cat", "dog"), counted: int | None = 4) -> Discovery:
    images = pd.DataFrame({"path": [f"{i}.png" for i in range(len(places))], "category_id": places})
    sizes = pd.Series(places).value_counts()
    kind = {id: "known" if id in known else "novel" for id in sizes.index}
    categories = [Category(id, id, kind[id], int(n)) for id, n in sizes.items() if id]
    count = estimate(counted).as_dict() if counted else None
    return Discovery("run", known, images, categories, count, RunFacts())


@pytest.mark.parametrize(
    ("now", "group", "drawn"),
    [
        # labels from edits are not counted with; one that was moved has its new label
        (("cat", "dog", "dog", "cat", "new-01", "", "", ""), None, ("cat", "dog", "dog", "", "", "", "", "")),
        # an image that left for a new category has no label to count with
        (("cat", "new-01", "dog", "", "", "", "", ""), None, ("cat", "", "dog", "", "", "", "", "")),
        # frames of a burst keep the label that one of them came with
        (
            ("cat", "cat", "dog", "cat", "dog", "dog", "", ""),
            ["a", "", "", "a", "b", "b", "", ""],
            ("cat", "cat", "dog", "cat", "", "", "", ""),
        ),
    ],
)
def test_labels_that_speak_for_sizes(now, group, drawn) -> None:
    table = without_edit_labels(table_of(list(now), group), CAME)
    assert (tuple(table.label), table.known) == (drawn, ("cat", "dog"))


@pytest.mark.parametrize(
    ("places", "label", "left"),
    [
        (PLACES, list(CAME), 5),
        ([place.replace("new-02", "new-01") for place in PLACES], list(CAME), 4),  # merged
        ([place.replace("new-03", "") for place in PLACES], list(CAME), 4),  # rejected
        (PLACES, ["cat", "cat", "dog", "new-01", "", "", "", ""], 5),  # became a class
        (PLACES, ["cat", "cat", "dog", "", "", "owl", "owl", ""], 5),  # new-02 has a name from elsewhere
        (PLACES, ["cat", "cat", "dog", "owl", "", "owl", "", ""], 6),  # scattered
        (PLACES, [*CAME, "owl", "owl", "owl", "owl"], 6),  # came with its images
    ],
)
def test_what_people_have_left_is_the_number(places, label, left) -> None:
    assert categories_left(found(places), table_of(label)) == left


@pytest.mark.parametrize(
    ("counted", "now", "label", "more", "k"),
    [
        (4, 9, list(CAME), 0, 5),  # of the same images it changes by chance alone
        (4, 6, list(CAME), 4, 7),
        (None, 9, list(CAME), 0, 5),  # the number was given
        (None, 9, list(CAME), 4, 5),
        # a class that comes with its images is counted once
        (4, 5, [*CAME, *["owl"] * 4], 0, 6),
        (4, 6, [*CAME, *["owl"] * 4], 0, 7),
        (4, 3, [*CAME, *["owl"] * 4], 0, 5),
        # images that were there before have made the class out of what was counted already
        (4, 5, ["cat", "cat", "dog", "owl", "", "owl", "", "", "", ""], 0, 7),
        (9, 2, ["cat", "owl", "dog"], 9, 3),  # known classes are never fewer
    ],
)
def test_the_count_has_a_say_where_images_have_come(counted, now, label, more, k) -> None:
    n, why = corrected_k(estimate(now), found(PLACES, counted=counted), table_of(label, more=more))
    assert n == k
    assert why.endswith(f"Training with {k}.")
