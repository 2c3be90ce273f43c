"""What runs ahead comes in order, fails where it failed, and goes no further than it was told."""

import threading

import pytest

from holotype.utils.device import run_ahead


def test_items_come_in_their_order_and_errors_in_their_place() -> None:
    def numbers():
        yield from range(5)
        raise ValueError("the sixth")

    ahead = run_ahead(numbers())
    assert [next(ahead) for _ in range(5)] == list(range(5))
    with pytest.raises(ValueError, match="sixth"):
        next(ahead)
    assert list(run_ahead(iter(()))) == []


def test_it_stays_a_little_ahead() -> None:
    made, third = [], threading.Event()

    def numbers():
        for number in range(10):
            made.append(number)
            if number == 2:
                third.set()
            yield number

    ahead = run_ahead(numbers(), depth=1)
    assert next(ahead) == 0
    assert third.wait(10)
    ahead.close()
    assert len(made) <= 3
