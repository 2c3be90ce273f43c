"""A map keeps neighbours, is the same each time, and survives odd collections."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.report.projection import project_tsne, scale_to_frame

PUBLISHED_MAPS = True


def groups(n_each: int = 40, n_groups: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    category = np.repeat(np.arange(n_groups), n_each)
    centre = random.normal(size=(n_groups, 64))
    return (centre[category] + 0.2 * random.normal(size=(len(category), 64))).astype(np.float32), category


def test_neighbours_stay_together_and_the_map_is_the_same_again() -> None:
    features, category = groups()
    place = project_tsne(features)
    assert place.shape == (120, 2)
    assert np.abs(place).max() == pytest.approx(1)
    distance = np.linalg.norm(place[:, None] - place[None], axis=-1) + 9 * np.eye(120)
    assert (category[distance.argmin(1)] == category).mean() > 0.95
    np.testing.assert_array_equal(project_tsne(features), place)


def test_beyond_the_limit_every_category_keeps_its_share() -> None:
    features, category = groups(20, 3)
    category = np.where(np.arange(60) < 55, category, 3)
    category[3] = -1
    place = project_tsne(features, category=category, limit=25)
    shown = np.isfinite(place).all(1)
    assert shown.sum() <= 25
    assert not shown[3]
    counts = np.bincount(category[shown], minlength=4)
    assert counts[0] >= 7
    assert counts[3] >= 1
    again = project_tsne(features, category=category, limit=25)
    np.testing.assert_array_equal(again, place)
    assert (np.isfinite(project_tsne(features, category=category, limit=25, seed=1)).all(1) != shown).any()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 29])
def test_few_images_are_placed_by_their_principal_components(n) -> None:
    features = groups()[0][:n]
    place = project_tsne(features)
    assert place.shape == (n, 2)
    assert np.isfinite(place).all()


def test_identical_images_and_few_different_ones_have_places() -> None:
    assert (project_tsne(np.ones((100, 8), dtype=np.float32)) == 0).all()
    three = project_tsne(np.eye(3, dtype=np.float32)[np.arange(90) % 3])
    assert len(np.unique(three.round(4), axis=0)) == 3
    assert np.isfinite(project_tsne(np.random.default_rng(0).normal(size=(40, 1)))).all()


def test_unread_images_have_no_place() -> None:
    features = groups()[0].astype(np.float16)
    features[5] = np.nan
    place = project_tsne(features)
    assert np.flatnonzero(np.isnan(place).any(1)).tolist() == [5]


def test_a_frame_keeps_the_aspect() -> None:
    place = scale_to_frame(np.array([[0.0, 0.0], [4.0, 1.0], [2.0, 2.0]]))
    np.testing.assert_allclose(place, [[-1, -0.5], [1, 0], [0, 0.5]])
