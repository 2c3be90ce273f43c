"""Silhouettes and cosines are those over all pairs, known and novel classes apart."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import silhouette_samples
from tightness import tightness, unit


def made_features(spread: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seven classes of different sizes, one of a single image; the first three are known."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(7), (9, 4, 12, 1, 8, 3, 20))
    x = random.normal(size=(7, 6))[y] + spread * random.normal(size=(len(y), 6))
    return x, np.array([f"class {i}" for i in y]), np.where(y < 3, "known", "novel")


def test_the_numbers_are_those_over_all_pairs() -> None:
    x, classes, kind = made_features(0.8)
    found = tightness(x, classes, kind)
    silhouette = silhouette_samples(x, classes, metric="cosine")
    cosine = unit(x) @ unit(x).T
    same = (classes[:, None] == classes[None, :]) & ~np.eye(len(x), dtype=bool)
    other = classes[:, None] != classes[None, :]
    for part in ("known", "novel"):
        here = kind == part
        assert found[part]["silhouette"] == pytest.approx(silhouette[here].mean(), abs=1e-4)
        assert found[part]["same_class"] == pytest.approx(cosine[here][same[here]].mean(), abs=1e-4)
        assert found[part]["other_class"] == pytest.approx(cosine[here][other[here]].mean(), abs=1e-4)


def test_tighter_classes_have_larger_numbers() -> None:
    loose, tight = (tightness(*made_features(spread)) for spread in (1.5, 0.2))
    for part in ("known", "novel"):
        assert tight[part]["silhouette"] > loose[part]["silhouette"] + 0.3
        assert tight[part]["same_class"] > loose[part]["same_class"] + 0.3


def test_without_novel_images_their_numbers_are_empty() -> None:
    x, classes, kind = made_features(0.5)
    known = kind == "known"
    found = tightness(x[known], classes[known], kind[known])
    nothing = dict.fromkeys(("silhouette", "same_class", "other_class"))
    assert found["novel"] == {"images": 0, "classes": 0, **nothing}
    assert found["known"]["silhouette"] > 0


def test_one_class_alone_has_no_silhouette_and_no_others() -> None:
    x, classes, kind = (part[:9] for part in made_features(0.5))
    found = tightness(x, classes, kind)["known"]
    assert found["silhouette"] == 0.0
    assert found["other_class"] is None
    assert 0 < found["same_class"] < 1
