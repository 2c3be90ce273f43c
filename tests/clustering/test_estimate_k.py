"""How many categories: right on clouds that anybody would count, honest where they run into each other."""

import json
import math

import numpy as np
import pytest
import torch
from torch import Tensor

import holotype.clustering.estimate_k as count
import holotype.clustering.k_curve as module
from holotype.cli.estimate_k import curve_lines
from holotype.clustering.class_size import ClassSize
from holotype.clustering.estimate_k import estimate_count
from holotype.clustering.k_curve import (
    CountEstimate,
    CountPoint,
    CountProblem,
    Curve,
    centre_silhouette,
    k_bounds,
)
from holotype.errors import InputError
from tests.clustering.test_class_size import world


def clouds(
    n_classes: int, each: int, n_known: int, noise: float = 0.15, **more
) -> tuple[Tensor, Tensor, int]:
    """Gaussian clouds around random directions; half of the points of the known ones are labelled."""
    return *world(n_classes, each, n_known, noise=noise / 4, **more), n_known


@pytest.mark.parametrize(("n_classes", "n_known", "seed"), [(8, 4, 0), (8, 4, 1), (15, 5, 2), (6, 2, 3)])
def test_separate_clouds_are_counted(n_classes: int, n_known: int, seed: int) -> None:
    found = estimate_count(*clouds(n_classes, 30, n_known, seed=seed), seed=seed)
    assert n_known <= found.low <= found.best == n_classes <= found.high


def test_nothing_new_is_an_answer() -> None:
    found = estimate_count(*clouds(5, 40, 5, seed=1))
    assert found.low == found.best == 5 <= found.high <= 6
    features, *_ = clouds(4, 20, 4)
    every_image = estimate_count(features, torch.arange(4).repeat_interleave(20), 4)
    assert every_image.best == 4


@pytest.mark.parametrize("n_known", [0, 1])
def test_without_labels_of_two_classes_communities_decide(n_known: int) -> None:
    found = estimate_count(*clouds(7, 30, n_known))
    assert (found.best, found.by) == (7, "communities")
    assert found.low < 7 < found.high
    assert math.isnan(found.points[0].labelled_accuracy) == (n_known == 0)


def test_the_seed_decides_and_the_length_of_features_does_not() -> None:
    problem = clouds(9, 20, 4, noise=1.2)
    first = estimate_count(*problem, seed=3)
    assert first == estimate_count(*problem, seed=3) != estimate_count(*problem, seed=4)
    features, label, _ = clouds(6, 20, 3)
    length = torch.rand(len(features), 1, generator=torch.Generator().manual_seed(1)) + 0.5
    assert estimate_count(features * length, label, 3).best == 6
    assert Curve(CountProblem(features, label, 3, seed=2**63 - 1)).at(3).k == 3


def test_many_known_classes_leave_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,200 known classes of 1,500; fewer runs than usual, for the sake of time."""
    for name, value in {"CURVE_RUNS": 2, "MAX_ITER": 10}.items():
        monkeypatch.setattr(module, name, value)
    found = estimate_count(*clouds(1500, 4, 1200))
    assert found.low > 1200
    assert 1400 < found.best < 1600
    assert found.best > 1200


@pytest.mark.parametrize(
    ("n_classes", "each", "n_known", "noise", "within"),
    [(10, 6, 5, 0.15, 0.1), (40, 20, 2, 0.15, 0.35), (12, 30, 12, 0.6, 0.1), (13, 30, 12, 0.6, 0.1)],
    ids=["60 images", "two are known", "none is new", "one is new"],
)
def test_the_range_holds_the_truth_at_the_edges(n_classes, each, n_known, noise, within) -> None:
    found = estimate_count(*clouds(n_classes, each, n_known, noise=noise))
    assert found.low <= n_classes <= found.high
    assert found.best == pytest.approx(n_classes, rel=within)


@pytest.mark.parametrize(
    ("n", "unlabelled", "known", "expected"),
    [
        (1000, 750, 5, 500),  # two images each
        (100_000, 90_000, 2, 1000),
        (50_000, 20_000, 1200, 2400),  # twice the known classes
        (2500, 1000, 1200, 1700),  # fewer than two images of each known class: two of each new one
        (1200, 0, 1200, 1200),  # nothing is left that could be new
        (8, 7, 5, 8),  # of most known classes no image can be read: never more than there are images
    ],
)
def test_the_search_ends_where_images_and_classes_say(n, unlabelled, known, expected) -> None:
    assert k_bounds(n, unlabelled, known, None) == (known, expected)


@pytest.mark.parametrize(("n", "n_known"), [(2, 2), (3, 2), (5, 2), (8, 5)])
def test_a_handful_of_images(n: int, n_known: int) -> None:
    """Of some of five known classes no image can be read."""
    features = torch.randn(n, 8, generator=torch.Generator().manual_seed(0))
    label = torch.tensor([0, 1, *[-1] * 6])[:n]
    found = estimate_count(features, label, n_known)
    assert n_known <= found.low <= found.best <= found.high <= n
    with pytest.raises(InputError, match="fewer than the 9 known classes"):
        estimate_count(features, label, 9)


def test_k_max_bounds_the_search() -> None:
    problem = clouds(12, 20, 3)
    found = estimate_count(*problem, k_max=6)
    assert found.points[-1].k == 6 >= found.high
    assert [estimate_count(*problem, k_max=k).best for k in (3, 10**6)] == [3, 12]
    with pytest.raises(InputError, match="--k-max 2 is smaller than the 3 known classes"):
        estimate_count(*problem, k_max=2)


def test_identical_images() -> None:
    label = torch.tensor([0, 1] * 5 + [-1] * 10)
    found = estimate_count(torch.ones(20, 8), label, 2)
    assert found.low >= 2
    assert all(math.isfinite(point.silhouette) for point in found.points)


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


@pytest.mark.parametrize("n_known", [0, 3])
def test_estimates_survive_json(n_known: int) -> None:
    found = estimate_count(*clouds(6, 10, n_known))
    text = json.dumps(found.as_dict(), allow_nan=False)
    again = CountEstimate.from_dict(json.loads(text) | {"of": "something"})
    assert repr(again) == repr(found)  # NaN does not equal itself
    for content in ({}, {"points": [{"k": 3, "colour": 1}]}, {"points": 3}):
        with pytest.raises(InputError, match="cannot be read"):
            CountEstimate.from_dict(content)


def test_the_less_sure_neighbours_are_the_more_counts_what_is_usual(monkeypatch) -> None:
    """Six known classes: twelve are usual; neighbours say forty."""
    found = []
    for size in (ClassSize(40.0, 0.05), ClassSize(40.0, 0.5), ClassSize(40.0, 3.0), None):
        monkeypatch.setattr(count, "measure_classes", lambda *_, size=size: size)
        found.append(by_sizes := count.estimate_without_curve(CountProblem(*clouds(12, 20, 6))))
        assert by_sizes.low < by_sizes.best < by_sizes.high
        assert by_sizes.by == "class sizes"
    sure, halfway, unsure, silent = (one.best for one in found)
    assert sure == pytest.approx(40, abs=1)
    assert 12 <= unsure < halfway < sure
    assert (unsure, silent) == (pytest.approx(12, abs=1), 12)
    assert found[0].high / found[0].low < found[3].high / found[3].low
    assert curve_lines(found[0])[0].startswith("k-means was not run")


def test_thousands_of_classes_with_one_label_each_are_no_long_search(monkeypatch) -> None:
    features, label, _ = clouds(800, 4, 600)
    label = torch.where(torch.arange(len(label)) % 4 == 0, label, -1)
    monkeypatch.setattr(count, "LOOK_STEP", 0)
    monkeypatch.setattr(count, "LOOK_WORK", 0)
    monkeypatch.setattr(module, "kmeans", lambda *_, **__: pytest.fail("k-means was run"))
    assert 800 <= estimate_count(features, label, 600).best <= 1200


def silhouettes(value) -> list[CountPoint]:
    """A curve, drawn by hand. value: of the silhouette, a function of K."""
    return [CountPoint(k, math.nan, value(k), 0.5) for k in (5, 6, 7, 8, 10, 12, 14, 17, 20, 24)]


def test_a_clear_peak_decides_within_the_range() -> None:
    answer = CountEstimate(
        10, 8, 15, (), "8 to 15 categories, known ones included, most likely 10.", "class sizes"
    )
    peaks = {at: silhouettes(lambda k, at=at: 0.5 - 0.3 * abs(math.log(k / at))) for at in (12, 20)}
    assert count.from_curve_and_size(answer, peaks[12]).best == 12
    assert count.from_curve_and_size(answer, peaks[20]).best == 10
    assert count.from_curve_and_size(answer, silhouettes(lambda k: 1 / k)).best == 10
