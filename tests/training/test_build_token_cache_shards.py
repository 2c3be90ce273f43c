"""A cache in shards: the same batches for any number of processes, and each of them needs its own images alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from holotype.data.samplers import SAMPLERS, keyed_generator
from holotype.errors import InputError
from holotype.training import build_token_cache as module
from holotype.training.batches import index_rows
from holotype.training.build_token_cache import CacheShards
from holotype.utils.memory import Budget

USABLE = torch.tensor([0, 2, 3, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 18, 19, 20])  # 17 of 21


def as_process(patch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    patch.setattr(module, "rank", lambda: rank)
    patch.setattr(module, "world_size", lambda: world)


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_every_image_is_held_once_and_evenly(monkeypatch, world: int) -> None:
    parts = []
    for rank in range(world):
        as_process(monkeypatch, rank, world)
        dealt = CacheShards.deal(USABLE, 21, 8)
        parts.append(USABLE[dealt.held(USABLE)])
        assert len(parts[-1]) <= dealt.largest(USABLE)
    assert torch.equal(torch.cat(parts).sort().values, USABLE)
    assert max(map(len, parts)) == dealt.largest(USABLE)
    assert max(map(len, parts)) - min(map(len, parts)) <= 8 // world


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_process_draws_what_it_holds_and_all_draw_the_same(monkeypatch, sampler: str, world: int) -> None:
    labelled, unlabelled, n = USABLE[::3], USABLE[torch.arange(17) % 3 > 0], 16
    drawn = []
    for rank in range(world):
        as_process(monkeypatch, rank, world)
        dealt = CacheShards.deal(USABLE, 21, 4)
        rows = dealt.draw(
            SAMPLERS[sampler], (labelled, unlabelled), n, lambda s: keyed_generator(1, "rows", s)
        )
        held = set(USABLE[dealt.held(USABLE)].tolist())
        assert set(rows[rank::world].tolist()) <= held
        drawn.append(rows)
    as_process(monkeypatch, 0, 1)
    alone = CacheShards.deal(USABLE, 21, 4).draw(
        SAMPLERS[sampler], (labelled, unlabelled), n, lambda s: keyed_generator(1, "rows", s)
    )
    assert all(torch.equal(rows, alone) for rows in drawn)
    if sampler == "uniform":
        assert len(set(alone.tolist())) == n  # no image twice
    else:
        assert 0 < torch.isin(alone, labelled).float().mean() < 1


def test_a_cache_in_shards_holds_the_same_tokens(world, tmp_path, monkeypatch) -> None:
    whole = world.cache(tmp_path / "whole")
    seen = 0
    for rank in range(2):
        as_process(monkeypatch, rank, 2)
        # files of two processes on one disk do not take each other's place
        part = world.cache(tmp_path / "parts", shards=4)
        rows = (part.position >= 0).nonzero().flatten()
        seen += len(rows)
        view = torch.arange(part.views.entries)
        mine, all_of_it = (cache.entry(rows[:, None], view).flatten() for cache in (part, whole))
        assert torch.equal(part.take(mine), whole.take(all_of_it))
        assert torch.equal(part.shards.owner(rows), torch.full_like(rows, rank))
    assert seen == len(world.table)
    assert part.nbytes * 2 == whole.nbytes


def test_on_a_disk_one_file_serves_all(world, tmp_path, monkeypatch) -> None:
    as_process(monkeypatch, 1, 2)
    monkeypatch.setattr("holotype.training.build_token_cache.find_budget", lambda *_: Budget(0, 0, 10**9))
    cache = world.cache(tmp_path, shards=4)
    assert cache.level == "disk"
    assert bool((cache.position >= 0).all())


@pytest.mark.parametrize(
    ("shards", "batch", "processes", "said"),
    [
        (4, 18, 1, "the batch size 18 cannot be drawn evenly from 4 shards"),
        (3, 12, 2, "3 shards cannot be dealt out evenly to 2 processes"),
    ],
)
def test_what_cannot_be_dealt_out_is_said(world, monkeypatch, shards, batch, processes, said) -> None:
    as_process(monkeypatch, 0, processes)
    with pytest.raises(InputError, match=said):
        index_rows(world.table, batch, shards)


def test_more_shards_than_images_are_refused() -> None:
    with pytest.raises(InputError, match="more than the 17 usable images"):
        CacheShards.deal(USABLE, 21, 18)


def test_shards_without_a_cache_are_refused(world) -> None:
    with pytest.raises(InputError, match="deals out a token cache, and this run has none"):
        world.loop("simgcd", shards=4)


def test_a_method_that_draws_its_own_rows_is_refused(world, tmp_path) -> None:
    with pytest.raises(InputError, match="draws images of its own"):
        world.loop("dccl", epochs=1, shards=4, cache=world.cache(tmp_path, shards=4)).fit()


def test_bursts_are_refused(world) -> None:
    group = np.array([str(i // 3) for i in range(len(world.table))], dtype=object)
    with pytest.raises(InputError, match="does not go together with bursts"):
        index_rows(dataclasses.replace(world.table, group=group), 8, 4)
