"""`holotype write`: says what it wrote, for every kind of run, and refuses in one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from export.made_results import edit, made_run, paths
from holotype.export.folders import FoldersResult
from holotype.results.discovery import Discovery

FORMS = {"--folders": "sorted", "--labels": "labels.csv", "--coco": "coco.json", "--camtrap-dp": "dp"}


@pytest.fixture
def run(tmp_path) -> Path:
    return made_run(tmp_path)


def test_it_says_what_was_written(run, tmp_path, holotype) -> None:
    said = {flag: holotype("write", run, flag, tmp_path / name) for flag, name in FORMS.items()}
    assert {flag: outcome.code for flag, outcome in said.items()} == dict.fromkeys(FORMS, 0)
    assert "40 images in 9 folders" in said["--folders"].out
    assert "40 hard links." in said["--folders"].out
    labelled = int((Discovery.load(run).images.label != "").sum())
    assert said["--labels"].out.startswith(f"{labelled} labels of 5 classes: ")
    assert "Next: holotype discover IMAGES --labels" in said["--labels"].out
    every = holotype("write", run, "--labels", tmp_path / "every.csv", "--all")
    assert (every.code, "Go on with" in every.out) == (0, False)  # nothing is left to find
    assert "40 images, 40 annotations, 9 categories: " in said["--coco"].out
    assert "40 images of 1 deployment: " in said["--camtrap-dp"].out
    assert "40 images without a camera time" in said["--camtrap-dp"].out
    assert "The standard also asks for: latitude and longitude" in said["--camtrap-dp"].out


def test_a_second_call_replaces_everything_with_overwrite_alone(run, tmp_path, holotype) -> None:
    for flag, name in FORMS.items():
        holotype("write", run, flag, tmp_path / name)
    one, *_ = paths(run, "new-01")
    gone = paths(run, "new-03")[0]
    Path(gone).unlink()
    edit(run, ("rename", "", "new-02", "Lynx lynx"), ("confirm", one, "", "new-02"))
    for flag, name in FORMS.items():
        refused = holotype("write", run, flag, tmp_path / name)
        assert (refused.code, "--overwrite" in refused.err) == (2, True)
    said = {
        flag: holotype("write", run, flag, tmp_path / name, "--overwrite")
        for flag, name in FORMS.items()
        if flag != "--folders"
    }
    assert {outcome.err for outcome in said.values()} == {""}
    refused = holotype("write", run, "--folders", tmp_path / "sorted", "--overwrite")
    assert (refused.code, "would be lost" in refused.err) == (
        2,
        True,
    )  # it holds what is left of the one that is gone
    shutil.rmtree(tmp_path / "sorted" / "new-03")
    again = holotype("write", run, "--folders", tmp_path / "sorted", "--overwrite")
    assert "1 image left out" in again.out
    assert (tmp_path / "sorted" / "Lynx lynx").is_dir()
    assert "Lynx lynx" in (tmp_path / "labels.csv").read_text(encoding="utf-8-sig")
    assert "1 image left out" in said["--coco"].out
    assert "Used as scientific names: Lynx lynx." in said["--camtrap-dp"].out
    assert "1 image left out: the files are gone." in said["--camtrap-dp"].out


def test_copies(run, tmp_path, holotype) -> None:
    assert "40 copies." in holotype("write", run, "--folders", tmp_path / "a", "--copy").out
    said = holotype("write", run, "--camtrap-dp", tmp_path / "b", "--copy").out
    assert f"40 images are in {tmp_path / 'b' / 'media'}." in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("{run}", "needs one of --folders, --labels, --coco, --camtrap-dp"),
        (
            "{run} --coco a.json --labels b.csv",
            "one of --folders, --labels",
        ),
        ("{run} --coco {out}/a.json --all", "--all says nothing about --coco; it goes with --labels."),
        ("{run} --labels {out}/a.csv --copy", "it goes with --folders or --camtrap-dp"),
        ("{run} --folders {out}/a --deployments folders", "it goes with --camtrap-dp"),
        ("{run} --camtrap-dp {out}/a --deployments none.csv", "none.csv does not exist"),
        ("{out} --coco {out}/a.json", "holds no run"),
        ("{run} --folders {run}", "holds other files"),
        ("{run} --folder {out}/a", "did you mean --folders?"),
    ],
)
def test_bad_input_is_one_sentence(run, tmp_path, holotype, words, told) -> None:
    (tmp_path / "out").mkdir()
    outcome = holotype("write", *words.format(run=run, out=tmp_path / "out").split())
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.err
    assert told in outcome.err
    assert list((tmp_path / "out").iterdir()) == []


def test_without_the_images_it_says_so(run, tmp_path, holotype) -> None:
    shutil.rmtree(tmp_path / "my pictures")
    for flag in ("--folders", "--coco", "--camtrap-dp"):
        outcome = holotype("write", run, flag, tmp_path / FORMS[flag])
        assert outcome.code == 2
        assert "is where it was" in outcome.err
        assert not (tmp_path / FORMS[flag]).exists()
    assert holotype("write", run, "--labels", tmp_path / "labels.csv").code == 0


def test_a_run_of_train_is_one_like_any_other(holotype, squares_folder, tiny_flags, tmp_path) -> None:
    run = tmp_path / "run"
    words = ("train", "kmeans", squares_folder / "squares.csv", *tiny_flags, "--out", run)
    assert holotype(*words).code == 0
    for flag, name in FORMS.items():
        outcome = holotype("write", run, flag, tmp_path / name)
        assert outcome.code == 0, outcome.err
    assert len(list((tmp_path / "sorted").rglob("*.png"))) == 64
    images = json.loads((tmp_path / "coco.json").read_text())["images"]
    assert {image["file_name"] for image in images} >= {"red/red-00.png", "unlabelled/blue-15.png"}
    before = holotype("train", "kmeans", squares_folder, "--labels", tmp_path / "labels.csv", *tiny_flags,
                      "--out", tmp_path / "next")  # fmt: skip
    assert before.code == 0, before.err


def test_images_inside_a_container(holotype, tiny_flags, tmp_path) -> None:
    run = tmp_path / "run"
    assert holotype("train", "kmeans", "fashion-sample", *tiny_flags, "--k", 10, "--out", run).code == 0
    outcome = holotype("write", run, "--folders", tmp_path / "sorted")
    assert outcome.code == 0, outcome.err
    n = len(Discovery.load(run).images)
    assert f"{n:,} copies." in outcome.out
    assert len(list((tmp_path / "sorted").rglob("*.png"))) == n
    outcome = holotype("write", run, "--coco", tmp_path / "coco.json")
    assert outcome.code == 0, outcome.err
    assert {image["width"] for image in json.loads((tmp_path / "coco.json").read_text())["images"]} == {28}


def test_one_image_is_told_as_one() -> None:
    assert (
        FoldersResult(images=1, folders=1).summary(Path("sorted")).startswith("1 image in 1 folder: sorted")
    )
