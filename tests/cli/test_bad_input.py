"""Bad input through the command line: exit code 2, one sentence that names what is wrong, no traceback."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holotype.training.checkpoint import load_tensors, read_checkpoint_info

PUBLISHED_HEADS = True


def assert_sentence(outcome, *words: str) -> None:
    """Refused with one line that reads as a sentence and holds the words that matter.

    Where images and cached tokens lie is told before, if it comes that far.
    """
    assert outcome.code == 2, (outcome.out, outcome.err)
    *told, sentence = outcome.err.splitlines()
    assert all(" images, " in line and line.endswith(".") for line in told), outcome.err
    assert sentence[-1] in ".?", outcome.err
    assert "Traceback" not in outcome.err
    for word in words:
        assert word in sentence, (word, outcome.err)


# -- names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("trian rpc cub", ("'trian'", "train")),
        ("what", ("'what'", "--help")),
        ("assign", ("RUN, NEW_IMAGES", "holotype assign --help")),
        ("data check", ("NAME",)),
        ("report run --zip", ("--zip",)),
        ("completion tcsh", ("SHELL", "'tcsh'", "bash, zsh or fish")),
        ("discover photos --dry-run=yes", ("--dry-run", "'yes'")),
        ("demo --seed x", ("--seed must be a whole number", "'x'")),
        ("demo --seed -1", ("--seed must be", "at least 0")),
        ("train rcp fashion-sample", ("'rcp'", "rpc", "simgcd")),
        ("train no.such.module:Method fashion-sample", ("no.such.module:Method", "package.module:Class")),
        ("train holotype.errors:InputError fashion-sample", ("not a method",)),
        ("train simgcd fashion-simple", ("'fashion-simple'", "fashion-sample")),
        ("train simgcd fashion-sample --preset literal", ("'literal'", "default")),
        ("train simgcd fashion-sample --backbone.name vit_base_patch16_225", ("vit_base_patch16_224",)),
        ("train simgcd fashion-sample --backbone.name no/such.safetensors", ("no/such.safetensors",)),
        ("train simgcd fashion-sample --device tpu", ("device", "cuda", "tpu")),
        ("train simgcd fashion-sample --train.epoch 3", ("--train.epoch", "--train.epochs")),
        ("train simgcd fashion-sample --lr 3", ("--lr", "--train.lr")),
        ("train simgcd fashion-sample --qwertyuiop 3", ("--qwertyuiop", "--help")),
        ("train simgcd fashion-sample --train.epochs many", ("train.epochs", "whole number", "'many'")),
        ("train simgcd fashion-sample --train.epochs 0", ("train.epochs", "at least 1")),
        ("train simgcd fashion-sample --train.epochs 2147483648", ("train.epochs", "at most 100,000")),
        ("train simgcd fashion-sample --train.batch_size -1", ("train.batch_size", "at least 1")),
        ("train simgcd fashion-sample --train.epochs 3.0", ("train.epochs", "whole number", "'3.0'")),
        ("train simgcd fashion-sample --train.epochs true", ("train.epochs", "whole number", "'true'")),
        ("train simgcd fashion-sample --seed", ("--seed", "value")),
        ("train simgcd fashion-sample --seed 99999999999999999999", ("seed", "2**63")),
        ("train simgcd fashion-sample --print_config=3", ("--print-config", "'3'")),
        ("train simgcd fashion-sample --train 3", ("--train",)),
        ("train simgcd fashion-sample -x 3", ("flag -x",)),
        ("train simgcd fashion-sample surplus", ("'surplus'",)),
        ("train simgcd", ("DATASET",)),
        ("train", ("METHOD",)),
        ("data check cup --root .", ("'cup'", "cub")),
        ("data check cub --rooot .", ("--rooot",)),
        ("bench --datasets cub", ("--methods",)),
        ("bench --methods kmeans --datasets cub --seeds 0,x", ("--seeds", "'0,x'")),
        ("bench --methods kmeans --datasets cub --set seed=3", ("seed=3",)),
        ("bench --methods kmeans --datasets cub --set rpc:method.alpha=1", ("'rpc'", "--methods")),
        ("bench --methods kmeans --datasets cub --set method.n_int=1", ("method.n_int", "method.n_init")),
        ("bench --table-only --results nowhere", ("nowhere",)),
        ("train simgcd fashion-sample --store ram", ("store", "device", "'ram'")),
        *(
            (f"train simgcd fashion-sample --cache-views {v}", (f"'{v}'", "16+8"))
            for v in ("16", "0+2", "abc")
        ),
        ("train simgcd fashion-sample --memory.device_gb -1", ("memory.device_gb", "-1")),
        ("train simgcd fashion-sample --memory.host-gb 0", ("memory.host_gb", "above 0")),
        ("train simgcd fashion-sample --memory.disk_gb nan", ("memory.disk_gb", "nan")),
        ("bench --methods kmeans --datasets cub --parallel 0", ("--parallel", "at least 1")),
        ("bench --methods kmeans --datasets cub --parallel two", ("--parallel", "whole number")),
        ("estimate-k fashion-sample --seed -1", ("--seed", "at least 0")),
        ("estimate-k fashion-sample --k-max 0", ("--k-max", "at least 1")),
        ("embed fashion-sample --image-size 2147483648", ("--image-size", "at most 4,096")),
        ("embed fashion-sample --image-size 0", ("--image-size", "at least 1")),
        ("train simgcd fashion-sample --train.lr 0", ("train.lr", "above 0")),
        ("bench --methods kmeans --datasets cub --cache-views 16", ("'16'", "16+8")),
        ("bench --methods kmeans --datasets cub --set cache-views=4+2", ("cache_views=4+2", "--help")),
    ],
)
def test_names_and_values(holotype, command: str, words: tuple[str, ...]) -> None:
    assert_sentence(holotype(*command.split()), *words)


@pytest.mark.skipif("sys.platform == 'darwin'")
def test_a_device_that_is_not_there(holotype) -> None:
    assert_sentence(holotype("train", "kmeans", "fashion-sample", "--device", "mps"), "mps", "cpu")


# -- files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("train: {epoch: 3}", ("'train.epoch'", "train.epochs")),
        ("alpha: 3", ("'alpha'",)),
        ("method: {lamb: 3}", ("'method.lamb'", "method.lam")),
        ("train: 3", ("train", "group")),
        ("train: {epochs: many}", ("train.epochs", "config.yaml", "whole number")),
        ("train: {epochs: 3, epochs: 4}", ("epochs stands twice",)),
        ("- 1", ("name: value",)),
        ("train: {epochs", ("not valid YAML",)),
    ],
)
def test_a_config_that_cannot_be_used(holotype, tmp_path: Path, content: str, words: tuple[str, ...]) -> None:
    (tmp_path / "config.yaml").write_text(content)
    outcome = holotype("train", "simgcd", "fashion-sample", "--config", tmp_path / "config.yaml")
    assert_sentence(outcome, *words)


def test_a_config_that_is_not_there(holotype) -> None:
    assert_sentence(holotype("train", "--config", "no.yaml"), "no.yaml")


def test_a_preset_beside_the_settings_of_another(holotype, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("method_name: rpc\ndataset: fashion-sample\npreset: default\n")
    assert_sentence(holotype("train", "--config", config, "--preset", "reading"), "default", "reading")


# -- the run folder -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("kmeans", None), ("method.name", "simgcd", "kmeans")),
        (("simgcd", "--seed=1"), ("seed", "0", "1")),
        (("simgcd", "--train.lr=0.3"), ("train.lr", "0.3")),
        (("simgcd", "--dataset"), ("data.name", "squares")),
    ],
)
def test_a_folder_of_another_run(
    holotype, squares_folder, squares, tiny_flags, finished, change, words
) -> None:
    method, flag = change
    dataset = squares if flag == "--dataset" else squares_folder
    extra = [flag] if flag and flag != "--dataset" else []
    outcome = holotype("train", method, dataset, *tiny_flags, "--out", finished, *extra)
    assert_sentence(outcome, str(finished), "--out", *words)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, squares_folder, tiny_flags) -> Path:
    """The folder of a finished run of SimGCD with seed 0."""
    from holotype.cli import main

    out = tmp_path_factory.mktemp("runs") / "finished"
    assert main(["train", "simgcd", str(squares_folder), *tiny_flags, "--out", str(out)]) == 0
    return out


def test_a_damaged_state(holotype, squares_folder, tiny_flags, finished, tmp_path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "scores.json").unlink()  # as if the kill had come before the end
    (run / "state.json").write_text('{"stage": 0')
    assert_sentence(holotype("train", "simgcd", squares_folder, *tiny_flags, "--out", run), "state.json")


def test_an_output_folder_that_cannot_be_made(holotype, squares_folder, tiny_flags, tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    outcome = holotype("train", "kmeans", squares_folder, *tiny_flags, "--out", tmp_path / "file" / "run")
    assert_sentence(outcome, "file")


def test_a_working_folder_that_was_deleted(holotype, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert_sentence(holotype("discover", "."), "The folder that you are in was deleted")
    assert holotype("--help").code == 0


# -- a full disk --------------------------------------------------------------------------------------


@contextlib.contextmanager
def short_files(most: int) -> Iterator[None]:
    """The system refuses every byte of a file beyond so many."""
    import resource  # not on every system

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_while_saving(holotype, squares_folder, tiny_flags, tmp_path, monkeypatch) -> None:
    """The run ends with a sentence, the state before it still loads, and the run goes on from it."""
    out = tmp_path / "run"
    words = ["train", "simgcd", str(squares_folder), *tiny_flags, "--train.epochs", "2", "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        stopped = holotype(*words)
    assert stopped.code == 130
    assert "epoch 1 of 2, step 1" in stopped.err
    before = read_checkpoint_info(out)
    with short_files(1 << 20):  # settings fit, a state does not
        refused = holotype(*words)
    assert_sentence(refused, "could not be written", "same command again")
    assert read_checkpoint_info(out) == before
    assert load_tensors(out, before)

    def full(source, target):
        if Path(target).name.startswith("state-"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    replace = os.replace
    with monkeypatch.context() as patch:
        patch.setattr("holotype.utils.atomic.os.replace", full)
        assert_sentence(holotype(*words), "No space left on device")
    assert read_checkpoint_info(out) == before
    assert not list(out.glob(".*.part"))
    assert holotype(*words).code == 0
    assert json.loads((out / "scores.json").read_text())["identity"]["seed"] == 0


def pressed(request):
    """A stop request that is there from the start: training ends after its first step."""
    request.requested = True
    return request
