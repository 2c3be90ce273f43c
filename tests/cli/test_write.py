"""`holotype write`: says what it wrote, for every kind of run, and refuses in one sentence."""

import shutil
from pathlib import Path

import pytest

from export.made_results import made_run
from holotype.results.discovery import Discovery

from .conftest import assert_sentence

FORMS = {"--folders": "sorted", "--labels": "labels.csv", "--coco": "coco.json", "--camtrap-dp": "dp"}


@pytest.fixture
def run(tmp_path) -> Path:
    return made_run(tmp_path)


@pytest.fixture
def write(holotype, run, tmp_path):
    """Write a form of the run, or of another one."""
    return lambda flag, *words, of=run: holotype("write", of, flag, tmp_path / FORMS[flag], *words)


def test_it_says_what_was_written(run, tmp_path, holotype, write) -> None:
    said = {flag: write(flag) for flag in FORMS}
    assert {outcome.code for outcome in said.values()} == {0}
    labelled = int((Discovery.load(run).images.label != "").sum())
    assert "40 images in 9 folders" in said["--folders"].out
    assert f"{labelled} labels of 5 classes: " in said["--labels"].out
    assert "40 images, 40 annotations, 9 categories: " in said["--coco"].out
    assert "The standard also asks for: latitude and longitude" in said["--camtrap-dp"].out
    every = holotype("write", run, "--labels", tmp_path / "every.csv", "--all")
    assert (every.code, "Next" in every.out) == (0, False)  # nothing is left to find
    assert "40 copies." in holotype("write", run, "--folders", tmp_path / "a", "--copy").out
    copied = holotype("write", run, "--camtrap-dp", tmp_path / "b", "--copy").out
    assert f"40 images are in {tmp_path / 'b' / 'media'}." in copied


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("{run}", "needs --folders, --labels, --coco, "),
        ("{run} --coco {out}/a.json --all", "--all says nothing about --coco; it goes with --labels."),
        ("{run} --labels {out}/a.csv --copy", "it goes with --folders or --camtrap-dp"),
        ("{run} --camtrap-dp {out}/a --deployments none.csv", "none.csv does not exist"),
        ("{out} --coco {out}/a.json", "holds no run"),
        ("{run} --folders {run}", "holds other files"),
    ],
)
def test_bad_input_is_one_sentence(run, tmp_path, holotype, words, told) -> None:
    (tmp_path / "out").mkdir()
    assert_sentence(holotype("write", *words.format(run=run, out=tmp_path / "out").split()), told)
    assert list((tmp_path / "out").iterdir()) == []


def test_without_the_images_it_says_so(tmp_path, write) -> None:
    shutil.rmtree(tmp_path / "my pictures")
    for flag in ("--folders", "--coco", "--camtrap-dp"):
        assert_sentence(write(flag), "is where it was")
        assert not (tmp_path / FORMS[flag]).exists()
    assert write("--labels").code == 0
