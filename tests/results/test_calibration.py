"""The second opinion: probabilities that come true, learned from labels alone, and said where they are none."""

import numpy as np
import pytest

from holotype.results.calibration import (
    WORTH,
    HiddenLabels,
    calibrate,
    calibration_curve,
    interpolate,
    shrinkage,
)

KNOWN, K = 3, 6


def world(seed: int = 0, *, apart: float = 0.9, astray: float = 0.3, n_each: int = 120) -> tuple:
    """Embeddings, category, target and truth of six groups that overlap. A method places images by centres that it
    knows roughly; astray: how roughly. So it errs as methods do: between groups that look alike."""
    random = np.random.default_rng(seed)
    truth = np.repeat(np.arange(K), n_each)
    centre = apart * random.normal(size=(K, 24))
    embedded = centre[truth] + 2 * random.normal(size=(len(truth), 24))
    guess = centre + astray * random.normal(size=centre.shape)
    category = ((embedded[:, None] - guess) ** 2).sum(-1).argmin(1)
    labelled = (truth < KNOWN) & (random.random(len(truth)) < 0.4)
    target = np.where(labelled, truth, -1)
    category[labelled] = truth[labelled]
    return embedded.astype(np.float32), category, target, truth


def calibration_error(p: np.ndarray, right: np.ndarray) -> float:
    part = np.minimum((10 * p).astype(int), 9)
    here = [part == b for b in np.unique(part)]
    return sum(abs(p[b].mean() - right[b].mean()) * b.mean() for b in here)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("apart", [0.7, 1.0, 1.5])
def test_probabilities_come_true(seed, apart) -> None:
    embedded, category, target, truth = world(seed, apart=apart)
    found = calibrate(embedded, category, target, K)
    free = target < 0
    right = (category == truth)[free]
    assert calibration_error(found.probability[free], right) < 0.1
    assert found.probability[free][right].mean() > found.probability[free][~right].mean() + 0.1
    assert found.labelled == (~free).sum()
    assert f"calibrated on {found.labelled} labelled images" in found.words


def test_the_mean_is_what_hidden_labels_say_as_far_as_there_are_enough() -> None:
    embedded, category, target, _ = world()
    known, new = (target < 0) & (category < KNOWN), category >= KNOWN
    plain = calibrate(embedded, category, target, K).probability
    tests = HiddenLabels(0.6, 150), HiddenLabels(0.9, WORTH)
    p = calibrate(embedded, category, target, K, rehearsed=tests).probability
    assert p[known].mean() == pytest.approx(
        (150 * 0.6 + WORTH * plain[known].mean()) / (150 + WORTH), abs=0.005
    )
    assert p[new].mean() == pytest.approx((0.9 + plain[new].mean()) / 2, abs=0.005)
    none = (HiddenLabels(0.0, 0), HiddenLabels(0.0, 0))
    np.testing.assert_array_equal(calibrate(embedded, category, target, K, rehearsed=none).probability, plain)


def test_nothing_is_learned_from_an_image_s_own_place() -> None:
    """A random place looks no better for being where it is: the category was learned without the image."""
    embedded, category, target, _ = world(apart=0.0)
    category = np.where(target >= 0, category, np.random.default_rng(3).integers(0, K, len(category)))
    p = calibrate(embedded, category, target, K).probability[target < 0]
    assert p.mean() == pytest.approx(1 / K, abs=0.06)


def test_strangers_in_a_known_class_do_not_speak_for_it() -> None:
    embedded, category, target, truth = world(1, apart=1.5)
    category[truth == 5] = np.where(target[truth == 5] < 0, 0, 5)  # a whole class strayed into 0
    p = calibrate(embedded, category, target, K).probability
    own = p[(truth == 0) & (target < 0)].mean()
    assert p[truth == 5].mean() < own - 0.1


def test_labels_can_only_make_it_less_sure() -> None:
    embedded, category, target, _ = world(2)
    sure = calibrate(embedded, category, np.full_like(target, -1), K).probability
    scrambled = np.where(target >= 0, np.random.default_rng(0).integers(0, KNOWN, len(target)), -1)
    unsure = calibrate(embedded, category, scrambled, K).probability
    assert np.abs(unsure - 0.5).mean() < np.abs(sure - 0.5).mean()


def test_known_classes_with_few_images_say_less_of_new_ones() -> None:
    known, target = np.array([True, True, False, False]), np.full(58, -1)
    placed = np.repeat([0, 1, 2, 3], [4, 4, 16, 34])
    assert shrinkage(placed, target, known) == pytest.approx((4 / 25) ** 0.5)
    assert shrinkage(np.where(placed == 2, -1, placed), target, known) == pytest.approx((4 / 34) ** 0.5)
    assert shrinkage(placed, np.where(placed == 0, 0, target), known) == pytest.approx((2 / 25) ** 0.5)
    assert shrinkage(3 - placed, target, known) == 1.0
    assert shrinkage(placed % 2, target, known) == 1.0  # nothing is new


@pytest.mark.parametrize("apart", [0.7, 1.0])
def test_new_categories_are_not_doubted_because_known_ones_have_few_images(apart) -> None:
    """All but three unlabelled images of each known class are gone: a judge that learns from those knows little."""
    embedded, category, target, truth = world(apart=apart, astray=0.1)
    kept = (target >= 0) | (truth >= KNOWN)
    for c in range(KNOWN):
        kept[np.flatnonzero((target < 0) & (truth == c))[:3]] = True
    whole = calibrate(embedded, category, target, K).probability[category >= KNOWN].mean()
    part = calibrate(embedded[kept], category[kept], target[kept], K).probability
    assert part[category[kept] >= KNOWN].mean() == pytest.approx(whole, abs=0.02)


def test_too_few_labels_are_told() -> None:
    embedded, category, target, _ = world()
    for n in (19, 1, 0):
        target[np.flatnonzero(target >= 0)[n:]] = -1
        found = calibrate(embedded, category, target, K)
        assert found.labelled == 0
        assert found.words.startswith(f"There are too few labelled images to calibrate the probability ({n};")
        assert ((found.probability >= 0) & (found.probability <= 1)).all()


class Partitions:
    """Several that vote, each of which errs in its own way."""

    def __init__(self, each: list[np.ndarray]) -> None:
        self.each = np.stack(each)

    def shares(self, images: np.ndarray) -> np.ndarray:
        return np.stack([(self.each[:, images] == c).mean(0) for c in range(K)], axis=1)

    def placements(self) -> np.ndarray:
        return self.each


@pytest.mark.parametrize("apart", [0.5, 0.8, 1.5])
def test_without_labels_it_is_as_sure_as_partitions_agree(apart) -> None:
    embedded, _, _, truth = world(apart=apart)
    centre = np.stack([embedded[truth == c].mean(0) for c in range(K)])
    random = np.random.default_rng(1)
    votes = Partitions(
        [
            ((embedded[:, None] - centre - 0.5 * random.normal(size=centre.shape)) ** 2).sum(-1).argmin(1)
            for _ in range(5)
        ]
    )
    category, nobody = votes.shares(np.arange(len(truth))).argmax(1), np.full(len(truth), -1)
    right = category == truth
    sure = calibrate(embedded, category, nobody, K).probability
    found = calibrate(embedded, category, nobody, K, votes=votes)
    assert (found.labelled, found.partitions) == (0, 5)
    assert calibration_error(found.probability, right) < 0.12
    assert calibration_error(found.probability, right) <= calibration_error(sure, right)
    enough = calibrate(embedded, category, np.where(np.arange(len(truth)) % 4, -1, category), K, votes=votes)
    assert enough.partitions == 0
    assert enough.labelled == len(truth) // 4


def test_odd_collections() -> None:
    embedded, category, target, _ = world()
    category[:5] = target[:5] = -1  # could not be read
    embedded[:5] = 0
    category[100] = K  # a category of one image: nobody else can tell
    found = calibrate(embedded, category, np.where(category == K, -1, target), K + 2)
    assert np.isnan(found.probability[:5]).all()
    assert np.isnan(found.probability[100])
    assert np.isfinite(np.delete(found.probability[5:], 95)).all()
    same = calibrate(np.ones((40, 8), np.float32), np.arange(40) % 2, np.full(40, -1), 2)
    assert same.probability == pytest.approx(np.full(40, 0.5), abs=0.1)
    nothing = calibrate(np.zeros((3, 4), np.float32), np.full(3, -1), np.full(3, -1), 2)
    assert np.isnan(nothing.probability).all()


def test_parts_and_samples_change_little(monkeypatch) -> None:
    given = world()
    whole = calibrate(*given[:3], K).probability
    monkeypatch.setattr("holotype.results.lda.CHUNK", 7)
    np.testing.assert_allclose(calibrate(*given[:3], K).probability, whole, atol=1e-9)
    monkeypatch.setattr("holotype.results.lda.TRAIN_ROWS", 500)
    assert np.abs(calibrate(*given[:3], K).probability - whole).mean() < 0.1


def test_scores_of_later_images_are_read_off_a_rising_curve() -> None:
    random = np.random.default_rng(0)
    said = random.uniform(0.3, 1, 2000)
    probability = np.clip(said**2 + random.normal(0, 0.1, 2000), 0, 1)
    probability[:10] = np.nan
    points = calibration_curve(said, probability)
    assert list(points) == sorted(points)
    later = interpolate(np.array([0.4, 0.7, 1.0, np.nan]), points)
    assert later[:3] == pytest.approx([0.16, 0.49, 0.95], abs=0.05)
    assert np.isnan(later[3])
    assert interpolate(said, ()) is said


def test_frames_are_not_judged_by_their_own_burst() -> None:
    """Five near copies of each image make nobody surer of it, and count once."""
    embedded, category, target, truth = world(2, apart=0.7, n_each=60)
    copies = np.repeat(np.arange(len(truth)), 5)
    noise = 0.01 * np.random.default_rng(0).normal(size=(len(copies), 24))
    near = embedded[copies] + noise.astype(np.float32)
    once = calibrate(embedded, category, target, K)
    kept = calibrate(near, category[copies], target[copies], K, unit=copies)
    torn = calibrate(near, category[copies], target[copies], K)
    assert kept.labelled == once.labelled
    free = target < 0
    right = (category == truth)[free]
    of_burst = kept.probability.reshape(-1, 5)
    assert np.ptp(of_burst[free], axis=1).max() < 0.1  # one fold, one judge
    assert calibration_error(of_burst.mean(1)[free], right) < 0.1
    assert abs(of_burst[free].mean() - once.probability[free].mean()) < 0.03
    assert torn.probability.reshape(-1, 5)[free].mean() > once.probability[free].mean() + 0.03
