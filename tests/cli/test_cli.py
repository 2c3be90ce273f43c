"""The command line: what it offers, how settings come together, and one run from command to scores."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys

import pytest

from holotype import __version__
from holotype.cli import COMMANDS
from holotype.cli.common import logged_to_stderr
from holotype.data.datasets.registry import BENCHMARKS
from holotype.methods import METHODS
from holotype.training.loop import Loop

from .test_bad_input import pressed

HEAVY = {"torch", "numpy", "pandas", "timm", "rich", "sklearn", "matplotlib"}


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
    assert "--preset default, as_run or reading" in text


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
    with logged_to_stderr():
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
    status = holotype("status", tmp_path / "stopped").out
    assert "stopped; the same command continues (stage train, epoch 1 of 1, step 1)" in status
    assert "last save" in status
    assert holotype(*words, tmp_path / "stopped").code == 0
    assert holotype(*words, tmp_path / "whole").code == 0
    name = "model.safetensors"
    assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_save_as_ctrl_c_does(
    holotype, squares_folder, tiny_flags, tmp_path, monkeypatch, number
) -> None:
    words = ("train", "simgcd", squares_folder / "squares.csv", *tiny_flags, "--out", tmp_path / "run")
    step = Loop._run_epoch

    def signalled(loop, *given):
        os.kill(os.getpid(), number)
        yield from step(loop, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_run_epoch", signalled)
        stopped = holotype(*words)
    assert stopped.code == 128 + number
    assert "epoch 1 of 1, step 1; the state is saved" in stopped.err
    assert (tmp_path / "run" / "state.json").exists()
    assert holotype(*words).code == 0


def test_a_loss_that_leaves_its_course(holotype, squares_folder, tiny_flags, tmp_path) -> None:
    """Half the rate is low enough: the run says that it was restarted. It is not: one sentence."""
    words = ("train", "tests.training.explodes:Explodes", squares_folder / "squares.csv", *tiny_flags)
    words = (*words, "--train.momentum", "0")
    outcome = holotype(*words, "--method.limit", "0.06", "--out", tmp_path / "low")
    assert outcome.code == 0, outcome.err
    told = (
        "the loss left its course in epoch 1 of stage train; training goes back to the start of epoch 1 and on "
        "with half the rate, 0.05."
    )
    assert f"During training {told}" in outcome.out
    assert f"{tmp_path / 'low'}: {told}" in outcome.err.splitlines()
    outcome = holotype(*words, "--method.limit", "0", "--out", tmp_path / "high")
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    sentence = outcome.err.splitlines()[-1]
    assert sentence.startswith("the loss became {'cls': nan")
    assert "lower --train.lr" in sentence
    assert not (tmp_path / "high" / "scores.json").exists()


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
    assert (
        holotype("data").out == outcome.out
    )  # alone it says which data sets there are, as `holotype --help` says
    outcome = holotype("data", "check", "fashion-sample")
    assert outcome.code == 0
    assert "ready" in outcome.out
