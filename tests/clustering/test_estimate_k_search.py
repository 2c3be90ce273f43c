"""The search over k-means: with very many known classes it says that it cannot tell, instead of taking hours."""

from __future__ import annotations

import pytest
import torch

import holotype.clustering.estimate_k as count
import holotype.clustering.estimate_k as module
from holotype.cli.estimate_k import curve_lines
from holotype.clustering.class_size import ClassSize
from holotype.clustering.estimate_k import _grid, estimate_count, k_bounds, sample_rows

from .test_estimate_k import clouds


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
