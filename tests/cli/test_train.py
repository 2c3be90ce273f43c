"""`holotype train`: flags, configs and recipes come together, and a run goes from command to scores."""

import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from holotype.cli.common import Parser
from holotype.cli.options import BenchOptions, TrainOptions
from holotype.cli.train import read_names, train_help
from holotype.methods import METHODS
from holotype.runs.experiment import Experiment, default_experiment, resolve, setting_values
from holotype.training.loop import Loop

from .test_bad_input import pressed


def options(*words: object) -> TrainOptions:
    return Parser("train", TrainOptions).parse_args([str(word) for word in words])


def read(*words: object) -> Experiment:
    names, overrides = read_names(options(*words))
    return resolve(names["method_name"], names["dataset"], names["preset"], overrides)


@pytest.mark.parametrize(("method", "columns"), [(name, 60 + 50 * (i % 2)) for i, name in enumerate(METHODS)])
def test_help_lists_every_setting_in_two_columns(monkeypatch, method: str, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = train_help(options(method, "cub", "--help"))
    keys = [key for key, _, _ in setting_values(default_experiment(method, "cub"))]
    assert {"method_name", "dataset", "train.epochs", "backbone.name"} < set(keys)
    assert all(text.count(f"  --{key.replace('_', '-')} VALUE") == 1 for key in keys)
    _, _, settings_text = text.partition("Everything that decides a run:")
    for line in settings_text.splitlines():
        assert len(line) <= columns or line.endswith(":"), line
        assert not line.startswith(" ") or line.startswith(("  --", " " * 24)), line


def test_flags_change_what_they_name_and_dashes_are_underscores() -> None:
    words = "--seed 3 rpc --train.epochs=5 cub --method.pairing.filter none --method.alpha 0.4 --k 30"
    words += " --out 2024"
    expected = default_experiment("rpc", "cub")
    expected.seed, expected.train.epochs, expected.method.pairing.filter = 3, 5, "none"
    expected.method.alpha, expected.k, expected.out, expected.progress = 0.4, 30, "2024", False
    assert read(*words.split(), "--no-progress") == expected
    words = "--cache-views 16+8 --store disk --memory.device-gb 20 --train.batch-size=64 --no-progress"
    expected = default_experiment("rpc", "cub")
    expected.cache_views, expected.store, expected.memory.device_gb = "16+8", "disk", 20.0
    expected.train.batch_size, expected.progress = 64, False
    assert read("rpc", "cub", *words.split()) == expected
    assert read("rpc", "cub", *words.replace("-v", "_v").replace("-p", "_p").split()) == expected
    words = "--cache_views 4+2 --table_only --no_progress --out=my_runs"
    given = Parser("bench", BenchOptions).parse_args(words.split())
    assert (given.cache_views, given.table_only, given.progress) == ("4+2", True, False)
    assert given.out == Path("my_runs")


def test_a_config_alone_repeats_a_run_and_flags_win_over_it(tmp_path: Path) -> None:
    words = ("--preset", "reading", "--seed", 7, "--method.alpha", 0.9, "--train.lr", 1e-5)
    experiment = read("rpc", "cub", *words)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(experiment.as_dict(), sort_keys=False))
    assert read("--config", file) == experiment
    for words in (("--config", file, "--seed", 8), ("--seed", 8, "--config", file)):
        changed = read(*words)
        assert (changed.seed, changed.method) == (8, experiment.method)
    assert read("rpc", "scars", "--config", file).dataset == "scars"


def test_a_run_from_command_to_scores(holotype, squares_folder, tiny_flags, tmp_path) -> None:
    out = tmp_path / "run"
    words = ["train", "simgcd", squares_folder / "squares.csv", *tiny_flags, "--cache-views", "4+2"]
    words += ["--out", out]
    first = holotype(*words)
    assert first.code == 0, first.err
    assert [line.split()[0] for line in first.err.splitlines()] == ["64", "Token"]  # images, Token cache
    record = json.loads((out / "scores.json").read_text())
    scores = [f"{100 * record['scores'][key]:.1f}" for key in ("all", "old", "new")]
    (line,) = [line for line in first.out.splitlines() if line.strip().startswith("unlabelled")]
    assert line.split() == ["unlabelled", *scores]
    assert str(out) in first.out
    logged = (out / "metrics.jsonl").read_text()
    again = holotype(*words)
    assert (again.code, "finished before" in again.out, line in again.out) == (0, True, True)
    assert (out / "metrics.jsonl").read_text() == logged
    repeated = holotype("train", "--config", out / "config.yaml", "--out", tmp_path / "repeated")
    assert (repeated.code, line in repeated.out) == (0, True)
    for name in ("assignments.csv", "model.safetensors"):
        assert (tmp_path / "repeated" / name).read_bytes() == (out / name).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_goes_on(holotype, squares_folder, tiny_flags, tmp_path, monkeypatch, number) -> None:
    words = ("train", "simgcd", squares_folder / "squares.csv", *tiny_flags, "--out")
    step = Loop._run_epoch

    def signalled(loop, *given):
        os.kill(os.getpid(), number)
        yield from step(loop, *given)

    with monkeypatch.context() as patch:
        if number == signal.SIGINT:
            patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        else:
            patch.setattr(Loop, "_run_epoch", signalled)
        stopped = holotype(*words, tmp_path / "stopped")
    assert stopped.code == 128 + number
    place = "stage train, epoch 1 of 1, step 1"
    assert f"Stopped at {place}; the state is saved" in stopped.err
    assert (tmp_path / "stopped" / "state.json").exists()
    status = holotype("status", tmp_path / "stopped").out
    assert f"stopped; the same command continues ({place})" in status
    assert "last save" in status
    assert holotype(*words, tmp_path / "stopped").code == 0
    if number == signal.SIGINT:
        assert holotype(*words, tmp_path / "whole").code == 0
        name = "model.safetensors"
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
