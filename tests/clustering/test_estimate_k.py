"""How many categories: right on clouds that anybody would count, honest where they run into each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import holotype.clustering.estimate_k as count
import holotype.clustering.k_curve as module
from holotype.cli.estimate_k import curve_lines
from holotype.clustering.class_size import ClassSize
from holotype.clustering.estimate_k import estimate_count, pick_k
from holotype.clustering.k_curve import CountEstimate, Curve, _grid, centre_silhouette, k_bounds, sample_rows
from holotype.errors import InputError


def clouds(
    n_classes: int, each: int, n_known: int, noise: float = 0.15, seed: int = 0, dim: int = 16
) -> tuple[Tensor, Tensor]:
    """Gaussian clouds around random directions; half of the points of the known ones are labelled."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.nn.functional.normalize(torch.randn(n_classes, dim, generator=draw), dim=-1)
    truth = torch.arange(n_classes).repeat_interleave(each)
    features = centres[truth] + noise / 4 * torch.randn(len(truth), dim, generator=draw)
    labelled = (truth < n_known) & (torch.arange(len(truth)) % 2 == 0)
    return features * 3, torch.where(labelled, truth, -1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n_classes", "n_known"), [(8, 4), (15, 5), (6, 2)])
def test_separate_clouds_are_counted(n_classes: int, n_known: int, seed: int) -> None:
    features, label = clouds(n_classes, 30, n_known, seed=seed)
    found = estimate_count(features, label, n_known, seed=seed)
    assert found.low <= n_classes <= found.high
    assert found.best == n_classes
    assert n_known <= found.low <= found.best <= found.high


@pytest.mark.parametrize(("seed", "high"), [(0, 6), (1, 5), (2, 5)])
def test_nothing_new_is_an_answer(seed: int, high: int) -> None:
    features, label = clouds(5, 40, 5, seed=seed)
    found = estimate_count(features, label, 5)
    assert (found.best, found.low, found.high) == (5, 5, high)
    assert "nothing beyond the 5 known classes" in found.words


@pytest.mark.parametrize("n_known", [0, 1])
def test_without_labels_of_two_classes_the_silhouette_decides(n_known: int) -> None:
    features, label = clouds(7, 30, n_known)
    found = estimate_count(features, label, n_known)
    assert found.best == 7
    assert "silhouette alone" in found.words
    assert math.isnan(found.points[0].labelled_accuracy) == (n_known == 0)


def test_the_same_seed_gives_the_same_estimate() -> None:
    features, label = clouds(9, 20, 4, noise=1.2)
    first = estimate_count(features, label, 4, seed=3)
    assert first == estimate_count(features, label, 4, seed=3)
    assert first != estimate_count(features, label, 4, seed=4)


def test_the_length_of_features_means_nothing() -> None:
    features, label = clouds(6, 20, 3)
    length = torch.rand(len(features), 1, generator=torch.Generator().manual_seed(1)) + 0.5
    found = estimate_count(features * length, label, 3)
    assert found.best == 6


def test_each_k_is_clustered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    kmeans = module.kmeans

    def counted(x, k, **named):
        asked.append(k)
        return kmeans(x, k, **named)

    monkeypatch.setattr(module, "kmeans", counted)
    features, label = clouds(9, 20, 4, noise=1.2)
    found = estimate_count(features, label, 4)
    ks, times = np.unique(asked, return_counts=True)
    assert set(times) == {module.CURVE_RUNS}
    assert tuple(ks) == tuple(point.k for point in found.points)
    assert max(ks) < 90  # half of the images, where the search might have gone


def test_large_collections_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE", 150)
    monkeypatch.setattr(module, "SAMPLE_PER_CLASS", 10)
    features, label = clouds(6, 100, 3)
    x, kept = module.sample_rows(features, label, 3, 0)
    assert len(x) == len(kept) == 150
    assert 15 < int((kept >= 0).sum()) < 60
    assert estimate_count(features, label, 3).best == 6


def test_many_known_classes_leave_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,200 known classes of 1,500; fewer runs than usual, for the sake of time."""
    for name, value in {"CURVE_RUNS": 2, "BRENT": 2, "FILL": 1, "MAX_ITER": 10}.items():
        monkeypatch.setattr(module, name, value)
    features, label = clouds(1500, 4, 1200)
    found = estimate_count(features, label, 1200)
    assert found.low > 1300
    assert 1400 < found.best < 1600
    assert pick_k(found) > 1200


@pytest.mark.parametrize(
    ("best", "n", "looks"), [(10, 1000, 8), (190, 6000, 8), (1000, 3000, 4), (2000, 20_000, 1)]
)
def test_the_curve_beside_an_answer_keeps_the_time_bounded(best: int, n: int, looks: int) -> None:
    grid = count._probe_neighbours(CountEstimate(best, best - 2, best + 2, (), "", "class sizes"), 5, 5000, n)
    assert best in grid
    assert abs(len(grid) - looks) <= 1


@pytest.mark.parametrize(
    ("n_classes", "each", "n_known", "noise"),
    [(1200, 5, 600, 0.15), (10, 6, 5, 0.15), (12, 30, 12, 0.6), (13, 30, 12, 0.6)],
    ids=["very many", "60 images", "none is new", "one is new"],
)
def test_the_range_holds_the_truth_at_the_edges(
    n_classes: int, each: int, n_known: int, noise: float
) -> None:
    features, label = clouds(n_classes, each, n_known, noise=noise, dim=32)
    found = estimate_count(features, label, n_known)
    assert found.low <= n_classes <= found.high
    assert found.best == pytest.approx(n_classes, rel=0.1)


def test_a_long_tail_of_20_to_1() -> None:
    features, label = clouds(40, 60, 20, dim=32)
    truth = torch.arange(40).repeat_interleave(60)
    size = 60 * 20.0 ** -torch.rand(40, generator=torch.Generator().manual_seed(3))
    kept = torch.arange(60).repeat(40) < size[truth]
    found = estimate_count(features[kept], label[kept], 20)
    assert found.low <= 40 <= found.high


def test_two_known_classes_of_many() -> None:
    features, label = clouds(80, 20, 2)
    found = estimate_count(features, label, 2)
    assert 64 < found.best < 101
    assert found.high >= 80
    assert "The search ended" not in found.words


def test_without_labels_the_search_follows_the_silhouette() -> None:
    found = estimate_count(*clouds(120, 12, 0), 0)
    assert 110 < found.best < 135
    few = estimate_count(*clouds(7, 100, 0), 0)
    assert few.best == 7
    assert few.points[-1].k <= 1.2 * module.WIDE_RANGE  # nothing to be found beyond


@pytest.mark.parametrize(
    ("n", "unlabelled", "known", "expected"),
    [
        (1000, 750, 5, 500),  # two images each
        (100_000, 90_000, 2, 1000),
        (50_000, 20_000, 1200, 2400),  # twice the known classes
        (2500, 1000, 1200, 1700),  # fewer than two images of each known class: two of each new one
        (1201, 1, 1200, 1201),
        (1200, 0, 1200, 1200),  # nothing is left that could be new
        (3, 1, 2, 3),
        (1, 1, 0, 1),
        (8, 7, 5, 8),  # of most known classes no image can be read: never more than there are images
    ],
)
def test_the_search_ends_where_images_and_classes_say(
    n: int, unlabelled: int, known: int, expected: int
) -> None:
    low, high = module.k_bounds(n, unlabelled, known, None)
    assert (low, high) == (max(known, 1), expected)
    assert len(module._grid(low, high)) < 40


def test_known_classes_of_which_no_image_can_be_read_leave_an_answer() -> None:
    features = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    label = torch.tensor([2, *[-1] * 7])
    found = estimate_count(features, label, 5)
    assert 5 <= found.low <= found.best <= found.high <= 8


def test_any_seed_that_a_run_takes_will_do() -> None:
    features, label = clouds(4, 5, 2)
    largest = module.Curve(features, label, 2, 2**63 - 1).at(3)
    assert largest.k == 3


@pytest.mark.parametrize(
    ("known", "expected"), [(5, 10_000), (341, 34_100), (600, 20_000), (1200, 12_000), (3000, 30_000)]
)
def test_the_sample_keeps_the_time_bounded(known: int, expected: int) -> None:
    x, label = module.sample_rows(torch.zeros(50_000, 2), torch.full((50_000,), -1), known, 0)
    assert len(x) == len(label) == expected


# -- what users give ------------------------------------------------------------------------------------


def test_k_max_bounds_the_search() -> None:
    features, label = clouds(12, 20, 3)
    found = estimate_count(features, label, 3, k_max=6)
    assert found.points[-1].k == 6
    assert found.high <= 6
    assert estimate_count(features, label, 3, k_max=3).best == 3
    assert estimate_count(features, label, 3, k_max=10**6).best == 12
    with pytest.raises(InputError, match="--k-max 2 is smaller than the 3 known classes"):
        estimate_count(features, label, 3, k_max=2)


def test_a_search_that_ended_too_early_says_so() -> None:
    features, label = clouds(12, 20, 3, seed=1)
    found = estimate_count(features, label, 3, k_max=4)
    assert found.high == 4
    assert "there may be more" in found.words


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_handful_of_images(n: int) -> None:
    features = torch.randn(n, 8, generator=torch.Generator().manual_seed(0))
    label = torch.tensor([0, 1, -1, -1, -1])[:n]
    found = estimate_count(features, label, 2)
    assert 2 <= found.low <= found.best <= found.high <= n
    with pytest.raises(InputError, match="fewer than the 9 known classes"):
        estimate_count(features, label, 9)


def test_identical_images() -> None:
    label = torch.tensor([0, 1] * 5 + [-1] * 10)
    found = estimate_count(torch.ones(20, 8), label, 2)
    assert found.low >= 2
    assert all(math.isfinite(point.silhouette) for point in found.points)


def test_every_image_labelled() -> None:
    features, _ = clouds(4, 20, 4)
    found = estimate_count(features, torch.arange(4).repeat_interleave(20), 4)
    assert found.best == 4


# -- a point of the curve -------------------------------------------------------------------------------


def test_silhouette_against_a_loop() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(40, 5, generator=draw)
    label = torch.randint(0, 4, (40,), generator=draw)
    label[0] = 4  # alone in its cluster
    centres = torch.stack([x[label == c].mean(0) for c in range(5)])
    expected = []
    for i in range(40):
        others = x[(label == label[i]) & (torch.arange(40) != i)]
        if len(others) == 0:
            expected.append(0.0)
            continue
        a = float((x[i] - others.mean(0)).norm())
        b = min(float((x[i] - centres[c]).norm()) for c in range(5) if c != label[i])
        expected.append((b - a) / max(a, b))
    assert centre_silhouette(x, centres, label) == pytest.approx(np.mean(expected), abs=1e-5)
    assert math.isnan(centre_silhouette(x, x.mean(0)[None], torch.zeros(40, dtype=torch.long)))


def test_point_of_separate_clouds() -> None:
    features, label = clouds(6, 30, 3, noise=0.01)
    curve = Curve(torch.nn.functional.normalize(features, dim=-1), label, 3, 0)
    right, half = curve.at(6), curve.at(12)
    assert right.labelled_accuracy == 1
    assert right.stability == pytest.approx(1)
    assert right.spread == 0
    assert right.silhouette > 0.9 > half.silhouette
    assert half.labelled_accuracy < 0.9
    assert half.stability < 1


def test_estimates_survive_json() -> None:
    import json

    for n_known in (0, 3):
        features, label = clouds(6, 10, n_known)
        found = estimate_count(features, label, n_known)
        text = json.dumps(found.as_dict(), allow_nan=False)
        again = CountEstimate.from_dict(json.loads(text) | {"of": "something"})
        assert repr(again) == repr(found)  # NaN does not equal itself


def test_an_estimate_by_a_curve_is_read_rather_too_high_than_too_low() -> None:
    assert pick_k(CountEstimate(8, 6, 12, (), "")) == 10
    assert pick_k(CountEstimate(8, 6, 13, (), "")) == 11
    assert pick_k(CountEstimate(5, 5, 5, (), "")) == 5  # nothing new stays nothing new
    assert pick_k(CountEstimate(8, 6, 12, (), "", "class sizes")) == 8


def one_label_each(
    n_classes: int, each: int, n_known: int, dim: int = 16
) -> tuple[torch.Tensor, torch.Tensor]:
    """Clouds; of each known one a single image is labelled, so that neighbours say nothing of sizes."""
    features, label = clouds(n_classes, each, n_known, dim=dim)
    alone = torch.arange(len(label)) % each == 0
    return features, torch.where(alone, label, -1)


def test_one_label_each_of_thousands_of_classes_is_told_at_once_to_be_too_little(monkeypatch) -> None:
    features, label = one_label_each(8000, 4, 6000)
    monkeypatch.setattr(module, "kmeans", lambda *_, **__: pytest.fail("the search has begun"))
    with pytest.raises(module.TooLong, match=r"cannot be told: .* with 6,000 known classes .*--k N"):
        estimate_count(features, label, 6000)


def test_no_more_is_climbed_than_was_promised(monkeypatch) -> None:
    features, label = one_label_each(60, 5, 40)
    seen = []
    monkeypatch.setattr(module.Curve, "_evaluate", lambda self, k: seen.append(k * len(self.x)) or self.never)
    monkeypatch.setattr(module.Curve, "never", module.CountPoint(1, 0.5, 0.1, 1.0), raising=False)
    monkeypatch.setattr(module, "CLIMB_WORK", 60_000)
    with pytest.raises(module.TooLong):
        estimate_count(features, label, 40)
    assert 0 < sum(seen) <= 60_000


@pytest.mark.parametrize("n_known", [2, 100, 346, 400, 1000, 1200, 1600])
def test_up_to_some_1600_known_classes_nothing_is_left_out(n_known: int) -> None:
    """However many images there are."""
    n = 1_000_000
    x, _ = sample_rows(torch.zeros(n, 1), torch.full((n,), -1), n_known, 0)
    low, high = k_bounds(len(x), len(x), n_known, None)
    assert sum(_grid(low, high)) * len(x) <= module.CLIMB_WORK


def test_neighbours_that_are_not_sure_answer_alone_where_the_curve_would_take_hours(monkeypatch) -> None:
    features, label = clouds(12, 20, 6)
    monkeypatch.setattr(count, "measure_classes", lambda *given: ClassSize(12.0, 0.5))
    monkeypatch.setattr(module, "CLIMB_WORK", 100)
    found = estimate_count(features, label, 6)
    assert (found.best, found.by) == (12, "class sizes")
    assert "would take hours" in found.words


def test_an_answer_without_any_look_at_k_means_says_so(monkeypatch) -> None:
    features, label = clouds(12, 20, 6)
    monkeypatch.setattr(count, "LOOK_WORK", 0)
    monkeypatch.setattr(count, "LOOK_STEP", 0)
    found = estimate_count(features, label, 6)
    assert (found.points, found.by) == ((), "class sizes")
    assert curve_lines(found) == ["k-means was not run: with so many categories it would take hours."]
