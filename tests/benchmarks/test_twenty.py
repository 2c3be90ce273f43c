"""Collections of twenty classes: half of them known, of the sizes that their names say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from twenty import Collection, find_collection, sizes, with_truth

from holotype.data.table import Table
from holotype.errors import InputError


def test_sizes_fall_in_equal_ratios() -> None:
    assert set(sizes("cub", None)) == {30}
    uneven = sizes("cifar", "uneven")
    assert (uneven[0], uneven[-1], len(uneven)) == (85, 25, 10)
    assert (np.diff(uneven) < 0).all()
    tail = sizes("cifar", "tail")
    assert tail[0] == 20 * tail[-1]


def test_a_part_of_the_sample_is_told_its_classes(tmp_path) -> None:
    found = find_collection("sample3", {}, tmp_path)
    assert found.table.truth is not None
    assert found.k == len(set(found.table.truth)) == 2 * len(found.table.known)
    labelled = found.table.labelled
    assert (found.table.label[labelled] == found.table.truth[labelled]).all()
    assert found.ratio == pytest.approx(1.9, abs=0.05)


def test_the_ratio_is_that_of_the_largest_class_to_the_smallest() -> None:
    table = Table(np.array(list("abcdef"), dtype=object), np.full(6, ""), ())
    truth = np.array(list("xxxxyy"), dtype=object)
    assert Collection("made", with_truth(table, truth), 2).ratio == 2


@pytest.mark.parametrize(
    ("word", "says"), [("cub", "'cub' is no collection"), ("cub0", "cub0 needs the folder of its images")]
)
def test_another_name_is_one_sentence(word: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        find_collection(word, {}, Path("."))
