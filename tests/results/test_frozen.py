"""Partitions by frozen features: what they find, what they leave out, and how their votes count."""

import numpy as np
import pytest

from holotype.clustering.metrics import clustering_accuracy
from holotype.results.calibration import HiddenLabels
from holotype.results.ensemble import Training
from holotype.results.frozen import BLENDS, Blend, frozen_votes, weigh_votes

K, EACH, KNOWN = 6, 20, 3


@pytest.fixture
def world() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, classes, and labels of four images of each known class."""
    random = np.random.default_rng(0)
    truth = np.repeat(np.arange(K), EACH)
    features = (3 * np.eye(K, 16)[truth] + 0.3 * random.normal(size=(K * EACH, 16))).astype(np.float32)
    target = np.where((truth < KNOWN) & (np.arange(K * EACH) % EACH < 4), truth, -1)
    return features, truth, target


def test_groups_that_lie_apart_are_found_and_known_classes_are_themselves(world) -> None:
    features, truth, target = world
    votes = frozen_votes(features, target, K, 3, seed=5)
    assert len(votes) == 3
    for vote in votes:
        assert (vote.category[truth < KNOWN] == truth[truth < KNOWN]).all()
        assert clustering_accuracy(truth, vote.category, KNOWN).all == 1
        assert ((vote.probability > 1 / K) & (vote.probability <= 1)).all()
    again = frozen_votes(features, target, K, 1, seed=5)[0]
    assert (again.category == votes[0].category).all()


def test_an_image_that_cannot_be_read_is_placed_nowhere_and_frames_go_with_the_first(world) -> None:
    features, truth, target = world
    broken = features.copy()
    broken[[7, 50]] = np.nan
    target[7] = -1
    vote = frozen_votes(broken, target, K, 1)[0]
    assert np.flatnonzero(vote.category < 0).tolist() == [7, 50]
    assert np.isnan(vote.probability[[7, 50]]).all()
    unit = np.arange(len(truth))
    unit[100:110] = 100  # ten frames of one burst: the class is as small as the first and what is left
    vote = frozen_votes(features, target, K, 1, unit=unit)[0]
    assert len(set(vote.category[100:110])) == 1


def test_weights_of_a_blend_only_break_ties_where_they_are_small() -> None:
    sides = (([0, 1], [0.9, 0.2]), ([1, 1], [0.8, 0.8]))
    one, other = (Training(np.array(c), np.array(p)) for c, p in sides)
    for name, (mine, theirs) in BLENDS.items():
        first, second = weigh_votes([one], [other], (mine, theirs))
        np.testing.assert_allclose(first.probability, mine * one.probability)
        np.testing.assert_allclose(second.probability, theirs * other.probability)
        assert Blend(name).weights == (mine, theirs)
    tried = Blend("frozen", (0.4, 0.3, 0.5), (HiddenLabels(0.6, 20), HiddenLabels(0.4, 40)))
    assert "50%" in tried.words
    assert "60" in tried.words
