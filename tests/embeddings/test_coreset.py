"""A coverage sample: the same from any parts, weights that add up, rare kinds and labelled images always in it."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from holotype.embeddings.coreset import (
    CoresetSample,
    FolderLabels,
    NoLabels,
    draw_coreset,
    nearest_centres,
    path_hashes,
    unit_rows_float32,
)
from holotype.embeddings.store import EmbeddingParts
from holotype.errors import InputError
from tests.made_embeddings import write_embeddings

RARE = 6
"""Images of the rare kind, which come last."""
N = 1500


@pytest.fixture(scope="module")
def images() -> tuple[list[str], np.ndarray]:
    """Three large kinds, and a rare one that looks like none of them."""
    rng = np.random.default_rng(0)
    kinds = np.eye(8)[[0] * 1000 + [1] * 400 + [2] * (100 - RARE) + [3] * RARE]
    folder = ["fox" if row % 97 == 5 else "unlabelled" for row in range(N)]
    return [f"{folder[row]}/{row:04d}.jpg" for row in range(N)], kinds + 0.15 * rng.normal(size=(N, 8))


def written(
    folder: Path, images: tuple[list[str], np.ndarray], order: np.ndarray, each: int
) -> EmbeddingParts:
    path, feature = images
    rows = [path[row] for row in order]
    return EmbeddingParts(write_embeddings(folder, rows, feature[order].astype(np.float16), each=each))


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, images: tuple[list[str], np.ndarray]) -> EmbeddingParts:
    return written(tmp_path_factory.mktemp("made") / "e", images, np.arange(N), 256)


def same(one: CoresetSample, other: CoresetSample) -> bool:
    columns = one.path == other.path and one.label == other.label
    return columns and np.array_equal(one.weight, other.weight) and np.array_equal(one.cell, other.cell)


@pytest.mark.parametrize(("seed", "each"), [(1, 100), (2, 37), (3, 5000)])
def test_neither_order_nor_sizes_of_parts_matter(
    tmp_path: Path, parts: EmbeddingParts, images: tuple[list[str], np.ndarray], seed: int, each: int
) -> None:
    order = np.random.default_rng(seed).permutation(N)
    other = written(tmp_path / "e", images, order, each)
    wanted = draw_coreset(parts, 120, labels=FolderLabels(""), seed=4)
    assert same(draw_coreset(other, 120, labels=FolderLabels(""), seed=4), wanted)
    assert not same(draw_coreset(parts, 120, labels=FolderLabels(""), seed=5), wanted)


@pytest.mark.parametrize(("n", "cells"), [(120, None), (120, 1), (50, 20), (700, 33)])
def test_weights_add_up_to_the_whole(parts: EmbeddingParts, n: int, cells: int | None) -> None:
    found = draw_coreset(parts, n, cells=cells, labels=FolderLabels(""))
    assert len(found.path) == len(set(found.path)) == n
    assert found.weight.sum() == pytest.approx(N)
    assert found.weight.min() >= 1
    assert found.n_images == N
    labelled = np.array(found.label) != ""
    assert (found.weight[labelled] == 1).all()
    assert found.n_labelled == sum(row % 97 == 5 for row in range(N))


@pytest.mark.parametrize("seed", range(8))
def test_rare_kind_far_from_all_others_is_always_there(parts: EmbeddingParts, seed: int) -> None:
    """One image in 250; a random sample of as many misses it more often than not."""
    found = draw_coreset(parts, 100, cells=12, labels=NoLabels(), seed=seed)
    rare = [row for row, path in enumerate(found.path) if int(path[-8:-4]) >= N - RARE]
    assert rare
    assert found.weight[rare].sum() == pytest.approx(RARE, rel=0.5)


def test_sums_estimate_the_sizes_of_kinds(parts: EmbeddingParts) -> None:
    found = draw_coreset(parts, 300, cells=30)
    told = Counter[str]()
    for path, weight in zip(found.path, found.weight, strict=True):
        row = int(path[-8:-4])
        told["large" if row < 1000 else "middle" if row < 1400 else "small"] += weight
    assert told["large"] == pytest.approx(1000, rel=0.1)
    assert told["middle"] == pytest.approx(400, rel=0.1)


def test_one_cell_is_a_plain_draw_by_hash(parts: EmbeddingParts) -> None:
    """Against a loop that holds everything: of one cell, the images with the smallest hashes."""
    paths = [path for part in parts for path in part.path]
    number = path_hashes(paths, 9)["images"]
    wanted = sorted(paths[row] for row in np.argsort(number)[:40])
    assert draw_coreset(parts, 40, cells=1, seed=9).path == wanted


def test_images_of_a_cell_lie_nearest_to_each_other(parts: EmbeddingParts) -> None:
    """What the cells say can be computed again: images of one cell are those of one kind here."""
    found = draw_coreset(parts, 200, cells=10)
    kind = np.digitize([int(path[-8:-4]) for path in found.path], [1000, 1400, N - RARE])
    purest = [Counter(kind[found.cell == cell]).most_common(1)[0][1] for cell in set(found.cell.tolist())]
    assert sum(purest) / len(found.path) > 0.95
    assert nearest_centres(unit_rows_float32(np.eye(3)), unit_rows_float32(np.eye(3)))[0].tolist() == [
        0,
        1,
        2,
    ]


def test_images_that_could_not_be_read_are_in_no_sample(
    tmp_path: Path, images: tuple[list[str], np.ndarray]
) -> None:
    path, feature = images[0][:60], images[1][:60]
    parts = EmbeddingParts(
        write_embeddings(tmp_path / "e", path, feature, problem={3: "cut off", 50: "empty"})
    )
    found = draw_coreset(parts, 20)
    assert found.weight.sum() == pytest.approx(58)
    assert (found.n_images, found.n_unread) == (58, 2)
    whole = draw_coreset(parts, 1000)
    assert whole.path == sorted(set(path) - {path[3], path[50]})
    assert whole.weight.tolist() == [1.0] * 58


def test_what_cannot_be_drawn(tmp_path: Path, parts: EmbeddingParts) -> None:
    with pytest.raises(InputError, match="at least 1"):
        draw_coreset(parts, 0)
    with pytest.raises(InputError, match="give 1 to 10"):
        draw_coreset(parts, 10, cells=11)
    with pytest.raises(InputError, match="leaves no place for others"):
        draw_coreset(parts, 16, labels=FolderLabels(""))
    broken = write_embeddings(tmp_path / "e", ["a.jpg"], np.ones((1, 3)), problem={0: "cut off"})
    with pytest.raises(InputError, match="nothing to draw"):
        draw_coreset(EmbeddingParts(broken), 5)


def test_more_cells_than_places_beside_labelled_images(parts: EmbeddingParts) -> None:
    """16 images are labelled; the 4 others must still stand for everything."""
    found = draw_coreset(parts, 20, cells=20, labels=FolderLabels(""))
    assert len(found.path) == 20
    assert found.weight.sum() == pytest.approx(N)


def test_memory_does_not_grow_with_the_images(tmp_path: Path) -> None:
    def peak(n: int) -> int:
        rng = np.random.default_rng(0)
        folder = write_embeddings(
            tmp_path / str(n), [f"{row}.jpg" for row in range(n)], rng.normal(size=(n, 8)), each=200
        )
        parts = EmbeddingParts(folder)
        tracemalloc.start()
        draw_coreset(parts, 50, cells=5)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(400)  # imports and first calls
    assert peak(6_000) < 1.3 * peak(1_500)
