"""The GCD split: which images of a benchmark carry a label, and other splits of the same kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from holotype.data.datasets.registry import Benchmark
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.text import suggest, suggest_path


def gcd_split(benchmark: Benchmark, *, share: float = 0.5, seed: int = 0, stratified: bool = False) -> Table:
    """Return the training images with the labels that methods may see, in the data set's order.

    int(share * n) of the n images of known classes are labelled, all others are not. The draw is that of
    the reference code, image for image: over all known classes together, in the data set's order, with
    NumPy's legacy generator. Its seed belongs to the benchmark and does not follow the training seed.
    stratified: of each known class that share, at least one image.
    """
    if not 0 < share <= 1:
        raise InputError(f"The share of labelled images must lie above 0 and not above 1, not at {share}.")
    true, known = benchmark.train.label, set(benchmark.known)
    draw = np.random.RandomState(seed)

    def sample(rows: np.ndarray, at_least: int) -> np.ndarray:
        return rows[draw.permutation(len(rows))[: max(at_least, int(share * len(rows)))]]

    label = np.full(len(true), "", dtype=object)
    if stratified:
        parts = [sample(np.flatnonzero(true == name), 1) for name in benchmark.known]
    else:
        parts = [sample(np.flatnonzero(np.array([name in known for name in true], dtype=bool)), 0)]
    rows = np.concatenate(parts)
    label[rows] = true[rows]
    return replace(benchmark.train, label=label, known=benchmark.known, truth=true, name=benchmark.name)


def with_known(benchmark: Benchmark, file: Path) -> Benchmark:
    """Return the benchmark with the classes of a text file as the known ones, all others novel."""
    classes = (*benchmark.known, *benchmark.novel)
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file} cannot be read{suggest_path(file)}; name a text file of classes."
        ) from error
    known = tuple(dict.fromkeys(line for line in lines if line))
    for name in known:
        if name not in classes:
            near = suggest(name, classes)
            raise InputError(
                f"{file} names {name!r}, which is no class of {benchmark.name}{near}; correct it."
            )
    return replace(benchmark, known=known, novel=tuple(name for name in classes if name not in known))


def as_benchmark(table: Table) -> Benchmark:
    """Return a collection whose classes are known as a benchmark: those with a label are its known classes."""
    classes = table.classes
    if (classes == "").all():
        raise InputError(f"No class of {table.name} is known; protocol.* needs labels, or a column truth.")
    novel = tuple(sorted(set(classes) - {"", *table.known}))
    whole = replace(table, label=classes, known=(*table.known, *novel), truth=None)
    return Benchmark(table.name, whole, None, table.known, novel)


def hold_out(table: Table, share: float, seed: int) -> tuple[Table, np.ndarray]:
    """Return the table without a share of the images of each class, and the rows of these. Images of an unknown class
    stay, and so do labelled ones among others."""
    free = table.classes != ""
    if not table.labelled.all():
        free &= ~table.labelled
    draw, rows = np.random.RandomState(seed), []
    for name in sorted(set(table.classes[free])):
        members = np.flatnonzero(free & (table.classes == name))
        rows.append(members[draw.permutation(len(members))[: int(share * len(members))]])
    out = np.sort(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)
    return table.take(np.setdiff1d(np.arange(len(table)), out)), out


def held_out(benchmark: Benchmark) -> Table | None:
    """Return the test images without labels, their classes as truth; None where the test images are not there."""
    return None if benchmark.test is None else hidden(benchmark.test, benchmark.known)


def hidden(table: Table, known: tuple[str, ...]) -> Table:
    """Return images without labels, their classes as truth."""
    return replace(table, label=np.full(len(table), "", dtype=object), known=known, truth=table.classes)
