"""From Python alone: classes as methods, data sets in memory, callbacks, and a finished run as an object."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import holotype
from holotype.data.arrays import to_label_column
from holotype.data.load import load_table
from holotype.errors import InputError, Stopped
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
    def call(method, data, out="run", epochs=1, **named):
        settings = {key: value for key, value in tiny_settings.items() if "." in key}
        settings["train.epochs"] = epochs
        plain = {key: value for key, value in tiny_settings.items() if "." not in key}
        named = {"progress": False, "cache_views": "off"} | plain | named
        return holotype.train(method, data, settings=settings, out=out and tmp_path / out, **named)

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
    what = {"methods": [Mine, (Mine, "plain"), "kmeans"], "datasets": [squares]}
    what |= {"settings": settings, "progress": False}
    frame = holotype.bench(**what, cache_views="off").to_frame()
    assert list(frame.method.str.rpartition(":")[2]) == ["Mine", "Mine", "kmeans"]
    assert list(frame.variant) == ["default", "plain", "default"]
    assert set(frame.dataset) == {"frame"}


PIXELS = np.zeros((4, 8, 8, 3), np.uint8)


class Items(torch.utils.data.Dataset):
    """Four times the same item, of two classes."""

    classes = ("a", "b")

    def __init__(self, item):
        self.item = item

    def __len__(self):
        return 4

    def __getitem__(self, row):
        return self.item


@pytest.mark.parametrize(
    ("method", "data", "words"),
    [
        (dict, "x", "neither the name of a method nor"),
        ("simgcd", np.zeros((4, 8, 8, 3)), "cannot be a ndarray"),
        ("simgcd", (np.zeros((4, 8, 8, 3)), [0, 1]), "4 images but 2 labels"),
        ("simgcd", pd.DataFrame({"path": ["a"]}), "no column label"),
        ("simgcd", (torch.full((2, 3, 8, 8), 2.0), [0, 1]), "Normalize"),
        ("simgcd", (PIXELS, "abcd"), "give a list"),
        ("simgcd", (PIXELS, 3), "give a list"),
        ("simgcd", (PIXELS, np.eye(4)), "label is a ndarray"),
        ("simgcd", (PIXELS[:0], []), "no image"),
        ("simgcd", (PIXELS,), "cannot be a tuple"),
        ("simgcd", (PIXELS, [0] * 4, [0] * 4, 0), "cannot be a tuple"),
        ("simgcd", {"path": [], "label": []}, "cannot be a dict"),
        ("simgcd", pd.Series(["a.png"]), "cannot be a Series"),
        ("simgcd", Items(torch.zeros(3, 8, 8)), "is a Tensor"),
        ("simgcd", Items((torch.zeros(3, 8, 8), 2)), "label 2 and only 2 classes"),
    ],
)
def test_what_cannot_be_used_is_said(train, tmp_path, monkeypatch, method, data, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words):
        train(method, data)


def test_a_tensor_of_labels_is_read_as_its_numbers():
    labels = torch.tensor([3, -1, 0])
    assert to_label_column(labels, 3) == to_label_column(list(labels), 3) == ["3", "", "0"]
    assert to_label_column(torch.tensor([1.0, float("nan")]), 2) == ["1", ""]


def test_a_callback_stops_a_run_that_then_goes_on(train, squares):
    class Stop(holotype.Callback):
        def __init__(self, event):
            setattr(self, event, self.stop)

        def stop(self, *_):
            raise KeyboardInterrupt

    for event in ("on_step_end", "on_epoch"):
        with pytest.raises(Stopped):
            train("simgcd", squares, event, callbacks=[Stop(event)], epochs=2)
        assert (Path(event) / "state.json").is_file()
        assert train("simgcd", squares, event, epochs=2).scores == train("simgcd", squares, epochs=2).scores


@pytest.mark.parametrize("given", [holotype.Callback, [holotype.Callback], [print], None])
def test_what_is_no_callback_is_refused(train, squares, given):
    with pytest.raises(InputError, match=r"objects of holotype\.Callback"):
        train("simgcd", squares, callbacks=given)


@pytest.mark.parametrize(
    ("function", "made", "words"),
    [
        ("loss", lambda self, batch, now: batch.features.sum(), "loss of Odd .* a Tensor"),
        ("loss", lambda self, batch, now: {}, "loss of Odd .* a dict"),
        ("loss", lambda self, batch, now: {"one": 1.0}, "loss of Odd .* one: float"),
        ("loss", lambda self, batch, now: {"one": batch.features.sum(-1)}, "loss of Odd .* one: "),
        ("logits", lambda self, features: features[:, :2], "logits of Odd have the shape"),
        ("logits", lambda self, features: features[:, :4] * float("nan"), "Odd .* NaN"),
    ],
)
def test_what_a_method_gives_back_is_checked(train, squares, function, made, words):
    odd = type("Odd", (SimGCD,), {function: made, "__module__": __name__})
    with pytest.raises(InputError, match=words):
        train(odd, squares)


def test_a_method_needs_a_loss_and_no_settings(train, squares):
    with pytest.raises(InputError, match="Bare has no loss"):
        train(type("Bare", (holotype.Method,), {"__module__": __name__}), squares)
    with pytest.raises(InputError, match="no dataclass"):
        type("Odd", (SimGCD,), {"Config": dict})
    with pytest.raises(InputError, match=r"must take \(config, task\)"):
        train(type("Odd", (SimGCD,), {"__init__": lambda self: None, "__module__": __name__}), squares)
