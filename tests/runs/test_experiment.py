"""One run from settings to scores: what is refused, what the folder holds, and that runs go on and repeat."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.torch import load_file

from holotype.data.datasets.registry import Benchmark
from holotype.data.gcd_split import gcd_split
from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.errors import InputError, Stopped
from holotype.methods import METHODS
from holotype.runs import build as module
from holotype.runs.build import load_data
from holotype.runs.experiment import Experiment
from holotype.runs.resolve import default_experiment, resolve
from holotype.runs.run import run_experiment
from holotype.training.loop import Loop
from holotype.utils.serialization import read_json
from tests.cli.test_bad_input import pressed
from tests.conftest import draw_squares, write_csv
from tests.small_run import set_dotted


@pytest.fixture
def tiny(squares_folder, tiny_backbone_file, tmp_path):
    """An experiment of a second on 64 squares of 4 classes, 2 of them known, truth and all."""

    def make(method: str = "simgcd", out: str = "run", **settings) -> Experiment:
        found = default_experiment(method, str(squares_folder / "squares.csv"))
        found.k, found.device, found.progress, found.out = 4, "cpu", False, str(tmp_path / out)
        found.backbone.name = str(tiny_backbone_file)
        found.train.epochs, found.train.batch_size = 2, 16
        for key, value in settings.items():
            set_dotted(found, key.replace("__", "."), value)
        return found

    return make


# -- settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "preset"), [(m, p) for m, cls in METHODS.items() for p in cls.presets])
def test_the_default_experiment_holds_the_methods_own_settings(method, preset):
    found = default_experiment(method, "some/folder", preset)
    assert isinstance(found.method, METHODS[method].Config)
    assert (found.method_name, found.dataset, found.preset) == (method, "some/folder", preset)
    assert found.method is not default_experiment(method, "some/folder", preset).method


def test_the_folder_is_named_after_the_run():
    assert default_experiment("rpc", "cub", "reading").folder == Path("runs/cub-rpc-reading-s0")
    own = Experiment("my.module:Mine", "data/birds", seed=3)
    assert own.folder == Path("runs/birds-my.module.Mine-default-s3")
    assert dataclasses.replace(own, out="x/y").folder == Path("x/y")


# -- data ---------------------------------------------------------------------------------------------


def test_the_number_of_categories_must_be_given_and_possible(squares_folder, tiny):
    found = tiny(k=None)
    with pytest.raises(InputError, match=r"squares\.csv does not say how many categories.*--k"):
        load_data(found)
    found.k = 1
    with pytest.raises(InputError, match=r"--k 1 is smaller than the 2 known classes"):
        load_data(found)
    found.k = 65
    with pytest.raises(InputError, match=r"--k 65 is more than the 64 images of .*; lower it"):
        load_data(found)
    found.k = 2
    assert load_data(found).k == 2


def test_own_data_come_from_a_folder_a_file_or_both(squares_folder, tiny, tmp_path):
    folder = load_data(tiny(dataset=str(squares_folder)))
    file = load_data(tiny())
    assert (folder.k, file.k, folder.test, file.test) == (4, 4, None, None)
    assert folder.table.known == file.table.known == ("green", "red")
    rows = [("red/red-00.png", "rot"), ("green/green-00.png", "grün")]
    labels = write_csv(tmp_path / "labels.csv", "path,label", rows)
    both = load_data(tiny(dataset=str(squares_folder), labels=str(labels)))
    assert both.table.known == ("grün", "rot")
    assert both.table.labelled.sum() == 2


def test_data_that_cannot_be_trained_on_are_refused(tiny, tmp_path):
    draw_squares(tmp_path / "squares")
    shutil.rmtree(tmp_path / "squares" / "red")
    with pytest.raises(InputError, match="Only one known class"):
        load_data(tiny(dataset=str(tmp_path / "squares")))
    with pytest.raises(InputError, match="does not exist"):
        load_data(tiny(dataset=str(tmp_path / "nowhere")))


def test_a_benchmark_knows_its_categories_and_its_split():
    found = load_data(default_experiment("kmeans", "fashion-sample"))
    assert found.k == 10
    assert len(found.table.known) == 5
    more = default_experiment("kmeans", "fashion-sample")
    more.k = 13
    assert load_data(more).k == 13


# -- a run --------------------------------------------------------------------------------------------

FILES = {
    "cache.json",
    "identity.json",
    "config.yaml",
    "provenance.json",
    "metrics.jsonl",
    "model.json",
    "model.safetensors",
    "discovery.json",
    "assignments.parquet",
    "assignments.csv",
    "scores.json",
    "per_class.csv",
}


def test_a_run_leaves_its_folder_and_its_record(tiny, monkeypatch):
    experiment = tiny(train__eval_every=1)
    record = run_experiment(experiment)
    out = experiment.folder
    names = {file.name for file in out.iterdir()}
    assert names == FILES  # the state of a finished run is gone
    assert read_json(out / "scores.json") == record.as_dict()
    assert read_json(out / "identity.json") == record.identity.as_dict()

    scores, r = record.scores, record.scores.share_old
    assert (scores.n, r, record.made.epochs) == (48, 1 / 3, 2)
    assert scores.all == pytest.approx(r * scores.old + (1 - r) * scores.new, abs=1e-12)
    classes = pd.read_csv(out / "per_class.csv")
    assert (classes["n"].sum(), classes["correct"].sum()) == (48, round(48 * scores.all))
    frame = pd.read_parquet(out / "assignments.parquet")
    assert len(frame) == 64
    assert set(frame["category"]) <= {"green", "red", "new-01", "new-02"}
    truth = pd.read_csv(Path(experiment.dataset))["truth"].to_numpy()
    unlabelled, known = frame["label"] == "", np.isin(truth, ["red", "green"])
    hits = (frame["category"] == truth)[unlabelled & known]
    assert scores.known_accuracy == pytest.approx(hits.mean())

    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["epoch"]) for line in lines] == [("epoch", 0), ("score", 0), ("epoch", 1)]
    assert load_file(out / "model.safetensors").keys() > {"method.classifier.v"}
    facts = json.loads((out / "provenance.json").read_text())
    assert facts["table"]["images"] == 64

    def fail(*_):
        raise AssertionError("a finished run was trained again")

    monkeypatch.setattr(Loop, "fit", fail)
    assert run_experiment(tiny(train__eval_every=7)) == record
    with pytest.raises(InputError, match="seed = 0, not 1"):
        run_experiment(tiny(seed=1))


def test_the_config_holds_the_whole_experiment_and_repeats_it(tiny):
    experiment = tiny("kmeans", method__n_init=3)
    run_experiment(experiment)
    stored = yaml.safe_load((experiment.folder / "config.yaml").read_text())
    assert stored == experiment.as_dict()
    again = resolve(stored["method_name"], stored["dataset"], stored["preset"], stored)
    assert again == experiment
    again.out += "-again"
    run_experiment(again)
    for name in ("model.safetensors", "assignments.csv", "identity.json"):
        assert (again.folder / name).read_bytes() == (experiment.folder / name).read_bytes()


def test_k_means_finds_coloured_squares(tiny):
    record = run_experiment(tiny("kmeans"))
    assert (record.scores.all, record.scores.known_accuracy, record.made.epochs) == (1.0, 1.0, 0)


def test_a_method_without_steps_needs_no_batch(tiny):
    """Few images are no reason to refuse a method that only clusters."""
    assert run_experiment(tiny("kmeans", train__batch_size=128)).scores.all == 1.0


def test_a_stopped_run_goes_on_to_the_same_end(tiny, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        with pytest.raises(Stopped, match="epoch 1 of 2, step 1"):
            run_experiment(tiny(out="stopped"))
    assert not (tiny(out="stopped").folder / "scores.json").exists()
    resumed, whole = run_experiment(tiny(out="stopped")), run_experiment(tiny(out="whole"))
    clocks = dict.fromkeys(("seconds", "wall_seconds", "decode_seconds", "cache_seconds"), 0.0)
    timeless = [
        dataclasses.replace(one, made=dataclasses.replace(one.made, **clocks)) for one in (resumed, whole)
    ]
    assert timeless[0] == timeless[1]
    assert_same_run(tiny(out="stopped").folder, tiny(out="whole").folder)


def assert_same_run(mine: Path, theirs: Path) -> None:
    for name in ("model.safetensors", "assignments.csv"):
        assert (mine / name).read_bytes() == (theirs / name).read_bytes(), name
    assert log(mine) == log(theirs)


def log(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


@pytest.mark.parametrize("save_seconds", [0.0, 1e9])
def test_a_run_that_died_between_two_epochs_logs_each_of_them_once(tiny, monkeypatch, save_seconds):
    """With a state after every step, and with none at all when death comes."""
    before_epoch = Loop._before_epoch

    def dies(loop, stage, epoch):
        if epoch == 1:
            raise SystemError("killed")
        before_epoch(loop, stage, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_before_epoch", dies)
        with pytest.raises(SystemError):
            run_experiment(tiny(out="killed", train__save_seconds=save_seconds))
    run_experiment(tiny(out="killed", train__save_seconds=save_seconds))
    run_experiment(tiny(out="whole"))
    assert_same_run(tiny(out="killed").folder, tiny(out="whole").folder)


def test_broken_images_are_left_out_and_said(tiny, tmp_path):
    rows = draw_squares(tmp_path / "squares")
    for name in ("red/red-00.png", "unlabelled/blue-00.png"):
        (tmp_path / "squares" / name).write_text("no image")
    table = write_csv(tmp_path / "squares" / "table.csv", "path,label,truth", rows)
    record = run_experiment(tiny("kmeans", dataset=str(table)))
    assert record.scores.n == 47
    frame = pd.read_csv(tiny("kmeans").folder / "assignments.csv", keep_default_na=False)
    broken = frame[frame["problem"] != ""]
    assert [Path(path).name for path in broken["path"]] == ["red-00.png", "blue-00.png"]
    assert set(broken["category"]) == {""}
    assert json.loads((tiny("kmeans").folder / "provenance.json").read_text())["table"]["unreadable"] == 2


# -- held-out images ----------------------------------------------------------------------------------


def squares_benchmark(root: Path, test_folder: Path) -> Benchmark:
    """All squares; the test images are copies of those that the protocol leaves unlabelled."""
    table = load_table(root / "squares.csv")
    name_of = np.array([Path(path).stem.split("-")[0] for path in table.path], dtype=object)
    known, novel = ("green", "red"), ("blue", "yellow")
    train = Table(table.path, name_of, known + novel, name="squares")
    benchmark = Benchmark("squares", train, None, known, novel)
    rows = np.flatnonzero(~gcd_split(benchmark).labelled)
    test_folder.mkdir()
    copies = [shutil.copy(table.path[row], test_folder) for row in rows]
    test = Table(np.array(copies, dtype=object), name_of[rows], known + novel, name="squares test")
    return dataclasses.replace(benchmark, test=test)


@pytest.mark.parametrize("method", ["kmeans", "rpc"])
def test_a_benchmark_is_scored_on_its_test_images_too(tiny, monkeypatch, squares_folder, tmp_path, method):
    """Copies of the unlabelled training images must score what those score."""
    benchmark = squares_benchmark(squares_folder, tmp_path / "test")
    monkeypatch.setattr(module, "load_benchmark", lambda name, root: benchmark)
    record = run_experiment(tiny(method, dataset="fashion-sample", k=None, train__epochs=1))
    assert record.scores.n == 48
    assert record.test == record.scores


def test_without_test_images_there_are_no_test_scores(tiny):
    assert run_experiment(tiny("kmeans")).test is None
