"""The number of categories that a round is trained with."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from holotype.clustering.k_curve import CountEstimate
from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.choose_k import (
    COUNT_FILE,
    categories_left,
    check_long_tail,
    choose_k,
    choose_long_tail,
    corrected_k,
    count_categories,
)
from holotype.discovery.constraints import Constraints, sampled_count
from holotype.discovery.plan import Round
from holotype.errors import InputError
from holotype.results.discovery import Category, Discovery, RunFacts
from tests.discovery.made_round import with_edits


def change(round: Round, **settings: object) -> Round:
    return dataclasses.replace(round, config=dataclasses.replace(round.config, **settings))


def test_an_estimate_is_kept_and_made_anew_for_other_labels(round: Round, monkeypatch) -> None:
    features = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).numpy()
    first = count_categories(round, features)
    stored = json.loads((round.folder / COUNT_FILE).read_text())
    assert stored["best"] == first.best
    monkeypatch.setattr(
        "holotype.discovery.choose_k.estimate_table", lambda *_, **__: pytest.fail("counted again")
    )
    assert count_categories(round, features) == first
    with pytest.raises(pytest.fail.Exception, match="counted again"):
        count_categories(change(round, seed=1), features)
    (round.folder / COUNT_FILE).write_text("{")
    with pytest.raises(pytest.fail.Exception, match="counted again"):
        count_categories(round, features)


def test_a_given_k_counts_at_least_the_known_classes(round: Round, caplog) -> None:
    assert choose_k(change(round, k=4), torch.zeros(64, 8).numpy()) == (4, None)
    assert choose_k(change(round, k=1), torch.zeros(64, 8).numpy()) == (2, None)
    assert "--k 1 becomes 2" in caplog.text


def test_rejected_images_are_neither_counted_nor_trained_on(round: Round, monkeypatch) -> None:
    features = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).numpy()
    count_categories(round, features)
    less = with_edits(round, Constraints(rejected=frozenset(round.images.keys[:10])))
    assert less.out.tolist() == [True] * 10 + [False] * 54
    assert list(np.flatnonzero(less.active.usable)) == [*range(10, 64)]
    seen = []
    monkeypatch.setattr(
        "holotype.discovery.choose_k.estimate_table",
        lambda table, rows, *_, **__: seen.append((len(table), len(rows))),
    )
    monkeypatch.setattr("holotype.discovery.choose_k.write_count", lambda *_: None)
    count_categories(less, features)  # what was counted with them does not serve
    assert seen == [(54, 54)]


def test_corrections_decide_instead_of_the_count(round: Round, monkeypatch, caplog) -> None:
    """Twelve were counted and five are left: five are trained with."""
    seen = []

    def count_twelve(table, *_, **__):
        seen.append(int(table.labelled.sum()))
        return estimate(12)

    monkeypatch.setattr("holotype.discovery.choose_k.estimate_table", count_twelve)
    monkeypatch.setattr("holotype.discovery.choose_k.write_count", lambda *_: None)
    came, picked = round.table.label, round.table.label.copy()
    free = np.flatnonzero(came == "")[:3]
    picked[free] = round.table.known[0]
    paths = [Path(str(path)).relative_to(round.table.root).as_posix() for path in round.table.path]
    places = [dict(zip(("cat", "dog"), round.table.known, strict=True)).get(place, place) for place in PLACES]
    before = found([*places, *["new-01"] * (len(paths) - len(places))], round.table.known, counted=12)
    before.images["path"] = paths
    table = dataclasses.replace(round.table, label=picked)
    given = Constraints(labels={round.images.keys[row]: round.table.known[0] for row in free})
    corrected = with_edits(dataclasses.replace(round, table=table), given, before)
    with caplog.at_level(logging.INFO):
        k, _ = choose_k(corrected, np.zeros((len(paths), 2), np.float32))
    assert k == 5
    assert seen == [int((came != "").sum())]
    assert "Corrections have left 5 categories. Training with 5." in caplog.text
    k, _ = choose_k(with_edits(corrected, Constraints(), before), np.zeros((len(paths), 2), np.float32))
    assert k == 12


# -- --long-tail: what was asked for, or what the labels say


def collection(sizes: list[int]) -> tuple[Table, np.ndarray]:
    """Half of each known class is labelled; as many new classes of the same sizes."""
    random, n = np.random.default_rng(0), len(sizes)
    truth = np.repeat(np.arange(2 * n), [*sizes, *sizes])
    features = (4 * np.eye(2 * n, 32)[truth] + random.normal(size=(len(truth), 32))).astype(np.float32)
    label = np.full(len(truth), "", dtype=object)
    for c, size in enumerate(sizes):
        label[np.flatnonzero(truth == c)[: size // 2]] = f"c{c}"
    paths = np.array([f"{i}.png" for i in range(len(truth))], dtype=object)
    return Table(paths, label, tuple(f"c{c}" for c in range(n))), features


def test_the_labels_are_asked() -> None:
    uneven, words = choose_long_tail(DiscoverConfig(), *collection([100, 60, 36, 22, 13, 8]))
    assert uneven
    assert words == (
        "Sizes: known classes have 4 to 50 labelled images, and unlabelled ones near them in proportion, so "
        "different sizes are expected (--long-tail no changes this)."
    )
    uneven, words = choose_long_tail(DiscoverConfig(), *collection([40] * 6))
    assert not uneven
    assert words.endswith("so equal sizes are expected (--long-tail yes changes this).")


@pytest.mark.parametrize(("asked", "uneven"), [("yes", True), (True, True), ("no", False), (False, False)])
def test_what_was_asked_for_counts(asked, uneven: bool) -> None:
    for sizes in ([100, 60, 36, 22, 13, 8], [40] * 6):
        found, words = choose_long_tail(DiscoverConfig(long_tail=asked), *collection(sizes))
        assert found is uneven
        assert words == f"Sizes: {'different' if uneven else 'equal'} ones are expected, as asked for."


def test_images_that_cannot_be_used_do_not_speak() -> None:
    table, features = collection([100, 60, 36, 22, 13, 8])
    problem = np.where(np.array([label in ("c0", "c1") for label in table.label]), "broken", "")
    features[problem != ""] = np.nan
    assert (
        "4 to 18 labelled images"
        in choose_long_tail(DiscoverConfig(), table.with_problems(problem), features)[1]
    )


def test_a_method_without_such_a_setting_expects_nothing() -> None:
    assert choose_long_tail(DiscoverConfig(method="kmeans"), *collection([40] * 6)) == (False, "")
    with pytest.raises(InputError, match=r"--long-tail is not for kmeans; use .* or "):
        check_long_tail(["kmeans"])
    with pytest.raises(InputError, match=r"--long-tail is not for kmeans and uno; use .* or "):
        check_long_tail(["kmeans", "uno"])
    check_long_tail(["rpc", "uno"])  # the one that can does


def test_of_methods_that_take_turns_one_that_expects_sizes_is_enough() -> None:
    uneven = collection([100, 60, 36, 22, 13, 8])
    assert choose_long_tail(DiscoverConfig(method="uno,rpc"), *uneven)[0]
    assert choose_long_tail(DiscoverConfig(method="uno,kmeans"), *uneven) == (False, "")


# -- The number of categories after corrections: what people have left, not what their labels make o


CAME = np.array(["cat", "cat", "dog", "", "", "", "", ""], dtype=object)


def table_of(label: list[str], group: list[str] | None = None, more: int = 0) -> Table:
    label = [*label, *[""] * more]
    path = np.array([f"{i}.png" for i in range(len(label))], dtype=object)
    known = tuple(sorted(set(label) - {""}))
    grouped = None if group is None else np.array(group, dtype=object)
    return Table(path, np.array(label, dtype=object), known, group=grouped)


def found(places: list[str], known: tuple[str, ...] = ("cat", "dog"), counted: int | None = 4) -> Discovery:
    images = pd.DataFrame({"path": [f"{i}.png" for i in range(len(places))], "category_id": places})
    sizes = pd.Series(places).value_counts()
    categories = [
        Category(id, id, "known" if id in known else "novel", int(n)) for id, n in sizes.items() if id
    ]
    return Discovery("run", known, images, categories, count(counted) if counted else None, RunFacts())


def count(best: int) -> dict[str, object]:
    return estimate(best).as_dict()


def estimate(best: int) -> CountEstimate:
    return CountEstimate(best=best, low=best, high=best, words="So many.", points=[], by="class sizes")


def test_labels_from_edits_are_not_counted_with() -> None:
    now = table_of(["cat", "dog", "dog", "cat", "new-01", "", "", ""])
    drawn = sampled_count(now, CAME)
    assert drawn.label.tolist() == [
        "cat",
        "dog",
        "dog",
        "",
        "",
        "",
        "",
        "",
    ]  # one that was moved has its new label
    assert drawn.known == ("cat", "dog")


def test_an_image_that_left_for_a_new_category_has_no_label_to_count_with() -> None:
    drawn = sampled_count(table_of(["cat", "new-01", "dog", "", "", "", "", ""]), CAME)
    assert drawn.label.tolist() == ["cat", "", "dog", "", "", "", "", ""]


def test_frames_of_a_burst_keep_the_label_that_one_of_them_came_with() -> None:
    group = ["a", "", "", "a", "b", "b", "", ""]
    drawn = sampled_count(table_of(["cat", "cat", "dog", "cat", "dog", "dog", "", ""], group), CAME)
    assert drawn.label.tolist() == ["cat", "cat", "dog", "cat", "", "", "", ""]


PLACES = ["cat", "cat", "dog", "new-01", "new-01", "new-02", "new-02", "new-03"]


def test_what_people_have_left_is_the_number() -> None:
    now = table_of(["cat", "cat", "dog", "", "", "", "", ""])
    assert categories_left(found(PLACES), now) == 5
    merged = [place.replace("new-02", "new-01") for place in PLACES]
    assert categories_left(found(merged), now) == 4
    rejected = [place.replace("new-03", "") for place in PLACES]
    assert categories_left(found(rejected), now) == 4


def test_a_category_that_became_a_class_is_one_still() -> None:
    confirmed = table_of(["cat", "cat", "dog", "new-01", "", "", "", ""])
    assert categories_left(found(PLACES), confirmed) == 5
    labelled_anew = table_of(
        ["cat", "cat", "dog", "", "", "owl", "owl", ""]
    )  # new-02 has a name from elsewhere
    assert categories_left(found(PLACES), labelled_anew) == 5
    scattered = table_of(["cat", "cat", "dog", "owl", "", "owl", "", ""])
    assert categories_left(found(PLACES), scattered) == 6


def test_the_count_has_a_say_where_images_have_come() -> None:
    label = ["cat", "cat", "dog", "", "", "", "", ""]
    assert corrected_k(estimate(9), found(PLACES), table_of(label)) == (
        5,
        "Corrections have left 5 categories. Training with 5.",
    )
    k, why = corrected_k(estimate(6), found(PLACES), table_of(label, more=4))
    assert k == 7
    assert why == (
        "Corrections have left 5 categories, and with the images that have come or gone the count is 2 higher. "
        "Training with 7."
    )


def test_a_class_that_comes_with_its_images_is_counted_once() -> None:
    """Four images come, in a class of their own: the corrected number has it, and the count has grown by it."""
    label = ["cat", "cat", "dog", "", "", "", "", "", "owl", "owl", "owl", "owl"]
    assert categories_left(found(PLACES), table_of(label)) == 6
    assert corrected_k(estimate(5), found(PLACES, counted=4), table_of(label)) == (
        6,
        "Corrections have left 6 categories. Training with 6.",
    )
    assert corrected_k(estimate(6), found(PLACES, counted=4), table_of(label))[0] == 7
    assert corrected_k(estimate(3), found(PLACES, counted=4), table_of(label))[0] == 5
    # images that were there before have made the class out of what was counted already
    label = ["cat", "cat", "dog", "owl", "", "owl", "", "", "", ""]
    assert corrected_k(estimate(5), found(PLACES, counted=4), table_of(label))[0] == 7


def test_a_number_that_was_given_is_corrected_too() -> None:
    before, label = found(PLACES, counted=None), ["cat", "cat", "dog", "", "", "", "", ""]
    assert corrected_k(estimate(9), before, table_of(label))[0] == 5
    assert corrected_k(estimate(9), before, table_of(label, more=4))[0] == 5


@pytest.mark.parametrize("best", [2, 3])
def test_known_classes_are_never_fewer(best: int) -> None:
    k, _ = corrected_k(estimate(best), found(PLACES, counted=9), table_of(["cat", "owl", "dog"], more=9))
    assert k == 3
