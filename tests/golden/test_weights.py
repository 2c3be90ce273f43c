"""Trained weights of every method as they were: a refactoring must not move them.

Arithmetic is float64 throughout, and so are the first weights: in float32 the logarithms and cosines behind normal
draws, sums and products round otherwise on every processor, and a training makes that visible. Rounding in float64 is
1e-16; after these few steps it has grown to 1e-12 at most (measured with one and two threads, with and without AVX2
and AVX-512, with and without oneDNN), and RTOL leaves room. What comes before the network is exact anywhere: pixels
are PNG, drawn by integers and not resampled; crops and strong views work on uint8 as Pillow does; keyed generators
draw integers, and fractions of them.

A tensor is stored as its norm and three projections on fixed vectors of signs, which no name is part of. Names and
shapes are stored beside them, once a method. After a change of draws or of maths on purpose, raise the method's
revision (or ENGINE) and run `python -m tests.golden`.
"""

import hashlib

import numpy as np
import pytest
from torch import Tensor

from holotype.errors import InputError
from tests.training.stubs import LEARNING

from .product import METHODS, World, draw_world, now_called

RTOL = 1e-10
PROJECTIONS = 3
MODES = ("exact", "cached")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return draw_world(tmp_path_factory.mktemp("squares"))


def signs(n: int, number: int) -> np.ndarray:
    """(n,) of -1 and 1, the same with any version of any library."""
    bits = np.unpackbits(np.frombuffer(hashlib.shake_128(bytes([number])).digest(n // 8 + 1), np.uint8))
    return 2.0 * bits[:n] - 1


def fingerprint(tensor: Tensor) -> list[float]:
    """Norm and projections, each about as large as the norm."""
    x = tensor.detach().double().flatten().numpy()
    found = [np.sqrt((x * x).sum()), *((x * signs(len(x), i)).sum() for i in range(PROJECTIONS))]
    return [float(f"{value:.13g}") for value in found]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", METHODS)
def test_training_ends_with_the_weights_that_it_always_ended_with(world, tmp_path, method, mode, golden):
    if (method, mode) == ("promptcal", "cached"):
        with pytest.raises(InputError):  # its prompts stand in every block
            world.train(method, tmp_path)
        return
    first, last = world.train(method, tmp_path if mode == "cached" else None)
    found = {name: fingerprint(tensor) for name, tensor in last.items()}
    expected = golden("weights", f"{method} {mode}", found)
    assert {now_called(name) for name in expected} == found.keys()
    far = {
        name: (found[now_called(name)], values)
        for name, values in expected.items()
        if not np.allclose(found[now_called(name)], values, rtol=0, atol=RTOL * max(values[0], 1e-3))
    }
    assert far == {}
    shapes = {name: list(tensor.shape) for name, tensor in first.items()}
    stored = golden("state", method, shapes)
    assert {now_called(name): shape for name, shape in stored.items()} == shapes
    if method in LEARNING:
        still = {name for name, tensor in first.items() if tensor.equal(last[name])}
        # the network's last norm is frozen, and the place in a memory that is full comes back to where it was
        assert {
            name for name in still if not name.endswith(("tail.norm.weight", "tail.norm.bias", ".place"))
        } == set()
