"""Settings on the command line: help lists every one, and flags, configs and recipes come together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from holotype.cli.bench import make_parser as bench_parser
from holotype.cli.train import read_request, settings_help
from holotype.methods import METHODS
from holotype.methods.registry import allow_code
from holotype.runs.experiment import Experiment, default_experiment, setting_values
from tests.made_study import asked_for


def read(*words: object) -> Experiment:
    return read_request([str(word) for word in words]).resolve()


# -- help ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("columns", [60, 110])
def test_help_lists_every_setting_in_two_columns(monkeypatch, method: str, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    experiment = default_experiment(method, "cub")
    text = settings_help(experiment)
    keys = [key for key, _, _ in setting_values(experiment)]
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
    assert "a pseudo-label counts (thr). [a number (from 0 to 1); default 0.65]" in text.replace(
        "pseudo- label", "pseudo-label"
    )
    assert "--method.ova.weight" in holotype("train", "rpc", "--help").out
    outcome = holotype("train", "rpc", "cub", "--preset", "reading", "--help")
    told = " ".join(outcome.out.partition("--method.new.sharpen")[2].split())
    assert "[a number (at least 0 and at most 1e+30); default 1.0]" in told


# -- how settings come together -----------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["cub", "cifar100", "fashion-sample"])
@pytest.mark.parametrize(("method", "preset"), [(m, p) for m, cls in METHODS.items() for p in cls.presets])
def test_defaults_are_those_of_method_preset_and_recipe(method: str, preset: str, dataset: str) -> None:
    assert read(method, dataset, "--preset", preset) == default_experiment(method, dataset, preset)


def test_flags_change_what_they_name_and_nothing_else() -> None:
    words = "--seed 3 rpc --train.epochs=5 cub --method.pairing.filter none --method.alpha 0.4"
    words += " --k 30 --out 2024 --no-progress"
    expected = default_experiment("rpc", "cub")
    expected.seed, expected.train.epochs, expected.method.pairing.filter = 3, 5, "none"
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
    assert (given.cache_views, given.table_only, given.no_progress) == ("4+2", True, True)
    assert given.out == Path("my_runs")


def test_a_benchmark_is_exact_unless_asked_otherwise() -> None:
    words = ["--methods", "simgcd", "--datasets", "cub"]
    (exact,) = asked_for(words)
    (cached,) = asked_for([*words, "--cache-views", "16+8"])
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
    with allow_code():
        assert read("--config", file).seed == 3


def test_of_several_configs_the_last_one_that_has_a_setting_counts(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("method_name: kmeans\ndataset: cub\ntrain: {epochs: 3, lr: 1e-4}\n")
    (tmp_path / "b.yaml").write_text("train: {epochs: 4}\nmethod: {n_init: 2}\ncache_views: off\n")
    experiment = read("--config", tmp_path / "a.yaml", "--config", tmp_path / "b.yaml")
    assert (experiment.train.epochs, experiment.train.lr, experiment.method.n_init) == (4, 1e-4, 2)
    assert experiment.cache_views == "off"


def test_part_of_a_config_leaves_the_rest_to_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "part.yaml").write_text("dataset: cub\ntrain: {epochs: 3}\nmethod: {adl: 9}\n")
    experiment = read("debgcd", "--config", tmp_path / "part.yaml")
    assert (experiment.train.epochs, experiment.train.batch_size) == (3, 128)
    assert (experiment.method.adl, experiment.method.threshold) == (9.0, 0.65)


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
