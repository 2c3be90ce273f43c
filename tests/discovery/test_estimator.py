"""Discoverer keeps scikit-learn's promises and survives its folder; settings are the same everywhere."""

import dataclasses
import inspect
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
from sklearn.utils.estimator_checks import check_estimator

from holotype.cli.common import Parser
from holotype.cli.options import DiscoverOptions
from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.discovery.estimator import PICTURES, Discoverer, to_label_column
from holotype.discovery.pipeline import discover
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


def test_every_image_has_a_category_and_scores(fitted, squares) -> None:
    labels = fitted.labels_
    assert len(labels) == len(fitted.scores_) == len(squares)
    given = (squares.label != "").to_numpy()
    assert list(labels[given]) == list(squares.label[given])
    assert {"green", "red"} <= set(labels) <= {category.id for category in fitted.categories_}
    assert list(fitted.scores_.columns) == ["probability", "known_score", "typicality", "doubtful"]
    assert fitted.scores_.probability.between(0, 1).all()
    relations = fitted.relations_
    assert list(relations.columns) == ["green", "red"]
    assert list(relations.index) == [category.id for category in fitted.categories_]
    assert relations.loc["green", "green"] > relations.loc["green", "red"]
    paths = [Path(path) for path in fitted.discovery_.images.path]  # pictures in memory stay with the run
    assert {path.parent for path in paths} == {fitted.run_folder_.absolute() / PICTURES}
    assert all(path.is_file() for path in (*paths, fitted.run_folder_ / "report.html"))


def test_categories_go_by_the_names_that_people_gave(fitted, squares, tmp_path) -> None:
    novel = next(category.id for category in fitted.categories_ if category.kind == "novel")
    folder, names = fitted.save(tmp_path / "saved"), {novel: "watercress", "red": "crimson"}
    fitted.discovery_.called(names).save(folder)
    named, paths = Discoverer.load(folder), list(squares.path)
    assert list(named.labels_) == [names.get(id, id) for id in fitted.labels_]
    assert list(named.predict(paths)) == list(named.place(paths)["category"])
    assert {"watercress", "crimson"} <= set(named.predict(paths))
    assert list(named.relations_.columns) == ["green", "crimson"]
    assert list(named.relations_.index) == [category.name for category in named.categories_]


def test_save_and_load(fitted, squares, tmp_path) -> None:
    saved = fitted.save(tmp_path / "saved")
    assert not (saved / PICTURES).exists()
    again = Discoverer.load(saved)
    assert again.get_params() == fitted.get_params() | {"out": str(fitted.out)}
    assert list(again.labels_) == list(fitted.labels_)
    paths = list(squares.path[::7])
    assert list(again.predict(paths)) == list(fitted.predict(paths))
    assert np.array_equal(again.transform(paths), fitted.transform(paths))
    (saved / "estimator.json").write_text(json.dumps({"format": 1, "nonsense": 1}))
    with pytest.raises(InputError, match="cannot be read"):
        Discoverer.load(saved)
    (saved / "estimator.json").unlink()  # the run folder of a holotype discover has none
    assert Discoverer.load(saved).k == "auto"
    with pytest.raises(InputError, match="holds no run"):
        Discoverer.load(tmp_path)
    with pytest.raises(InputError, match="choose another folder"):  # other images are not those of the run
        clone(fitted).fit([np.zeros((40, 40, 3), dtype=np.uint8)] * len(squares), list(squares.label))


def test_without_a_folder_it_is_kept_as_long_as_the_object(squares, tiny_backbone_file) -> None:
    found = small(tiny_backbone_file, steps=4, method="simgcd")
    assert list(found.fit_predict(list(squares.path), squares.label)) == list(found.labels_)
    folder = found.run_folder_
    assert folder.is_dir()
    assert len(found.predict(list(squares.path[:2]))) == 2
    found.fit(list(squares.path[:40]), squares.label[:40])  # anew, in another folder
    assert (len(found.labels_), found.run_folder_ == folder) == (40, False)
    folder = found.run_folder_
    del found
    assert not folder.exists()


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
    found = Discoverer.load(shutil.copytree(fitted.run_folder_, tmp_path / "run"))
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(InputError, match="is gone"):
        pickle.dumps(found)


def test_settings_are_checked_before_anything_is_computed(squares, monkeypatch) -> None:
    with pytest.raises(InputError, match="put it into a list"):
        Discoverer().fit(squares.path[0], ["a"])
    asked, name = [], "holotype.discovery.pipeline.discover_table"
    monkeypatch.setattr(name, lambda table, config, *_, **__: asked.append((table, config)))
    for k in (2.5, "many"):
        with pytest.raises(InputError, match=r"^k must be"):
            Discoverer(k=k).fit(list(squares.path), list(squares.label))
    assert asked == []
    Discoverer(k="10").fit(list(squares.path), list(squares.label))
    ((table, config),) = asked
    assert (config.k, table.root) == (10, str(Path(squares.path[0]).parents[1]))


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


# -- settings: one list for the command, the estimator and the function, checked in one place

DEFAULTS = {one.name: one.default for one in dataclasses.fields(DiscoverConfig)}


def test_the_estimator_has_the_same_parameters_and_defaults() -> None:
    own = {name: one.default for name, one in inspect.signature(Discoverer).parameters.items()}
    assert {name: own.pop(name) for name in DEFAULTS} == DEFAULTS
    assert set(own) == {"out", "progress"}
    for name in DEFAULTS:
        assert f"    {name}: " in (Discoverer.__doc__ or ""), name


def test_the_command_has_the_same_flags_and_defaults() -> None:
    assert Parser("discover", DiscoverOptions).parse_args(["photos"]).config == DiscoverConfig()


def test_settings_may_come_as_text_or_as_numpy_has_them() -> None:
    assert DiscoverConfig(k=np.int64(10), steps="20", seed="3") == DiscoverConfig(k=10, steps=20, seed=3)
    assert type(DiscoverConfig(k=np.int64(10)).k) is int
    assert DiscoverConfig(method=" rpc , uno").method == "rpc,uno"
    assert DiscoverConfig().method is None  # the device decides
    bursts = [DiscoverConfig(bursts=value).bursts for value in ("AUTO", "no", "5", 5.0, 2.5)]
    assert bursts == ["auto", "no", "5", "5", "2.5"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("k", value) for value in (2.5, True, 0, "many", None, "-3")),
        *(("steps", value) for value in (0, 2**31)),
        *(("image_size", value) for value in (2**31, "big")),
        *(("seeds", value) for value in (0, 2.5, 2**31)),
        *(("seed", value) for value in (-1, 2**63)),
        *(("bursts", value) for value in ("often", 0, "nan", True)),
        ("sample", 1.0),
        ("effort", "none"),
        ("backbone", None),
        ("backbone", ""),
        *(("method", value) for value in (3, "rpc,", ",", "rpc,,uno")),
        ("arch", 1),
        ("pool", "max"),
        ("mean", "grey"),
        ("device", "tpu"),
    ],
)
def test_what_cannot_be_is_one_sentence(name: str, value: object) -> None:
    with pytest.raises(InputError) as raised:
        DiscoverConfig(**{name: value})
    assert str(raised.value).startswith(f"{name} ")
    assert repr(value) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_network_is_the_one_that_was_taken() -> None:
    config = DiscoverConfig(backbone="auto", image_size=64)
    assert config.network == BackboneConfig("auto", image_size=64)
    full = DiscoverConfig(pool="mean", mean="0,0,0", std=[1, 1, 1])
    assert full.network == BackboneConfig("auto", pool="mean", mean=(0, 0, 0), std=(1, 1, 1))
    assert full.with_network(full.network) == full
    taken = config.with_network(BackboneConfig("embedded", image_size=128))
    assert (taken.backbone, taken.image_size) == ("embedded", 128)


def test_the_function_names_them_and_tells_of_others(tmp_path) -> None:
    """Before it looks at the images: there are none here."""
    said = " ".join((discover.__doc__ or "").split())
    assert f"by the same names: {', '.join(DEFAULTS)}." in said
    with pytest.raises(InputError, match="does not take the setting 'stepps'; did you mean steps"):
        discover(tmp_path / "nowhere", stepps=3)


NAMES = "categories are names, and the check takes numbers"
EXPECTED = dict.fromkeys(
    (
        *("check_clustering", "check_estimators_pickle", "check_fit_idempotent"),
        *("check_methods_sample_order_invariance", "check_methods_subset_invariance"),
    ),
    NAMES,
)
"""Checks of scikit-learn that fail, and why."""


@pytest.mark.filterwarnings("ignore")
def test_it_passes_the_checks_of_scikit_learn():
    results = check_estimator(Discoverer(), expected_failed_checks=EXPECTED, on_skip=None, on_fail=None)
    assert {r["check_name"] for r in results if r["status"] == "failed"} == set()
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(EXPECTED)


def blobs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Five categories of 30 rows in 12 dimensions, far apart."""
    draw = np.random.default_rng(seed)
    truth = np.arange(150) % 5
    return 3 * draw.normal(size=(5, 12))[truth] + draw.normal(size=(150, 12)), truth


@pytest.mark.parametrize("k", [5, "auto"])
def test_features_are_clustered_around_their_labels(k):
    x, truth = blobs()
    labelled = (truth < 3) & (np.arange(150) % 10 < 5)
    y = np.where(labelled, np.array([f"class {c}" for c in truth], dtype=object), None)
    found = Discoverer(k=k).fit(x, y)
    labels = found.labels_
    assert list(labels[labelled]) == list(y[labelled])
    for c in range(3):
        assert (labels[truth == c] == f"class {c}").mean() > 0.9
    if k == 5:
        assert set(labels[truth > 2]) == {"new-01", "new-02"}
        assert [category.n for category in found.categories_] == [30] * 5
    assert list(found.predict(x)[~labelled]) == list(labels[~labelled])
    assert found.transform(x) == pytest.approx(found.feature_categories_.rows(x))
    assert found.relations_.loc["class 0", "class 0"] == pytest.approx(1)
    assert list(pickle.loads(pickle.dumps(found)).predict(x)) == list(found.predict(x))
    with pytest.raises(InputError, match="pickle"):
        found.save("anywhere")


def test_a_wrong_k_of_features_and_images_after_features():
    x, truth = blobs()
    with pytest.raises(InputError, match="from 5 to 150"):
        Discoverer(k=3).fit(x, truth)
    for settings in ({"k": "many"}, {"k": 4.0}, {"seed": -1}, {"device": "tpu"}):
        with pytest.raises(InputError, match=f"^{next(iter(settings))} must"):
            Discoverer(**settings).fit(x, truth)
    with pytest.raises(NotFittedError):
        Discoverer().predict(x)
