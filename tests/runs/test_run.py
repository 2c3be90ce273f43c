"""One run from settings to scores: its folder, its truth kept to its scores, going on to the same end, from Python."""

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.torch import load_file

import holotype
from holotype.data.datasets.registry import Benchmark
from holotype.data.gcd_split import gcd_split
from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.discovery.estimator import Discoverer
from holotype.errors import InputError, Stopped
from holotype.results.discovery import IMAGE_TABLE_COLUMNS
from holotype.runs import predict, resources
from holotype.runs import run as module
from holotype.runs.experiment import resolve
from holotype.runs.model_io import load_model
from holotype.runs.record import Record
from holotype.runs.run import run_experiment, train
from holotype.training.loop import Loop
from holotype.utils.locks import lock_folder
from holotype.utils.serialization import read_json
from tests.conftest import draw_squares, write_csv

FILES = {
    *("cache.json", "identity.json", "config.yaml", "provenance.json", "metrics.jsonl", "model.json"),
    *("model.safetensors", "discovery.json", "assignments.parquet", "assignments.csv", "scores.json"),
    *("per_class.csv", "confusion.csv"),
}
FOLDER = FILES - {"cache.json", "per_class.csv", "confusion.csv"}
"""Of a run without a token cache whose truth is not known."""
CLOCKS = {"seconds": 0.0, "wall_seconds": 0.0, "decode_seconds": 0.0, "cache_seconds": 0.0, "parallel": 0}


def timeless(record: Record) -> Record:
    return dataclasses.replace(record, made=dataclasses.replace(record.made, **CLOCKS))


def log(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def assert_same_run(mine: Path, theirs: Path) -> None:
    for name in ("model.safetensors", "assignments.csv"):
        assert (mine / name).read_bytes() == (theirs / name).read_bytes(), name
    assert log(mine) == log(theirs)


def test_a_run_leaves_its_folder_and_its_record(tiny, monkeypatch) -> None:
    experiment = tiny(train__eval_every=1, train__epochs=2, cache_views="auto")
    record, out = run_experiment(experiment), experiment.folder
    assert {file.name for file in out.iterdir()} == FILES  # the state of a finished run is gone
    assert read_json(out / "scores.json") == record.as_dict()
    assert read_json(out / "identity.json") == record.identity.as_dict()
    assert yaml.safe_load((out / "config.yaml").read_text()) == experiment.as_dict()
    assert read_json(out / "provenance.json")["table"]["images"] == 64
    scores = record.scores
    classes = pd.read_csv(out / "per_class.csv")
    assert (classes["n"].sum(), classes["correct"].sum()) == (48, round(48 * scores.all))
    frame = pd.read_parquet(out / "assignments.parquet")
    truth = pd.read_csv(Path(experiment.dataset))["truth"].to_numpy()
    free, known = frame["label"] == "", np.isin(truth, ["red", "green"])
    assert scores.known_accuracy == pytest.approx((frame["category"] == truth)[free & known].mean())
    assert [(line["kind"], line["epoch"]) for line in log(out)] == [("epoch", 0), ("score", 0), ("epoch", 1)]
    assert load_file(out / "model.safetensors").keys() > {"method.classifier.v"}
    monkeypatch.setattr(Loop, "fit", lambda *_: pytest.fail("a finished run was trained again"))
    assert run_experiment(tiny(train__eval_every=7, train__epochs=2, cache_views="auto")) == record
    with pytest.raises(InputError, match="seed = 0, not 1"):
        run_experiment(tiny(seed=1, train__epochs=2, cache_views="auto"))


@pytest.mark.parametrize("method", ["simgcd", "kmeans"])
def test_a_trained_run_is_a_discovery_like_any_other(tiny, method) -> None:
    run_experiment(tiny(method, k=40 if method == "simgcd" else 4))
    run = tiny().folder
    found, model = holotype.load(run), load_model(run, "cpu")
    assert tuple(found.images.columns) == IMAGE_TABLE_COLUMNS
    assert found.images[["x", "y"]].isna().all().all()  # a map takes long, and only a report shows it
    assert found.known == ("green", "red")
    assert sum(category.n for category in found.categories) == len(found.images) == 64
    assert all(category.words and category.exemplars for category in found.categories)
    sizes = [category.n for category in found.categories if category.kind == "novel"]
    assert sizes == sorted(sizes, reverse=True)
    labelled = found.images[found.images.label != ""]
    assert (labelled.category == labelled.label).all()
    assert (labelled.probability == 1).all()
    facts = found.facts
    assert (facts.method, facts.seed, facts.round, facts.trained_on) == (method, 0, 0, 64)
    assert facts.in_use == len(found.categories)
    assert (facts.in_use < facts.k) == (method == "simgcd")  # 40 were asked for
    assert facts.backbone["digest"] == facts.provenance["backbone"]["digest"]
    free = found.images[found.images.label == ""]
    assert model.run_id == found.run_id
    assert list(model.place(model.features(list(free.path))).category_id) == list(free.category_id)
    by_id = {category.id: category.n for category in found.categories}
    assert [by_id.get(id, 0) for id in model.ids] == model.centres.n.tolist()
    again = Discoverer.load(run)
    assert list(again.labels_) == list(found.images.category_id)
    assert list(again.predict(list(free.path[:5]))) == list(free.category_id[:5])


def test_only_the_scores_know_the_truth_and_no_cell_is_a_formula(tiny, squares_folder, tmp_path) -> None:
    """Labels may be anything, and a spreadsheet computes what begins with =."""
    names = {"red": "=cmd()", "green": "@now", "blue": "hidden-class", "yellow": "hidden-class-two", "": ""}
    rows = list(csv.DictReader((squares_folder / "squares.csv").open()))
    cells = [(squares_folder / row["path"], names[row["label"]], names[row["truth"]]) for row in rows]
    table = write_csv(tmp_path / "table.csv", "path,label,truth", cells)
    record, run = run_experiment(tiny("kmeans", dataset=table)), tiny().folder
    assert "hidden-class" in (run / "per_class.csv").read_text()
    for name in FILES - {"metrics.jsonl", "cache.json", "per_class.csv", "confusion.csv"}:
        assert b"hidden-class" not in (run / name).read_bytes(), name
    assert "hidden-class" not in pd.read_parquet(run / "assignments.parquet").to_string()
    told = json.loads((run / "discovery.json").read_text())
    assert not {"scores", "test", *vars(record.scores)} & told["facts"].keys()
    sheet = pd.read_csv(run / "assignments.csv", keep_default_na=False)
    assert {"'=cmd()", "'@now"} <= set(sheet.label)
    for column in ("path", "label", "category", "category_id", "problem", "note"):
        assert not sheet[column].str.startswith(("=", "+", "-", "@")).any(), column
    assert {"=cmd()", "@now"} <= set(holotype.load(run).images.label)


def test_broken_images_are_left_out_and_said(tiny, tmp_path) -> None:
    rows = draw_squares(tmp_path / "squares")
    for name in ("red/red-00.png", "unlabelled/blue-00.png"):
        (tmp_path / "squares" / name).write_text("no image")
    table = write_csv(tmp_path / "squares" / "table.csv", "path,label,truth", rows)
    assert run_experiment(tiny("kmeans", dataset=table)).scores.n == 47
    images = holotype.load(tiny().folder).images
    broken = images[images.problem != ""]
    assert [Path(path).name for path in broken.path] == ["red-00.png", "blue-00.png"]
    assert set(broken.category) == set(broken.category_id) == set(broken.kind) == {""}
    assert broken.typicality.isna().all()
    assert read_json(tiny().folder / "provenance.json")["table"]["unreadable"] == 2


@pytest.mark.parametrize("method", ["kmeans", "rpc"])
def test_a_benchmark_is_scored_on_its_test_images_too(tiny, monkeypatch, squares_folder, tmp_path, method):
    """Copies of the unlabelled training images must score what those score."""
    table = load_table(squares_folder / "squares.csv")
    name_of = np.array([Path(path).stem.split("-")[0] for path in table.path], dtype=object)
    known, novel = ("green", "red"), ("blue", "yellow")
    train_table = Table(table.path, name_of, known + novel, name="squares")
    squares = Benchmark("squares", train_table, None, known, novel)
    rows = np.flatnonzero(~gcd_split(squares).labelled)
    (tmp_path / "test").mkdir()
    copies = np.array([shutil.copy(table.path[row], tmp_path / "test") for row in rows], dtype=object)
    test = Table(copies, name_of[rows], known + novel, name="squares test")
    squares = dataclasses.replace(squares, test=test)
    monkeypatch.setattr(resources, "load_benchmark", lambda name, root: squares)
    record = run_experiment(tiny(method, dataset="fashion-sample", k=None))
    assert (record.scores.n, record.test) == (48, record.scores)


def test_a_run_that_ends_with_one_category_says_so(tiny, monkeypatch, caplog) -> None:
    placement = predict.Placement
    monkeypatch.setattr(predict, "Placement", lambda *given: collapsed(placement(*given)))

    def collapsed(placed: predict.Placement) -> predict.Placement:
        placed.said.category[:] = 3
        return placed

    run_experiment(tiny("kmeans"))
    assert "48 unlabelled images were put into one new category, so nothing was found" in caplog.text


def test_a_stopped_run_goes_on_to_the_same_end(tiny, stopping) -> None:
    stopped, whole = ({"out": out, "train__epochs": 2} for out in ("stopped", "whole"))
    with stopping(), pytest.raises(Stopped, match="epoch 1 of 2, step 1"):
        run_experiment(tiny(**stopped))
    assert not (tiny(**stopped).folder / "scores.json").exists()
    assert timeless(run_experiment(tiny(**stopped))) == timeless(run_experiment(tiny(**whole)))
    assert_same_run(tiny(**stopped).folder, tiny(**whole).folder)


def test_a_run_that_died_between_two_epochs_logs_each_of_them_once(tiny, monkeypatch) -> None:
    before_epoch, settings = Loop._before_epoch, {"train__epochs": 2, "train__save_seconds": 0.0}

    def dies(loop, stage, epoch):
        if epoch == 1:
            raise SystemError("killed")
        before_epoch(loop, stage, epoch)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_before_epoch", dies)
        with pytest.raises(SystemError):
            run_experiment(tiny(out="killed", **settings))
    for out in ("killed", "whole"):
        run_experiment(tiny(out=out, **settings))
    assert_same_run(tiny(out="killed").folder, tiny(out="whole").folder)


def test_a_state_of_another_run_is_not_gone_on_from(tiny, stopping) -> None:
    """A folder that lost all but its state must not go on with weights that were learned from something else."""
    with stopping(), pytest.raises(Stopped):
        run_experiment(tiny(seed=1))
    (tiny().folder / "identity.json").unlink()
    with pytest.raises(InputError, match=r"state\.json is the training state of another run"):
        run_experiment(tiny(seed=0))
    shutil.rmtree(tiny().folder)
    assert run_experiment(tiny(seed=0)).identity.seed == 0


def test_a_folder_is_claimed_by_a_run_that_can_begin_and_left_alone_while_somebody_works(tiny) -> None:
    with pytest.raises(InputError, match="batch-size"):  # the advice is to lower it, in the same folder
        run_experiment(tiny(train__batch_size=128))
    assert not (tiny().folder / "identity.json").exists()
    with lock_folder(tiny().folder), pytest.raises(InputError, match="in use"):
        run_experiment(tiny())
    assert run_experiment(tiny()).scores.n == 48


def test_a_kill_right_after_the_scores_leaves_nothing_behind(tiny, monkeypatch) -> None:
    """The run is finished: the next command finds it so, and takes away what was still to go."""

    def dies(folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "clean_up", dies)
        with pytest.raises(KeyboardInterrupt):
            run_experiment(tiny())
    run = tiny().folder
    (run / "rest").mkdir()
    (run / f".scores.json.{'0' * 16}.part").write_text("half")
    assert list(run.glob("state*"))
    assert run_experiment(tiny()).scores is not None
    assert not [*run.glob("state*"), *run.glob("rest"), *run.glob(".*")]


def test_from_python_as_by_command(
    holotype, squares_folder, tiny_settings, tiny_flags, tmp_path, monkeypatch
):
    out, other, data = tmp_path / "python", tmp_path / "words", squares_folder / "squares.csv"
    settings = {key.replace("_size", "-size"): value for key, value in tiny_settings.items() if "." in key}
    record = train("simgcd", data, k=4, device="cpu", progress=False, out=out, settings=settings)
    assert read_json(out / "scores.json") == record.as_dict()
    assert holotype("train", "simgcd", data, *tiny_flags, "--out", other).code == 0
    for name in ("model.safetensors", "assignments.csv", "identity.json"):
        assert (out / name).read_bytes() == (other / name).read_bytes()
    monkeypatch.setattr(module, "run_experiment", lambda experiment, **_: experiment)
    found = train("rpc", "fashion-sample", preset="reading", seed=3, settings={"method.lambda_2": 0.1})
    assert found == resolve("rpc", "fashion-sample", "reading", {"seed": 3, "method.lambda_2": 0.1})


@pytest.mark.parametrize(
    ("words", "named", "sentence"),
    [
        (("rcp", "fashion-sample"), {}, "no method 'rcp'"),
        (("rpc", "fashion-simple"), {}, "did you mean fashion-sample"),
        (("rpc", "fashion-sample"), {"epochs": 3}, "'epochs' is unknown; did you mean train.epochs"),
        (("rpc", "fashion-sample"), {"seed": 1, "settings": {"seed": 2}}, "seed is given twice"),
        (("rpc", "fashion-sample"), {"device": "tpu"}, "device must be auto, cpu"),
        (("rpc", "fashion-sample"), {"settings": [1]}, "give them by name"),
        (("kmeans", "fashion-sample"), {"device": "cuda:1"}, "--device cuda:1 is not"),
    ],
)
def test_what_cannot_be_used_is_refused_before_data_are_read(words, named, sentence, monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(resources, "load_data", lambda *_: pytest.fail("data were read"))
    with pytest.raises(InputError, match=sentence):
        train(*words, **named)
