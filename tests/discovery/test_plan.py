"""How long and on what a discovery is trained."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.data.table import Table
from holotype.discovery.plan import draw_sample, make_plan, pick_views


def make_table(n_a: int, n_b: int, n_unlabelled: int) -> Table:
    label = np.array(["a"] * n_a + ["b"] * n_b + [""] * n_unlabelled, dtype=object)
    return Table(np.array([f"{i}.png" for i in range(len(label))], dtype=object), label, ("a", "b"))


@pytest.mark.parametrize("n", [8, 50, 1_000, 5_000, 200_000])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_training_counts_steps(n: int, device: str) -> None:
    plan = make_plan(n, 1_000, device)
    per_epoch = n // plan.batch_size
    assert per_epoch >= 1
    assert 1_000 <= plan.epochs * per_epoch < 1_000 + per_epoch
    assert plan.batch_size <= (64 if device == "cpu" else 128)


def test_a_cache_is_used_where_it_saves_work() -> None:
    assert pick_views(10**6, 100, "cpu") == "4+2"  # a CPU never runs the trunk in every step
    drawn = 6_000 * 128 * 3
    assert pick_views(5_000, drawn, "cuda") == "16+8"
    assert pick_views(100_000, drawn, "cuda") == "4+2"
    assert pick_views(200_000, drawn, "cuda") == "off"


def test_small_tables_are_trained_on_as_they_are() -> None:
    table = make_table(5, 5, 20).with_problems(["broken", *[""] * 29])
    assert draw_sample(table, 100, 0).tolist() == list(range(1, 30))


def test_a_sample_keeps_the_shares_and_every_class() -> None:
    table = make_table(2_000, 12, 8_000)
    rows = draw_sample(table, 1_000, 0)
    target = table.target[rows]
    assert (target == 0).sum() == 200
    assert (target == 1).sum() == 10  # a twelfth would be one or two
    assert abs((target == -1).sum() - 800) <= 1
    assert len(set(rows)) == len(rows)
    assert (np.diff(rows) > 0).all()
    assert (draw_sample(table, 1_000, 0) == rows).all()
    assert (draw_sample(table, 1_000, 1) != rows).any()
