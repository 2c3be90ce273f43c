"""The page's data say what the discovery says, in numbers that JSON has."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holotype.errors import InputError
from holotype.report import page_data as module
from holotype.report.page_data import nearest_images, page_data, read_scores, runner_up, select_shown
from report.made import make_discovery, write_scores


def shown(found, folder) -> dict:
    return page_data(found, select_shown(found), folder, [], None)


def test_of_many_images_each_category_shows_its_share(tmp_path):
    found = make_discovery(tmp_path, 3000, files=10)
    chosen = select_shown(found, limit=900)
    sizes = found.images.iloc[chosen.rows]["category_id"].value_counts()
    assert 850 <= len(chosen.rows) <= 950
    assert (len(sizes), sizes.min() > 80) == (9, True)
    assert {path for category in found.categories for path in category.exemplars} <= set(chosen.paths)


def test_every_column_is_what_the_table_says(tmp_path):
    found = make_discovery(tmp_path, 40)
    found.images.loc[3, ["probability", "x"]] = math.nan
    found.images.loc[5, "problem"] = "is empty"
    chosen = select_shown(found)
    data = page_data(found, chosen, tmp_path, [], None)
    json.dumps(data, allow_nan=False)
    images, frame = data["images"], found.images.iloc[chosen.rows]
    assert sorted(chosen.rows) == list(range(40))
    ids = [data["categories"][place]["id"] for place in images["category"]]
    assert list(dict.fromkeys(ids)) == [category.id for category in found.categories]
    for _, part in frame.groupby("category_id", sort=False):
        assert part["typicality"].is_monotonic_decreasing
    ratio = [np.ptp([v for v in images[key] if v is not None]) / np.ptp(frame[key].dropna()) for key in "xy"]
    assert ratio[0] == pytest.approx(ratio[1], rel=1e-3)  # the map keeps its shape
    for i, row in enumerate(frame.itertuples()):
        assert images["root"] + images["path"][i] == row.path
        assert data["categories"][images["category"][i]]["id"] == row.category_id
        label = images["labels"][images["label"][i]] if images["label"][i] >= 0 else ""
        assert label == row.label
        known = None if math.isnan(row.probability) else round(1000 * row.probability)
        assert images["probability"][i] == known
        assert images["problem"].get(str(i), "") == row.problem
    assert (data["total"]["images"], data["total"]["unread"]) == (40, 1)


def test_probabilities_that_could_not_be_calibrated_are_a_caveat(tmp_path):
    found = make_discovery(tmp_path, 30)
    found.facts = replace(found.facts, calibration="There are too few.")
    assert shown(found, tmp_path)["facts"]["caveat"] == "There are too few."
    found.facts = replace(found.facts, calibration="Calibrated.", calibration_curve=((0.0, 0.0),))
    facts = shown(found, tmp_path)["facts"]
    assert facts["calibration"] == "Calibrated."
    assert not {"caveat", "calibration_curve"} & set(facts)


def test_scores_come_from_the_scores_alone(tmp_path):
    """None where the truth is not known or the file is no record; one that is cut off is named."""
    assert read_scores(tmp_path) == {}
    write_scores(tmp_path)
    facts = shown(make_discovery(tmp_path, 20), tmp_path)["facts"]
    assert (facts["scores"]["rpc"]["all"], facts["scores"]["kmeans"]["new"]) == (0.697, 0.51)
    assert facts["backbone"]["caveat"]
    assert "edits" not in facts
    file = tmp_path / "scores.json"
    unknown = '{"scores": {"all": null}, "identity": {"method": {"name": "rpc"}}}'
    for content in ("[]", unknown, '{"scores": {"all": 1}}'):
        file.write_text(content)
        assert read_scores(tmp_path) == {}
    file.write_text(unknown[:-9])
    with pytest.raises(InputError, match=r"scores\.json cannot be read .*; restore it"):
        read_scores(tmp_path)


def test_images_without_a_file_have_no_link(tmp_path: Path) -> None:
    """A link to the inside of a tar, or into a store, would lead nowhere."""
    tar = tmp_path / "a.tar"
    tar.touch()
    files = [f"{tar}#1", "s3://bucket/photos/1.jpg?region=eu"]
    links = module._links(module.ShownImages(np.arange(2), files, files), tmp_path)
    assert (links["inside"], links["link"]) == ([0, 1], "")
    photo = str(tmp_path / "1.jpg")
    links = module._links(module.ShownImages(np.arange(2), [photo, files[0]], [photo, files[0]]), tmp_path)
    assert links["inside"] == [1]
    assert links["link"] != ""
    absolute = module.locate_image("fox/1.jpg", "s3://bucket/photos?region=eu")
    assert absolute == "s3://bucket/photos/fox/1.jpg?region=eu"


def lists(found: dict) -> np.ndarray:
    return np.array(found["list"]).reshape(-1, found["each"])


def test_they_are_the_nearest_by_cosine_in_the_numbers_of_the_page():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 8)).astype(np.float16)
    rows = rng.permutation(60)[:50]
    found = lists(nearest_images(rows, features, 60))
    assert found.shape == (50, module.NEIGHBOURS_PER_IMAGE)
    own = features[rows].astype(np.float64)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    cosine = own @ own.T
    np.fill_diagonal(cosine, -np.inf)
    expected = np.sort(cosine, axis=1)[:, ::-1][:, : module.NEIGHBOURS_PER_IMAGE]
    assert np.take_along_axis(cosine, found, axis=1) == pytest.approx(expected, abs=1e-3)
    assert not (found == np.arange(50)[:, None]).any()


def test_an_unread_image_is_like_none_and_the_length_of_a_feature_says_nothing():
    features = np.array([[1.0, 0.0], [0.1, 0.01], [np.nan, 0.0], [9.0, 9.0], [0.0, 1.0]])
    found = lists(nearest_images(np.arange(5), features, 5))
    assert found[0].tolist() == [1, 3, 4] + [-1] * (module.NEIGHBOURS_PER_IMAGE - 3)  # there are no more
    assert (found[2] == -1).all()
    assert 2 not in found
    for n in (0, 1):
        assert set(nearest_images(np.arange(n), np.ones((n, 3)), n)["list"]) <= {-1}


def test_many_images_get_shorter_lists_and_too_many_none(monkeypatch):
    features = np.random.default_rng(0).normal(size=(40, 4))
    monkeypatch.setattr(module, "MEMORY_BYTES", 200)
    found = nearest_images(np.arange(40), features, 40)
    assert (found["each"], len(found["list"])) == (5, 200)
    monkeypatch.setattr(module, "MEMORY_BYTES", 100)
    found = nearest_images(np.arange(40), features, 40)
    assert (found["list"], "above 25" in found["why"]) == ([], True)
    for missing in (None, features[:3]):
        assert "not kept" in nearest_images(np.arange(40), missing, 40)["why"]


def test_the_second_guess_is_the_nearest_other_centre(tmp_path):
    """Three groups on a line: the middle one is the second guess of both others."""
    found = make_discovery(tmp_path, 30, known=1, novel=2)
    angle = {"Sneaker": 0.0, "new-01": 0.5, "new-02": 1.2}
    turn = np.array([angle[id] for id in found.images["category_id"]])
    features = np.stack([np.cos(turn), np.sin(turn)], axis=1).astype(np.float16)
    rows = np.arange(30)
    names = [found.categories[guess].id for guess in runner_up(found, rows, features)]
    expected = {"Sneaker": "new-01", "new-01": "Sneaker", "new-02": "new-01"}
    assert names == [expected[id] for id in found.images["category_id"]]
    assert runner_up(found, rows, None) == [-1] * 30
