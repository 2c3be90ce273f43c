"""What is near, what is far, and the images that fit nothing."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.results.lda import FAR_QUANTILE, Centroids, unit_rows

DIM = 12
SCATTER = np.geomspace(0.3, 0.003, DIM)
"""Images of a category differ much in some directions and hardly in others."""


def around(direction: int, n: int, rng: np.random.Generator) -> np.ndarray:
    points = rng.normal(0, SCATTER, (n, DIM))
    points[:, direction] += 1
    return points * rng.uniform(0.5, 20, (n, 1))  # lengths mean nothing


@pytest.fixture
def measured() -> tuple[Centroids, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = np.concatenate([around(c, n, rng) for c, n in ((0, 300), (1, 300), (2, 1))])
    category = np.repeat([0, 1, 3], [300, 300, 1])  # category 2 has no image
    return Centroids.measure(features, category, 4), features, category


def test_centres_against_a_slow_loop(measured, monkeypatch) -> None:
    centres, features, category = measured
    for c in (0, 1, 3):
        rows = [f / np.linalg.norm(f) for f, k in zip(features, category, strict=True) if k == c]
        assert np.allclose(centres.mean[c], np.mean(rows, axis=0), atol=1e-5)
    assert list(centres.n) == [300, 300, 0, 1]
    assert not centres.mean[2].any()
    monkeypatch.setattr("holotype.results.lda.CHUNK", 37)
    again = Centroids.measure(features.astype(np.float32), category, 4)
    assert np.allclose(again.mean, centres.mean, atol=1e-5)
    assert again.limit == pytest.approx(float(centres.limit), rel=1e-3)


def test_new_images_of_a_category_fit(measured) -> None:
    centres, features, category = measured
    more = around(0, 2000, np.random.default_rng(1))
    _, _, fits = centres.judge(more, np.zeros(len(more), dtype=int))
    assert 0.97 < fits.mean() < 1
    _, _, fits = centres.judge(features, category)
    assert 1 - fits.mean() == pytest.approx(FAR_QUANTILE, abs=0.01)


def test_the_distance_against_a_slow_loop(measured) -> None:
    centres, _, _ = measured
    u = unit_rows(around(1, 5, np.random.default_rng(3)))
    inverse = (centres.whiten @ centres.whiten.T).astype(np.float64)
    for row, found in zip(u, centres.distance(u), strict=True):
        steps = [(row - centres.mean[c], centres.n[c]) for c in (0, 1, 3)]
        assert found == pytest.approx(min(s @ inverse @ s / (1 + 1 / n) for s, n in steps) ** 0.5, rel=1e-3)


def test_an_image_in_the_wrong_category_may_fit_another(measured) -> None:
    """Whether it fits at all is no question of which category a method has chosen."""
    centres, _, _ = measured
    more = around(0, 50, np.random.default_rng(4))
    assert centres.judge(more, np.ones(50, dtype=int))[2].mean() > 0.9


def test_a_stranger_fits_nothing(measured) -> None:
    centres, _, _ = measured
    stranger = np.zeros((1, DIM))
    stranger[0, 7] = 1  # at a right angle to every category
    category, typicality, fits = centres.judge(stranger, np.array([0]))
    assert (category[0], typicality[0], fits[0]) == (0, 0, False)


def test_a_step_where_images_never_differ_is_a_long_one(measured) -> None:
    """Both images are equally near in cosine; one has moved as images of a category do, one as none does."""
    centres, _, _ = measured
    usual, odd = centres.mean[[0, 0]].copy()
    usual[1] += 0.4
    odd[-1] += 0.4
    both, first = unit_rows(np.stack([usual, odd])), np.zeros(2, dtype=int)
    near = both @ unit_rows(centres.mean[:1])[0]
    assert near[0] == pytest.approx(near[1], abs=0.01)
    distance = centres.distance(both)
    assert distance[1] > 2 * distance[0]
    assert list(centres.judge(both, first)[2]) == [True, False]


def test_typicality_is_the_share_that_is_no_nearer(measured) -> None:
    centres, features, category = measured
    own = features[category == 0]
    _, typicality, _ = centres.judge(own, np.zeros(len(own), dtype=int))
    near = unit_rows(own) @ unit_rows(centres.mean[:1])[0]
    slow = [(near <= value).mean() for value in near]
    assert np.abs(typicality - slow).max() < 0.02
    assert centres.judge(centres.mean[:1], np.array([0]))[1][0] == 1


def test_a_category_that_has_vanished_takes_nothing(measured) -> None:
    centres, features, _ = measured
    told, _, fits = centres.judge(features[:5], np.full(5, 2))
    assert list(told) == [0] * 5
    assert not fits.any()


def test_a_category_of_one_image_has_room_around_it(measured) -> None:
    centres, _, _ = measured
    more = around(2, 200, np.random.default_rng(2))
    _, _, fits = centres.judge(more, np.full(200, 3))
    assert fits.mean() > 0.5


def test_images_that_were_not_placed_do_not_count(measured) -> None:
    centres, features, category = measured
    more = np.concatenate([features, np.full((2, DIM), np.nan), np.ones((1, DIM))])
    again = Centroids.measure(more, np.concatenate([category, [0, -1, -1]]), 4)
    assert np.allclose(again.mean, centres.mean, atol=1e-6)


@pytest.mark.parametrize(
    ("features", "category"),
    [
        (np.full((2, DIM), np.nan), [0, 1]),  # nothing was read
        (np.eye(2, DIM), [0, 1]),  # one image each
        (np.ones((6, DIM)), [0, 0, 0, 1, 1, 1]),  # all the same
    ],
)
def test_too_little_to_measure(features, category) -> None:
    centres = Centroids.measure(features, np.array(category), 2)
    for name in ("mean", "whiten", "cosine"):
        assert np.isfinite(getattr(centres, name)).all()
    _, typicality, _ = centres.judge(np.ones((1, DIM)), np.array([0]))
    assert 0 <= typicality[0] <= 1
