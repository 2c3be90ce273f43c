"""How long and on what a discovery is trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.training_plan import (
    ROUND_FILE,
    RoundConfig,
    draw_sample,
    pick_preset,
    pick_views,
    plan_length,
    read_round_config,
    spread_epochs,
    stated_groups,
)
from holotype.errors import InputError
from holotype.methods import METHODS, Stage
from holotype.runs.experiment import default_experiment, stages_of


def make_table(n_a: int, n_b: int, n_unlabelled: int) -> Table:
    label = np.array(["a"] * n_a + ["b"] * n_b + [""] * n_unlabelled, dtype=object)
    return Table(np.array([f"{i}.png" for i in range(len(label))], dtype=object), label, ("a", "b"))


@pytest.mark.parametrize("n", [8, 50, 1_000, 5_000, 200_000])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_training_counts_steps(n: int, device: str) -> None:
    plan = plan_length(n, 1_000, device)
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


@pytest.mark.parametrize("epochs", [6, 37, 250])
@pytest.mark.parametrize("method", METHODS)
def test_all_stages_together_take_the_epochs_that_were_planned(method: str, epochs: int) -> None:
    for device in ("cpu", "cuda"):
        stages = stages_of(default_experiment(method, "images", pick_preset(method, device)))
        found = spread_epochs(epochs, stages)
        total = sum(stage.length(found) for stage in stages)
        assert total <= epochs
        assert not stages or sum(stage.length(found + 1) for stage in stages) > epochs


def test_stages_of_a_fixed_length_are_as_short_as_they_can_be() -> None:
    assert spread_epochs(5, [Stage(epochs=9), Stage(share=2.0)]) == 1
    assert spread_epochs(12, [Stage(epochs=4), Stage(share=2.0)]) == 4


def test_a_cpu_takes_what_costs_less() -> None:
    found = {method: pick_preset(method, "cpu") for method in METHODS}
    assert {method for method in found if found[method] == "light"} == {"gcd", "promptcal", "dccl"}
    assert found["sptnet"] == "short"
    assert found["rpc"] == "default"
    assert {pick_preset(method, "cuda") for method in METHODS} == {"default"}


# -- What was asked of a round, and how it differs from what was asked before


def asked(**settings) -> RoundConfig:
    return RoundConfig.of(DiscoverConfig(device="cpu", **settings), "photos")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_round_config(tmp_path) is None
    one = asked(k=7, long_tail=True)
    one.save(tmp_path)
    assert read_round_config(tmp_path) == one
    for content in ("{", "[]", '{"settings": 1}'):
        (tmp_path / ROUND_FILE).write_text(content)
        with pytest.raises(InputError, match=r"round\.json"):
            read_round_config(tmp_path)


def test_settings_that_differ_are_told_as_flags() -> None:
    before = asked(k=10)
    assert asked(k=10).others(before) == []
    assert asked(k=12, seed=1).others(before) == ["--k 12 (was 10)", "--seed 1 (was 0)"]
    assert asked(long_tail=True).others(before) == ["--k auto (was 10)", "--long-tail yes (was auto)"]
    assert before.others(asked(k=10, long_tail=True, steps=7)) == [
        "--steps as usual (was 7)",
        "--long-tail auto (was yes)",
    ]


def test_what_comes_to_the_same_is_no_difference() -> None:
    """The usual number of steps said aloud, and the usual number on another device."""
    assert asked(steps=1000).others(asked()) == []
    elsewhere = replace(asked(), taken={**asked().taken, "steps": 6000}, device="cuda")
    assert asked().others(elsewhere) == []


def test_groups_are_known_by_the_content_of_their_images(tmp_path: Path) -> None:
    """Names of groups, of files and their order make no difference, nor does a group of one."""

    def told(group: list[str] | None, content: str = "abcde") -> str:
        paths, label = np.array(list("12345"), dtype=object), np.array([""] * 5, dtype=object)
        table = Table(paths, label, (), group=None if group is None else np.array(group, dtype=object))
        return stated_groups(table, list(content))

    assert told(None) == told([""] * 5) == told([*"vwxyz"]) == ""
    first = told(["x", "x", "y", "y", ""])
    assert first == told(["n", "n", "m", "m", "o"]) == told(["", "y", "y", "x", "x"], "edcba") != ""
    assert first != told(["x", "x", "y", "", "y"])
    one = replace(asked(), groups=first)
    assert one.others(asked()) == asked().others(one) == ["other groups"]
    assert asked(bursts="no").others(one) == ["--bursts no (was auto)"]
    one.save(tmp_path)
    assert read_round_config(tmp_path) == one
