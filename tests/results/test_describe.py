"""Relations against slow loops, doubt that stays a minority, and the odd collections that users have."""

import re

import numpy as np
import pandas as pd
import pytest

from holotype.results.describe import (
    LIKE,
    UNSURE_SHARE,
    WORST_SHARE,
    Description,
    burst_counts,
    burst_events,
    burst_text,
    describe_categories,
    note_bursts,
    relation_text,
    renamed_note,
    renamed_suggestion,
    renamed_words,
    suggest_names,
)
from holotype.results.discovery import Category

KNOWN = ("Sneaker", "Sandal", "Bag")
IDS = [*KNOWN, "new-01", "new-02", "new-03"]


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def world() -> dict:
    """Forty images each around six random directions, of which new-01 lies beside Sneaker; half of the known are
    labelled."""
    random = np.random.default_rng(0)
    centre = unit(random.normal(size=(6, 16)))
    centre[3] = unit(centre[0] + 0.5 * centre[3])
    category = np.repeat(np.arange(6), 40)
    features = 3 * (centre[category] + 0.1 * random.normal(size=(240, 16)))
    return {
        "features": features.astype(np.float32),
        "category": category,
        "ids": IDS,
        "known": KNOWN,
        "label": [IDS[c] if c < 3 and i % 2 else "" for i, c in enumerate(category)],
        "probability": random.uniform(0.3, 1, 240),
        "path": [f"{i}.png" for i in range(240)],
    }


@pytest.fixture(scope="module")
def described() -> Description:
    return describe_categories(**world())


def test_numbers_are_the_slow_loop(described) -> None:
    w = world()
    f, category, path = unit(w["features"].astype(np.float64)), w["category"], np.array(w["path"])
    labels = np.array(w["label"])
    prototype = {name: unit(f[labels == name].mean(0)) for name in KNOWN}
    centre = np.array([unit(f[category == k].mean(0)) for k in range(6)])
    assert [c.id for c in described.categories] == IDS
    for k, found in enumerate(described.categories):
        rows = np.flatnonzero(category == k)
        assert (found.n, found.kind) == (len(rows), "known" if k < 3 else "novel")
        assert found.cohesion == pytest.approx(np.mean([x @ centre[k] for x in f[rows]]), abs=1e-5)
        mean_cosines = [np.mean([x @ prototype[name] for x in f[rows]]) for name in KNOWN]
        assert found.signature == pytest.approx(mean_cosines, abs=1e-5)
        other = {j: centre[k] @ centre[j] for j in range(6) if j != k}
        nearest = max(other, key=other.__getitem__)
        assert found.nearest == IDS[nearest]
        assert found.separation == pytest.approx(1 - other[nearest], abs=1e-5)
        cosine = f[rows] @ centre.T
        near = cosine[:, k]  # typicality is the share that is no nearer
        assert described.typicality[rows] == pytest.approx([np.mean(near <= own + 5e-7) for own in near])
        order = np.argsort(-described.typicality[rows], kind="stable")
        assert found.exemplars == list(path[rows][order[:9]])
        margin = near - np.delete(cosine, k, axis=1).max(1)
        assert found.borderline == [p for p in path[rows][np.argsort(margin)] if p not in found.exemplars][:6]
    assert described.typicality.max() == 1


def test_the_order_of_images_and_the_length_of_features_mean_nothing(described) -> None:
    w, order = world(), np.random.default_rng(1).permutation(240)
    w["features"] = w["features"] * np.random.default_rng(2).uniform(0.5, 4, (240, 1)).astype(np.float32)
    for key in ("features", "category", "probability"):
        w[key] = w[key][order]
    for key in ("label", "path"):
        w[key] = [w[key][i] for i in order]
    again = describe_categories(**w)
    np.testing.assert_allclose(again.typicality, described.typicality[order])
    np.testing.assert_array_equal(again.doubtful, described.doubtful[order])
    assert [c.words for c in again.categories] == [c.words for c in described.categories]


def test_half_precision_and_several_chunks_change_nothing(described, monkeypatch) -> None:
    monkeypatch.setattr("holotype.results.lda.CHUNK", 37)
    w = world()
    w["features"] = w["features"].astype(np.float16)
    again = describe_categories(**w)
    assert [c.id for c in again.categories] == IDS
    for mine, theirs in zip(again.categories, described.categories, strict=True):
        assert mine.signature == pytest.approx(theirs.signature, abs=1e-3)
        assert mine.cohesion == pytest.approx(theirs.cohesion, abs=1e-3)


def test_a_minority_is_doubtful(described) -> None:
    assert 0 < described.doubtful.mean() <= UNSURE_SHARE + 2 * WORST_SHARE
    nobody_is_sure = {**world(), "probability": np.linspace(0, 0.5, 240)}
    assert 0.15 < describe_categories(**nobody_is_sure).doubtful.mean() <= UNSURE_SHARE + 2 * WORST_SHARE


def test_what_makes_an_image_doubtful() -> None:
    w = world()
    w["probability"] = np.full(240, 0.61)
    before = describe_categories(**w).doubtful
    assert before.mean() <= 2 * WORST_SHARE
    w["probability"][[4, 5, 200]] = 0.59  # improbable
    assert (w["label"][4], w["label"][5], w["label"][200]) == ("", "Sneaker", "")
    # 5 has a label, and so the last word
    assert np.flatnonzero(describe_categories(**w).doubtful & ~before).tolist() == [4, 200]
    w["features"][201] = np.random.default_rng(5).normal(size=16)  # far from its category
    found = describe_categories(**w)
    assert found.doubtful[201]
    assert found.typicality[201] == found.typicality[w["category"] == 5].min()
    w = world()
    w["label"][7] = "Bag"  # it lies among the sneakers, and is placed there, or where its label says
    for category in (0, 2):
        w["category"] = np.where(np.arange(240) == 7, category, w["category"])
        assert describe_categories(**w).doubtful[7]
    w["probability"] = np.full(240, np.nan)  # nothing was said
    assert describe_categories(**w).doubtful.mean() <= 2 * WORST_SHARE


def test_empty_categories_vanish_and_unread_images_count_nowhere(described) -> None:
    w = world()
    w["category"] = np.where(w["category"] == 4, -1, w["category"])
    w["features"][w["category"] == -1] = np.nan
    w["features"][0] = np.nan  # placed, but not read
    found = describe_categories(**w)
    assert [c.id for c in found.categories] == [id for id in IDS if id != "new-02"]
    assert found.categories[0].n == 39
    lost = (w["category"] == -1) | (np.arange(240) == 0)
    assert np.isnan(found.typicality[lost]).all()
    assert not found.doubtful[lost].any()
    assert np.isfinite(found.typicality[~lost]).all()
    assert "new-02" not in {c.nearest for c in found.categories}


def three(**changes) -> Description:
    settings = {"features": np.eye(3, 4, dtype=np.float32), "category": np.arange(3), "known": ("a", "b")}
    settings |= {"ids": ["a", "b", "new-01"], "label": ["a", "b", ""], "probability": np.ones(3)}
    return describe_categories(**{**settings, "path": ["1", "2", "3"], **changes})


def test_what_is_like_nothing_is_called_like_nothing() -> None:
    found = three(features=np.eye(3, 4, dtype=np.float32) + np.float32(0.02)).categories[2]
    assert 0 < max(found.signature) < LIKE
    assert not any(name in f"{found.words} {found.suggested}".split() for name in ("a", "b"))
    assert found.suggested == ""


def test_small_and_odd_collections() -> None:
    found = three()  # categories of one image
    assert [(c.n, c.cohesion, c.borderline) for c in found.categories] == [(1, 1, [])] * 3
    assert [c.exemplars for c in found.categories] == [["1"], ["2"], ["3"]]
    assert found.typicality.tolist() == [1, 1, 1]
    assert not found.doubtful.any()
    (only,) = three(category=np.zeros(3, dtype=int), ids=["new-01"], known=(), label=[""] * 3).categories
    assert (only.kind, only.nearest, only.words, only.suggested) == ("novel", "", "", "")
    assert np.isnan(only.separation)
    unread = three(features=np.full((3, 4), np.nan, dtype=np.float32))
    assert unread.categories == []
    assert np.isnan(unread.typicality).all()
    none = np.zeros(0)
    empty = three(features=np.zeros((0, 4)), category=none.astype(int), label=[], probability=none, path=[])
    assert empty.categories == []
    n = 50  # identical images
    same = {"features": np.ones((n, 8)), "category": np.arange(n) % 2, "ids": ["a", "new-01"], "known": ["a"]}
    label, path = ["a" if i % 4 == 0 else "" for i in range(n)], [str(i) for i in range(n)]
    found = three(**same, label=label, probability=np.full(n, 0.5), path=path)
    assert (found.typicality == 1).all()
    assert not found.doubtful.any()


def test_a_known_class_whose_labelled_images_are_unread_is_judged_by_what_lies_in_it() -> None:
    w = world()
    w["features"][[i for i, name in enumerate(w["label"]) if name == "Bag"]] = np.nan
    bag = describe_categories(**w).categories[2]
    assert bag.signature[2] == pytest.approx(bag.cohesion, abs=1e-5)


def test_words_use_the_names_that_people_gave(described):
    named = describe_categories(**world(), called=[f"dear {name}" for name in KNOWN])
    for one, other in zip(described.categories, named.categories, strict=True):
        assert other.id == one.id
        assert other.words == re.sub("|".join(KNOWN), lambda name: f"dear {name[0]}", one.words)
        if other.kind == "novel":
            assert other.suggested == one.suggested.replace("near ", "near dear ")


def test_a_burst_counts_once_in_each_category() -> None:
    images = pd.DataFrame({"category_id": ["fox", "fox", "fox", "deer", "", "fox"]})
    images["group"] = ["1", "1", "", "1", "1", ""]
    assert burst_events(images) == {"fox": 3, "deer": 1}
    assert not burst_events(images.drop(columns="group"))
    assert burst_text(["1", "1", "2", "2", "2", "3", ""]) == "5 frames of 2 bursts"
    assert burst_text(["1", "1"]) == "2 frames of 1 burst"
    assert burst_text(["1", "2", ""]) == ""


def test_frames_apart_from_their_burst_are_doubtful() -> None:
    group = np.array(["1", "1", "1", "2", "2", "3", "3", "", "3"], dtype=object)
    category = np.array([0, 0, 1, 0, 1, 1, 1, 0, -1])
    labelled = np.zeros(9, dtype=bool)
    labelled[4] = True
    note, odd = note_bursts(["", "", "cut", *[""] * 6], group, category, labelled, ["fox", "deer", ""])
    assert odd.tolist() == [False, False, True, True, False, False, False, False, False]
    assert note[2] == "cut; most frames of its burst are in fox"
    assert note[3] == "the frames of its burst lie in several categories"
    assert note[4] == ""


def test_a_table_of_categories_tells_bursts_times_and_cameras() -> None:
    images = pd.DataFrame(
        {
            "category_id": ["fox", "fox", "deer", ""],
            "group": ["1", "1", "", ""],
            "taken": ["2024-05-02T01:00:00", "2024-05-01T01:00:00", "", "1999-01-01T00:00:00"],
            "camera": ["a", "b", "a", "c"],
        }
    )
    expected = {"bursts": ["1", "1"], "first_taken": ["2024-05-01T01:00:00", ""]}
    expected |= {"last_taken": ["2024-05-02T01:00:00", ""], "cameras": ["2", "1"]}
    assert burst_counts(images, ["fox", "deer"]) == expected
    assert burst_counts(images[["category_id"]], ["fox"]) == {}


NONE = "like no known class in particular"


@pytest.mark.parametrize(
    ("signature", "usual", "words"),
    [
        ([0.71, 0.55, 0.05, 0.2], None, "closest to Sneaker 0.71 and Sandal 0.55; unlike Bag"),
        ([0.71, 0.40, 0.05, 0.2], None, "closest to Sneaker 0.71; unlike Bag"),
        ([0.72, 0.6, 0.5, 0.71], None, "closest to Sneaker 0.72 and Boot 0.71; unlike Bag"),
        ([0.71, np.nan, np.nan, np.nan], None, "closest to Sneaker 0.71"),
        ([np.nan] * 4, None, ""),
        # everything here is like a sneaker, and nothing like a bag: that is not worth a word
        ([0.71, 0.55, 0.05, 0.2], [0.8, 0.1, 0.05, 0.9], f"{NONE}; nearest Sneaker 0.71"),
        ([0.71, 0.5, 0.3, 0.4], [0.4, 0.4, 0.0, 0.3], "closest to Sneaker 0.71"),
    ],
)
def test_words(signature, usual, words) -> None:
    usual = np.zeros(4) if usual is None else np.array(usual)
    assert relation_text(np.array(signature), ["Sneaker", "Sandal", "Bag", "Boot"], usual) == words


def test_suggested_names_are_numbered_per_neighbour() -> None:
    near = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    categories = [Category("a", "a", "known", 1, signature=near["a"])]
    categories += [Category(f"new-{i}", "", "novel", 1, signature=near[x]) for i, x in enumerate("aba")]
    expected = ["a", "near a, new 1", "near b, new 1", "near a, new 2"]
    assert suggest_names(categories, ["a", "b"]) == expected


WORDS = "closest to fox 0.71 and fox and hound 0.55; unlike dog"
NOWHERE = "like no known class in particular; nearest a.b -0.02 (before new-01 was merged into it)"


@pytest.mark.parametrize(
    ("words", "names", "now"),
    [
        (WORDS, {"fox": "dog", "dog": "fox"}, "closest to dog 0.71 and fox and hound 0.55; unlike fox"),
        (WORDS, {"fox and hound": "pack"}, "closest to fox 0.71 and pack 0.55; unlike dog"),
        (WORDS, {"ox": "cow", "unlike": "like", "0.71": "1"}, WORDS),
        (NOWHERE, {"a.b": "c"}, NOWHERE.replace("a.b", "c")),
        (NOWHERE, {"a?b": "c", "new-01": "d"}, NOWHERE),
        ("split off by hand", {"hand": "foot"}, "split off by hand"),
        (WORDS, {}, WORDS),
    ],
)
def test_renamed_classes_are_told_by_their_new_names_and_nothing_else_is_changed(words, names, now) -> None:
    assert renamed_words(words, names) == now


def test_suggestions_and_notes_are_taken_whole() -> None:
    names = {"fox": "red fox", "new 1": "x", "a, new 2": "b"}
    assert renamed_suggestion("near fox, new 12", names) == "near red fox, new 12"
    assert renamed_suggestion("near a, new 2, new 3", names) == "near b, new 3"
    for other in ("", "new 1", "near foxes, new 1", "near fox", "fox, new 1"):
        assert renamed_suggestion(other, names) == other
    for start in ("the model would say ", "seen twice; most frames of its burst are in "):
        assert renamed_note(f"{start}a", {"a": "Hats"}) == f"{start}Hats"
    for other in ("the model would say aa", "moved by hand", "a", ""):
        assert renamed_note(other, {"a": "Hats"}) == other
