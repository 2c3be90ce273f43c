"""Bursts in a discovery: found before training, counted once everywhere, and labelled together."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holotype.clustering import estimate_k
from holotype.data.load import load_table
from holotype.discovery import ensemble_training
from holotype.discovery.pipeline import discover_table
from holotype.discovery.round_runner import check_enough, draws_own_rows, find_round_bursts
from holotype.errors import InputError
from holotype.methods import METHODS
from holotype.results.describe import LABELLED as NOTE
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, edits_csv
from tests.conftest import COLOURS, KNOWN
from tests.data.cameras import photograph
from tests.data.test_bursts import looks, made, shots

FRAMES = 3


def trap_folder(root: Path, each: int = 6, serial: str = "7") -> Path:
    """Bursts of three frames, `each` of every colour; of known colours the first frame of every other burst is
    labelled. serial: number of the camera, "" = the files do not tell it."""
    noise = np.random.default_rng(0)
    for kind, (name, colour) in enumerate(COLOURS.items()):
        for burst in range(each):
            scene = np.array(colour) + noise.integers(-30, 30, (40, 40, 3))
            for frame in range(FRAMES):
                pixels = np.clip(scene + noise.integers(-3, 3, scene.shape), 0, 255).astype(np.uint8)
                labelled = name in KNOWN and burst % 2 == 0 and frame == 0
                file = root / (name if labelled else "unlabelled") / f"{name}-{burst}-{frame}.jpg"
                photograph(
                    file,
                    pixels,
                    taken=f"2024:05:{burst + 1:02d} {kind:02d}:00:0{frame}",
                    model="HP2X",
                    serial=serial,
                )
    return root


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return trap_folder(tmp_path_factory.mktemp("trap") / "photos")


def test_found_told_or_not_at_all() -> None:
    table, out = made(["a.jpg", "b.jpg", "c.jpg"], ["fox", "", ""]), np.zeros(3, dtype=bool)
    taken, features = shots(0, 8, 900), looks(0, 0, 1)
    found, lines = find_round_bursts(table, "auto", taken, features, out)
    assert list(found.table.group) == ["a.jpg", "a.jpg", ""]
    assert list(found.table.label) == ["fox", "fox", ""]
    assert lines == [
        "2 frames of 1 burst of up to 2 (one camera, at most 10 seconds apart, alike); a burst counts once. "
        "--bursts no counts each image.",
        "1 frame takes the label of another frame of the same burst.",
    ]
    for setting in ("no", "5"):
        found, lines = find_round_bursts(table, setting, taken, features, out)
        assert found.table.group is None
        assert lines == []
    told = dataclasses.replace(table, group=np.array(["", "x", "x"], dtype=object))
    found, lines = find_round_bursts(told, "auto", taken, features, out)
    assert list(found.table.group) == ["", "x", "x"]
    assert "as the column group says" in lines[0]
    assert find_round_bursts(told, "no", taken, features, out)[0].table.group is None


def test_groups_of_different_labels_are_told() -> None:
    table = made(list("abc"), ["fox", "deer", ""], ["x", "x", "x"])
    found, lines = find_round_bursts(table, "auto", shots(0, 1, 2), looks(0, 0, 0), np.zeros(3, dtype=bool))
    assert list(found.table.label) == ["fox", "deer", ""]
    assert lines[-1] == "Frames of one burst carry different labels, so its other frames take none: x."


def test_more_categories_than_bursts_are_refused() -> None:
    table = made(list("abcd"), group=["x", "x", "y", "y"])
    check_enough(table, 2)
    with pytest.raises(InputError, match="--k 3 is more than the 2 images"):
        check_enough(table, 3)


def test_methods_that_draw_their_images_themselves() -> None:
    assert [name for name in METHODS if draws_own_rows(name)] == ["dccl"]


@pytest.mark.parametrize("method", ["kmeans", "rpc"])
def test_a_discovery_of_bursts(photos: Path, tmp_path: Path, small, caplog, monkeypatch, method: str) -> None:
    caplog.set_level("INFO")
    counted, trained = [], []
    estimate, start = estimate_k.estimate_count, ensemble_training.begin_run

    def counting(features, *given, **how):
        counted.append(len(features))
        return estimate(features, *given, **how)

    def starting(experiment, shelf):
        trained.append(start(experiment, shelf))
        return trained[-1]

    monkeypatch.setattr(estimate_k, "estimate_count", counting)
    monkeypatch.setattr(ensemble_training, "begin_run", starting)
    found = discover_table(
        load_table(photos), small(method=method, k="auto"), tmp_path / "run", progress=False
    )
    assert "72 frames of 24 bursts of up to 3 (one camera, at most 10 seconds apart, alike)" in caplog.text
    assert "12 frames take the label of another frame of the same burst." in caplog.text
    assert counted == [24]
    (run,) = trained
    assert run.loop.steps == (24 // run.experiment.train.batch_size if method == "rpc" else 24)
    table = pd.read_csv(tmp_path / "run" / "assignments.csv", keep_default_na=False)
    assert table.group.nunique() == 24
    assert (table.groupby("group").size() == FRAMES).all()
    assert ((table.label != "").groupby(table.group).nunique() == 1).all()
    assert (table.note == NOTE).sum() == 12
    queue = pd.read_csv(tmp_path / "run" / "queue.csv")
    burst = dict(zip(table.path, table.group, strict=True))
    asked = [burst[path] for path in queue.path]
    assert len(asked) == len(set(asked))
    assert not {burst[path] for path in table.path[table.label != ""]} & set(asked)
    shown = [[burst[path] for path in category.exemplars] for category in found.categories]
    assert all(len(some) == len(set(some)) for some in shown)


def test_an_answer_serves_the_whole_burst(photos: Path, tmp_path: Path, small) -> None:
    run, table = tmp_path / "run", load_table(photos)
    found = discover_table(table, small(method="kmeans"), run, progress=False)
    image = str(photos / "unlabelled" / "blue-3-1.jpg")
    edits = tmp_path / "edits.csv"
    edits.write_text(edits_csv([Edit(found.run_id, "t", "confirm", image, "", "red")]), encoding="utf-8")
    discover_table(table, small(method="kmeans"), run, progress=False, edits=edits)
    images = Discovery.load(run).images.set_index("path")
    for frame in range(FRAMES):
        assert images.category_id[str(photos / "unlabelled" / f"blue-3-{frame}.jpg")] == "red"
    assert images.label[str(photos / "unlabelled" / "blue-3-0.jpg")] == "red"


def test_the_whole_burst_follows_a_frame_that_is_moved_out_of_the_folder_of_its_label(
    tmp_path, small, caplog
) -> None:
    """Cameras without a number: folders tell them apart, and red/ is no camera."""
    photos = trap_folder(tmp_path / "photos", serial="")
    run, table = tmp_path / "run", load_table(photos)
    found = discover_table(table, small(method="kmeans"), run, progress=False)
    edits = tmp_path / "edits.csv"
    rows = [
        Edit(found.run_id, "t", "move", str(photos / "red" / f"red-{n}-0.jpg"), "", "Owls") for n in (0, 2, 4)
    ]
    edits.write_text(edits_csv(rows), encoding="utf-8")
    discover_table(table, small(method="kmeans"), run, progress=False, edits=edits)
    images = Discovery.load(run).images.set_index("path")
    assert images.group[str(photos / "red" / "red-0-0.jpg")]
    for frame in range(1, FRAMES):
        assert images.label[str(photos / "unlabelled" / f"red-0-{frame}.jpg")] == "Owls"


def test_another_setting_is_another_round(photos, tmp_path, small, caplog) -> None:
    caplog.set_level("INFO")
    run, table = tmp_path / "run", load_table(photos)
    discover_table(table, small(method="kmeans"), run, progress=False)
    found = discover_table(table, small(method="kmeans", bursts="no"), run, progress=False)
    assert "Settings that differ from round 1: --bursts no (was auto)." in caplog.text
    assert "group" not in found.images
    assert (found.images.label != "").sum() == 6


def test_groups_that_are_told_later_are_heard(squares_folder, small, tmp_path, caplog) -> None:
    """The column group came after the first round, and nothing had changed."""
    run, asked = tmp_path / "run", small(method="kmeans")
    table = load_table(squares_folder / "squares.csv")
    discover_table(table, asked, run, progress=False)
    told = dataclasses.replace(
        table, group=np.array([f"n-{row // 4}" for row in range(len(table))], dtype=object)
    )
    caplog.set_level("INFO", "holotype")
    found = discover_table(told, asked, run, progress=False)
    assert "Settings that differ from round 1: other groups." in caplog.text
    assert found.facts.round == 2
    assert found.images.group.nunique() == len(table) // 4
    assert discover_table(told, asked, run, progress=False).facts.round == 2
    assert discover_table(table, asked, run, progress=False).facts.round == 3
