"""Collections of twenty classes, and parts of the embedded sample, with the truth that only a benchmark has.

`cub3`           twenty classes of CUB-200-2011 drawn with seed 3: ten known and ten novel ones, thirty images of each
`cifar3`         the same of the CIFAR-100 sample, fifty images of each
`cub3-uneven`    the same classes with sizes that fall from the largest to the smallest in equal ratios, 3.4 to 1
`cifar3-tail`    the same, 20 to 1
`sample3`        part 3 of the embedded sample (samples.py): six to ten classes
`full`           the whole embedded sample

Half of the images of each known class are labelled, or, in the parts of the sample, a half to a tenth. Every collection
is told how many categories there are, so that nothing but the training and the prior of sizes can move its scores.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from long_tail import choose_classes, thin
from samples import draw_part

from holotype.data.benchmarks import load_benchmark
from holotype.data.protocol import gcd_split
from holotype.data.table import Table
from holotype.discovery.demo import write_sample
from holotype.errors import InputError

NAME = re.compile(r"(cub|cifar|sample)(\d+)(?:-(uneven|tail))?")
WHOLE = "full"
CLASSES = 20
EQUAL = {"cub": 30, "cifar": 50}
"""Images of a class."""
LARGEST = {
    ("cub", "uneven"): 30,
    ("cifar", "uneven"): 85,
    ("cub", "tail"): 30,
    ("cifar", "tail"): 200,
}
RATIO = {"uneven": 3.4, "tail": 20.0}
BENCHMARK = {"cub": "cub", "cifar": "cifar100-200"}


@dataclass(frozen=True)
class Collection:
    """Images with their truth."""

    name: str
    table: Table
    """With the truth, which training is not given."""
    k: int

    @property
    def ratio(self) -> float:
        """The largest class to the smallest."""
        assert self.table.truth is not None
        sizes = np.unique(self.table.truth.astype(str), return_counts=True)[1]
        return float(sizes.max() / sizes.min())


def find_collection(word: str, roots: dict[str, Path], work: Path) -> Collection:
    """The collection of a name. roots: folder of cub and of cifar. The sample is written into `work`."""
    named = NAME.fullmatch(word)
    if named is None and word != WHOLE:
        raise InputError(
            f"{word!r} is no collection; name it cub0, cifar0, cifar0-uneven, cub0-tail, sample0 or full."
        )
    if named is None or named[1] == "sample":
        benchmark = load_benchmark("fashion-sample")
        whole = write_sample(gcd_split(benchmark), work / "sample")
        truth = np.asarray(benchmark.train.label, dtype=object)
        if named is None:
            return Collection(word, with_truth(whole, truth), len(set(truth)))
        case = draw_part(whole, truth, int(named[2]))
        return Collection(word, with_truth(case.table, case.truth), len(set(case.truth)))
    kind, seed, shape = named[1], int(named[2]), named[3]
    if kind not in roots:
        raise InputError(f"{word} needs the folder of its images; give it with --{kind}.")
    table = gcd_split(load_benchmark(BENCHMARK[kind], roots[kind]))
    names = choose_classes(table, CLASSES, seed)
    return Collection(word, thin(table, names, sizes(kind, shape), seed), CLASSES)


def sizes(kind: str, shape: str | None) -> np.ndarray:
    """(10,) images of each known class, and of each novel one."""
    if shape is None:
        return np.full(CLASSES // 2, EQUAL[kind])
    largest, share = LARGEST[kind, shape], np.linspace(0, 1, CLASSES // 2)
    return np.maximum(2, np.round(largest * RATIO[shape] ** -share)).astype(int)


def with_truth(table: Table, truth: np.ndarray) -> Table:
    return dataclasses.replace(table, truth=truth)
