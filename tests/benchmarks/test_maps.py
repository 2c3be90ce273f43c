"""Maps show the features that a run ended with, and say how tight its classes are."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import figures
import maps
import numpy as np
import pandas as pd
import pytest
import torch
from tightness import unit

from holotype.errors import InputError
from holotype.machine.sealed import read_sealed
from holotype.runs.experiment import Experiment
from holotype.runs.folder import RunFolder
from holotype.runs.prepared import Shelf
from holotype.runs.records import Records
from holotype.runs.run import Run, begin, finish
from holotype.runs.settings import default_experiment
from holotype.training.sources import table_features

TOP = Path(__file__).resolve().parents[2]
OWN = "own_encoder:Own"
MODULE = """
from dataclasses import dataclass
from tests.training.stubs import OwnEncoder

@dataclass
class Settings:
    nothing: int = 0

class Own(OwnEncoder):
    Config = Settings
"""
LABELS = {"simgcd": None, "rpc": "with relations", OWN: None}
STEMS = {"simgcd": "simgcd", "rpc": "with-relations", OWN: "own_encoder-Own"}


def small(method: str, table: Path, backbone: Path, out: Path) -> Experiment:
    experiment = default_experiment(method, str(table))
    experiment.k, experiment.out, experiment.label = 4, str(out), LABELS[method]
    experiment.device, experiment.progress = "cpu", False
    experiment.backbone.name = str(backbone)
    experiment.train.epochs, experiment.train.batch_size = 2, 16
    return experiment


@pytest.fixture(scope="module")
def runs(
    squares_folder: Path, tiny_backbone_file: Path, tmp_path_factory
) -> dict[str, tuple[Path, np.ndarray]]:
    """Finished runs on the same squares: folder, and the features (N, D) that the loop ended with."""
    top, found = tmp_path_factory.mktemp("runs"), {}
    (top / "own_encoder.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(top))
        importlib.import_module("own_encoder")  # stays imported
    for method in LABELS:
        table = squares_folder / "squares.csv"
        run = begin(small(method, table, tiny_backbone_file, top / method), Shelf())
        assert isinstance(run, Run)
        finish(run, run.loop.fit(), 1.0, parallel=1)
        with torch.no_grad():
            features = table_features(run.loop.source, run.loop.rows.usable, len(run.loop.table))
        found[method] = (top / method, features.numpy())
    return found


@pytest.fixture(scope="module")
def drawn(runs, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("maps")
    assert maps.main([*(str(folder) for folder, _ in runs.values()), "--out", str(out)]) == 0
    return out


def load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


def squares() -> Iterator[tuple[str, str]]:
    """(label, truth) of the squares in the order of their table."""
    for name in ("red", "green", "blue", "yellow"):
        for number in range(16):
            yield (name if name in ("red", "green") and number < 8 else "", name)


def test_a_map_holds_the_unlabelled_images_in_the_order_of_the_table(drawn: Path) -> None:
    found = load(drawn / "simgcd.npz")
    free = [truth for label, truth in squares() if not label]
    assert found["class"].tolist() == free
    assert found["kind"].tolist() == ["known" if t in ("red", "green") else "novel" for t in free]
    assert found["points"].shape == (48, 2)
    assert found["points"].dtype == np.float32
    assert np.isfinite(found["points"]).all()
    assert found["features"].dtype == np.float16


@pytest.mark.parametrize("method", list(LABELS))
def test_features_are_those_that_training_ended_with(runs, drawn: Path, method: str) -> None:
    """Each run's own, not another's, whether its tail was trained or its method encodes images itself."""
    free = [not label for label, _ in squares()]
    expected = unit(runs[method][1][free])
    found = unit(load(drawn / f"{STEMS[method]}.npz")["features"])
    assert np.abs(found - expected).max() < 2e-3
    other = unit(runs["rpc" if method == "simgcd" else "simgcd"][1][free])
    assert np.abs(found - other).max() > 4e-3


def test_a_map_is_called_by_its_label_and_says_where_it_comes_from(runs, drawn: Path) -> None:
    told = json.loads((drawn / "with-relations.json").read_text())
    assert told["name"] == str(load(drawn / "with-relations.npz")["name"]) == "with relations"
    assert told["run"]["method"] == "rpc"
    assert told["run"]["seed"] == 0
    record = RunFolder(runs["rpc"][0]).finished()
    assert record is not None
    assert told["run"]["config_hash"] == record.identity.hash
    assert (told["run"]["all"], told["run"]["mode"]) == (record.scores.all, record.made.mode)
    assert (
        told["run"].keys()
        == json.loads((TOP / "experiments/results/maps/rpc.json").read_text())["run"].keys()
    )
    assert (told["known"]["images"], told["known"]["classes"]) == (16, 2)
    assert (told["novel"]["images"], told["novel"]["classes"]) == (32, 2)


def test_the_recorded_maps_are_of_recorded_runs() -> None:
    records = Records(TOP / "experiments" / "results").by_key
    for path in (TOP / "experiments" / "results" / "maps").glob("*.json"):
        told = json.loads(path.read_text())["run"]
        found = records[told["config_hash"], told["seed"]]
        assert (told["all"], told["old"], told["new"]) == (
            found.scores.all,
            found.scores.old,
            found.scores.new,
        )
        assert told["commit"] == found.made.commit


def test_figures_reads_the_maps(drawn: Path) -> None:
    read = [figures.read_map(drawn / f"{stem}.npz") for stem in ("simgcd", "with-relations")]
    assert figures.coloured(read) == {"known": ["green", "red"], "novel": ["blue", "yellow"]}


def test_features_first_and_points_later_give_the_same_map(runs, drawn: Path, tmp_path: Path, capsys) -> None:
    folder = str(runs["simgcd"][0])
    assert maps.main([folder, "--out", str(tmp_path), "--features-only"]) == 0
    assert "simgcd, novel: images 32, classes 2, silhouette" in capsys.readouterr().out
    assert "points" not in load(tmp_path / "simgcd.npz")
    numbers = (tmp_path / "simgcd.json").read_bytes()
    assert maps.main(["--complete", str(tmp_path / "simgcd.npz")]) == 0
    later, at_once = load(tmp_path / "simgcd.npz"), load(drawn / "simgcd.npz")
    assert later.keys() == at_once.keys()
    assert all(np.array_equal(later[key], at_once[key]) for key in later)
    assert (tmp_path / "simgcd.json").read_bytes() == numbers == (drawn / "simgcd.json").read_bytes()


def test_points_that_are_there_are_kept(drawn: Path, tmp_path: Path, monkeypatch) -> None:
    shutil.copy(drawn / "simgcd.npz", tmp_path)
    monkeypatch.setattr(maps, "project", lambda features: pytest.fail("there was nothing to add"))
    assert maps.main(["--complete", str(tmp_path / "simgcd.npz")]) == 0
    assert np.array_equal(load(tmp_path / "simgcd.npz")["points"], load(drawn / "simgcd.npz")["points"])


def test_the_map_does_not_depend_on_the_features_length() -> None:
    x = np.random.default_rng(0).normal(size=(57, 6))
    longer = x * 2.0 ** np.arange(len(x)).clip(max=5)[:, None]  # exact, so that no rounding stirs the t-SNE
    assert maps.project(longer) == pytest.approx(maps.project(x), abs=1e-2)


# -- what is refused --------------------------------------------------------------------------------------


def test_runs_on_different_tables_are_refused(
    runs, squares_folder: Path, tiny_backbone_file: Path, tmp_path: Path, capsys
) -> None:
    """Before anything is decoded, and although the images are the same."""
    rows = pd.read_csv(squares_folder / "squares.csv", keep_default_na=False)
    rows.loc[0, "label"] = ""
    shutil.copytree(squares_folder, tmp_path / "squares")
    table = tmp_path / "squares" / "squares.csv"
    rows.to_csv(table, index=False)
    run = begin(small("simgcd", table, tiny_backbone_file, tmp_path / "other"), Shelf())
    assert isinstance(run, Run)
    finish(run, run.loop.fit(), 1.0, parallel=1)
    words = [str(runs["rpc"][0]), str(tmp_path / "other"), "--out", str(tmp_path / "maps")]
    assert maps.main(words) == 2
    assert "were trained on different tables" in capsys.readouterr().err
    assert not (tmp_path / "maps").exists()


def test_two_runs_of_one_name_are_refused(runs, tmp_path: Path) -> None:
    again = shutil.copytree(runs["simgcd"][0], tmp_path / "again")
    with pytest.raises(InputError, match="Two runs are called simgcd"):
        maps.make_maps([runs["simgcd"][0], again], tmp_path / "maps", None, True)


def test_unfinished_and_foreign_folders_are_refused(runs, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"finished run \(no config.yaml\)"):
        maps.open_run(tmp_path, None)
    copy = shutil.copytree(runs["simgcd"][0], tmp_path / "stopped")
    (copy / "scores.json").unlink()
    with pytest.raises(InputError, match=r"finished run \(no scores.json\)"):
        maps.open_run(copy, None)


@pytest.mark.parametrize(
    ("group", "key", "message"),
    [("data", "table", "images or labels"), ("backbone", "digest", "its weights differ")],
)
def test_other_images_or_another_backbone_are_noticed(
    runs, tmp_path: Path, group: str, key: str, message: str
) -> None:
    copy = shutil.copytree(runs["simgcd"][0], tmp_path / "copy")
    identity = read_sealed(copy / "identity.json")
    identity[group][key] = "0"
    (copy / "identity.json").write_text(json.dumps(identity))
    with pytest.raises(InputError, match=message):
        maps.make_maps([copy], tmp_path / "maps", None, True)


def test_broken_weights_are_told(runs, tmp_path: Path) -> None:
    copy = shutil.copytree(runs["simgcd"][0], tmp_path / "copy")
    (copy / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"weights in .* cannot be read"):
        maps.make_maps([copy], tmp_path / "maps", None, True)


def test_files_that_are_no_maps_are_told(tmp_path: Path, capsys) -> None:
    np.savez(tmp_path / "a.npz", points=np.zeros((3, 2)))
    assert maps.main(["--complete", str(tmp_path / "a.npz")]) == 2
    assert "no features" in capsys.readouterr().err
    (tmp_path / "b.npz").write_bytes(b"nothing")
    assert maps.main(["--complete", str(tmp_path / "b.npz")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["run"], ["--out", "maps"], ["run", "--complete", "a.npz"]])
def test_half_a_command_is_told(words: list[str], capsys) -> None:
    assert maps.main(words) == 2
    assert "--complete" in capsys.readouterr().err
