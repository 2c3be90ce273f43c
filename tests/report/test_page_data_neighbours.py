"""The lists of similar images: the nearest of all, bounded in size, and left out with a reason."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.report import page_data
from holotype.report.page_data import NEIGHBOURS_PER_IMAGE, nearest_images


def lists(found: dict) -> np.ndarray:
    return np.array(found["list"]).reshape(-1, found["each"])


def test_they_are_the_nearest_by_cosine_in_the_numbers_of_the_page():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 8)).astype(np.float16)
    rows = rng.permutation(60)[:50]
    found = lists(nearest_images(rows, features, 60))
    assert found.shape == (50, NEIGHBOURS_PER_IMAGE)
    own = features[rows].astype(np.float64)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    cosine = own @ own.T
    np.fill_diagonal(cosine, -np.inf)
    expected = np.sort(cosine, axis=1)[:, ::-1][:, :NEIGHBOURS_PER_IMAGE]
    assert np.take_along_axis(cosine, found, axis=1) == pytest.approx(expected, abs=1e-3)
    assert not (found == np.arange(50)[:, None]).any()


def test_the_length_of_a_feature_says_nothing():
    features = np.array([[1.0, 0.0], [0.1, 0.01], [9.0, 9.0]])
    assert lists(nearest_images(np.arange(3), features, 3))[0, 0] == 1


def test_an_unread_image_is_like_none_and_none_like_it():
    features = np.random.default_rng(0).normal(size=(5, 4))
    features[2] = np.nan
    found = lists(nearest_images(np.arange(5), features, 5))
    assert (found[2] == -1).all()
    assert 2 not in found
    assert sorted(found[0][found[0] >= 0]) == [1, 3, 4]  # there are no more


@pytest.mark.parametrize("n", [0, 1])
def test_few_images_are_no_fault(n):
    assert set(nearest_images(np.arange(n), np.ones((n, 3)), n)["list"]) <= {-1}


def test_many_images_get_shorter_lists_and_too_many_none(monkeypatch):
    features = np.random.default_rng(0).normal(size=(40, 4))
    monkeypatch.setattr(page_data, "MEMORY_BYTES", 200)
    found = nearest_images(np.arange(40), features, 40)
    assert (found["each"], len(found["list"])) == (5, 200)
    monkeypatch.setattr(page_data, "MEMORY_BYTES", 100)
    found = nearest_images(np.arange(40), features, 40)
    assert found["list"] == []
    assert "40 images" in found["why"]
    assert "above 25" in found["why"]


@pytest.mark.parametrize("features", [None, np.ones((3, 2))])
def test_without_the_features_of_the_run_it_says_so(features):
    assert "not kept" in nearest_images(np.arange(4), features, 4)["why"]
