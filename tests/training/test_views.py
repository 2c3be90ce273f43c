"""Where views come from: exact views replayed by hand, cached ones found again, for one process and for two."""

import gc
import itertools
import time
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from holotype.data.augment import apply_recipe, draw_crops, draw_recipe
from holotype.data.samplers import keyed_generator
from holotype.methods import Views
from holotype.models.token_cache import CacheViews
from holotype.training import views as sources
from holotype.training.build_token_cache import draw_strong, draw_view, open_cache
from holotype.training.encoder import Encoder
from holotype.training.views import (
    CachedViews,
    FreshViews,
    Prefetcher,
    distinct_views,
    evaluation_features,
    table_features,
)
from holotype.utils.device import Device
from holotype.utils.memory import MemoryConfig

from .conftest import tiny_backbone

ROWS = torch.tensor([[5, 0, 47, 5, 12, 30], [1, 2, 3, 4, 40, 41]])
KEY = (3, 0, 7, 2)


@pytest.fixture
def fresh(world):
    return FreshViews(world.store, Encoder(tiny_backbone(), Device.on("cpu", "fp32")))


@pytest.fixture
def cached(world, tmp_path):
    compute = Device.on("cpu", "fp32")
    backbone, rows = tiny_backbone(), torch.arange(1, 48)  # image 0 cannot be read
    memory = MemoryConfig(cache_dir=str(tmp_path))
    cache = open_cache(CacheViews(4, 3), Views(2, 1), world.store, backbone, compute, rows, memory)
    return CachedViews(cache, Encoder(backbone, compute))


@pytest.fixture(params=["fresh", "cached"])
def source(request):
    return request.getfixturevalue(request.param)


def features(source, views, key=KEY, rows=ROWS):
    """(T, V, b, D) of the steps `rows`."""
    requests = source.draw(rows, views, key)
    for request in requests:
        source.expect(request)
    found = [source.encoder.embed(source.views(source.fetch(request))) for request in requests]
    return torch.stack(found).unflatten(1, (views.weak + views.strong, -1))


def crop_by_hand(store, view):
    """Pixels of one weak view of all steps, drawn from the generator of its key."""
    rows = ROWS.flatten()
    crops = draw_crops(store.height[rows], store.width[rows], store.size, keyed_generator(*KEY, "crop", view))
    return store.crop(rows, crops).unflatten(0, ROWS.shape)


def test_fresh_views_are_what_their_key_says(fresh):
    found = features(fresh, Views(weak=2, strong=1, share="none"))
    images = torch.stack([crop_by_hand(fresh.store, view) for view in range(3)], dim=1)  # (T, V, B, ...)
    for step in range(2):
        recipe = draw_recipe(6, keyed_generator(*KEY, "strong", 2, step), share="none")
        images[step, 2] = apply_recipe(images[step, 2], recipe)
    expected = fresh.encoder.embed(fresh.encoder.inputs(images.flatten(0, 2)))
    torch.testing.assert_close(found, expected.view_as(found))


def test_views_differ_and_repeat(source):
    views, rows = Views(weak=2, strong=2), ROWS.clamp_min(1)
    found = features(source, views, rows=rows)
    assert torch.equal(found, features(source, views, rows=rows))
    for first in range(4):
        for second in range(first):
            assert not torch.equal(found[:, first], found[:, second]), (first, second)
    assert not torch.equal(found, features(source, views, (*KEY[:3], 3), rows=rows))


def test_a_cached_view_is_the_view_that_the_key_of_the_cache_says(world, cached):
    """Each drawn entry, made by hand from the image: crop, recipe, trunk, tail."""
    views, rows, usable = cached.cache.views, ROWS.clamp_min(1), torch.arange(1, 48)
    entries = cached.draw(rows, Views(weak=2, strong=1), KEY)
    found = features(cached, Views(weak=2, strong=1), rows=rows)
    for step, view, column in itertools.product(range(2), range(3), range(6)):
        row = rows[step, column]
        number = int(entries[step][view, column]) - (int(row) - 1) * views.entries
        assert (view < 2) == (number < views.weak)
        crops = draw_view(world.store, usable, views, number).take(row[None] - 1)
        image = world.store.crop(row[None], crops)
        if number >= views.weak:
            image = apply_recipe(image, draw_strong(number - views.weak))
        expected = cached.encoder.embed(cached.encoder.inputs(image))[0]
        torch.testing.assert_close(found[step, view, column], expected, atol=5e-3, rtol=5e-3)


def test_distinct_numbers_are_distinct_and_uniform():
    drawn = distinct_views(500, 8, 5, 2, torch.Generator().manual_seed(0))
    assert drawn.shape == (500, 2, 8)
    assert (drawn[:, 0] != drawn[:, 1]).all()
    pairs = torch.bincount((5 * drawn[:, 0] + drawn[:, 1]).flatten(), minlength=25).view(5, 5)
    assert (pairs.diag() == 0).all()
    others = pairs[~torch.eye(5, dtype=torch.bool)].double()
    assert (others - 200).abs().max() < 5 * 200**0.5


def test_evaluation_sees_the_centre_of_each_image(world, source):
    """By hand: a stored image of 40 x 36 pixels at 32 is cut in its middle, without a mirror."""
    centre, store, rows = [], world.store, torch.arange(1, 11)
    for row in rows:
        image = store.image(int(row))
        top, left = (round((side - 32) / 2) for side in image.shape[:2])
        centre.append(image[top : top + 32, left : left + 32].permute(2, 0, 1))
    encoder = source.encoder
    expected = encoder.embed(encoder.inputs(torch.stack(centre)))
    tolerance = 1e-6 if isinstance(source, FreshViews) else 5e-3
    torch.testing.assert_close(evaluation_features(source, rows), expected, atol=tolerance, rtol=tolerance)


def test_rows_of_several_processes_make_the_same_batch(source, monkeypatch):
    """Each of two processes encodes every second row of the batch; together they have all of it."""
    views, rows = Views(weak=1, strong=1, share="none"), ROWS.clamp_min(1)
    whole = features(source, views, rows=rows)
    centres = evaluation_features(source, rows[0, :5])
    parts, own = [], []

    def keep(x: torch.Tensor) -> torch.Tensor:
        own.append(x)
        return x.repeat_interleave(2, 0)

    for rank in (0, 1):
        monkeypatch.setattr(sources, "local_rows", lambda x, rank=rank: x[rank::2])
        parts.append(features(source, views, rows=rows))
        monkeypatch.setattr(sources, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(sources, "world_size", lambda: 2)
        monkeypatch.setattr(sources, "all_gather_rows", keep)
        evaluation_features(source, rows[0, :5])
    torch.testing.assert_close(torch.stack(parts, dim=3).flatten(2, 3), whole)
    assert len(own[0]) == len(own[1]) == 3  # the second has one row less, and encodes another twice
    monkeypatch.setattr(sources, "all_gather_rows", lambda x: torch.stack(own, dim=1).flatten(0, 1))
    torch.testing.assert_close(evaluation_features(source, rows[0, :5]), centres)


def test_what_lies_elsewhere_is_fetched_ahead_and_is_the_same(source):
    """A store or cache below the device: views arrive through Ahead, in the order in which they were announced."""
    views, rows = Views(weak=2, strong=1, share="none"), ROWS.clamp_min(1)
    whole = features(source, views, rows=rows)
    centres = evaluation_features(source, rows[0])
    source.on_device = False
    torch.testing.assert_close(features(source, views, rows=rows), whole)
    torch.testing.assert_close(evaluation_features(source, rows[0]), centres)
    for request in source.draw(rows, views, KEY):
        source.expect(request)
    source.close()  # a stop: what was announced is forgotten
    torch.testing.assert_close(features(source, views, rows=rows), whole)


@pytest.mark.parametrize("kind", [FreshViews, CachedViews])
def test_a_source_that_is_forgotten_keeps_nothing_in_memory(kind, world, cached):
    """Not even until the garbage collector comes by: the next run looks for room before that."""
    gc.disable()
    try:
        source = kind(world.store if kind is FreshViews else cached.cache, cached.encoder)
        gone = weakref.ref(source)
        del source
        assert gone() is None
    finally:
        gc.enable()


def test_images_that_cannot_be_read_have_features_of_zero(fresh):
    rows = torch.tensor([7, 2, 9])
    found = table_features(fresh, rows, 12)
    torch.testing.assert_close(found[rows], evaluation_features(fresh, rows))
    assert (found.norm(dim=1) > 0).nonzero().flatten().tolist() == [2, 7, 9]
    assert torch.equal(table_features(fresh, rows[:0], 3), torch.zeros(3, 32))


CPU = torch.device("cpu")
Start = Callable[..., Prefetcher]


@pytest.fixture
def start() -> Iterator[Start]:
    """Makes an Ahead that works no more after the test."""
    started: list[Prefetcher] = []

    def call(*words: object, **settings: object) -> Prefetcher:
        started.append(Prefetcher(*words, **settings))  # type: ignore[arg-type]
        return started[-1]

    yield call
    for ahead in started:
        ahead.drop()


def double(request: int) -> Tensor:
    return torch.tensor([2 * request])


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_results_come_in_order_and_no_more_than_depth_wait(start: Start, thread: bool, depth: int) -> None:
    def uneven(request: int) -> Tensor:
        time.sleep(0.001 * (request % 3))
        return double(request)

    ahead, taken = start(uneven, CPU, depth, thread=thread), []
    for request in range(4):
        ahead.expect(request)
    for request in range(4, 12):  # taking and expecting in turns, as a training loop does
        taken.append(int(ahead.take()))
        ahead.expect(request)
    taken += [int(ahead.take()) for _ in range(4)]
    assert taken == [2 * request for request in range(12)]
    made: list[int] = []
    ahead = start(lambda request: made.append(request) or double(request), CPU, 2, thread=True)
    for request in range(10):
        ahead.expect(request)
    assert [int(ahead.take()) for _ in range(3)] == [0, 2, 4]
    assert len(made) <= 5


@pytest.mark.parametrize("thread", [False, True])
def test_a_fault_is_raised_where_its_result_is_taken(start: Start, thread: bool) -> None:
    def faulty(request: int) -> Tensor:
        if request == 1:
            raise ValueError("request 1 is broken")
        return double(request)

    ahead = start(faulty, CPU, thread=thread)
    for request in range(3):
        ahead.expect(request)
    assert int(ahead.take()) == 0
    with pytest.raises(ValueError, match="request 1 is broken"):
        ahead.take()
    assert int(ahead.take()) == 4, "what comes after it is not lost"


@pytest.mark.parametrize("thread", [False, True])
def test_what_is_dropped_never_comes(start: Start, thread: bool) -> None:
    running = []

    def make(request: int) -> Tensor:
        running.append(request)
        time.sleep(0.005)
        running.pop()
        return double(request)

    ahead = start(make, CPU, thread=thread)
    for request in range(5):
        ahead.expect(request)
    ahead.take()
    ahead.drop()
    assert running == []
    with pytest.raises(RuntimeError, match="expect"):
        ahead.take()
    ahead.expect(7)
    assert int(ahead.take()) == 14
