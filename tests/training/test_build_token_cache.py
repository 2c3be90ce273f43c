"""Building a cache: the right content, kept and found again, under another key when anything changes."""

import dataclasses
import re

import numpy as np
import pytest
import torch

from holotype.data.samplers import SAMPLERS, keyed_generator
from holotype.errors import InputError
from holotype.methods import Views
from holotype.models import token_cache
from holotype.models.token_cache import CacheShards, CacheViews
from holotype.training import batches, build_token_cache
from holotype.training.batches import index_rows
from holotype.training.build_token_cache import (
    fit_to_needs,
    open_cache,
    plan_cache,
)
from holotype.utils.device import Device
from holotype.utils.memory import Budget, MemoryConfig

from .conftest import tiny_backbone

VIEWS, NEEDS = CacheViews(4, 2), Views(weak=2, strong=1)
USABLE, FP32 = torch.arange(48), Device.on("cpu", "fp32")


def build(
    world,
    folder,
    *,
    views=VIEWS,
    usable=USABLE,
    backbone=None,
    needs=NEEDS,
    store=None,
    content=False,
    **memory,
):
    config, network = MemoryConfig(cache_dir=str(folder), **memory), backbone or tiny_backbone()
    return open_cache(views, needs, store or world.store, network, FP32, usable, config, by_content=content)


@pytest.fixture
def passes(monkeypatch):
    """Counts the images that went through the trunk to fill a cache."""
    seen = []
    fill = build_token_cache.fill_cache
    monkeypatch.setattr(build_token_cache, "fill_cache", lambda *x: seen.append(len(x[4])) or fill(*x))
    return seen


def test_a_cache_is_built_once_and_read_again(world, tmp_path, passes, caplog):
    caplog.set_level("INFO", logger="holotype")
    first, second = (build(world, tmp_path) for _ in range(2))
    assert passes == [48]
    assert torch.equal(first.tokens, second.tokens)
    assert first.tokens.dtype == torch.float16
    assert first.tokens.shape == (48 * 7, 6 * 32)  # 5 tokens and the CLS row beside them
    assert (first.level, first.mode) == ("host", "cached 4+2")
    built, read = [record.getMessage() for record in caplog.records]
    assert built.startswith("Token cache: 4+2 views of 48 images, 129.0 kB in host memory, built in")
    assert "read in" in read


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tokens_that_do_not_fit_a_gpu_lie_in_host_memory(world, tmp_path):
    on = Device.on("cuda", "fp32")
    memory = [
        MemoryConfig(cache_dir=str(tmp_path / level), device_gb=gb) for level, gb in (("a", 1.0), ("b", 1e-9))
    ]
    first, second = (
        open_cache(VIEWS, NEEDS, world.store, tiny_backbone(), on, USABLE, one) for one in memory
    )
    assert (first.level, second.level) == ("device", "host")
    assert torch.equal(first.tokens.cpu(), second.tokens)


def changed_pixels(world):
    pixels = world.store.pixels.clone()
    pixels[1000] ^= 1
    return dataclasses.replace(world.store, pixels=pixels)


@pytest.mark.parametrize(
    "change",
    [
        lambda world: {"views": CacheViews(5, 2)},
        lambda world: {"views": CacheViews(4, 3)},
        lambda world: {"usable": USABLE[:-1]},
        lambda world: {"views": CacheViews(4, 2), "needs": Views(weak=2)},
        lambda world: {"backbone": dataclasses.replace(tiny_backbone(), digest="1" * 64)},
        lambda world: {"backbone": tiny_backbone(train_blocks=2)},
        lambda world: {"store": changed_pixels(world)},
    ],
    ids=["weak", "strong", "images left out", "no strong view", "weights", "cut depth", "a pixel"],
)
def test_anything_that_changes_the_content_makes_another_cache(world, tmp_path, passes, change):
    build(world, tmp_path)
    build(world, tmp_path, **change(world))
    assert len(passes) == 2
    assert len(list((tmp_path / "tokens").iterdir())) == 2


def test_a_deleted_cut_or_damaged_file_is_made_again(world, tmp_path, passes, caplog):
    content = build(world, tmp_path).tokens.clone()
    (file,) = (tmp_path / "tokens").iterdir()
    whole = file.read_bytes()
    for damaged in (whole[:-2], whole[:-1] + b"x", None):  # the second in its checksums
        file.unlink() if damaged is None else file.write_bytes(damaged)
        assert torch.equal(build(world, tmp_path).tokens, content)
    assert f"{file} was damaged since it was written" in caplog.text
    # a bit of one view has flipped: views beside it are fine, and the sentence says what to do about this one
    damaged = bytearray(file.read_bytes())
    damaged[5 * content[0].numel() * 2 + 3] ^= 16
    file.write_bytes(damaged)
    found = build(world, tmp_path)
    assert torch.equal(found.take(torch.tensor([0, 4, 6])), content[[0, 4, 6]])
    with pytest.raises(InputError, match=rf"{file}.*entry 5.*run the same command again"):
        found.take(torch.tensor([6, 5]))
    assert not file.exists()
    assert torch.equal(build(world, tmp_path).tokens, content)
    assert len(passes) == 5


def test_a_cache_larger_than_the_memory_is_a_mapped_file(world, tmp_path, caplog):
    whole = build(world, tmp_path / "a")
    small = build(world, tmp_path / "b", host_gb=(world.store.nbytes + 1000) / 1e9)
    assert small.level == "disk"
    assert small.views == VIEWS
    assert torch.equal(small.tokens, whole.tokens)
    assert "in disk space" in caplog.text
    assert "129.0 kB for 4+2 views do not fit the 1.0 kB of host memory" in caplog.text


@pytest.fixture
def filled(monkeypatch):
    """Counts the images that the trunk sees."""
    seen = []
    fill = build_token_cache.fill_cache
    monkeypatch.setattr(build_token_cache, "fill_cache", lambda *x: seen.append(len(x[8])) or fill(*x))
    return seen


def by_row(cache, rows):
    return cache.tokens.unflatten(0, (-1, 7))[cache.position[rows]]


def test_images_that_leave_or_are_repaired_cost_the_difference(world, tmp_path, filled, caplog):
    caplog.set_level("INFO", logger="holotype")
    left, repaired = USABLE[torch.arange(48) % 16 != 3], changed_pixels(world)
    whole = build(world, tmp_path, content=True)
    fewer = build(world, tmp_path, content=True, usable=left)
    other = build(world, tmp_path, content=True, store=repaired)
    assert filled == [48, 0, 1]
    assert torch.equal(by_row(fewer, left), by_row(whole, left))
    assert "45 of them read" in caplog.text
    # whatever lies there already, the views are the same
    for usable, store, found in ((left, None, fewer), (USABLE, repaired, other)):
        fresh = build(world, tmp_path / "fresh" / str(len(usable)), content=True, usable=usable, store=store)
        assert torch.allclose(fresh.tokens.float(), found.tokens.float(), atol=1e-3)
    assert filled[3:] == [45, 48]
    changed = (by_row(other, USABLE) != by_row(whole, USABLE)).flatten(1).any(1)
    assert changed.sum() == 1


def test_a_larger_cache_in_a_file_takes_what_there_is(world, tmp_path, filled):
    few = build(world, tmp_path, content=True, usable=USABLE[:40])
    room = {"host_gb": (world.store.nbytes + 1000) / 1e9}
    many = build(world, tmp_path, content=True, **room)
    assert (many.level, filled) == ("disk", [40, 8])
    assert torch.equal(by_row(many, USABLE[:40]), by_row(few, USABLE[:40]))
    again = build(world, tmp_path, content=True, **room)
    assert torch.equal(again.tokens, many.tokens)
    assert filled == [40, 8]


def test_what_is_damaged_in_another_cache_is_made_again(world, tmp_path, filled):
    whole = build(world, tmp_path, content=True).tokens.clone()
    (file,) = (tmp_path / "tokens").iterdir()
    content = file.read_bytes()
    for place, missing in ((5 * whole[0].numel() * 2 + 3, 1), (len(content) - 30, 47)):
        damaged = bytearray(content)
        damaged[place] ^= 16
        file.write_bytes(damaged)
        found = build(world, tmp_path, content=True, usable=USABLE[:-1])
        assert torch.allclose(found.tokens.float(), whole[: 47 * 7].float(), atol=1e-3)
        assert filled[-1] == missing
        for made in set((tmp_path / "tokens").iterdir()) - {file}:
            made.unlink()


def test_the_first_views_do_not_depend_on_how_many_there_are(world, tmp_path):
    few, many = (build(world, tmp_path, views=CacheViews(m, s)) for m, s in ((4, 2), (6, 3)))
    by_image = [cache.tokens.unflatten(0, (48, -1)) for cache in (few, many)]
    assert torch.equal(by_image[0][:, :4], by_image[1][:, :4])
    assert torch.equal(by_image[0][:, 4:6], by_image[1][:, 6:8])
    assert torch.equal(by_image[0][:, 6], by_image[1][:, 9])


WIDTH, N = 100, 100  # 20 kB per view of all images
WANTED = CacheViews(16, 8)
VIEW = 100 * 10 * 10 * 2
CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def plan(device=0, host=0, disk=0, on=CUDA, wanted=WANTED, fixed=False, whole=N):
    budget = Budget(device * VIEW, host * VIEW, disk * VIEW)
    return plan_cache(wanted, NEEDS, WIDTH, (N, whole), budget, on, fixed)


@pytest.mark.parametrize(
    ("room", "views", "level", "reason"),
    [
        ({"device": 25}, WANTED, "device", r"^$"),
        ({"device": 24, "host": 1000}, CacheViews(15, 8), "device", "500.0 kB for 16.8 views .* 480.0 kB"),
        ({"device": 13, "host": 1000}, CacheViews(8, 4), "device", "GPU"),
        ({"device": 7, "host": 1000}, CacheViews(4, 2), "device", "GPU"),
        ({"device": 6, "host": 25}, WANTED, "host", "the 120.0 kB of GPU memory$"),
        ({"device": 6, "host": 6, "disk": 25}, WANTED, "disk", "GPU memory or the 120.0 kB of host memory$"),
        ({"device": 6, "host": 6, "disk": 20}, CacheViews(13, 6), "disk", "or the 400.0 kB of disk space$"),
        ({"device": 1000, "host": 25, "on": CPU}, WANTED, "host", r"^$"),
        ({"host": 3, "disk": 1000, "on": CPU}, WANTED, "disk", "host memory$"),
        # a resumed run
        ({"device": 24, "host": 24, "disk": 25, "fixed": True}, WANTED, "disk", "GPU memory or"),
        ({"device": 4, "wanted": CacheViews(2, 1)}, CacheViews(2, 1), "device", r"^$"),
    ],
)
def test_views_shrink_before_the_level_changes(room, views, level, reason):
    found = plan(**room)
    assert (found.views, found.level) == (views, level)
    assert re.search(reason, found.reason)


def test_in_a_file_there_are_the_images_of_all_processes_and_somewhere_it_must_fit():
    """Each of four holds a quarter of 400 images in memory; the file serves them all, and holds every one."""
    found = plan(host=6, disk=60, on=CPU, whole=400)  # of 400 images a view takes four times as much
    assert (found.views, found.level) == (CacheViews(9, 4), "disk")
    assert found.reason.startswith("2.0 MB for 16+8 views do not fit")
    with pytest.raises(InputError, match="400 images"):
        plan(host=6, disk=26, on=CPU, whole=400)
    assert plan(host=25, on=CPU, whole=400).level == "host"
    for wanted in (CacheViews(2, 0), CacheViews(1, 1)):
        with pytest.raises(InputError, match=r"a step draws 2 weak and 1 strong views .* use at least 2\+1"):
            fit_to_needs(wanted, NEEDS, fixed=False)
    with pytest.raises(InputError, match=r"100 images with 16\+8 views takes 500.0 kB.*--cache-views off"):
        plan(device=6, host=6, disk=6)


SHARDED_ROWS = torch.tensor([0, 2, 3, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 18, 19, 20])  # 17 of 21


def as_process(patch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    for module in (batches, build_token_cache, token_cache):
        patch.setattr(module, "rank", lambda: rank, raising=False)
        patch.setattr(module, "world_size", lambda: world)


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_every_image_is_held_once_and_evenly(monkeypatch, world: int) -> None:
    parts = []
    for rank in range(world):
        as_process(monkeypatch, rank, world)
        dealt = CacheShards.deal(SHARDED_ROWS, 21, 8)
        parts.append(SHARDED_ROWS[dealt.held(SHARDED_ROWS)])
        assert len(parts[-1]) <= dealt.largest(SHARDED_ROWS)
    assert torch.equal(torch.cat(parts).sort().values, SHARDED_ROWS)
    assert max(map(len, parts)) == dealt.largest(SHARDED_ROWS)
    assert max(map(len, parts)) - min(map(len, parts)) <= 8 // world


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_process_draws_what_it_holds_and_all_draw_the_same(monkeypatch, sampler: str, world: int) -> None:
    labelled, unlabelled, n = SHARDED_ROWS[::3], SHARDED_ROWS[torch.arange(17) % 3 > 0], 16
    given = SAMPLERS[sampler], (labelled, unlabelled), n, lambda s: keyed_generator(1, "rows", s)
    drawn = []
    for rank in range(world):
        as_process(monkeypatch, rank, world)
        dealt = CacheShards.deal(SHARDED_ROWS, 21, 4)
        rows = dealt.draw(*given)
        held = set(SHARDED_ROWS[dealt.held(SHARDED_ROWS)].tolist())
        assert set(rows[rank::world].tolist()) <= held
        drawn.append(rows)
    as_process(monkeypatch, 0, 1)
    alone = CacheShards.deal(SHARDED_ROWS, 21, 4).draw(*given)
    assert all(torch.equal(rows, alone) for rows in drawn)
    if sampler == "uniform":
        assert len(set(alone.tolist())) == n  # no image twice
    else:
        assert 0 < torch.isin(alone, labelled).float().mean() < 1


def test_shards_hold_the_same_tokens_and_on_disk_one_file_serves_all(world, tmp_path, monkeypatch) -> None:
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
    as_process(monkeypatch, 1, 2)
    monkeypatch.setattr("holotype.training.build_token_cache.find_budget", lambda *_: Budget(0, 0, 10**9))
    cache = world.cache(tmp_path, shards=4)
    assert cache.level == "disk"
    assert bool((cache.position >= 0).all())


def test_what_shards_do_not_go_with_is_refused(world, tmp_path, monkeypatch) -> None:
    group = np.array([str(i // 3) for i in range(len(world.table))], dtype=object)
    for shards, batch, processes, said in (
        (4, 18, 1, "the batch size 18 cannot be drawn evenly from 4 shards"),
        (3, 12, 2, "3 shards cannot be dealt out evenly to 2 processes"),
        (49, 49, 1, "larger than the 48 usable"),
    ):
        as_process(monkeypatch, 0, processes)
        with pytest.raises(InputError, match=said):
            index_rows(world.table, batch, shards)
    with pytest.raises(InputError, match="more than the 17 usable images"):
        CacheShards.deal(SHARDED_ROWS, 21, 18)
    with pytest.raises(InputError, match="deals out a token cache, and this run has none"):
        world.loop("simgcd", shards=4)
    with pytest.raises(InputError, match="draws images of its own"):
        world.loop("dccl", epochs=1, shards=4, cache=world.cache(tmp_path, shards=4)).fit()
    with pytest.raises(InputError, match="does not go together with bursts"):
        index_rows(dataclasses.replace(world.table, group=group), 8, 4)
