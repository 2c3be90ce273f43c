"""How large known classes are, and so how many categories there are: against a loop, and on worlds that are known."""

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
    _count,
    measure_classes,
)
from holotype.clustering.k_curve import CountProblem


def world(
    n_classes: int, each: int, n_known: int, share: float = 0.5, noise: float = 0.1, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Clouds around random directions; the first classes are known, and a share of their images is labelled."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.nn.functional.normalize(torch.randn(n_classes, 16, generator=draw), dim=-1)
    truth = torch.arange(n_classes).repeat_interleave(each)
    features = centres[truth] + noise * torch.randn(len(truth), 16, generator=draw)
    labelled = (truth < n_known) & (torch.arange(each).repeat(n_classes) < round(share * each))
    return features, torch.where(labelled, truth, -1)


def test_weights_give_the_sizes_of_the_whole() -> None:
    """Every class has 120 images, of which 40 are labelled. A sample keeps those, and 4 in 10 or 1 in 10 others."""
    features, label = world(30, 120, 15, noise=0.3)
    row = np.arange(len(label))
    given = np.where(row % 120 < 40, label.numpy(), -1)
    share = np.where(given >= 0, 1.0, np.where(row // 120 % 2 == 0, 0.4, 0.1))
    kept = np.random.default_rng(0).random(len(given)) < share
    some = features[torch.from_numpy(kept)], torch.from_numpy(given[kept])
    weighed, plain = measure_classes(*some, weight=1 / share[kept]), measure_classes(*some)
    assert weighed.low <= 30 <= weighed.high
    assert abs(math.log(weighed.k / 30)) < abs(math.log(plain.k / 30))
    assert measure_classes(*some, weight=np.ones(kept.sum())) == plain


def test_weights_stay_with_their_rows_where_some_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate looks at a part of many images; the weights that it takes are those of the same images."""
    features, label = world(20, 30, 10)
    weight = features[:, 0].double().abs().numpy() + 1
    seen = []
    monkeypatch.setattr(estimate_k, "NEIGHBOURS", 250)
    monkeypatch.setattr(
        estimate_k, "measure_classes", lambda *given: seen.append(given) or measure_classes(*given)
    )
    found = estimate_k.estimate_without_curve(CountProblem(features, label, 10, seed=3, weight=weight))
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


@pytest.mark.parametrize(
    ("n_classes", "each", "n_known", "share", "rel"),
    [(20, 20, 10, 0.5, 0.04), (40, 30, 10, 0.5, 0.04), (30, 30, 20, 0.3, 0.04), (12, 20, 12, 0.5, 0.1)],
)
def test_separate_classes_are_counted(n_classes, each, n_known, share, rel) -> None:
    for seed in range(3):
        found = measure_classes(*world(n_classes, each, n_known, share, seed=seed))
        assert found.k == pytest.approx(n_classes, rel=rel)
        assert round(found.low) <= n_classes <= round(found.high)


def test_classes_that_run_into_each_other_are_counted_too() -> None:
    """Two in three neighbours are of another class, so that no clustering would find the classes."""
    found = [measure_classes(*world(60, 30, 30, noise=0.28, seed=seed)) for seed in range(12)]
    off = np.array([one.k / 60 - 1 for one in found])
    assert abs(off.mean()) < 0.08
    assert np.abs(off).mean() < 0.2
    assert np.mean([one.low <= 60 <= one.high for one in found]) >= 0.5


def test_memory_does_not_grow_with_the_square_of_the_classes() -> None:
    """Nine tables of 1,500 x 1,500 classes would take 160 MB, and those of 10,000 more than most machines have."""
    x, label = world(1500, 4, 1500, 0.5)
    tracemalloc.start()
    found = measure_classes(x, label)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.k == pytest.approx(1500, rel=0.05)
    assert peak < 60e6


def test_order_and_names_mean_nothing() -> None:
    features, label = world(20, 15, 10, noise=0.2)
    found = measure_classes(features, label)
    order = torch.randperm(len(label), generator=torch.Generator().manual_seed(0))
    assert measure_classes(features[order], label[order]).k == pytest.approx(found.k, rel=1e-6)
    assert measure_classes(features, torch.where(label >= 0, 7 + 3 * label, -1)) == found


@pytest.mark.parametrize(
    ("n_classes", "each", "n_known", "share"),
    [(10, 20, 1, 0.5), (10, 20, 0, 0.5), (20, 20, 10, 0.05), (2, 1, 1, 1.0)],
    ids=["one known class", "no labels", "one label each", "two images"],
)
def test_too_little_to_tell(n_classes: int, each: int, n_known: int, share: float) -> None:
    assert measure_classes(*world(n_classes, each, n_known, share)) is None


def test_fewer_labels_and_classes_make_a_wider_range() -> None:
    """Two classes that happen to be alike do not move K when they are drawn anew, and are never sure all the same."""
    many, few = (measure_classes(*world(40, 40, 20, share=share, noise=0.22)) for share in (0.5, 0.1))
    assert few.high / few.low > many.high / many.low
    for n_known in (2, 3):
        found = measure_classes(*world(8, 30, n_known))
        assert found.k == pytest.approx(8, rel=0.25)
        assert found.spread >= 0.3 > measure_classes(*world(8, 30, 4)).spread
