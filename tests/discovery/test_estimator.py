"""Discoverer keeps scikit-learn's promises, whatever images are given as, and survives its folder."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from holotype.discovery.estimator import PICTURES, Discoverer, to_label_column
from holotype.errors import InputError


@pytest.fixture(scope="module")
def squares(squares_folder: Path) -> pd.DataFrame:
    frame = pd.read_csv(squares_folder / "squares.csv", keep_default_na=False)
    frame["path"] = [str(squares_folder / path) for path in frame.path]
    return frame


def small(backbone: Path, **settings: object) -> Discoverer:
    return Discoverer(**{"k": 4, "steps": 30, "backbone": str(backbone), "device": "cpu", **settings})


@pytest.fixture(scope="module")
def fitted(squares, tiny_backbone_file, tmp_path_factory) -> Discoverer:
    """On arrays, in a folder of its own."""
    arrays = [np.asarray(Image.open(path)) for path in squares.path]
    found = small(tiny_backbone_file, out=tmp_path_factory.mktemp("fitted") / "run")
    assert found.fit(arrays, list(squares.label)) is found
    return found


def test_every_image_has_a_category(fitted, squares) -> None:
    labels = fitted.labels_
    assert len(labels) == len(squares)
    given = (squares.label != "").to_numpy()
    assert list(labels[given]) == list(squares.label[given])
    assert set(labels) <= {category.id for category in fitted.categories_}
    assert {"green", "red"} <= set(labels)


def test_scores_and_relations_have_a_row_each(fitted, squares) -> None:
    assert list(fitted.scores_.columns) == ["probability", "known_score", "typicality", "doubtful"]
    assert len(fitted.scores_) == len(squares)
    assert fitted.scores_.probability.between(0, 1).all()
    relations = fitted.relations_
    assert list(relations.columns) == ["green", "red"]
    assert list(relations.index) == [category.id for category in fitted.categories_]
    assert relations.loc["green", "green"] > relations.loc["green", "red"]


def test_categories_go_by_the_names_that_people_gave(fitted, squares, tmp_path) -> None:
    novel = next(category.id for category in fitted.categories_ if category.kind == "novel")
    folder = fitted.save(tmp_path / "saved")
    fitted.discovery_.called({novel: "watercress", "red": "crimson"}).save(folder)
    named = Discoverer.load(folder)
    new = {novel: "watercress", "red": "crimson"}
    assert list(named.labels_) == [new.get(id, id) for id in fitted.labels_]
    paths = list(squares.path)
    assert list(named.predict(paths)) == list(named.place(paths)["category"])
    assert {"watercress", "crimson"} <= set(named.predict(paths))
    assert list(named.relations_.columns) == ["green", "crimson"]
    assert list(named.relations_.index) == [category.name for category in named.categories_]


def test_new_images_by_path_picture_and_array(fitted, squares) -> None:
    paths = list(squares.path[:6])
    pictures = [Image.open(path) for path in paths]
    by_path, by_picture = fitted.predict(paths), fitted.predict(pictures)
    by_array = fitted.predict(np.stack([np.asarray(picture) for picture in pictures]))
    assert list(by_path) == list(by_picture) == list(by_array)
    assert set(by_path) <= set(fitted.labels_)
    features = fitted.transform(paths)
    assert features.shape[0] == 6
    assert np.isfinite(features).all()
    placed = fitted.place([*paths, "absent.png"])
    assert placed.category_id.iloc[-1] == ""
    assert "is not a file" in placed.problem.iloc[-1]


def test_pictures_in_memory_stay_with_the_run(fitted, squares) -> None:
    paths = list(fitted.discovery_.images.path)
    assert {Path(path).parent for path in paths} == {fitted.run_folder_.absolute() / PICTURES}
    assert all(Path(path).is_file() for path in paths)
    assert (fitted.run_folder_ / "report.html").is_file()


def test_other_images_do_not_pass_for_those_of_the_run(fitted, squares) -> None:
    again = clone(fitted)
    with pytest.raises(InputError, match="choose another folder"):
        again.fit([np.zeros((40, 40, 3), dtype=np.uint8)] * len(squares), list(squares.label))
    assert list(Discoverer.load(fitted.run_folder_).labels_) == list(fitted.labels_)


def test_save_and_load(fitted, squares, tmp_path) -> None:
    fitted.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / PICTURES).exists()
    again = Discoverer.load(tmp_path / "saved")
    assert again.get_params() == fitted.get_params() | {"out": str(fitted.out)}
    assert list(again.labels_) == list(fitted.labels_)
    paths = list(squares.path[::7])
    assert list(again.predict(paths)) == list(fitted.predict(paths))
    assert np.array_equal(again.transform(paths), fitted.transform(paths))
    (tmp_path / "saved" / "estimator.json").unlink()  # the run folder of a holotype discover has none
    assert Discoverer.load(tmp_path / "saved").k == "auto"


def test_what_cannot_be_loaded_is_one_sentence(fitted, tmp_path) -> None:
    with pytest.raises(InputError, match="holds no run"):
        Discoverer.load(tmp_path)
    fitted.save(tmp_path)
    (tmp_path / "estimator.json").write_text(json.dumps({"format": 1, "nonsense": 1}))
    with pytest.raises(InputError, match="cannot be read"):
        Discoverer.load(tmp_path)


def test_without_a_folder_it_is_kept_as_long_as_the_object(squares, tiny_backbone_file) -> None:
    found = small(tiny_backbone_file, steps=4, method="simgcd")
    labels = found.fit_predict(list(squares.path), squares.label)
    assert list(labels) == list(found.labels_)
    folder = found.run_folder_
    assert folder.is_dir()
    before = found.predict(list(squares.path[:2]))
    found.fit(list(squares.path[:40]), squares.label[:40])  # anew, in another folder
    assert len(found.labels_) == 40
    assert found.run_folder_ != folder
    assert len(before) == 2
    last = found.run_folder_
    del found
    assert not last.exists()


def test_parameters_as_scikit_learn_wants_them() -> None:
    one = Discoverer(method="simgcd", k=7, seed=3)
    copy = clone(one)
    assert copy is not one
    assert copy.get_params() == one.get_params()
    assert copy.set_params(k="auto", steps=5) is copy
    assert (copy.k, copy.steps, one.k) == ("auto", 5, 7)
    assert "simgcd" in repr(one)


@pytest.mark.parametrize("name", ["labels_", "categories_", "scores_", "relations_"])
def test_before_fit_it_says_so(name) -> None:
    with pytest.raises(NotFittedError):
        getattr(Discoverer(), name)
    assert not hasattr(Discoverer(), "absent_")


def test_before_fit_nothing_is_predicted_or_saved(tmp_path) -> None:
    for call in (Discoverer().predict, Discoverer().transform):
        with pytest.raises(NotFittedError):
            call(["a.png"])
    with pytest.raises(NotFittedError):
        Discoverer().save(tmp_path)


# -- pickled --------------------------------------------------------------------------------------------


def test_a_pickled_one_keeps_its_run(fitted, squares, tmp_path) -> None:
    paths = list(squares.path[::7])
    again = pickle.loads(pickle.dumps(fitted))
    assert again.get_params() == fitted.get_params()
    assert again.run_folder_ != fitted.run_folder_
    pd.testing.assert_frame_equal(again.place(paths), fitted.place(paths))
    assert list(again.predict(paths)) == list(fitted.predict(paths))
    assert list(again.labels_) == list(fitted.labels_)
    twice = pickle.loads(pickle.dumps(again))
    folder = again.run_folder_
    del again
    assert not folder.exists()
    assert list(twice.predict(paths)) == list(fitted.predict(paths))
    assert twice.save(tmp_path / "saved") == tmp_path / "saved"
    assert list(Discoverer.load(tmp_path / "saved").predict(paths)) == list(fitted.predict(paths))


def test_before_fit_it_is_pickled_as_it_is() -> None:
    again = pickle.loads(pickle.dumps(Discoverer(k=7)))
    assert again.k == 7
    with pytest.raises(NotFittedError):
        again.predict(["a.png"])


def test_without_its_folder_it_is_not_pickled(fitted, tmp_path) -> None:
    found = Discoverer.load(shutil.copytree(fitted.run_folder_, tmp_path / "run"))
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(InputError, match="is gone") as told:
        pickle.dumps(found)
    assert "\n" not in str(told.value)


# -- parameters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2.5, True, 0, "many", -1, None])
def test_a_k_that_cannot_be_is_one_sentence_before_anything_is_computed(k, squares, monkeypatch) -> None:
    monkeypatch.setattr("holotype.discovery.pipeline.discover_table", lambda *_, **__: pytest.fail("began"))
    with pytest.raises(InputError, match=r"^k must be") as told:
        Discoverer(k=k).fit(list(squares.path), list(squares.label))
    assert "\n" not in str(told.value)


def test_a_k_as_text_is_a_number(squares, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(
        "holotype.discovery.pipeline.discover_table",
        lambda table, config, *_, **__: asked.append((table, config)),
    )
    Discoverer(k="10").fit(list(squares.path), list(squares.label))
    ((table, config),) = asked
    assert config.k == 10
    assert table.root == str(Path(squares.path[0]).parents[1])


def test_bad_input_is_one_sentence(squares, tiny_backbone_file) -> None:
    with pytest.raises(InputError, match="put it into a list"):
        Discoverer().fit(squares.path[0], ["a"])
    with pytest.raises(InputError, match="is labelled"):
        small(tiny_backbone_file).fit(list(squares.path))


# -- Labels as people write them: whatever is missing is no label, and names stay names


MISSING = [None, "", float("nan"), np.float32("nan"), np.float64("nan"), pd.NaT, np.datetime64("NaT"), pd.NA]


@pytest.mark.parametrize("nothing", MISSING)
def test_what_is_missing_is_no_label(nothing) -> None:
    assert to_label_column(["a", nothing], 2) == ["a", ""]
    assert to_label_column(pd.Series(["a", nothing], dtype=object), 2) == ["a", ""]


@pytest.mark.parametrize("kind", [np.float32, np.float64, "Int64", "string", "category", "datetime64[ns]"])
def test_what_is_missing_in_a_column_is_no_label(kind) -> None:
    value = "2026-01-02" if kind == "datetime64[ns]" else 7
    first, second = to_label_column(pd.Series([value, None], dtype=object).astype(kind), 2)
    assert first.startswith("2026-01-02" if kind == "datetime64[ns]" else "7")
    assert second == ""


def test_labels_as_people_write_them() -> None:
    assert to_label_column(None, 2) == ["", ""]
    assert to_label_column([" b ", "001"], 2) == ["b", "001"]
    assert to_label_column(np.array([0, -1, 2]), 3) == ["0", "", "2"]
    assert to_label_column([0, -1, None, np.int64(2)], 4) == ["0", "", "", "2"]
    assert to_label_column(np.array([1.0, np.nan, -1.0], dtype=np.float32), 3) == ["1", "", ""]
    assert to_label_column(["a", -1], 2) == ["a", "-1"]  # among names it is one
    assert to_label_column(["-1", "0"], 2) == ["-1", "0"]
    assert to_label_column([0.5, -1], 2) == ["0.5", "-1"]
    assert to_label_column([True, False], 2) == ["True", "False"]
    assert to_label_column(np.array(["a", "nan", "NaT", "None"]), 4) == ["a", "nan", "NaT", "None"]
    with pytest.raises(InputError, match="2 images but 1 labels"):
        to_label_column(["a"], 2)
