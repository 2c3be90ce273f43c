"""A coverage sample: the same from any parts, weights that add up, rare kinds and labelled images always in it."""

import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from holotype.data.boxes import Box, with_box
from holotype.embeddings import coreset as module
from holotype.embeddings.coreset import CoresetSample, FileLabels, FolderLabels, NoLabels, draw_coreset
from holotype.embeddings.store import EmbeddingParts
from holotype.errors import InputError
from tests.made_embeddings import write_embeddings

RARE = 6
"""Images of the rare kind, which come last."""
N = 1500
RNG = np.random.default_rng(0)
unit_rows, nearest = module.unit_rows_float32, module.nearest_centres


@pytest.fixture(scope="module")
def images() -> tuple[list[str], np.ndarray]:
    """Three large kinds, and a rare one that looks like none of them."""
    rng = np.random.default_rng(0)
    kinds = np.eye(8)[[0] * 1000 + [1] * 400 + [2] * (100 - RARE) + [3] * RARE]
    folder = ["fox" if row % 97 == 5 else "unlabelled" for row in range(N)]
    return [f"{folder[row]}/{row:04d}.jpg" for row in range(N)], kinds + 0.15 * rng.normal(size=(N, 8))


def written(folder: Path, images, order: np.ndarray, each: int) -> EmbeddingParts:
    path, feature = images
    rows = [path[row] for row in order]
    return EmbeddingParts(write_embeddings(folder, rows, feature[order].astype(np.float16), each=each))


@pytest.fixture(scope="module")
def parts(tmp_path_factory, images) -> EmbeddingParts:
    return written(tmp_path_factory.mktemp("made") / "e", images, np.arange(N), 256)


def same(one: CoresetSample, other: CoresetSample) -> bool:
    columns = one.path == other.path and one.label == other.label
    return columns and np.array_equal(one.weight, other.weight) and np.array_equal(one.cell, other.cell)


@pytest.mark.parametrize(("seed", "each"), [(1, 100), (2, 37), (3, 5000)])
def test_neither_order_nor_sizes_of_parts_matter(tmp_path, parts, images, seed, each) -> None:
    order = np.random.default_rng(seed).permutation(N)
    other = written(tmp_path / "e", images, order, each)
    wanted = draw_coreset(parts, 120, labels=FolderLabels(""), seed=4)
    assert same(draw_coreset(other, 120, labels=FolderLabels(""), seed=4), wanted)
    assert not same(draw_coreset(parts, 120, labels=FolderLabels(""), seed=5), wanted)


@pytest.mark.parametrize(("n", "cells"), [(120, None), (120, 1), (50, 20), (700, 33), (20, 20)])
def test_weights_add_up_to_the_whole(parts, n: int, cells: int | None) -> None:
    """Also where labelled images leave fewer places than there are cells."""
    found = draw_coreset(parts, n, cells=cells, labels=FolderLabels(""))
    assert len(found.path) == len(set(found.path)) == n
    assert found.weight.sum() == pytest.approx(N)
    assert (found.weight.min() >= 1, found.n_images) == (True, N)
    labelled = np.array(found.label) != ""
    assert (found.weight[labelled] == 1).all()
    assert found.n_labelled == sum(row % 97 == 5 for row in range(N))


@pytest.mark.parametrize("seed", range(8))
def test_rare_kind_far_from_all_others_is_always_there(parts, seed: int) -> None:
    """One image in 250; a random sample of as many misses it more often than not."""
    found = draw_coreset(parts, 100, cells=12, labels=NoLabels(), seed=seed)
    rare = [row for row, path in enumerate(found.path) if int(path[-8:-4]) >= N - RARE]
    assert rare
    assert found.weight[rare].sum() == pytest.approx(RARE, rel=0.5)


def test_sums_estimate_the_sizes_of_kinds_and_cells_hold_one_kind(parts) -> None:
    found = draw_coreset(parts, 300, cells=30)
    kind = np.digitize([int(path[-8:-4]) for path in found.path], [1000, 1400, N - RARE])
    assert found.weight[kind == 0].sum() == pytest.approx(1000, rel=0.1)
    assert found.weight[kind == 1].sum() == pytest.approx(400, rel=0.1)
    purest = [Counter(kind[found.cell == cell]).most_common(1)[0][1] for cell in set(found.cell.tolist())]
    assert sum(purest) / len(found.path) > 0.95
    # against a loop that holds everything: of one cell, the images with the smallest hashes
    paths = [path for part in parts for path in part.path]
    number = module.path_hashes(paths, 9)["images"]
    wanted = sorted(paths[row] for row in np.argsort(number)[:40])
    assert draw_coreset(parts, 40, cells=1, seed=9).path == wanted


def test_images_that_could_not_be_read_are_in_no_sample(tmp_path, images) -> None:
    path, problem = images[0][:60], {3: "cut off", 50: "empty"}
    (tmp_path / "labels.csv").write_text(f"path,label\n{path[3]},owl\n{path[4]},owl\n")
    parts = EmbeddingParts(write_embeddings(tmp_path / "e", path, images[1][:60], problem=problem))
    found = draw_coreset(parts, 20, labels=FileLabels(tmp_path / "labels.csv", str(tmp_path)))
    assert found.weight.sum() == pytest.approx(58)
    assert (found.n_images, found.n_unread, found.n_labelled) == (58, 2, 1)  # a label may be of one of them
    whole = draw_coreset(parts, 1000)
    assert whole.path == sorted(set(path) - {path[3], path[50]})
    assert whole.weight.tolist() == [1.0] * 58


def test_what_cannot_be_drawn(tmp_path, parts) -> None:
    broken = write_embeddings(tmp_path / "e", ["a.jpg"], np.ones((1, 3)), problem={0: "cut off"})
    for given, n, more, said in (
        (parts, 0, {}, "at least 1"),
        (parts, 10, {"cells": 11}, "give 1 to 10"),
        (parts, 16, {"labels": FolderLabels("")}, "leaves no place for others"),
        (EmbeddingParts(broken), 5, {}, "nothing to draw"),
    ):
        with pytest.raises(InputError, match=said):
            draw_coreset(given, n, **more)


def test_memory_does_not_grow_with_the_images(tmp_path: Path) -> None:
    def peak(n: int) -> int:
        names, features = [f"{row}.jpg" for row in range(n)], np.random.default_rng(0).normal(size=(n, 8))
        parts = EmbeddingParts(write_embeddings(tmp_path / str(n), names, features, each=200))
        tracemalloc.start()
        draw_coreset(parts, 50, cells=5)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(400)  # imports and first calls
    assert peak(6_000) < 1.3 * peak(1_500)


def test_hashes_depend_on_path_and_seed_alone() -> None:
    paths = [f"{i}.jpg" for i in range(49)] + ["a\udcff.jpg"]  # no text
    both, one = module.path_hashes(paths, 3), module.path_hashes(paths[7:8], 3)
    assert {name: int(values[7]) for name, values in both.items()} == {n: int(v[0]) for n, v in one.items()}
    assert not np.array_equal(both["images"], both["cells"])
    assert not np.array_equal(both["images"], module.path_hashes(paths, 4)["images"])
    drawn = module.uniform(module.path_hashes([f"{i}" for i in range(20_000)], 0)["far"])
    assert 0 < drawn.min() < drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.01


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
    chosen = module.PerCell(30, n)
    for rows in np.array_split(RNG.permutation(1000), 17):
        chosen.add(cell[rows], number[rows], [path[row] for row in rows])
        assert len(chosen.rows) <= 2 * n + 2 * 30 + len(rows)  # flat in the number of rows
    found = chosen.chosen()
    assert {p for _, _, p in found} == obvious(cell, number, path, n)
    assert len(found) == min(n, 1000)
    assert chosen.size.tolist() == np.bincount(cell, minlength=30).tolist()


@pytest.mark.parametrize("coarse", [False, True])
def test_smallest_in_any_order(coarse: bool) -> None:
    """Equal keys at the border are not lost: the smaller path counts."""
    path = [f"{i:04d}" for i in range(500)]
    key = RNG.integers(0, 4, 500).astype(float) if coarse else RNG.random(500)
    x = RNG.normal(size=(500, 3)).astype(np.float32)
    wanted = x[sorted(range(500), key=lambda row: (key[row], path[row]))[:40]]
    for order in (np.arange(500), RNG.permutation(500)):
        some = module.SmallestKeys(40)
        for rows in np.array_split(order, 9):
            some.add(key[rows], [path[row] for row in rows], x[rows])
        assert np.array_equal(some.features(), wanted)


@pytest.mark.parametrize("spread", [1.0, 1e-7])
def test_nearest_is_that_of_a_plain_loop(spread: float) -> None:
    """Also where centres are so near to each other that single precision says little, and in every company."""
    middle = unit_rows(RNG.normal(size=(1, 64)))
    centres = (middle + spread * RNG.normal(size=(50, 64))).astype(np.float32)
    centres = unit_rows(centres) if spread == 1 else centres
    x = unit_rows(RNG.normal(size=(200, 64)))
    apart = [[float(((row.astype(float) - centre) ** 2).sum()) for centre in centres] for row in x]
    cell, distance = nearest(x, centres)
    assert cell.tolist() == [row.index(min(row)) for row in apart]
    np.testing.assert_allclose(distance, [min(row) for row in apart], rtol=1e-12)
    assert cell.tolist() == [int(nearest(x[row : row + 1], centres)[0][0]) for row in range(len(x))]
    cell, distance = nearest(unit_rows(np.ones((4, 3))), np.repeat(unit_rows(np.ones((1, 3))), 3, 0))
    assert (cell.tolist(), distance.tolist()) == ([0] * 4, [0.0] * 4)  # the first of several


PATHS = ["fox/1.jpg", "unlabelled/2.jpg", "3.jpg", "hare/deep/4.jpg", "Unlabeled/5.jpg"]
LEFT, RIGHT = Box(0.1, 0.2, 0.3, 0.4), Box(0.5, 0.2, 0.3, 0.4)


def test_folders_are_labels_and_what_is_in_none_below_the_root_has_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("000.tar", "a/train.parquet", "a/set.npz"):
        (tmp_path / name).touch()
    labels = FolderLabels(str(tmp_path))
    assert [NoLabels().of(path) for path in PATHS] == [""] * 5
    assert [labels.of(path) for path in PATHS] == ["fox", "", "", "hare", ""]
    outside = ["../photos/fox/1.jpg", "/photos/fox/1.jpg", "s3://bucket/fox/1.jpg", "000.tar#fox/1.jpg"]
    assert [labels.of(path) for path in (*outside, "a/train.parquet#12", "a/set.npz#12")] == [""] * 6
    assert labels.of(with_box("fox/1.jpg", LEFT)) == "fox"
    assert FolderLabels("s3://bucket/photos").of("fox/1.jpg") == "fox"


def listed(folder: Path, text: str, paths: list[str] = PATHS) -> list[str]:
    """The labels that a list in `folder` gives to images below its folder photos."""
    (folder / "labels.csv").write_text(text)
    labels = FileLabels(folder / "labels.csv", str(folder / "photos"))
    for path in paths:
        labels.see([path])
    labels.settle()
    return [labels.of(path) for path in paths]


def test_a_list_decides_and_folders_mean_nothing(tmp_path: Path) -> None:
    text = f"path,label\n3.jpg,owl\n{tmp_path}/photos/fox/1.jpg,badger\nunlabelled/2.jpg,\nphotos/hare/deep/4.jpg,hare"
    assert listed(tmp_path, text) == ["badger", "", "owl", "hare", ""]  # paths start at the list as well
    # a picture's label is that of its boxes, unless one of them has a row of its own
    text = f'path,label,box\n3.jpg,owl,\n"{with_box("fox/1.jpg", LEFT)}",fox,\nhare/4.jpg,hare,"0.5,0.2,0.3,0.4"\n'
    paths = [with_box(path, box) for path in ("3.jpg", "fox/1.jpg", "hare/4.jpg") for box in (LEFT, RIGHT)]
    assert listed(tmp_path, text, paths) == ["owl", "owl", "fox", "", "", "hare"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("path,label\n3.jpg,owl\n9.jpg,owl\nfox/8.jpg,fox\n", r"^2 of the 3 images .* '9.jpg' \(line 3\)"),
        ("path,label\n3.jpg,owl\n./3.jpg,fox\n", "more than once with different labels"),
        ('path,label,box\n3.jpg,owl,"0.5,0.2,0.3,0.4"\n', r"^1 of the 1 images .* '3.jpg' \(line 2\)"),
    ],
)
def test_labels_of_what_is_not_there_or_of_two_kinds_are_refused(tmp_path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        listed(tmp_path, text, [*PATHS, with_box("3.jpg", LEFT)])
