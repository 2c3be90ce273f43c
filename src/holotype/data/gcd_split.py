"""The GCD split: which images of a benchmark carry a label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holotype.data.datasets.registry import Benchmark
from holotype.data.table import Table
from holotype.errors import InputError


def gcd_split(benchmark: Benchmark, *, share: float = 0.5, seed: int = 0, stratified: bool = False) -> Table:
    """The training images with the labels that methods may see, in the data set's order.

    int(share * n) of the n images of known classes are labelled, all others are not. The draw is that of
    the reference code, image for image: over all known classes together, in the data set's order, with
    NumPy's legacy generator. Its seed belongs to the benchmark and does not follow the training seed.
    stratified: the same share of every known class instead, at least one image each.
    """
    if not 0 < share <= 1:
        raise InputError(f"The share of labelled images must lie above 0 and not above 1, not at {share}.")
    true = benchmark.train.label
    generator = np.random.RandomState(seed)
    known = set(benchmark.known)
    if stratified:
        groups = [np.flatnonzero(true == name) for name in benchmark.known]
        drawn = [g[generator.permutation(len(g))[: max(1, int(share * len(g)))]] for g in groups]
        labelled = np.concatenate(drawn)
    else:
        rows = np.flatnonzero(np.array([name in known for name in true], dtype=bool))
        labelled = rows[generator.permutation(len(rows))[: int(share * len(rows))]]
    label = np.full(len(true), "", dtype=object)
    label[labelled] = true[labelled]
    return replace(benchmark.train, label=label, known=benchmark.known, truth=true, name=benchmark.name)


def held_out(benchmark: Benchmark) -> Table | None:
    """The test images without labels, their classes as truth; None where the test images are not there."""
    test = benchmark.test
    if test is None:
        return None
    label = np.full(len(test), "", dtype=object)
    return replace(test, label=label, known=benchmark.known, truth=test.label)
