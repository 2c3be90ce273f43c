"""How many categories a sample holds: drawn at random, and drawn by `holotype sample`, on a made collection.

    python benchmarks/sampling.py                       # a million images, a few minutes on one core
    python benchmarks/sampling.py --rows 100000 --n 2000

Sizes of the categories follow Zipf's law: the k-th has a share in proportion to 1 / k. The features of an image are the
centre of its category and noise, Gaussian both and of the same size, so that two images of a category have the cosine
0.5 in the mean, and two others 0. They are written in parts, as `holotype embed` writes them, and read as such.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from holotype.embeddings.coreset import draw_coreset, path_hashes
from holotype.embeddings.store import EMBEDDINGS_FORMAT, EmbeddingParts
from holotype.errors import InputError
from holotype.utils.atomic import write_text
from holotype.utils.serialization import dump_json, write_parquet
from measure import one_sentence, script_parser

EACH = 4096
"""Images of a part."""
LEAST = (1, 5, 10)
"""Images from which a category counts as found."""


@dataclass(frozen=True)
class Made:
    """A collection that nobody has photographed."""

    rows: int
    categories: int
    dim: int
    seed: int

    def category(self) -> np.ndarray:
        """(rows,) int: drawn row by row, so that sizes follow Zipf's law but for chance."""
        share = 1 / np.arange(1, self.categories + 1)
        drawn = np.random.default_rng([self.seed, 0]).random(self.rows)
        return np.searchsorted(np.cumsum(share) / share.sum(), drawn).clip(max=self.categories - 1)

    def path(self, row: int) -> str:
        return f"{row:09d}.jpg"

    def write(self, folder: Path, each: int = EACH) -> None:
        """The embeddings, part by part."""
        centre = np.random.default_rng([self.seed, 1]).normal(size=(self.categories, self.dim))
        category = self.category()
        folder.mkdir(parents=True, exist_ok=True)
        facts = {
            "format": EMBEDDINGS_FORMAT,
            "backbone": "made",
            "backbone_digest": "",
            "image_size": 1,
            "dim": self.dim,
        }
        write_text(folder / "manifest.json", dump_json({**facts, "n": self.rows, "root": str(folder)}))
        for number, first in enumerate(range(0, self.rows, each)):
            rows = np.arange(first, min(first + each, self.rows))
            noise = np.random.default_rng([self.seed, 2, number]).normal(size=(len(rows), self.dim))
            feature = (centre[category[rows]] + noise).astype(np.float16)
            columns = {
                "digest": pa.array([self.path(row) for row in rows], pa.string()),
                "path": pa.array([self.path(row) for row in rows], pa.string()),
                "stamp": pa.array([""] * len(rows), pa.string()),
                "feature": pa.FixedSizeListArray.from_arrays(pa.array(feature.ravel()), self.dim),
                "problem": pa.array([""] * len(rows), pa.string()),
                "note": pa.array([""] * len(rows), pa.string()),
            }
            write_parquet(folder / f"part-{number:06d}.parquet", pa.table(columns))


@dataclass(frozen=True)
class Found:
    """What a sample knows of a collection."""

    n: int
    drawn: str
    found: tuple[int, ...]
    """Categories with at least LEAST images each."""
    fewest: float
    """Images of a category among the smallest tenth, in the mean."""
    off: float
    """By how much the sizes that weights tell are off: the median over all categories, as a share of their size."""

    @property
    def line(self) -> str:
        counts = " | ".join(f"{count:,}" for count in self.found)
        return f"| {self.n:,} | {self.drawn} | {counts} | {self.fewest:.1f} | {self.off:.0%} |"


def judge(n: int, drawn: str, category: np.ndarray, rows: np.ndarray, weight: np.ndarray) -> Found:
    """category: (N,) of all images. rows: (n,) of the sample, weight: (n,) of them."""
    size = np.bincount(category)
    of_sample = np.bincount(category[rows], minlength=len(size))
    told = np.bincount(category[rows], weight, minlength=len(size))
    there = size > 0
    smallest = np.argsort(np.where(there, size, size.max()), kind="stable")[: max(1, int(there.sum()) // 10)]
    found = tuple(int((of_sample >= least).sum()) for least in LEAST)
    off = float(np.median(np.abs(told - size)[there] / size[there]))
    return Found(n, drawn, found, float(of_sample[smallest].mean()), off)


def at_random(made: Made, category: np.ndarray, n: int) -> Found:
    """The images whose paths have the smallest hashes."""
    number = path_hashes([made.path(row) for row in range(made.rows)], made.seed)["images"]
    rows = np.argsort(number, kind="stable")[:n]
    weight = np.full(len(rows), made.rows / len(rows))
    return judge(n, "at random", category, rows, weight)


def by_coverage(made: Made, category: np.ndarray, n: int, folder: Path, cells: int | None) -> Found:
    sample = draw_coreset(EmbeddingParts(folder), n, cells=cells, seed=made.seed)
    rows = np.array([number_of(path) for path in sample.path])
    return judge(n, f"coverage, {sample.n_cells:,} cells", category, rows, sample.weight)


def number_of(path: str) -> int:
    return int(path.partition(".")[0])


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--categories", type=int, default=1_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--n", type=int, nargs="+", default=[5_000, 20_000, 50_000])
    parser.add_argument("--cells", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    if min(given.rows, given.categories, given.dim, *given.n) < 1:
        raise InputError("rows, categories, dim and n are numbers of at least 1.")
    made = Made(given.rows, given.categories, given.dim, given.seed)
    category = made.category()
    size = np.bincount(category, minlength=made.categories)
    print(
        f"{made.rows:,} images of {int((size > 0).sum()):,} categories, {size.min():,} to {size.max():,} images each\n"
    )
    find_all(made, category, given.n, given.cells)
    print(f"\n{time.process_time():.0f} seconds of processor time")
    return 0


def find_all(made: Made, category: np.ndarray, sizes: Sequence[int], cells: int | None) -> None:
    print(f"| images | drawn | {' | '.join(f'at least {least}' for least in LEAST)} | rare | off |")
    print(f"| ---: | --- | {'---: | ' * len(LEAST)}---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        made.write(Path(folder))
        for n in sizes:
            print(at_random(made, category, n).line, flush=True)
            print(by_coverage(made, category, n, Path(folder), cells).line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
