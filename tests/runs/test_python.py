"""From Python alone: classes as methods, data sets in memory, callbacks, and a finished run as an object."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import holotype
from holotype.data.load import load_table
from holotype.errors import InputError
from holotype.methods.simgcd import SimGCD
from holotype.runs.run_result import read_metrics


class Mine(SimGCD):
    """A class of one's own."""

    presets = {"plain": {"memax_weight": 0.0}}  # noqa: RUF012


@pytest.fixture
def squares(squares_folder: Path, tmp_path: Path, monkeypatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    frame = pd.read_csv(squares_folder / "squares.csv", keep_default_na=False)
    return frame.assign(path=[str(squares_folder / path) for path in frame.path])


@pytest.fixture
def train(tiny_settings, tmp_path):
    def call(method, data, out="run", **named):
        settings = {key: value for key, value in tiny_settings.items() if "." in key}
        plain = {key: value for key, value in tiny_settings.items() if "." not in key}
        return holotype.train(
            method,
            data,
            settings=settings,
            out=out and tmp_path / out,
            progress=False,
            cache_views="off",
            **plain | named,
        )

    return call


class Squares(torch.utils.data.Dataset):
    """Tensors (3, H, W) from 0 to 1 and whole numbers; -1 = no label."""

    classes = ("green", "red")

    def __init__(self, frame):
        self.frame = frame

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, row):
        pixels = np.asarray(Image.open(self.frame.path[row])).copy()
        label = self.frame.label[row]
        return torch.from_numpy(pixels).movedim(-1, 0) / 255, self.classes.index(label) if label else -1


def test_a_class_and_every_form_of_data(train, squares, squares_folder):
    """The pixels are the same, so the categories are; the truth that two of them bring is scored."""
    pixels = np.stack([np.asarray(Image.open(path)) for path in squares.path])
    forms = {
        "arrays": (pixels, list(squares.label), list(squares.truth)),
        "frame": squares,
        "dataset": Squares(squares),
        "table": load_table(squares_folder / "squares.csv"),
        "path": squares_folder / "squares.csv",
    }
    records = {name: train(Mine, data, name) for name, data in forms.items()}
    placed = {name: list(holotype.load(Path(name)).images.category) for name in forms}
    assert all(found == placed["path"] for found in placed.values())
    assert {name for name in forms if records[name].scores.all is None} == {"dataset"}
    assert len({records[name].scores for name in forms if name != "dataset"}) == 1
    assert records["arrays"].identity.data["name"] == "arrays"
    assert records["arrays"].identity.method["name"].endswith(":Mine")
    assert train(Mine, forms["arrays"], None).scores == records["arrays"].scores
    assert (Path("runs") / "arrays-tests.runs.test_python.Mine-default-s0" / "scores.json").is_file()
    again = train(Mine, forms["arrays"], "arrays")  # the same pixels are the same data set
    assert again == records["arrays"]
    other = holotype.data.arrays.dataset_path((pixels[::-1], list(squares.label)))
    assert Path(other).name == "arrays-2.csv"


def test_callbacks_see_every_step_every_line_and_the_record(train, squares):
    class Watch(holotype.Callback):
        def __init__(self):
            self.steps, self.lines, self.records = [], [], []

        def on_step_end(self, step, terms):
            self.steps.append((step, float(sum(terms.values()))))

        def on_epoch(self, line):
            self.lines.append(line)

        def on_finish(self, record):
            self.records.append(record)

    watch = Watch()
    record = train("simgcd", squares, callbacks=[watch])
    assert [step for step, _ in watch.steps] == [1, 2, 3, 4]
    assert watch.lines == read_metrics(Path("run"))
    assert np.mean([loss for _, loss in watch.steps]) == pytest.approx(watch.lines[0]["loss"], rel=1e-5)
    assert watch.records == [record]


@pytest.mark.parametrize("method", ["simgcd", "gcd"])
def test_a_finished_run_gives_features_logits_classes_and_curves(train, squares, method):
    record = train(method, squares)
    run = holotype.load("run")
    free = (squares.label == "").to_numpy()
    assert run.features.shape[0] == run.logits.shape[0] == len(squares)
    ids = np.array(run.model.ids, dtype=object)
    assert list(ids[run.logits.argmax(1)][free]) == list(run.images.category_id[free])
    assert run.record == record
    classes, counts = run.per_class, run.confusion
    assert classes.correct.sum() / classes.n.sum() == pytest.approx(record.scores.all)
    assert counts.sum(axis=1).to_dict() == classes.set_index("class").n.to_dict()
    assert set(run.curves[run.curves.kind == "epoch"].epoch) == {0}
    assert run.model.features(list(squares.path[:2])).features == pytest.approx(run.features[:2], abs=1e-5)


def test_bench_takes_classes_and_data_in_memory(squares, tiny_settings):
    settings = {key: value for key, value in tiny_settings.items() if key != "device"} | {"device": "cpu"}
    what = {
        "methods": [Mine, (Mine, "plain"), "kmeans"],
        "datasets": [squares],
        "settings": settings,
        "progress": False,
    }
    frame = holotype.bench(**what, cache_views="off").to_frame()
    assert list(frame.method.str.rpartition(":")[2]) == ["Mine", "Mine", "kmeans"]
    assert list(frame.variant) == ["default", "plain", "default"]
    assert set(frame.dataset) == {"frame"}


@pytest.mark.parametrize(
    ("method", "data", "words"),
    [
        (dict, "x", "neither the name of a method nor"),
        ("simgcd", np.zeros((4, 8, 8, 3)), "cannot be a ndarray"),
        ("simgcd", (np.zeros((4, 8, 8, 3)), [0, 1]), "4 images but 2 labels"),
        ("simgcd", pd.DataFrame({"path": ["a"]}), "no column label"),
        ("simgcd", (torch.full((2, 3, 8, 8), 2.0), [0, 1]), "Normalize"),
    ],
)
def test_what_cannot_be_used_is_said(train, tmp_path, monkeypatch, method, data, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words):
        train(method, data)
