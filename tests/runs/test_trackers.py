"""Trackers get what metrics.jsonl gets; with the real packages in `make test-integrations`."""

from pathlib import Path

import pytest

from holotype.errors import InputError, Stopped
from holotype.runs.run import run_experiment
from holotype.runs.run_result import read_metrics
from holotype.runs.sweep import run_together
from holotype.training import callbacks as module


class Listed(module.Tracker):
    """Keeps what it is sent."""

    def __init__(self, run):
        super().__init__(run)
        self.run, self.sent, self.closed = run, [], 0
        OPENED.append(self)

    def send(self, values, step):
        self.sent.append((step, dict(values)))

    def close(self):
        self.closed += 1


OPENED: list[Listed] = []


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    OPENED.clear()
    monkeypatch.setitem(module.TRACKERS, "listed", Listed)


def test_a_tracker_gets_every_line_and_the_scores(tiny):
    experiment = tiny(log="listed", train__epochs=2, train__eval_every=1)
    record = run_experiment(experiment)
    (tracker,) = OPENED
    losses = [(step, values["epoch/loss"]) for step, values in tracker.sent if "epoch/loss" in values]
    lines = [line for line in read_metrics(experiment.folder) if line["kind"] == "epoch"]
    assert losses == [(line["counter"], line["loss"]) for line in lines]
    assert any("score/all" in values for _, values in tracker.sent)
    assert any("step/cls_u" in values for _, values in tracker.sent)
    assert {"final/all": record.scores.all}.items() <= tracker.sent[-1][1].items()
    assert (tracker.closed, tracker.run.steps, tracker.run.key) == (1, 0, record.identity.name)
    run_experiment(experiment)  # it was finished
    assert len(OPENED) == 1


def test_a_stopped_run_closes_its_tracker_and_goes_on_where_it_was(tiny, stopping):
    with stopping(), pytest.raises(Stopped):
        run_experiment(tiny(log="listed"))
    run_experiment(tiny(log="listed"))
    assert [(tracker.closed, tracker.run.steps) for tracker in OPENED] == [(1, 0), (1, 1)]


def test_runs_that_train_at_once_have_trackers_of_their_own(tiny):
    run_together([tiny(out=f"run{seed}", seed=seed, log="listed") for seed in (0, 1)])
    assert [tracker.closed for tracker in OPENED] == [1, 1]
    assert OPENED[0].sent != OPENED[1].sent


def test_an_unknown_tracker_is_refused_before_anything_is_trained(tiny, bench):
    with pytest.raises(InputError, match=r"no tracker 'tensorbord'.*tensorboard"):
        run_experiment(tiny(log="tensorbord"))
    outcome = bench("--methods", "kmeans", "--log", "listed")
    assert (outcome.code, len(OPENED)) == (0, 1)


def test_a_missing_package_is_told_before_images_are_read(bench, counted, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    outcome = bench("--methods", "simgcd", "--seeds", "0,1", "--log", "wandb")
    assert (outcome.code, outcome.err.count("needs the package wandb"), counted) == (2, 1, [])


@pytest.mark.trackers
def test_tensorboard_reads_what_was_written(tiny, stopping):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with stopping(), pytest.raises(Stopped):
        run_experiment(tiny(log="tensorboard", train__epochs=3))
    experiment = tiny(log="tensorboard", train__epochs=3)
    record = run_experiment(experiment)
    events = accumulator.EventAccumulator(str(experiment.folder / "tensorboard")).Reload()
    lines = [line for line in read_metrics(experiment.folder) if line["kind"] == "epoch"]
    read = [(event.step, pytest.approx(event.value)) for event in events.Scalars("epoch/loss")]
    assert [(line["counter"], line["loss"]) for line in lines] == read
    assert events.Scalars("final/all")[0].value == pytest.approx(record.scores.all)


@pytest.mark.trackers
def test_wandb_writes_offline(tiny, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    record = run_experiment(tiny(log="wandb"))
    (file,) = Path(tmp_path).glob("wandb/offline-run-*/*.wandb")
    content = file.read_bytes()
    assert record.identity.name.encode() in content
    assert b"epoch/loss" in content
