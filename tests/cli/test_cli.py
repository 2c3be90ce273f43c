"""The command line: what it offers, how settings come together, and one run from command to scores."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from holotype import __version__
from holotype.cli import COMMANDS
from holotype.cli.bench import make_experiments
from holotype.cli.bench import make_parser as bench_parser
from holotype.cli.settings import help_text, read_request, read_words
from holotype.cli.words import messages
from holotype.data.benchmarks import BENCHMARKS
from holotype.methods import METHODS
from holotype.runs.experiment import Experiment
from holotype.runs.settings import default_experiment, settings

from .test_bad_input import pressed

HEAVY = {"torch", "numpy", "pandas", "timm", "rich", "yaml", "sklearn", "matplotlib"}


def read(*words: object) -> Experiment:
    return read_request(read_words([str(word) for word in words])).resolve()


# -- help ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(word: str) -> None:
    code = f"import sys; from holotype.cli import main; main([{word!r}]); print(*sys.modules, sep=chr(10))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split("\n"))
    assert "holotype.cli" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("words", ["train", "train rpc", "train rpc cub --seed", "train rpc cub --help=3"])
def test_words_that_make_no_sense_are_refused_before_anything_heavy_is_loaded(words: str) -> None:
    code = f"import sys; from holotype.cli import main; main({words.split()!r}); print(*sys.modules, sep=chr(10))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.count("\n") == 1
    loaded = set(run.stdout.split("\n"))
    assert "holotype.cli.train" in loaded
    assert not loaded & HEAVY


def test_help_comes_at_once() -> None:
    seconds = []
    for _ in range(3):
        started = time.monotonic()
        subprocess.run([sys.executable, "-m", "holotype", "--help"], capture_output=True, check=True)
        seconds.append(time.monotonic() - started)
    assert min(seconds) < 0.5


def test_help_names_every_command(holotype) -> None:
    for words in ((), ("--help",), ("-h",)):
        outcome = holotype(*words)
        assert outcome.code == 0
        for name, line in COMMANDS.items():
            assert f"holotype {name}" in outcome.out
            assert line in outcome.out
    for name in COMMANDS:
        outcome = holotype(name, "--help")
        assert outcome.code == 0
        assert f"holotype {name}" in outcome.out
    assert holotype("--version").out == f"holotype {__version__}\n"


def test_help_of_train_names_methods_and_data_sets(holotype) -> None:
    text = holotype("train", "--help").out
    assert all(name in text for name in (*METHODS, *BENCHMARKS))
    assert "--preset default or reading" in text


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("columns", [60, 110])
def test_help_lists_every_setting_in_two_columns(monkeypatch, method: str, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    experiment = default_experiment(method, "cub")
    text = help_text(experiment)
    keys = [key for key, _, _ in settings(experiment)]
    assert {"method_name", "dataset", "train.epochs", "backbone.name"} < set(keys)
    assert all(text.count(f"  --{key} VALUE") == 1 for key in keys)
    titles = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert {"Everything that decides a run:", "Settings of training:"} < set(titles)
    _, _, settings_text = text.partition("Everything that decides a run:")
    for line in settings_text.splitlines():
        assert len(line) <= columns or line in titles, line
        assert not line.startswith(" ") or line.startswith(("  --", " " * 24)), line


def test_help_shows_the_defaults_of_method_and_data_set(holotype) -> None:
    text = " ".join(holotype("train", "debgcd", "cub", "--help").out.split())
    assert "a pseudo-label counts (thr). [a number; default 0.65]" in text.replace(
        "pseudo- label", "pseudo-label"
    )
    assert "--method.ova.arch" in holotype("train", "rpc", "--help").out
    outcome = holotype("train", "rpc", "cub", "--preset", "reading", "--help")
    assert "[a number; default 1.0]" in outcome.out.partition("--method.new.sharpen")[2]


# -- how settings come together -----------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["cub", "cifar100", "fashion-sample"])
@pytest.mark.parametrize(("method", "preset"), [(m, p) for m, cls in METHODS.items() for p in cls.presets])
def test_defaults_are_those_of_method_preset_and_recipe(method: str, preset: str, dataset: str) -> None:
    assert read(method, dataset, "--preset", preset) == default_experiment(method, dataset, preset)


def test_flags_change_what_they_name_and_nothing_else() -> None:
    words = "--seed 3 rpc --train.epochs=5 cub --method.ova.arch debgcd --method.alpha 0.4"
    words += " --k 30 --out 2024 --no-progress"
    expected = default_experiment("rpc", "cub")
    expected.seed, expected.train.epochs, expected.method.ova.arch = 3, 5, "debgcd"
    expected.method.alpha, expected.k, expected.out, expected.progress = 0.4, 30, "2024", False
    assert read(*words.split()) == expected
    assert read("rpc", "cub", "--progress", "false").progress is False
    assert read("rpc", "cub", "--train.lr", "1").train.lr == 1.0


def test_dashes_and_underscores_are_the_same() -> None:
    """In every setting of a run; and in the flags of the commands that have few."""
    words = "--cache-views 16+8 --store disk --memory.device-gb 20 --train.batch-size=64 --no-progress"
    expected = default_experiment("rpc", "cub")
    expected.cache_views, expected.store, expected.memory.device_gb = "16+8", "disk", 20.0
    expected.train.batch_size, expected.progress = 64, False
    assert read("rpc", "cub", *words.split()) == expected
    assert read("rpc", "cub", *words.replace("-v", "_v").replace("-p", "_p").split()) == expected
    given = bench_parser().parse_args(
        ["--cache_views", "4+2", "--table_only", "--no_progress", "--out=my_runs"]
    )
    assert (given.cache_views, given.table_only, given.no_progress, given.out) == (
        "4+2",
        True,
        True,
        "my_runs",
    )


def test_a_benchmark_is_exact_unless_asked_otherwise() -> None:
    words = ["--methods", "simgcd", "--datasets", "cub"]
    (exact,) = make_experiments(bench_parser().parse_args(words))
    (cached,) = make_experiments(bench_parser().parse_args([*words, "--cache-views", "16+8"]))
    assert (exact.cache_views, cached.cache_views) == ("off", "16+8")
    assert read("simgcd", "cub").cache_views == "auto"


def test_a_config_alone_repeats_a_run_and_flags_win_over_it(tmp_path: Path) -> None:
    experiment = read(
        "rpc", "cub", "--preset", "reading", "--seed", 7, "--method.alpha", 0.9, "--train.lr", 1e-5
    )
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(experiment.as_dict(), sort_keys=False))
    assert read("--config", file) == experiment
    for words in (("--config", file, "--seed", 8), ("--seed", 8, "--config", file)):
        changed = read(*words)
        assert changed.seed == 8
        assert changed.method == experiment.method
    assert read("rpc", "scars", "--config", file).dataset == "scars"


def test_the_config_of_a_method_without_settings_can_be_repeated(tmp_path, monkeypatch) -> None:
    (tmp_path / "plain_method.py").write_text(
        "from dataclasses import make_dataclass\nfrom holotype.methods.simgcd import SimGCD\n"
        "class Plain(SimGCD):\n    Config = make_dataclass('Nothing', [])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "config.yaml"
    file.write_text("method_name: plain_method:Plain\ndataset: cub\nmethod: {}\nseed: 3\n")
    assert read("--config", file).seed == 3


def test_of_several_configs_the_last_one_that_has_a_setting_counts(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("method_name: kmeans\ndataset: cub\ntrain: {epochs: 3, lr: 1e-4}\n")
    (tmp_path / "b.yaml").write_text("train: {epochs: 4}\nmethod: {n_init: 2}\ncache_views: off\n")
    experiment = read("--config", tmp_path / "a.yaml", "--config", tmp_path / "b.yaml")
    assert (experiment.train.epochs, experiment.train.lr, experiment.method.n_init) == (4, 1e-4, 2)
    assert experiment.cache_views == "off"


def test_part_of_a_config_leaves_the_rest_to_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "part.yaml").write_text("dataset: cub\ntrain: {epochs: 3}\nmethod: {debias: {adl: 9}}\n")
    experiment = read("rpc", "--config", tmp_path / "part.yaml")
    assert (experiment.train.epochs, experiment.train.batch_size) == (3, 128)
    assert (experiment.method.debias.adl, experiment.method.debias.threshold) == (9.0, 0.65)


def test_print_config_gives_a_config(holotype, tmp_path: Path) -> None:
    outcome = holotype("train", "rpc", "cub", "--seed", 5, "--print_config")
    assert outcome.code == 0
    (tmp_path / "config.yaml").write_text(outcome.out)
    assert read("--config", tmp_path / "config.yaml") == read("rpc", "cub", "--seed", 5)
    again = holotype("train", "--config", tmp_path / "config.yaml", "--print-config")
    assert again.out == outcome.out


def test_a_method_of_ones_own(holotype, tmp_path: Path, monkeypatch, squares_folder, tiny_flags) -> None:
    """Named as package.module:Class: its settings are flags with help like any other's, and it trains."""
    (tmp_path / "my_methods.py").write_text(OWN_METHOD)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = holotype("train", "my_methods:Nearest", "--help").out
    assert "Which of the categories everything goes to." in text
    words = ("my_methods:Nearest", squares_folder / "squares.csv", *tiny_flags, "--out", tmp_path / "run")
    assert holotype("train", *words, "--method.favourite", 1).code == 0
    assert json.loads((tmp_path / "run" / "scores.json").read_text())["scores"]["all"] == 16 / 48


OWN_METHOD = '''
"""Puts everything into one category."""
from dataclasses import dataclass
import torch
from holotype.methods import Method, Prediction

@dataclass
class Settings:
    """Settings of Nearest."""
    favourite: int = 0
    """Which of the categories everything goes to."""

class Nearest(Method):
    Config = Settings
    def stages(self):
        return []
    def predict(self, features):
        one = torch.ones(len(features))
        return Prediction((one * self.config.favourite).long(), one, one)
'''


# -- runs ---------------------------------------------------------------------------------------------


def test_a_run_from_command_to_scores(holotype, squares_folder, tiny_flags, tmp_path) -> None:
    out = tmp_path / "run"
    words = ("train", "simgcd", squares_folder / "squares.csv", *tiny_flags, "--out", out)
    first = holotype(*words)
    assert first.code == 0, first.err
    record = json.loads((out / "scores.json").read_text())
    scores = [f"{100 * record['scores'][key]:.1f}" for key in ("all", "old", "new")]
    (line,) = [line for line in first.out.splitlines() if line.strip().startswith("unlabelled")]
    assert line.split() == ["unlabelled", *scores]
    assert "48 unlabelled training images, one global assignment, last epoch" in first.out
    assert str(out) in first.out

    logged = (out / "metrics.jsonl").read_text()
    again = holotype(*words)
    assert again.code == 0
    assert "finished before" in again.out
    assert line in again.out
    assert (out / "metrics.jsonl").read_text() == logged

    repeated = holotype("train", "--config", out / "config.yaml", "--out", tmp_path / "repeated")
    assert repeated.code == 0
    assert line in repeated.out
    for name in ("assignments.csv", "model.safetensors"):
        assert (tmp_path / "repeated" / name).read_bytes() == (out / name).read_bytes()


def test_what_the_library_says_is_shown_on_stderr(holotype, squares_folder, tiny_flags, tmp_path) -> None:
    words = ("train", "simgcd", squares_folder / "squares.csv", *tiny_flags)
    outcome = holotype(*words, "--out", tmp_path / "run", "--cache-views", "4+2")
    images, tokens = outcome.err.splitlines()
    assert images.startswith("64 images, ")
    assert tokens.startswith("Token cache: 4+0 views of 64 images, ")
    assert "images, " not in outcome.out.split("\n")[0]
    logger = logging.getLogger("holotype")
    assert not logger.handlers  # when the command is done, nobody listens any more


def test_of_several_processes_one_speaks(monkeypatch, capsys) -> None:
    logger = logging.getLogger("holotype.somewhere")
    with messages():
        logger.info("64 images, 1.6 GB, in host memory.")
        logger.debug("not worth a line")
        monkeypatch.setenv("RANK", "1")
        logger.warning("the second process is silent")
    assert capsys.readouterr().err == "64 images, 1.6 GB, in host memory.\n"


def test_images_without_truth_are_placed_but_not_scored(
    holotype, squares_folder, tiny_flags, tmp_path
) -> None:
    outcome = holotype("train", "simgcd", squares_folder, *tiny_flags, "--out", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    assert "nothing to score" in outcome.out
    assert (tmp_path / "run" / "assignments.csv").read_text().count("\n") == 65


def test_a_stopped_run_says_where_and_goes_on(
    holotype, squares_folder, tiny_flags, tmp_path, monkeypatch
) -> None:
    words = ("train", "simgcd", squares_folder / "squares.csv", *tiny_flags, "--out")
    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        stopped = holotype(*words, tmp_path / "stopped")
    assert stopped.code == 130
    (line,) = [line for line in stopped.err.splitlines() if "images" not in line]
    assert line.startswith("Stopped at stage train, epoch 1 of 1, step 1; the state is saved")
    assert holotype(*words, tmp_path / "stopped").code == 0
    assert holotype(*words, tmp_path / "whole").code == 0
    name = "model.safetensors"
    assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_ctrl_c_before_training(holotype, monkeypatch) -> None:
    def interrupt(words):
        raise KeyboardInterrupt

    monkeypatch.setattr("holotype.cli.data.command", interrupt)
    outcome = holotype("data", "list")
    assert outcome.code == 130
    assert outcome.err.count("\n") == 1


def test_data_commands(holotype) -> None:
    outcome = holotype("data", "list")
    assert outcome.code == 0
    assert all(name in outcome.out for name in BENCHMARKS)
    outcome = holotype("data", "check", "fashion-sample")
    assert outcome.code == 0
    assert "ready" in outcome.out
