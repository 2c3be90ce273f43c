"""Draw a weighted coreset of a collection of any size, cell by cell.

A random sample holds a category in proportion to its size, and none of the rare ones. Here the collection is cut into
cells of images that look alike, and each cell gives about as many images, however many it has. The weight of an image
is the number of images of its cell that it stands for, so that weighted sums estimate the whole.

Three passes over the embeddings, with one part in memory at a time:

1. k-means on rows that their hashes choose finds half of the cells.
2. Rows are chosen again, those more likely that lie far from all of these. Of a category that the first rows have
   missed, there are some among them. k-means on these rows finds the other half.
3. Every row goes to its nearest cell, and each cell keeps the rows with the smallest hashes.

Hashes are of the path from the root and the seed. Neither the order of the parts nor their sizes change anything: ties
go to the smaller path, and the cell of a row is the same whatever rows it is looked at with: a product of matrices
rounds otherwise in another shape, so that distances have twice the digits, and count to the twelfth. No more than about
twice as many rows as are wanted are ever kept.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from holotype.clustering.kmeans import CHUNK, kmeans
from holotype.data.boxes import split_box
from holotype.data.image_files import split_archive
from holotype.data.labels import match_labels, read_list
from holotype.data.paths import absolute, find_images, is_address, split_member
from holotype.data.readers.folder import folder_label
from holotype.embeddings.store import EmbeddingParts
from holotype.errors import InputError
from holotype.utils.console import progress_bar

MAX_ITER = 25
"""Of k-means. Any centres cut a collection into cells; better ones only cut it more evenly."""


def unit_rows_float32(feature: np.ndarray) -> np.ndarray:
    """Return (n, D) at length 1, float32; rows of zeros stay so."""
    x = feature.astype(np.float64)
    return (x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), 1e-12)).astype(np.float32)


def find_cell_centres(x: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Return (n, D) float32 centres of k-means on some rows, in some order; all rows where they are fewer."""
    if len(x) <= n:
        return x
    generator = torch.Generator().manual_seed(seed)
    found = kmeans(torch.from_numpy(x), n, n_init=1, max_iter=MAX_ITER, generator=generator)
    return np.asarray(found.centres.numpy(), dtype=np.float32)


def nearest_centres(x: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (n,) the nearest centre of each row, the first of several, and (n,) float64 its squared distance.

    x: (n, D) float32 of length 1 at most, and so are centres (C, D).
    """
    cell, wide = np.empty(len(x), dtype=np.int64), centres.astype(np.float64)
    step = max(1, CHUNK // len(centres))
    for first in range(0, len(x), step):
        # squared distance, less what is the same in a row
        score = (wide * wide).sum(-1) - 2 * (x[first : first + step] @ wide.T)
        cell[first : first + step] = score.round(12).argmin(1)
    apart = x - wide[cell]
    return cell, np.asarray((apart * apart).sum(-1))


HASH_PURPOSES = ("cells", "far", "images")
"""Draws that must not depend on each other; each path has a number for each."""
SelectedRows = tuple[int, int, str]
"""Cell, hash and path."""
Names = Sequence[str] | np.ndarray
"""(n,) paths."""


def path_hashes(path: Names, seed: int) -> dict[str, np.ndarray]:
    """Return purpose -> (n,) uint64: numbers that depend on the path and the seed alone, and look drawn at random."""
    key = seed.to_bytes(8, "little")
    content = (name.encode(errors="surrogateescape") for name in path)
    digests = b"".join(hashlib.blake2b(name, digest_size=24, key=key).digest() for name in content)
    number = np.frombuffer(digests, dtype="<u8").reshape(len(path), len(HASH_PURPOSES))
    return {purpose: number[:, at] for at, purpose in enumerate(HASH_PURPOSES)}


def uniform(number: np.ndarray) -> np.ndarray:
    """Return (n,) uint64 as float64 above 0 and below 1."""
    return np.asarray(((number >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53)


class SmallestKeys:
    """The n rows with the smallest keys, and their features."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.rows: list[tuple[float, str, np.ndarray]] = []
        self.bound = np.inf
        """A row with a larger key is not among them."""

    def add(self, key: np.ndarray, path: Names, x: np.ndarray) -> None:
        """key: (r,) float64. path: (r,). x: (r, D)."""
        rows = np.flatnonzero(key <= self.bound).tolist()
        new = [(float(key[row]), path[row], x[row].copy()) for row in rows]
        self.rows = sorted([*self.rows, *new], key=itemgetter(0, 1))[: self.n]
        if len(self.rows) == self.n:
            self.bound = self.rows[-1][0]

    def features(self) -> np.ndarray:
        """Return (n, D) in the order of their keys."""
        return np.stack([x for _, _, x in self.rows])


class PerCell:
    """Of every cell the same number of rows, those with the smallest hashes; n rows altogether.

    A cell with fewer rows gives all of them, and the others give more. The level only falls while rows come in, so
    that rows beyond it can be dropped at once.
    """

    def __init__(self, cells: int, n: int) -> None:
        self.n = n
        self.size = np.zeros(cells, dtype=np.int64)
        """(C,) rows of each cell so far."""
        self.rows: list[SelectedRows] = []
        self.bound = np.full(cells, np.iinfo(np.uint64).max, dtype=np.uint64)

    def add(self, cell: np.ndarray, number: np.ndarray, path: Names) -> None:
        """cell: (r,). number: (r,) uint64 hashes. path: (r,)."""
        self.size += np.bincount(cell, minlength=len(self.size))
        for row in np.flatnonzero(number <= self.bound[cell]).tolist():
            self.rows.append((int(cell[row]), int(number[row]), path[row]))
        if len(self.rows) > 2 * self.n + 2 * len(self.size):
            self._shrink()

    def _of_rank(self, ranks: range) -> list[SelectedRows]:
        """Return the rows at some places of their cells, in order."""
        self.rows.sort()
        cells = groupby(self.rows, key=itemgetter(0))
        return [row for _, rows in cells for row in islice(rows, ranks.start, ranks.stop)]

    def _shrink(self) -> None:
        """Keep one row more of each cell than the level: who gets what is left over is seen at the end."""
        level = level_quota(self.size, self.n)
        for cell, number, _ in self._of_rank(range(level, level + 1)):
            self.bound[cell] = number
        self.rows = self._of_rank(range(level + 1))

    def chosen(self) -> list[SelectedRows]:
        """Return them sorted by cell, then hash; n of them, or all where there are fewer."""
        level = level_quota(self.size, self.n)
        first = self._of_rank(range(level))
        more = sorted(self._of_rank(range(level, level + 1)), key=itemgetter(1, 2))
        return sorted(first + more[: self.n - len(first)])


def level_quota(size: np.ndarray, n: int) -> int:
    """Return the largest number of rows that every cell can give, or all that it has, with at most n altogether."""
    levels = range(int(size.max(initial=0)) + 1)
    return bisect_right(levels, n, key=lambda level: int(np.minimum(size, level).sum())) - 1


class NoLabels:
    """No image carries a label.

    Whoever reads a stream shows every path once (`see`), then `settle`s, and asks for labels from then on.
    """

    def see(self, path: Names) -> None:
        """path: as seen from the root."""

    def settle(self) -> None:
        """All paths were seen; raises InputError for labels that belong to none of them."""

    def of(self, path: str) -> str:
        """Return the label of an image by its path from the root, "" = none."""
        return ""


class FolderLabels(NoLabels):
    """The first folder below the root is the label, as in a folder of images.

    What lies in a tar or a Parquet file, or outside the root, is in no such folder.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def of(self, path: str) -> str:
        parts = PurePosixPath(path).parts
        if is_address(path) or os.path.isabs(path) or parts[0] == "..":
            return ""
        whole = split_box(absolute(path, self.root))[0]
        packed = split_member(whole) is not None or split_archive(whole) is not None
        return "" if packed else folder_label(parts)


class FileLabels(NoLabels):
    """A file with the columns path and label tells those that there are. A box has the label of its picture, unless the
    file names that very box."""

    def __init__(self, file: Path, root: str) -> None:
        self.listed, self.root = read_list(file), root
        self.starts = (Path(root), Path(os.path.abspath(file.parent)))
        self.meant: set[str] = set()
        """Absolute paths of pictures that the list may mean: all that are asked for."""
        find_images(self.listed.path, self.starts, self.meant.add, list)  # type: ignore[arg-type]
        self.there: set[str] = set()
        """Those of them that were seen, and their boxes."""
        self.label: dict[str, str] = {}

    def see(self, path: Names) -> None:
        for one in path:
            whole = absolute(one, self.root)
            picture = split_box(whole)[0]
            if picture in self.meant:
                self.there |= {whole, picture}

    def settle(self) -> None:
        listed, exists = self.listed, self.there.__contains__
        found, _ = find_images(listed.path, self.starts, exists, list)
        absent = [row for row, path in enumerate(found) if path is None]
        if not absent:
            kept = match_labels(listed, self.starts, exists, list, missing="", whole=True)
            self.label = dict(zip(kept.path, kept.label, strict=True))
            lines = {line for path, line in zip(kept.path, kept.line, strict=True) if path not in self.there}
            absent = [row for row, line in enumerate(listed.line) if line in lines]
        if absent:
            n, file = len(listed.path), listed.file
            what = f"{len(absent):,} of the {n:,} images that {file} labels are not among the embeddings"
            where = f"relative paths start at {self.starts[0]}"
            raise InputError(f"{what}, for example {listed.some(absent)}; {where}.")

    def of(self, path: str) -> str:
        whole = absolute(path, self.root)
        return self.label.get(whole, self.label.get(split_box(whole)[0], ""))


MOST_CELLS = 2_000
"""Unless told: the time of the second and the third pass grows with them."""
IMAGES_PER_CELL = 10
"""Unless told, at least."""
ROWS_PER_CELL = 32
"""That cells are found on."""
POWER = 4
"""Of the squared distance. At 1 the many images that lie as far from their cell as any are drawn before the few that
have none."""


@dataclass(frozen=True)
class CoresetSample:
    """Chosen images, and what each stands for. Sorted by path."""

    path: list[str]
    """(n,) as seen from the root."""
    label: list[str]
    """(n,) "" = none."""
    weight: np.ndarray
    """(n,) float64: images of the collection that each stands for; their sum is the number of readable images."""
    cell: np.ndarray
    """(n,) number of the cell."""
    n_images: int
    """Images of the collection that could be read."""
    n_unread: int
    """Those that could not, which no sample holds."""
    n_cells: int
    """Cells with an image in them."""

    @property
    def n_labelled(self) -> int:
        return sum(label != "" for label in self.label)


def draw_coreset(
    parts: EmbeddingParts,
    n: int,
    *,
    cells: int | None = None,
    labels: NoLabels | None = None,
    seed: int = 0,
    progress: bool = False,
) -> CoresetSample:
    """Draw n images of the collection, all labelled ones among them; all images where there are no more.

    cells: at most n; by default a tenth of n, and 2,000 at most.
    """
    if n < 1:
        raise InputError(f"A sample of {n} images is none; ask for at least 1 with --n.")
    if cells is not None and not 1 <= cells <= n:
        raise InputError(f"--cells {cells} does not fit a sample of {n:,}; give 1 to {n:,} of them.")
    wanted = cells or min(MOST_CELLS, max(1, n // IMAGES_PER_CELL))
    with progress_bar("Drawing a sample", 3 * parts.n, progress) as advance:
        stream = _Stream(parts, seed, labels or NoLabels(), advance)
        n_images, some = stream.look(-(-wanted // 2))
        centres, free = np.zeros((1, parts.dim), dtype=np.float32), n_images
        if n_images > n:
            near = find_cell_centres(some, -(-wanted // 2), seed)
            n_labelled, far = stream.look_again(near, wanted // 2)
            free = n - n_labelled
            if free < 1:
                what = f"{n_labelled:,} images are labelled, which leaves no place for others in a sample of {n:,}"
                raise InputError(f"{what}; raise --n, or give fewer labels.")
            more = find_cell_centres(far, wanted // 2, seed) if wanted > 1 else far[:0]
            # a cell of which no image is chosen would count for nothing
            centres = np.concatenate([near, more])[:free]
        return stream.choose(centres, free)


@dataclass(frozen=True)
class _Stream:
    """Passes over a collection."""

    parts: EmbeddingParts
    seed: int
    labels: NoLabels
    advance: Callable[[int], None]

    def readable(self, purpose: str) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield paths (r,), unit features (r, D) and hashes (r,) of the images that can be read."""
        for part in self.parts:
            self.advance(len(part.path))
            if purpose == HASH_PURPOSES[0]:  # the first time, labels get to know all paths
                self.labels.see(part.path)
            path = part.path[part.usable]
            x = unit_rows_float32(part.features[part.usable])
            yield path, x, path_hashes(path, self.seed)[purpose]

    def look(self, cells: int) -> tuple[int, np.ndarray]:
        """Return how many images can be read, and (r, D) random ones."""
        n, some = 0, SmallestKeys(ROWS_PER_CELL * cells)
        for path, x, number in self.readable("cells"):
            n += len(path)
            some.add(uniform(number), path, x)
        self.labels.settle()
        if not n:
            raise InputError(f"No image in {self.parts.folder} could be read; there is nothing to draw.")
        return n, some.features()

    def look_again(self, centres: np.ndarray, cells: int) -> tuple[int, np.ndarray]:
        """Return how many images are labelled, and (r, D) images that lie far from the centres.

        A row with the number u between 0 and 1 and the power w of its distance has the key -log(u) / w. The smallest
        keys are a draw without replacement in proportion to w (Efraimidis and Spirakis, 2006).
        """
        n, far = 0, SmallestKeys(max(1, ROWS_PER_CELL * cells))
        for path, x, number in self.readable("far"):
            n += sum(self.labels.of(one) != "" for one in path)
            distance = nearest_centres(x, centres)[1]
            far.add(-np.log(uniform(number)) / np.maximum(distance, 1e-12) ** POWER, path, x)
        return n, far.features()

    def choose(self, centres: np.ndarray, free: int) -> CoresetSample:
        """Take all labelled images, which stand for themselves, and `free` others, which stand for those of their cell
        that are not labelled."""
        others, rows = PerCell(len(centres), free), list[tuple[str, str, float, int]]()
        for path, x, number in self.readable("images"):
            label, cell = [self.labels.of(one) for one in path], nearest_centres(x, centres)[0]
            known = np.array([name != "" for name in label], dtype=bool)
            rows += [(path[row], label[row], 1.0, int(cell[row])) for row in np.flatnonzero(known)]
            others.add(cell[~known], number[~known], path[~known])
        n_images, chosen = int(others.size.sum()) + len(rows), others.chosen()
        taken = np.bincount([cell for cell, _, _ in chosen], minlength=len(centres))
        rows += [(path, "", float(others.size[cell] / taken[cell]), cell) for cell, _, path in chosen]
        rows.sort()
        weight, cells = np.array([row[2] for row in rows]), np.array([row[3] for row in rows], dtype=np.int32)
        paths, labels, unread = [row[0] for row in rows], [row[1] for row in rows], self.parts.n - n_images
        return CoresetSample(paths, labels, weight, cells, n_images, unread, len(set(cells.tolist())))
