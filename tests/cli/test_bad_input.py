"""Bad input through the command line: exit code 2, one sentence that names what is wrong, no traceback."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holotype.training.checkpoint import load_tensors, read_checkpoint_info
from tests.conftest import write_csv

from .conftest import assert_sentence

PUBLISHED_HEADS = True


TRAIN, BENCH = "train simgcd fashion-sample", "bench --methods kmeans --datasets cub"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("trian rpc cub", ("'trian'", "train")),
        ("assign", ("RUN, NEW_IMAGES", "holotype assign --help")),
        ("data check", ("NAME",)),
        ("data check cub --root nowhere", ("nowhere",)),
        ("data list cub", ("holotype data check NAME",)),
        ("completion tcsh", ("SHELL", "'tcsh'", "bash, zsh or fish")),
        ("discover photos --dry-run=yes", ("--dry-run", "'yes'")),
        ("discover photos --box-confidence 0.5", ("--boxes",)),
        ("train rcp fashion-sample", ("'rcp'", "rpc", "simgcd")),
        ("train no.such.module:Method fashion-sample", ("no.such.module:Method", "package.module:Class")),
        ("train simgcd fashion-simple", ("'fashion-simple'", "fashion-sample")),
        (f"{TRAIN} --preset literal", ("'literal'", "default")),
        (f"{TRAIN} --dataset cub", ("dataset is given twice",)),
        (f"{TRAIN} --backbone.name vit_base_patch16_225", ("vit_base_patch16_224",)),
        (f"{TRAIN} --backbone.name no/such.safetensors", ("no/such.safetensors",)),
        (f"{TRAIN} --train.epoch 3", ("train.epoch", "train.epochs")),
        (f"{TRAIN} --train.epochs 0", ("train.epochs", "at least 1")),
        (f"{TRAIN} --seed", ("--seed", "value")),
        (f"{TRAIN} --print_config=3", ("--print-config", "'3'")),
        (f"{TRAIN} -x 3", ("-x",)),
        (f"{TRAIN} surplus", ("'surplus'",)),
        ("train simgcd", ("DATASET",)),
        ("bench --datasets cub", ("--methods",)),
        (f"{BENCH} --set rpc:method.alpha=1", ("'rpc'", "--methods")),
        ("bench --table-only --results nowhere", ("nowhere",)),
        (f"{TRAIN} --cache-views 0+2", ("'0+2'", "16+8")),
        (f"{BENCH} --parallel 0", ("--parallel", "at least 1")),
        ("embed fashion-sample --image-size 2147483648", ("--image-size", "at most 4,096")),
        (f"{BENCH} --set cache-views=4+2", ("cache_views=4+2", "--help")),
    ],
)
def test_names_and_values(holotype, command: str, words: tuple[str, ...]) -> None:
    assert_sentence(holotype(*command.split()), *words)


def test_a_working_folder_that_was_deleted(holotype, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert_sentence(holotype("discover", "."), "The folder that you are in was deleted")
    assert holotype("--help").code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train simgcd cub", ("cub", "root")),
        ("train simgcd cub --root {tmp}", ("missing", "vision.caltech.edu")),
        ("train simgcd {tmp}/gone --k 3", ("gone",)),
        ("train simgcd {tmp}/empty --k 3", ("no image", "empty")),
        ("train simgcd {images}", ("--k",)),
        ("train simgcd {images} {tiny} --k 1", ("--k 1", "2 known classes")),
        ("train simgcd {tmp}/absent.csv {tiny}", ("red-99.png", "2 of the 2")),
        ("train simgcd {images} {tiny} --labels {tmp}/column.csv", ("'label'", "'note'")),
        ("train simgcd {tmp}/twice.csv {tiny}", ("red-00.png", "line 3: 'green'")),
        ("train simgcd {images} {tiny} --train.batch_size 65 --out {tmp}/run", ("65", "--train.batch-size")),
        ("train kmeans {images} {tiny} --out {tmp}/column.csv/run", ("column.csv",)),
        ("train simgcd {images}/red {tiny}", ("labelled",)),
        ("train --config {tmp}/bad.yaml", ("'train.epoch'", "bad.yaml", "train.epochs")),
        ("train --config {tmp}/preset.yaml --preset reading", ("'default'", "reading")),
    ],
)
def test_images_labels_and_files(holotype, squares_folder, tmp_path, tiny_flags, words, told) -> None:
    red = squares_folder / "red" / "red-00.png"
    (tmp_path / "empty").mkdir()
    write_csv(tmp_path / "absent.csv", "path,label", [("red/red-00.png", "red"), ("red/red-99.png", "red")])
    write_csv(tmp_path / "column.csv", "path,note", [("red/red-00.png", "red")])
    write_csv(tmp_path / "twice.csv", "path,label", [(str(red), "red"), (str(red), "green")])
    (tmp_path / "preset.yaml").write_text("method_name: rpc\ndataset: fashion-sample\npreset: default\n")
    (tmp_path / "bad.yaml").write_text("method_name: rpc\ndataset: cub\ntrain: {epoch: 3}\n")
    line = words.format(tmp=tmp_path, images=squares_folder, tiny=" ".join(tiny_flags))
    assert_sentence(holotype(*line.split()), *told)


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
