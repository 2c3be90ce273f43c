"""Every run leaves the same folder, which keeps the truth to its scores, and nobody goes on from another's state."""

from __future__ import annotations

import csv
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import holotype
from holotype.discovery.estimator import Discoverer
from holotype.errors import InputError, Stopped
from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Discovery
from holotype.runs import run
from holotype.runs import run as module
from holotype.runs.experiment import Experiment
from holotype.runs.model_io import load_model
from holotype.runs.parallel import run_together
from holotype.runs.resolve import default_experiment, resolve
from holotype.runs.run import run_experiment, train
from holotype.runs.status import read_status
from holotype.training.checkpoint import Checkpointer
from holotype.utils.locks import lock_folder
from holotype.utils.serialization import read_json
from tests.cli.test_bad_input import pressed

FOLDER = {
    *("identity.json", "config.yaml", "provenance.json", "metrics.jsonl", "model.json", "model.safetensors"),
    *("assignments.csv", "assignments.parquet", "discovery.json", "scores.json"),
}


@pytest.fixture
def tiny(squares_folder, tiny_backbone_file, tmp_path):
    """A run of a second on 64 squares of 4 classes, 2 of them known."""

    def make(
        method: str = "simgcd", out: str = "run", dataset: Path | None = None, seed: int = 0
    ) -> Experiment:
        found = default_experiment(method, str(dataset or squares_folder / "squares.csv"))
        found.k, found.device, found.progress, found.out = 4, "cpu", False, str(tmp_path / out)
        found.backbone.name, found.seed = str(tiny_backbone_file), seed
        found.train.epochs, found.train.batch_size, found.cache_views = 2, 16, "off"
        return found

    return make


@pytest.mark.parametrize("method", ["simgcd", "kmeans"])
def test_a_trained_run_is_a_discovery_like_any_other(tiny, method) -> None:
    run_experiment(tiny(method))
    run = tiny(method).folder
    assert {file.name for file in run.iterdir()} >= FOLDER - (
        {"metrics.jsonl"} if method == "kmeans" else set()
    )
    found = holotype.load(run)
    assert tuple(found.images.columns) == IMAGE_TABLE_COLUMNS
    assert found.images[["x", "y"]].isna().all().all()  # a map takes long, and only a report shows it
    assert found.known == ("green", "red")
    assert sum(category.n for category in found.categories) == len(found.images) == 64
    assert all(category.words and category.exemplars for category in found.categories)
    labelled = found.images[found.images.label != ""]
    assert (labelled.category == labelled.label).all()
    assert (labelled.probability == 1).all()
    facts = found.facts
    assert (facts.method, facts.k, facts.seed, facts.round, facts.trained_on) == (method, 4, 0, 0, 64)
    assert facts.backbone["digest"] == facts.provenance["backbone"]["digest"]
    model = load_model(run, "cpu")
    assert model.run_id == found.run_id
    free = found.images[found.images.label == ""]
    placed = model.place(model.features(list(free.path)))
    assert list(placed.category_id) == list(free.category_id)
    by_id = {category.id: category.n for category in found.categories}
    assert [by_id.get(id, 0) for id in model.ids] == model.centres.n.tolist()
    again = Discoverer.load(run)
    assert list(again.labels_) == list(found.images.category_id)
    assert list(again.predict(list(free.path[:5]))) == list(free.category_id[:5])


def test_the_facts_count_the_categories_in_use(tiny) -> None:
    experiment = tiny()
    experiment.k = 40
    run_experiment(experiment)
    found = holotype.load(experiment.folder)
    assert found.facts.in_use == len(found.categories) < found.facts.k == 40


def test_a_run_that_could_not_begin_does_not_claim_its_folder(tiny) -> None:
    """The advice is to lower --train.batch_size, and the same folder must take it."""
    large = tiny()
    large.train.batch_size = 128
    with pytest.raises(InputError, match="batch_size"):
        run_experiment(large)
    assert not (large.folder / "identity.json").exists()
    assert run_experiment(tiny()).scores.n == 48


def test_new_categories_are_numbered_by_size(tiny) -> None:
    run_experiment(tiny("kmeans"))
    sizes = [c.n for c in Discovery.load(tiny().folder).categories if c.kind == "novel"]
    assert sizes == sorted(sizes, reverse=True)


def write_table(file: Path, squares: Path, rename: dict[str, str], hidden: dict[str, str]) -> Path:
    rows = list(csv.DictReader((squares / "squares.csv").open()))
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "label", "truth"])
        for row in rows:
            truth = rename.get(row["truth"], hidden.get(row["truth"], row["truth"]))
            writer.writerow([squares / row["path"], rename.get(row["label"], row["label"]), truth])
    return file


def test_no_cell_of_the_table_is_a_formula(tiny, squares_folder, tmp_path) -> None:
    """Labels may be anything, and a spreadsheet computes what begins with =."""
    names = {"red": "=cmd()", "green": "@now"}
    table = write_table(tmp_path / "table.csv", squares_folder, names, {})
    run_experiment(tiny("kmeans", dataset=table))
    sheet = pd.read_csv(tiny().folder / "assignments.csv", keep_default_na=False)
    assert {"'=cmd()", "'@now"} <= set(sheet.label)
    for column in ("path", "label", "category", "category_id", "problem", "note"):
        assert not sheet[column].str.startswith(("=", "+", "-", "@")).any(), column
    assert {"=cmd()", "@now"} <= set(holotype.load(tiny().folder).images.label)


def test_only_the_scores_know_the_truth(tiny, squares_folder, tmp_path) -> None:
    hidden = {"blue": "hidden-class-one", "yellow": "hidden-class-two"}
    table = write_table(tmp_path / "table.csv", squares_folder, {}, hidden)
    record = run_experiment(tiny("kmeans", dataset=table))
    run = tiny().folder
    assert "hidden-class-one" in (run / "per_class.csv").read_text()
    for name in FOLDER - {"metrics.jsonl"}:
        content = (run / name).read_bytes()
        assert b"hidden-class" not in content, name
    assert "hidden-class" not in pd.read_parquet(run / "assignments.parquet").to_string()
    told = json.loads((run / "discovery.json").read_text())
    assert record.scores.all is not None
    assert not {"scores", "test", *vars(record.scores)} & told["facts"].keys()


def test_a_state_of_another_run_is_not_gone_on_from(tiny, tmp_path, monkeypatch) -> None:
    """A folder that lost all but its state must not go on with weights that were learned from something else."""
    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        with pytest.raises(Stopped):
            run_experiment(tiny(seed=1))
    (tiny().folder / "identity.json").unlink()
    with pytest.raises(InputError, match=r"state\.json is the training state of another run") as told:
        run_experiment(tiny(seed=0))
    assert "\n" not in str(told.value)
    shutil.rmtree(tiny().folder)
    assert run_experiment(tiny(seed=0)).identity.seed == 0


def test_a_run_that_ends_with_one_category_says_so(tiny, monkeypatch, caplog) -> None:
    place = module.place_images

    def collapsed(loop, prediction, *rest):
        prediction.category[:] = 3
        return place(loop, prediction, *rest)

    monkeypatch.setattr(module, "place_images", collapsed)
    run_experiment(tiny("kmeans"))
    assert "unlabelled images were put into one new category, so nothing was found" in caplog.text


def test_a_run_can_be_watched_and_leaves_no_trace_of_that(tiny, monkeypatch) -> None:
    seen, save = [], Checkpointer.save

    def watched(self, state) -> None:
        save(self, state)
        time.sleep(0.1)  # the heart beats
        seen.extend(read_status(tiny().folder))

    monkeypatch.setattr("holotype.utils.heartbeat.SECONDS", 0.02)
    monkeypatch.setattr("holotype.training.checkpoint.SECONDS", 0.0)
    monkeypatch.setattr(Checkpointer, "save", watched)
    run_experiment(tiny())
    assert {(one.state, one.phase, one.stage) for one in seen} == {("running", "training", "train")}
    assert (seen[-1].epoch, seen[-1].epochs, seen[-1].step, seen[-1].steps) == (2, 2, 8, 8)
    assert seen[-1].loss > 0
    assert seen[-1].last_save
    assert not (tiny().folder / "heartbeat.json").exists()
    assert read_status(tiny().folder)[0].state == "finished"


def test_a_kill_right_after_the_scores_leaves_nothing_behind(tiny, monkeypatch) -> None:
    """The run is finished: the next command finds it so, and takes away what was still to go."""

    class Killed(BaseException):
        pass

    def dies(folder):
        raise Killed

    monkeypatch.setattr(module, "clean_up", dies)
    with pytest.raises(Killed):
        run_experiment(tiny())
    monkeypatch.undo()
    run = tiny().folder
    (run / "rest").mkdir()
    (run / f".scores.json.{'0' * 16}.part").write_text("half")
    assert list(run.glob("state*"))
    assert run_experiment(tiny()).scores is not None
    assert not list(run.glob("state*"))
    assert not (run / "rest").exists()
    assert not list(run.glob(".*"))


def test_a_folder_in_which_somebody_works_is_left_alone(tiny) -> None:
    with lock_folder(tiny().folder), pytest.raises(InputError):
        run_experiment(tiny())
    with lock_folder(tiny().folder):
        refused, made = run_together([tiny(), tiny(out="other", seed=1)])
    assert isinstance(refused, InputError)
    assert made.identity.seed == 1
    run_experiment(tiny())  # whoever is done leaves the folder to others
    assert run_together([tiny(), tiny(out="other", seed=1)])[1] == made


def test_images_that_cannot_be_read_are_in_no_category(tiny, squares_folder, tmp_path) -> None:
    shutil.copytree(squares_folder, tmp_path / "photos")
    broken = tmp_path / "photos" / "unlabelled" / "blue-00.png"
    broken.write_bytes(b"no picture")
    run_experiment(tiny("kmeans", dataset=tmp_path / "photos"))
    images = holotype.load(tiny().folder).images
    row = images[images.path == str(broken)].iloc[0]
    assert (row.category, row.category_id, row.kind) == ("", "", "")
    assert row.problem
    assert np.isnan(row.typicality)


def test_a_run_from_python_is_that_of_the_command_line(
    holotype, squares_folder, tiny_backbone_file, tiny_flags, tmp_path
):
    out, other = tmp_path / "python", tmp_path / "words"
    record = train(
        "simgcd",
        squares_folder / "squares.csv",
        k=4,
        device="cpu",
        progress=False,
        out=out,
        settings={"train.epochs": 1, "train.batch-size": 16, "backbone.name": tiny_backbone_file},
    )
    assert read_json(out / "scores.json") == record.as_dict()
    assert holotype("train", "simgcd", squares_folder / "squares.csv", *tiny_flags, "--out", other).code == 0
    for name in ("model.safetensors", "assignments.csv", "identity.json"):
        assert (out / name).read_bytes() == (other / name).read_bytes()


def test_settings_arrive(monkeypatch):
    monkeypatch.setattr(run, "run_experiment", lambda experiment: experiment)
    found = train("rpc", "fashion-sample", preset="reading", seed=3, settings={"method.lambda_2": 0.1})
    assert found == resolve("rpc", "fashion-sample", "reading", {"seed": 3, "method.lambda_2": 0.1})


@pytest.mark.parametrize(
    ("words", "named", "sentence"),
    [
        (("rcp", "fashion-sample"), {}, "no method 'rcp'"),
        (("rpc", "fashion-simple"), {}, "did you mean fashion-sample"),
        (("rpc", "fashion-sample"), {"epochs": 3}, "'epochs' is unknown; did you mean train.epochs"),
        (("rpc", "fashion-sample"), {"seed": 0.5}, "seed must be a whole number, not 0.5"),
        (("rpc", "fashion-sample"), {"seed": 1, "settings": {"seed": 2}}, "seed is given twice"),
        (("rpc", "fashion-sample"), {"device": "tpu"}, "device must be auto, cpu"),
    ],
)
def test_what_cannot_be_used(words, named, sentence):
    with pytest.raises(InputError, match=sentence):
        train(*words, **named)


def test_a_device_that_is_not_there_is_refused_before_data_are_read(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("holotype.runs.resources.load_data", lambda *_: pytest.fail("data were read"))
    with pytest.raises(InputError, match="--device cuda:1 is not available"):
        train("kmeans", "fashion-sample", device="cuda:1")


def test_settings_have_names() -> None:
    with pytest.raises(InputError, match="give them by name"):
        train("rpc", "fashion-sample", settings=[1])
