"""Results come in order, whoever makes them; faults, drops and slow makers leave nothing in disorder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from holotype.training.prefetch import Prefetcher

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
def test_results_come_in_the_order_of_the_requests(start: Start, thread: bool, depth: int) -> None:
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


def test_a_cpu_has_no_thread(start: Start) -> None:
    made_in: list[threading.Thread] = []

    def make(request: int) -> Tensor:
        made_in.append(threading.current_thread())
        return double(request)

    ahead = start(make, CPU)
    ahead.expect(1)
    assert made_in == []
    ahead.take()
    assert made_in == [threading.current_thread()]


def test_a_slow_maker_blocks_nobody_but_take(start: Start) -> None:
    may_go, started = threading.Event(), threading.Event()

    def slow(request: int) -> Tensor:
        started.set()
        assert may_go.wait(10)
        return double(request)

    ahead = start(slow, CPU, thread=True)
    for request in range(100):
        ahead.expect(request)
    assert started.wait(10)  # it works already, and all requests are queued
    may_go.set()
    assert [int(ahead.take()) for _ in range(100)] == [2 * request for request in range(100)]


def test_no_more_than_depth_results_wait(start: Start) -> None:
    made: list[int] = []

    def make(request: int) -> Tensor:
        made.append(request)
        return double(request)

    ahead = start(make, CPU, 2, thread=True)
    for request in range(10):
        ahead.expect(request)
    deadline = time.monotonic() + 10
    while len(made) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert made == [0, 1]
    ahead.take()
    ahead.take()
    assert int(ahead.take()) == 4
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


def test_one_that_is_forgotten_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    ahead = Prefetcher(double, CPU, thread=True)
    ahead.expect(1)
    ahead.take()
    (thread,) = set(threading.enumerate()) - before
    del ahead
    thread.join(10)
    assert not thread.is_alive()


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def batch(request: int, pin: bool = False) -> Tensor:
    """(4, 3, 64, 64) laid out channels last, filled with random bytes."""
    generator = torch.Generator().manual_seed(request)
    pixels = torch.randint(0, 256, (4, 64, 64, 3), dtype=torch.uint8, generator=generator)
    return (pixels.pin_memory() if pin else pixels).permute(0, 3, 1, 2)


@needs_gpu
@pytest.mark.parametrize("pin", [False, True])
def test_the_gpu_gets_the_same_bytes(start: Start, pin: bool) -> None:
    device = torch.device("cuda")
    ahead = start(lambda request: batch(request, pin), device)
    side = torch.cuda.Stream()
    results = []
    for request in range(50):
        ahead.expect(request)
    for request in range(50):
        # Taken on changing streams and used at once, while later copies are on their way.
        with torch.cuda.stream(side if request % 2 else torch.cuda.current_stream()):
            taken = ahead.take()
            assert taken.device.type == "cuda"
            assert taken.stride() == batch(request).stride()
            results.append(taken.long().add(1).sub(1))
            del taken
    torch.cuda.synchronize()
    for request, result in enumerate(results):
        assert torch.equal(result.cpu(), batch(request).long()), request


@needs_gpu
def test_the_gpu_computes_while_the_next_batch_comes(start: Start) -> None:
    """take() does not wait for the work that is queued on the device."""
    ahead = start(batch, torch.device("cuda"))
    for request in range(3):
        ahead.expect(request)
    ahead.take()
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # about a second
    busy = torch.cuda.Event()
    busy.record()
    taken = ahead.take()
    assert not busy.query()
    assert torch.equal(taken.cpu(), batch(1))
