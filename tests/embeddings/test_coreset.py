"""A coverage sample: the same from any parts, weights that add up, rare kinds and labelled images always in it."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from holotype.data.boxes import Box, with_box
from holotype.embeddings.coreset import (
    CoresetSample,
    FileLabels,
    FolderLabels,
    NoLabels,
    PerCell,
    SmallestKeys,
    draw_coreset,
    find_cell_centres,
    level_quota,
    nearest_centres,
    path_hashes,
    uniform,
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


RNG = np.random.default_rng(0)


def test_hashes_depend_on_path_and_seed_alone() -> None:
    paths = [f"{i}.jpg" for i in range(50)]
    both, one = path_hashes(paths, 3), path_hashes(paths[7:8], 3)
    assert {name: int(values[7]) for name, values in both.items()} == {n: int(v[0]) for n, v in one.items()}
    assert not np.array_equal(both["images"], both["cells"])
    assert not np.array_equal(both["images"], path_hashes(paths, 4)["images"])
    drawn = uniform(path_hashes([f"{i}" for i in range(20_000)], 0)["far"])
    assert drawn.min() > 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.01


def test_path_that_is_no_text_has_a_hash() -> None:
    assert path_hashes(["a\udcff.jpg"], 0)["images"].shape == (1,)


@pytest.mark.parametrize("seed", range(20))
def test_level_is_the_largest_that_fits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, n = rng.integers(0, 30, 12), int(rng.integers(1, 200))
    found = level_quota(size, n)
    if size.sum() <= n:
        assert found == size.max()
    else:
        assert np.minimum(size, found).sum() <= n < np.minimum(size, found + 1).sum()


def obvious(cell: np.ndarray, number: np.ndarray, path: list[str], n: int) -> set[str]:
    """Round after round, each cell gives the row with its smallest hash; in the last one the smallest of all."""
    queues: dict[int, list[tuple[int, str]]] = {}
    for c, h, p in zip(cell.tolist(), number.tolist(), path, strict=True):
        queues.setdefault(c, []).append((h, p))
    for queue in queues.values():
        queue.sort(reverse=True)
    taken: set[str] = set()
    while len(taken) < n and any(queues.values()):
        round_ = sorted(queue.pop() for queue in queues.values() if queue)
        taken |= {p for _, p in round_[: n - len(taken)]}
    return taken


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("n", [1, 7, 40, 300, 1000, 5000])
def test_per_cell_is_what_a_plain_loop_takes(n: int, coarse: bool) -> None:
    """coarse: hashes that are often equal, so that paths decide."""
    cell = RNG.zipf(1.5, 1000).clip(max=30) - 1
    path = [f"{i:04d}" for i in RNG.permutation(1000)]
    number = RNG.integers(0, 5 if coarse else 2**63, 1000).astype(np.uint64)
    order = RNG.permutation(1000)
    chosen = PerCell(30, n)
    for rows in np.array_split(order, 17):
        chosen.add(cell[rows], number[rows], [path[row] for row in rows])
        assert len(chosen.rows) <= 2 * n + 2 * 30 + len(rows)  # flat in the number of rows
    found = chosen.chosen()
    assert {p for _, _, p in found} == obvious(cell, number, path, n)
    assert len(found) == min(n, 1000)
    assert chosen.size.tolist() == np.bincount(cell, minlength=30).tolist()


@pytest.mark.parametrize("coarse", [False, True])
def test_smallest_in_any_order(coarse: bool) -> None:
    path = [f"{i:04d}" for i in range(500)]
    key = RNG.integers(0, 4, 500).astype(float) if coarse else RNG.random(500)
    x = RNG.normal(size=(500, 3)).astype(np.float32)
    wanted = x[sorted(range(500), key=lambda row: (key[row], path[row]))[:40]]
    for order in (np.arange(500), RNG.permutation(500)):
        some = SmallestKeys(40)
        for rows in np.array_split(order, 9):
            some.add(key[rows], [path[row] for row in rows], x[rows])
        assert np.array_equal(some.features(), wanted)


def test_equal_keys_at_the_border_are_not_lost() -> None:
    some = SmallestKeys(2)
    for path in ("d", "c", "b", "a", "e", "f"):
        some.add(np.zeros(1), [path], np.zeros((1, 1)))
    assert [row[1] for row in some.rows] == ["a", "b"]


def brute_force(x: np.ndarray, centres: np.ndarray) -> tuple[list[int], list[float]]:
    cells, distances = [], []
    for row in x:
        apart = [float(((row.astype(float) - centre) ** 2).sum()) for centre in centres]
        cells.append(apart.index(min(apart)))
        distances.append(min(apart))
    return cells, distances


def test_nearest_is_that_of_a_plain_loop() -> None:
    x, centres = unit_rows_float32(RNG.normal(size=(300, 7))), unit_rows_float32(RNG.normal(size=(40, 7)))
    cell, distance = nearest_centres(x, centres)
    wanted, apart = brute_force(x, centres)
    assert cell.tolist() == wanted
    np.testing.assert_allclose(distance, apart, rtol=1e-12)


def test_rivals_that_a_product_of_matrices_cannot_tell_apart() -> None:
    """Centres so near to each other that single precision says little: still the true nearest, in every company."""
    middle = unit_rows_float32(RNG.normal(size=(1, 64)))
    centres = (middle + 1e-7 * RNG.normal(size=(50, 64))).astype(np.float32)
    x = unit_rows_float32(RNG.normal(size=(200, 64)))
    cell, _ = nearest_centres(x, centres)
    assert cell.tolist() == brute_force(x, centres)[0]
    one_by_one = [int(nearest_centres(x[row : row + 1], centres)[0][0]) for row in range(len(x))]
    assert cell.tolist() == one_by_one


def test_equal_centres_go_to_the_first() -> None:
    centre = unit_rows_float32(np.ones((1, 3)))
    cell, distance = nearest_centres(unit_rows_float32(np.ones((4, 3))), np.repeat(centre, 3, 0))
    assert cell.tolist() == [0] * 4
    assert distance.tolist() == [0.0] * 4


def test_unit_rows_and_rows_of_zeros() -> None:
    x = unit_rows_float32(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float16))
    np.testing.assert_allclose(x, [[0.6, 0.8], [0.0, 0.0]], atol=1e-7)
    assert x.dtype == np.float32


def test_centres_of_a_seed_are_the_same() -> None:
    x = unit_rows_float32(RNG.normal(size=(200, 6)))
    assert np.array_equal(find_cell_centres(x, 9, 1), find_cell_centres(x, 9, 1))
    assert find_cell_centres(x, 9, 1).shape == (9, 6)
    assert np.array_equal(find_cell_centres(x, 200, 1), x)


PATHS = ["fox/1.jpg", "unlabelled/2.jpg", "3.jpg", "hare/deep/4.jpg", "Unlabeled/5.jpg"]


def test_none_and_folders() -> None:
    assert [NoLabels().of(path) for path in PATHS] == [""] * 5
    assert [FolderLabels("/photos").of(path) for path in PATHS] == ["fox", "", "", "hare", ""]


@pytest.mark.parametrize(
    "path",
    [
        "../photos/fox/1.jpg",
        "/photos/fox/1.jpg",
        "s3://bucket/fox/1.jpg",
        "000.tar#fox/1.jpg",
        "a/train.parquet#12",
        "a/set.npz#12",
    ],
)
def test_what_is_in_no_folder_below_the_root_has_no_label(path: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("000.tar", "a/train.parquet", "a/set.npz"):
        (tmp_path / name).touch()
    assert FolderLabels(str(tmp_path)).of(path) == ""


def test_parts_of_pictures_and_objects_of_a_bucket_have_their_folder(tmp_path: Path) -> None:
    box = Box(0.1, 0.2, 0.3, 0.4)
    assert FolderLabels(str(tmp_path)).of(with_box("fox/1.jpg", box)) == "fox"
    assert FolderLabels("s3://bucket/photos").of("fox/1.jpg") == "fox"


def test_a_list_decides_and_folders_mean_nothing(tmp_path: Path) -> None:
    file = tmp_path / "labels" / "labels.csv"
    file.parent.mkdir()
    file.write_text(f"path,label\n3.jpg,owl\n{tmp_path}/photos/fox/1.jpg,badger\nunlabelled/2.jpg,\n")
    labels = FileLabels(file, str(tmp_path / "photos"))
    for path in PATHS:
        labels.see([path])
    labels.settle()
    assert [labels.of(path) for path in PATHS] == ["badger", "", "owl", "", ""]


def test_paths_start_at_the_list_as_well(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("path,label\nphotos/3.jpg,owl\n")
    labels = FileLabels(file, str(tmp_path / "photos"))
    labels.see(PATHS)
    labels.settle()
    assert labels.of("3.jpg") == "owl"


def test_labels_of_images_that_are_not_there(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("path,label\n3.jpg,owl\n9.jpg,owl\nfox/8.jpg,fox\n")
    labels = FileLabels(file, str(tmp_path))
    labels.see(PATHS)
    with pytest.raises(InputError, match=r"^2 of the 3 images .* '9.jpg' \(line 3\)"):
        labels.settle()


def test_two_labels_of_one_image(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    file.write_text("path,label\n3.jpg,owl\n./3.jpg,fox\n")
    labels = FileLabels(file, str(tmp_path))
    labels.see(PATHS)
    with pytest.raises(InputError, match="more than once with different labels"):
        labels.settle()


def test_a_list_labels_boxes_and_all_boxes_of_a_picture(tmp_path: Path) -> None:
    """A picture's label is that of its boxes, unless one of them has a row of its own."""
    left, right = Box(0.1, 0.2, 0.3, 0.4), Box(0.5, 0.2, 0.3, 0.4)
    (tmp_path / "labels.csv").write_text(
        f'path,label,box\n3.jpg,owl,\n"{with_box("fox/1.jpg", left)}",fox,\nhare/4.jpg,hare,"0.5,0.2,0.3,0.4"\n'
    )
    labels = FileLabels(tmp_path / "labels.csv", str(tmp_path))
    paths = [with_box(path, box) for path in ("3.jpg", "fox/1.jpg", "hare/4.jpg") for box in (left, right)]
    labels.see(paths)
    labels.settle()
    assert [labels.of(path) for path in paths] == ["owl", "owl", "fox", "", "", "hare"]


def test_a_box_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text('path,label,box\n3.jpg,owl,"0.5,0.2,0.3,0.4"\n')
    labels = FileLabels(tmp_path / "labels.csv", str(tmp_path))
    labels.see([with_box("3.jpg", Box(0.1, 0.2, 0.3, 0.4)), "3.jpg"])
    with pytest.raises(InputError, match=r"^1 of the 1 images .* '3.jpg' \(line 2\)"):
        labels.settle()
