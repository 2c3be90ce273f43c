"""Keyed generators draw what they always drew: with another key, or another order of its parts, nothing resumes."""

from pathlib import Path

import pytest
import torch

from .product import METHODS, Task, configured, draw_world, find_method, keyed_generator, watch_keys

KEYS = {
    "rows": (5, 0, 1, "rows"),
    "rows of a shard": (5, 0, 1, "rows", 3),
    "frames": (5, 0, 1, "frames"),
    "images": (5, 0, 1, "images"),
    "finish": (5, "finish"),
    "encoder": (5, "encoder"),
    "crop": (5, 0, 1, 16, "crop", 1),
    "strong": (5, 0, 1, 16, "strong", 2, 3),
    "strong of a cache": (5, 0, 1, 16, "strong"),
    "weak of a cache": (5, 0, 1, 16, "weak"),
}
"""As training uses them: seed, stage, epoch, first step of a block, purpose, view, step."""


def drawn(*key: int | str) -> dict[str, object]:
    """Integers, and the 24 bits behind fractions: both exact anywhere."""
    g = keyed_generator(*key)
    whole = torch.randint(1_000_000, (4,), generator=g).tolist()
    part = (torch.rand(3, generator=g) * 2**24).long().tolist()
    return {"seed": keyed_generator(*key).initial_seed(), "whole": whole, "part": part}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_draws_what_it_always_drew(name: str, golden) -> None:
    found = {"key": list(KEYS[name]), **drawn(*KEYS[name])}
    assert golden("draws", name, found) == found


def test_every_method_draws_under_the_same_names(golden) -> None:
    found = {}
    for method in METHODS:
        made = find_method(method)(configured(method), Task(2, 4, 32, 48, 12, 4))
        asked = {stage.name: made.draws(stage, 16) for stage in made.stages()}
        for stage, shapes in asked.items():
            for name, shape in shapes.items():
                found[f"{method} {stage} {name}"] = [list(shape), drawn(5, 0, 1, 16, name)["whole"]]
    assert found
    assert golden("draws", "of methods", found) == found


@pytest.mark.parametrize("mode", ["exact", "cached"])
def test_training_asks_for_the_same_keys(mode: str, tmp_path: Path, golden, monkeypatch) -> None:
    asked: dict[str, int] = {}

    def noted(*key: int | str) -> torch.Generator:
        asked[" ".join(map(str, key))] = keyed_generator(*key).initial_seed()
        return keyed_generator(*key)

    watch_keys(monkeypatch, noted)
    draw_world(tmp_path).train("rpc", tmp_path / "cache" if mode == "cached" else None)
    assert golden("keys", mode, asked) == asked
