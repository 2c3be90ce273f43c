"""How large known classes are, and so how many categories there are: against a loop, and on worlds that are known."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.clustering import estimate_k
from holotype.clustering.class_size import (
    MUTUAL,
    NEAREST,
    SHARED,
    STRESS,
    ClassImbalance,
    SimulatedClasses,
    _count,
    _mutual,
    _shared,
    measure_classes,
    measure_imbalance,
)


def world(
    n_classes: int,
    each: int,
    n_known: int,
    share: float = 0.5,
    noise: float = 0.1,
    seed: int = 0,
    dim: int = 16,
) -> tuple[Tensor, Tensor]:
    """Clouds around random directions; the first classes are known, and a share of their images is labelled."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.nn.functional.normalize(torch.randn(n_classes, dim, generator=draw), dim=-1)
    truth = torch.arange(n_classes).repeat_interleave(each)
    features = centres[truth] + noise * torch.randn(len(truth), dim, generator=draw)
    labelled = (truth < n_known) & (torch.arange(each).repeat(n_classes) < round(share * each))
    return features, torch.where(labelled, truth, -1)


def test_weights_give_the_sizes_of_the_whole() -> None:
    """Every class has 120 images, of which 40 are labelled. A sample keeps those, and 4 in 10 or 1 in 10 others."""
    features, label = world(30, 120, 15, noise=0.3)
    rng, given = np.random.default_rng(0), label.numpy().copy()
    classes = np.arange(len(given)) // 120
    given[(np.arange(len(given)) % 120) >= 40] = -1
    share = np.where(given >= 0, 1.0, np.where(classes % 2 == 0, 0.4, 0.1))
    kept = rng.random(len(given)) < share
    some = torch.from_numpy(np.flatnonzero(kept))
    weighed = measure_classes(features[some], torch.from_numpy(given)[some], weight=1 / share[kept])
    plain = measure_classes(features[some], torch.from_numpy(given)[some])
    assert weighed is not None
    assert plain is not None
    assert weighed.low <= 30 <= weighed.high
    assert abs(math.log(weighed.k / 30)) < abs(math.log(plain.k / 30))
    ones = measure_classes(features[some], torch.from_numpy(given)[some], weight=np.ones(len(some)))
    assert ones == plain


def test_weights_stay_with_their_rows_where_some_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate looks at a part of many images; the weights that it takes are those of the same images."""
    features, label = world(20, 30, 10)
    weight = features[:, 0].double().abs().numpy() + 1
    seen = []
    monkeypatch.setattr(estimate_k, "NEIGHBOURS", 250)
    monkeypatch.setattr(
        estimate_k, "measure_classes", lambda *given: seen.append(given) or measure_classes(*given)
    )
    found = estimate_k.estimate_adaptive(features, label, 10, seed=3, weight=weight)
    ((some, _, _, theirs),) = seen
    assert len(some) == len(theirs) == 250
    np.testing.assert_array_equal(theirs, some[:, 0].double().abs().numpy() + 1)
    assert found.by == "class sizes"


def test_counts_against_a_loop() -> None:
    features, label = world(8, 12, 5, noise=0.3)
    x = torch.nn.functional.normalize(features - features.mean(0), dim=-1)
    similarity = x @ x.T
    similarity.fill_diagonal_(-9)
    order = similarity.argsort(1, descending=True)
    found = list(_count(features, label.numpy(), 5))
    assert len(found) == len(NEAREST) + len(MUTUAL) + len(NEAREST)
    kinds = ["plain"] * len(NEAREST) + ["mutual"] * len(MUTUAL) + ["shared"] * len(NEAREST)
    few = [set(row) for row in order[:, :SHARED].tolist()]
    for kind, m, one in zip(kinds, (*NEAREST, *MUTUAL, *NEAREST), found, strict=True):
        both, same, other = np.zeros(5), np.zeros(5), np.zeros((5, 5))
        for i in (label >= 0).nonzero().flatten().tolist():
            group = np.mean([len(few[i] & few[j]) / SHARED for j in few[i]])
            for j in order[i, :m].tolist():
                if kind == "mutual" and i not in order[j, :m].tolist():
                    continue
                c, d = int(label[i]), int(label[j])
                counts = (len(few[i] & few[j]) / SHARED * group) ** STRESS if kind == "shared" else 1.0
                both[c] += counts
                same[c] += counts * (c == d)
                other[c, d] += counts * (d >= 0 and c != d)
        # a pair that shares much counts as several, one that shares little as a part of one; all as many as they are
        scale = int((label >= 0).sum()) * m / both.sum() if kind == "shared" else 1.0
        for mine, theirs in ((one.all, both), (one.same, same), (one.other.toarray(), other)):
            if kind == "shared":
                np.testing.assert_allclose(mine, scale * theirs, atol=1e-12)
            else:
                assert np.array_equal(mine, theirs)


def test_pairs_that_share_their_nearest_are_more_often_of_one_class() -> None:
    features, label = world(20, 30, 20, share=1.0, noise=0.3)
    found = list(_count(features, label.numpy(), 20))
    plain, shared = found[: len(NEAREST)], found[-len(NEAREST) :]
    for one, other in zip(plain, shared, strict=True):
        assert other.same.sum() / other.all.sum() > 1.1 * one.same.sum() / one.all.sum()


def test_images_without_any_shared_neighbour_are_counted_the_other_ways() -> None:
    near = np.array([[1], [2], [3], [0]])
    assert not _shared(near, np.arange(4)).any()


def test_pairs_among_each_others_nearest() -> None:
    near = np.array([[1, 2], [0, 2], [1, 3], [2, 0]])
    source, there = _mutual(near, np.arange(4))
    assert set(zip(source.tolist(), there.tolist(), strict=True)) == {
        (0, 1),
        (1, 0),
        (1, 2),
        (2, 1),
        (2, 3),
        (3, 2),
    }
    assert all(one.tolist() == [] for one in _mutual(near, np.array([], dtype=int)))


def test_the_number_that_a_world_without_chance_gives() -> None:
    """20 classes of 10 images, 10 of them known with 4 labels each; of 6 neighbours one is of another class."""
    size = np.full(10, 4.0)
    images = 200
    # 40 labelled images with 6 neighbours: 5 of their own class, of which 3 in 9 are labelled; 1 of the 190 others
    everyone, own = 240.0, 200.0
    same = own * 3 / 9
    other_labelled = 40 * 36 / 190  # nine other known classes of four
    found = SimulatedClasses(images, size).log_k(
        *(np.asarray(x) for x in (everyone, same, other_labelled, size.mean()))
    )
    assert math.exp(found) == pytest.approx(20, rel=1e-3)


@pytest.mark.parametrize(
    ("n_classes", "each", "n_known", "share"), [(20, 20, 10, 0.5), (40, 30, 10, 0.5), (30, 30, 20, 0.3)]
)
def test_separate_classes_are_counted(n_classes: int, each: int, n_known: int, share: float) -> None:
    for seed in range(10):
        found = measure_classes(*world(n_classes, each, n_known, share, seed=seed))
        assert found is not None
        assert found.k == pytest.approx(n_classes, rel=0.04)
        assert round(found.low) <= n_classes <= round(found.high)


def test_classes_that_run_into_each_other_are_counted_too() -> None:
    """Two in three neighbours are of another class, so that no clustering would find the classes."""
    off, held = [], []
    for seed in range(12):
        features, label = world(60, 30, 30, noise=0.28, seed=seed)
        found = measure_classes(features, label)
        assert found is not None
        off.append(found.k / 60 - 1)
        held.append(found.low <= 60 <= found.high)
    x = torch.nn.functional.normalize(features - features.mean(0), dim=-1)
    first = (x @ x.T).fill_diagonal_(-9).argmax(1)
    truth = torch.arange(60).repeat_interleave(30)
    assert float((truth[first] == truth).float().mean()) < 0.6
    assert abs(np.mean(off)) < 0.08
    assert np.mean(np.abs(off)) < 0.2
    assert np.mean(held) >= 0.5


def test_memory_does_not_grow_with_the_square_of_the_classes() -> None:
    """Nine tables of 1,500 x 1,500 classes would take 160 MB, and those of 10,000 more than most machines have."""
    x, label = world(1500, 4, 1500, 0.5)
    tracemalloc.start()
    found = measure_classes(x, label)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found is not None
    assert found.k == pytest.approx(1500, rel=0.05)
    assert peak < 60e6


def test_nothing_new() -> None:
    found = measure_classes(*world(12, 20, 12))
    assert found is not None
    assert found.k == pytest.approx(12, rel=0.1)


def test_order_and_names_mean_nothing() -> None:
    features, label = world(20, 15, 10, noise=0.2)
    found = measure_classes(features, label)
    order = torch.randperm(len(label), generator=torch.Generator().manual_seed(0))
    assert found is not None
    moved = measure_classes(features[order], label[order])
    assert moved is not None
    assert moved.k == pytest.approx(found.k, rel=1e-6)
    renamed = measure_classes(features, torch.where(label >= 0, 7 + 3 * label, -1))
    assert renamed == found


@pytest.mark.parametrize(
    ("n_classes", "each", "n_known", "share"),
    [(10, 20, 1, 0.5), (10, 20, 0, 0.5), (20, 20, 10, 0.05), (2, 1, 1, 1.0)],
    ids=["one known class", "no labels", "one label each", "two images"],
)
def test_too_little_to_tell(n_classes: int, each: int, n_known: int, share: float) -> None:
    assert measure_classes(*world(n_classes, each, n_known, share)) is None


@pytest.mark.parametrize("n_known", [2, 3])
def test_few_known_classes_tell_and_are_never_sure(n_known: int) -> None:
    """Two classes that happen to be alike do not move K when they are drawn anew."""
    found = measure_classes(*world(8, 30, n_known))
    assert found is not None
    assert found.k == pytest.approx(8, rel=0.25)
    assert found.spread >= 0.3
    many = measure_classes(*world(8, 30, 4))
    assert many is not None
    assert many.spread < 0.3


def test_features_that_know_nothing_cannot_tell() -> None:
    draw = torch.Generator().manual_seed(0)
    _, label = world(40, 30, 20)
    assert measure_classes(torch.randn(len(label), 16, generator=draw), label) is None


def test_fewer_labels_make_a_wider_range() -> None:
    many = measure_classes(*world(40, 40, 20, share=0.5, noise=0.22))
    few = measure_classes(*world(40, 40, 20, share=0.1, noise=0.22))
    assert many is not None
    assert few is not None
    assert few.high / few.low > many.high / many.low


KNOWN, NOVEL = 10, 10
EQUAL = np.full(KNOWN, 60)
TAIL = np.round(120 * 10.0 ** -np.linspace(0, 1, KNOWN)).astype(int)


def look(sizes: np.ndarray, labels: np.ndarray, seed: int = 0) -> ClassImbalance:
    """Known classes of the sizes, labels[c] images of each labelled; as many new ones of the same sizes."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(KNOWN + NOVEL, 24))
    truth = np.repeat(np.arange(KNOWN + NOVEL), np.concatenate([sizes, sizes]))
    x = centres[truth] + 0.8 * random.normal(size=(len(truth), 24))
    label = np.full(len(truth), -1)
    for c in range(KNOWN):
        label[np.flatnonzero(truth == c)[: labels[c]]] = c
    return measure_imbalance(torch.from_numpy(x), torch.from_numpy(label), KNOWN)


def drawn(sizes: np.ndarray, seed: int) -> np.ndarray:
    """Labels of half of the images of the known classes together, drawn at random."""
    return np.random.default_rng(seed).multivariate_hypergeometric(sizes, int(sizes.sum() // 2))


@pytest.mark.parametrize("seed", range(5))
def test_a_random_draw_shows_the_sizes(seed: int) -> None:
    assert not look(EQUAL, drawn(EQUAL, seed), seed).uneven
    found = look(TAIL, drawn(TAIL, seed), seed)
    assert found.uneven
    assert abs(found.bias) < 0.5


@pytest.mark.parametrize("seed", range(5))
def test_labels_by_whim_say_nothing_of_sizes(seed: int) -> None:
    """Equal classes, of which people have labelled between 5 and 50 images."""
    whim = np.random.default_rng(seed).permutation(
        np.round(50 * 10.0 ** -np.linspace(0, 1, KNOWN)).astype(int)
    )
    found = look(EQUAL, whim, seed)
    assert found.spread > 0.5
    assert found.bias > 0.5
    assert not found.uneven
    assert "5 to 50" in found.words
    assert "equal sizes" in found.words


def test_the_same_number_of_labels_for_each_class_says_nothing() -> None:
    found = look(TAIL, np.full(KNOWN, 6))
    assert (found.low, found.high, found.spread, found.uneven) == (6, 6, 0.0, False)
    assert found.words == "each known class has 6 labelled images, so equal sizes are expected"


def test_a_handful_of_labels_cannot_tell() -> None:
    for labels in (np.array([9, *[1] * 9]), np.array([60, 10, 5, *[0] * 7])):
        found = look(EQUAL, labels)
        assert math.isnan(found.spread)
        assert not found.uneven
        assert "too few labels" in found.words


def test_chance_is_not_unevenness() -> None:
    """Ten labels a class in the mean differ by a third by chance alone."""
    labels = np.random.default_rng(3).multinomial(100, np.full(KNOWN, 1 / KNOWN))
    assert labels.std(ddof=1) / labels.mean() > 0.2
    assert look(EQUAL, labels).spread < 0.2
