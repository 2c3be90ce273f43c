"""The number of categories after corrections: what people have left, not what their labels make of the count."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from holotype.clustering.k_curve import CountEstimate
from holotype.data.table import Table
from holotype.discovery.corrected_k import categories_left, corrected_k, sampled_count
from holotype.results.discovery import Category, Discovery, RunFacts

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
