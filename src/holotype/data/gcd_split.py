"""The GCD split: which images of a benchmark carry a label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holotype.data.datasets.registry import Benchmark
from holotype.data.table import Table
from holotype.errors import InputError


def gcd_split(benchmark: Benchmark, *, share: float = 0.5, seed: int = 0) -> Table:
    """Return the training images with the labels that methods may see, in the data set's order.

    int(share * n) of the n images of known classes are labelled, all others are not. The draw is that of
    the reference code, image for image: over all known classes together, in the data set's order, with
    NumPy's legacy generator. Its seed belongs to the benchmark and does not follow the training seed.
    """
    if not 0 < share <= 1:
        raise InputError(f"The share of labelled images must lie above 0 and not above 1, not at {share}.")
    true = benchmark.train.label
    known = set(benchmark.known)
    rows = np.flatnonzero(np.array([name in known for name in true], dtype=bool))
    drawn = rows[np.random.RandomState(seed).permutation(len(rows))[: int(share * len(rows))]]
    label = np.full(len(true), "", dtype=object)
    label[drawn] = true[drawn]
    return replace(benchmark.train, label=label, known=benchmark.known, truth=true, name=benchmark.name)


def held_out(benchmark: Benchmark) -> Table | None:
    """Return the test images without labels, their classes as truth; None where the test images are not there."""
    if benchmark.test is None:
        return None
    label = np.full(len(benchmark.test), "", dtype=object)
    return replace(benchmark.test, label=label, known=benchmark.known, truth=benchmark.test.label)
