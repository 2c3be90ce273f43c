"""--long-tail: what was asked for, or what the labels say."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.choose_k import check_long_tail, choose_long_tail
from holotype.errors import InputError


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
