"""A coverage sample of a collection of any size: cells, the same number of images from each, and weights.

A random sample holds a category in proportion to its size, and none of the rare ones. Here the collection is cut into
cells of images that look alike, and each cell gives about as many images, however many it has. The weight of an image
is the number of images of its cell that it stands for, so that weighted sums estimate the whole.

Three passes over the embeddings, with one part in memory at a time:

1. k-means on rows that their hashes choose finds half of the cells.
2. Rows are chosen again, those more likely that lie far from all of these. Of a category that the first rows have
   missed, there are some among them. k-means on these rows finds the other half.
3. Every row goes to its nearest cell, and each cell keeps the rows with the smallest hashes.

Hashes are of the path from the root and the seed. Neither the order of the parts nor their sizes change anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from holotype.cluster.cells import find_centres, nearest_centres, unit_rows
from holotype.cluster.chosen import PerCell, Smallest, path_hashes, uniform
from holotype.data.told_labels import NoLabels
from holotype.errors import InputError
from holotype.runs.embedded import Parts
from holotype.utils.console import progress_bar

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
class Sample:
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


def take_sample(
    parts: Parts,
    n: int,
    *,
    cells: int | None = None,
    labels: NoLabels | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Sample:
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
            near = find_centres(some, -(-wanted // 2), seed)
            n_labelled, far = stream.look_again(near, wanted // 2)
            free = n - n_labelled
            if free < 1:
                raise InputError(
                    f"{n_labelled:,} images are labelled and always kept, which leaves no place for others in a "
                    f"sample of {n:,}; raise --n, or give fewer labels."
                )
            more = find_centres(far, wanted // 2, seed) if wanted > 1 else far[:0]
            # a cell of which no image is chosen would count for nothing
            centres = np.concatenate([near, more])[:free]
        return stream.choose(centres, free)


@dataclass(frozen=True)
class _Stream:
    """Passes over a collection."""

    parts: Parts
    seed: int
    labels: NoLabels
    advance: Callable[[int], None]

    def look(self, cells: int) -> tuple[int, np.ndarray]:
        """How many images can be read, and (r, D) random ones. The labels get to know all paths."""
        n, some = 0, Smallest(ROWS_PER_CELL * cells)
        for part in self.parts:
            self.labels.see(part.path)
            self.advance(len(part.path))
            part = part.readable()
            n += len(part.path)
            some.add(uniform(path_hashes(part.path, self.seed)["cells"]), part.path, unit_rows(part.feature))
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
        n, far = 0, Smallest(max(1, ROWS_PER_CELL * cells))
        for part in self.parts:
            self.advance(len(part.path))
            part = part.readable()
            n += sum(self.labels.of(path) != "" for path in part.path)
            x = unit_rows(part.feature)
            distance = nearest_centres(x, centres)[1]
            drawn = -np.log(uniform(path_hashes(part.path, self.seed)["far"]))
            far.add(drawn / np.maximum(distance, 1e-12) ** POWER, part.path, x)
        return n, far.features()

    def choose(self, centres: np.ndarray, free: int) -> Sample:
        """All labelled images, and `free` others."""
        others, labelled, unread = PerCell(len(centres), free), [], 0
        for part in self.parts:
            self.advance(len(part.path))
            unread += int((~part.usable).sum())
            part = part.readable()
            label = [self.labels.of(path) for path in part.path]
            cell = nearest_centres(unit_rows(part.feature), centres)[0]
            known = np.array([name != "" for name in label], dtype=bool)
            labelled += [(part.path[row], label[row], int(cell[row])) for row in np.flatnonzero(known)]
            rest = np.flatnonzero(~known)
            number = path_hashes(part.path, self.seed)["images"]
            others.add(cell[rest], number[rest], [part.path[row] for row in rest])
        return _weigh(others, labelled, unread)


def _weigh(others: PerCell, labelled: list[tuple[str, str, int]], unread: int) -> Sample:
    """Labelled images stand for themselves, the others for those of their cell that are not labelled."""
    chosen = others.chosen()
    taken = np.bincount([cell for cell, _, _ in chosen], minlength=len(others.size))
    rows = [(path, label, 1.0, cell) for path, label, cell in labelled]
    rows += [(path, "", float(others.size[cell] / taken[cell]), cell) for cell, _, path in chosen]
    rows.sort()
    return Sample(
        path=[row[0] for row in rows],
        label=[row[1] for row in rows],
        weight=np.array([row[2] for row in rows]),
        cell=np.array([row[3] for row in rows], dtype=np.int32),
        n_images=int(others.size.sum()) + len(labelled),
        n_unread=unread,
        n_cells=len({row[3] for row in rows}),
    )
