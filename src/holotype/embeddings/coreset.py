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
go to the smaller path, and the cell of a row is the same whatever rows it is looked at with. A product of matrices
rounds otherwise in another shape, so that it only says which centres may be the nearest; where there are several,
distances decide that are computed row by row, with twice the digits. No more than about twice as many rows as are
wanted are ever kept.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
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
from holotype.data.paths import absolute, find_images
from holotype.data.readers.folder import folder_label
from holotype.data.storage import is_address, split_member
from holotype.embeddings.store import EmbeddingParts
from holotype.errors import InputError
from holotype.utils.console import progress_bar

MAX_ITER = 25
"""Of k-means. Any centres cut a collection into cells; better ones only cut it more evenly."""
ROUNDING = 2.0**-24


def unit_rows_float32(feature: np.ndarray) -> np.ndarray:
    """(n, D) -> the same at length 1, float32; rows of zeros stay so."""
    x = feature.astype(np.float64)
    return (x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), 1e-12)).astype(np.float32)


def find_cell_centres(x: np.ndarray, n: int, seed: int) -> np.ndarray:
    """(n, D) float32 centres of k-means on some rows, in an order of their own; all rows where they are fewer."""
    if len(x) <= n:
        return x
    generator = torch.Generator().manual_seed(seed)
    found = kmeans(torch.from_numpy(x), n, n_init=1, max_iter=MAX_ITER, generator=generator)
    return np.asarray(found.centres.numpy(), dtype=np.float32)


def nearest_centres(x: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) the nearest centre of each row, the first of several, and (n,) float64 its squared distance.

    x: (n, D) float32 of length 1 at most, and so are centres (C, D).
    """
    cell = np.empty(len(x), dtype=np.int64)
    step = max(1, CHUNK // len(centres))
    for first in range(0, len(x), step):
        rows = slice(first, first + step)
        cell[rows] = _nearest(x[rows], centres)
    return cell, _distance(x, centres[cell])


def _nearest(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    # squared distance, less what is the same in a row
    score = (centres * centres).sum(-1) - 2 * (x @ centres.T)
    best = score.min(1, keepdims=True)
    # twice what D products of two numbers below 1, and a handful of sums, can be off by
    rivals = score <= best + 2 * (2 * x.shape[1] + 8) * ROUNDING
    cell = score.argmin(1)
    several = np.flatnonzero(rivals.sum(1) > 1)
    row, rival = np.nonzero(rivals[several])
    exact = _distance(x[several[row]], centres[rival])
    order = np.lexsort((rival, exact, row))
    _, first = np.unique(row[order], return_index=True)
    cell[several] = rival[order][first]
    return np.asarray(cell)


def _distance(x: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(n,) squared distance of two rows each, the same for a pair wherever it stands."""
    apart = x.astype(np.float64) - other
    return np.asarray((apart * apart).sum(-1))


HASH_PURPOSES = ("cells", "far", "images")
"""Draws that must not depend on each other; each path has a number for each."""
SelectedRows = tuple[int, int, str]
"""Cell, hash and path."""
Names = Sequence[str] | np.ndarray
"""(n,) paths."""


def path_hashes(path: Names, seed: int) -> dict[str, np.ndarray]:
    """Purpose to (n,) uint64: numbers that depend on the path and the seed alone, and look drawn at random."""
    key = seed.to_bytes(8, "little")
    content = (name.encode(errors="surrogateescape") for name in path)
    digests = b"".join(hashlib.blake2b(name, digest_size=24, key=key).digest() for name in content)
    number = np.frombuffer(digests, dtype="<u8").reshape(len(path), len(HASH_PURPOSES))
    return {purpose: number[:, at] for at, purpose in enumerate(HASH_PURPOSES)}


def uniform(number: np.ndarray) -> np.ndarray:
    """(n,) uint64 -> float64 above 0 and below 1."""
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
        for row in np.flatnonzero(key <= self.bound).tolist():
            self.rows.append((float(key[row]), path[row], x[row].copy()))
        if len(self.rows) > 2 * self.n:
            self._shrink()

    def _shrink(self) -> None:
        self.rows.sort(key=lambda row: row[:2])
        del self.rows[self.n :]
        if len(self.rows) == self.n:
            self.bound = self.rows[-1][0]

    def features(self) -> np.ndarray:
        """(n, D) in the order of their keys."""
        self._shrink()
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

    def add(self, cell: np.ndarray, number: np.ndarray, path: Sequence[str]) -> None:
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
        """Sorted by cell, then hash; n of them, or all where there are fewer."""
        level = level_quota(self.size, self.n)
        first = self._of_rank(range(level))
        more = sorted(self._of_rank(range(level, level + 1)), key=itemgetter(1, 2))
        return sorted(first + more[: self.n - len(first)])


def level_quota(size: np.ndarray, n: int) -> int:
    """The largest number of rows that every cell can give, or all that it has, with at most n altogether."""
    if int(size.sum()) <= n:
        return int(size.max(initial=0))
    ordered = np.sort(size)
    before = np.concatenate([[0], np.cumsum(ordered)[:-1]])  # rows of the cells that are smaller
    whole = before + ordered * np.arange(len(ordered), 0, -1)
    at = int(np.flatnonzero(whole > n)[0])  # the first cell that cannot give all
    return int((n - before[at]) // (len(ordered) - at))


class NoLabels:
    """No image carries a label.

    Whoever reads a stream shows every path once (`see`), then `settle`s, and asks for labels from then on.
    """

    def see(self, path: Names) -> None:
        """path: as seen from the root."""

    def settle(self) -> None:
        """All paths were seen; raises InputError for labels that belong to none of them."""

    def of(self, path: str) -> str:
        """The label of an image by its path from the root, "" = none."""
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
        """Absolute paths of pictures that the list may mean."""
        find_images(self.listed.path, self.starts, self._note, list)
        self.there: set[str] = set()
        """Those of them that were seen, and their boxes."""
        self.label: dict[str, str] = {}

    def _note(self, path: str) -> bool:
        """A path that is asked for; whether there is such an image is not known yet."""
        self.meant.add(path)
        return False

    def see(self, path: Names) -> None:
        for one in path:
            whole = absolute(one, self.root)
            picture = split_box(whole)[0]
            if picture in self.meant:
                self.there |= {whole, picture}

    def settle(self) -> None:
        listed = self.listed
        found, _ = find_images(listed.path, self.starts, self.there.__contains__, list)
        self._complain([row for row, path in enumerate(found) if path is None])
        kept = match_labels(listed, self.starts, self.there.__contains__, list, missing="", whole=True)
        of_line = {line: row for row, line in enumerate(listed.line)}
        rows = zip(kept.path, kept.line, strict=True)
        self._complain([of_line[line] for path, line in rows if path not in self.there])
        self.label = dict(zip(kept.path, kept.label, strict=True))

    def _complain(self, absent: Sequence[int]) -> None:
        listed = self.listed
        if absent:
            raise InputError(
                f"{len(absent):,} of the {len(listed.path):,} images that {listed.file} labels are not among the "
                f"embeddings, for example {listed.some(absent)}; relative paths start at {self.starts[0]}."
            )

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
    """n images of the collection, all labelled ones among them; all images where there are no more.

    cells: at most n; by default a tenth of n, and 2,000 at most.
    """
    if n < 1:
        raise InputError(f"A sample of {n} images is none; ask for at least 1 with --n.")
    if cells is not None and not 1 <= cells <= n:
        raise InputError(f"--cells {cells} does not fit a sample of {n:,}; give 1 to {n:,} of them.")
    wanted = cells or min(MOST_CELLS, max(1, n // IMAGES_PER_CELL))
    labels = labels or NoLabels()
    with progress_bar("Drawing a sample", 3 * parts.n, progress) as advance:
        stream = _Stream(parts, seed, labels, advance)
        n_images, some = stream.look(-(-wanted // 2))
        centres, free = np.zeros((1, parts.dim), dtype=np.float32), n_images
        if n_images > n:
            near = find_cell_centres(some, -(-wanted // 2), seed)
            n_labelled, far = stream.look_again(near, wanted // 2)
            free = n - n_labelled
            if free < 1:
                raise InputError(
                    f"{n_labelled:,} images are labelled and always kept, which leaves no place for others in a "
                    f"sample of {n:,}; raise --n, or give fewer labels."
                )
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

    def look(self, cells: int) -> tuple[int, np.ndarray]:
        """How many images can be read, and (r, D) random ones. The labels get to know all paths."""
        n, some = 0, SmallestKeys(ROWS_PER_CELL * cells)
        for part in self.parts:
            self.labels.see(part.path)
            self.advance(len(part.path))
            part = part.readable()
            n += len(part.path)
            drawn = uniform(path_hashes(part.path, self.seed)["cells"])
            some.add(drawn, part.path, unit_rows_float32(part.features))
        self.labels.settle()
        if not n:
            raise InputError(
                f"None of the images in {self.parts.folder} could be read; there is nothing to draw."
            )
        return n, some.features()

    def look_again(self, centres: np.ndarray, cells: int) -> tuple[int, np.ndarray]:
        """How many images that can be read are labelled, and (r, D) images that lie far from the centres.

        A row with the number u between 0 and 1 and the power w of its distance has the key -log(u) / w. The smallest
        keys are a draw without replacement in proportion to w (Efraimidis and Spirakis, 2006).
        """
        n, far = 0, SmallestKeys(max(1, ROWS_PER_CELL * cells))
        for part in self.parts:
            self.advance(len(part.path))
            part = part.readable()
            n += sum(self.labels.of(path) != "" for path in part.path)
            x = unit_rows_float32(part.features)
            distance = nearest_centres(x, centres)[1]
            drawn = -np.log(uniform(path_hashes(part.path, self.seed)["far"]))
            far.add(drawn / np.maximum(distance, 1e-12) ** POWER, part.path, x)
        return n, far.features()

    def choose(self, centres: np.ndarray, free: int) -> CoresetSample:
        """All labelled images, and `free` others."""
        others, labelled, unread = PerCell(len(centres), free), [], 0
        for part in self.parts:
            self.advance(len(part.path))
            unread += int((~part.usable).sum())
            part = part.readable()
            label = [self.labels.of(path) for path in part.path]
            cell = nearest_centres(unit_rows_float32(part.features), centres)[0]
            known = np.array([name != "" for name in label], dtype=bool)
            labelled += [(part.path[row], label[row], int(cell[row])) for row in np.flatnonzero(known)]
            rest = np.flatnonzero(~known)
            number = path_hashes(part.path, self.seed)["images"]
            others.add(cell[rest], number[rest], [part.path[row] for row in rest])
        return _weights(others, labelled, unread)


def _weights(others: PerCell, labelled: list[tuple[str, str, int]], unread: int) -> CoresetSample:
    """Labelled images stand for themselves, the others for those of their cell that are not labelled."""
    chosen = others.chosen()
    taken = np.bincount([cell for cell, _, _ in chosen], minlength=len(others.size))
    rows = [(path, label, 1.0, cell) for path, label, cell in labelled]
    rows += [(path, "", float(others.size[cell] / taken[cell]), cell) for cell, _, path in chosen]
    rows.sort()
    return CoresetSample(
        path=[row[0] for row in rows],
        label=[row[1] for row in rows],
        weight=np.array([row[2] for row in rows]),
        cell=np.array([row[3] for row in rows], dtype=np.int32),
        n_images=int(others.size.sum()) + len(labelled),
        n_unread=unread,
        n_cells=len({row[3] for row in rows}),
    )
