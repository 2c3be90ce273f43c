"""The study of methods for a folder: its sums are right, the truth stays hidden, and what was trained is kept."""

from __future__ import annotations

import json

import folder_methods
import numpy as np
import pytest
from folder_methods import counted, embed, main, measure, scores, summarise, table, together
from twenty import Collection

from holotype.cluster.count import estimate_table, pick_k
from holotype.data.sources import load_table
from holotype.data.table import Table
from holotype.discovery.finding import plan_training
from holotype.models.backbone import BackboneConfig, load_backbone

Y = np.repeat(np.arange(4), 10)


def made() -> Collection:
    label = np.array(["a" if i < 5 else "b" if 10 <= i < 15 else "" for i in range(40)], dtype=object)
    files = np.array([f"{i}.png" for i in range(40)], dtype=object)
    return Collection("made0", Table(files, label, ("a", "b"), np.array(list("abcd"), dtype=object)[Y]), 4)


def row(method: str, collection: str, one: list[float], nine: float) -> dict:
    return {
        "collection": collection,
        "method": method,
        "images": 40,
        "k": 4,
        "one": {"all": one, "old": one, "new": one},
        "nine": {"all": nine, "old": nine, "new": nine},
        "seconds": 1.0,
    }


ROWS = [
    row("rpc", "cub4", [50.0, 54.0], 55.0),
    row("rpc", "cub5", [60.0, 60.0], 62.0),
    row("uno", "cub4", [52.0, 52.0], 58.0),
    row("uno", "cub5", [61.0, 65.0], 63.0),
    row("uno", "cub6", [70.0, 70.0], 71.0),
]


def test_scores_are_of_the_unlabelled_images() -> None:
    assert scores(made(), Y) == {"all": 100.0, "old": 100.0, "new": 100.0}
    assert scores(made(), np.where(Y == 3, 2, Y)) == {"all": 66.67, "old": 100.0, "new": 50.0}


def test_methods_are_compared_on_the_collections_that_both_have() -> None:
    told = summarise(ROWS)
    assert told["uno"]["minus"] == [3.0, 1.0]
    assert told["uno"]["all"] == pytest.approx((58 + 63 + 71) / 3)
    assert told["rpc"]["one"] == 56.0
    assert told["rpc"]["deviation"] == pytest.approx(np.sqrt((8 + 0) / 2))


def test_the_best_method_comes_first() -> None:
    lines = table(ROWS).splitlines()
    assert lines[2].startswith("| uno | 3 |")
    assert lines[3].startswith("| rpc | 2 |")
    # two pairs, +3 and +1: a mean of 2, a standard error of 1 and 12.7 of them on either side
    assert "+2.0 (-10.7 to 14.7), above in 2 of 2" in lines[2]
    assert lines[3].endswith("|  |")


def test_nine_trainings_are_made_as_a_discovery_makes_them(
    squares_folder, tiny_backbone_file, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(folder_methods, "SEEDS", 2)
    of = Collection("squares0", load_table(squares_folder / "squares.csv"), 4)
    experiment = plan_training("rs", len(of.table), of.k, 4, "cpu", BackboneConfig(str(tiny_backbone_file)))
    assert (experiment.k, experiment.cache_views, experiment.train.batch_size) == (4, "4+2", 16)
    found = measure(of, experiment, load_backbone(experiment.backbone), tmp_path / "said.npz", seeds=3)
    assert [len(each) for each in found["one"].values()] == [3, 3, 3]
    kept = np.load(tmp_path / "said.npz")
    assert (kept["category"].shape, int(kept["k"])) == ((3, 64), 4)
    first = together(of, kept["category"][:2].astype(int), kept["probability"][:2])
    assert found["nine"] == scores(of, first)  # more seeds than agree are there for other draws
    assert of.table.truth is not None  # the study keeps the truth, the trainings never had it


def test_what_was_trained_is_not_trained_again(tmp_path, monkeypatch, capsys) -> None:
    asked = []
    monkeypatch.setattr(folder_methods, "find_collection", lambda word, roots, work: made())
    monkeypatch.setattr(folder_methods, "load_backbone", lambda config: type("B", (), {"name": "made"}))

    def pretend(of, experiment, backbone, kept, seeds):
        asked.append(experiment.method_name)
        return row(experiment.method_name, "cub4", [50.0, 54.0], 55.0)

    monkeypatch.setattr(folder_methods, "measure", pretend)
    out = tmp_path / "methods.json"
    out.write_text(json.dumps({"rows": [row("rpc", "cub4", [1.0, 2.0], 3.0)]}))
    assert main(["cub4", "--methods", "rpc,simgcd", "--out", str(out)]) == 0
    assert asked == ["simgcd"]
    kept = json.loads(out.read_text())["rows"]
    assert [one["method"] for one in kept] == ["rpc", "simgcd"]
    assert kept[1]["made"]["command"].startswith("python benchmarks/folder_methods.py cub4")
    capsys.readouterr()
    assert main(["--table", "--out", str(out)]) == 0
    assert "| simgcd | 1 |" in capsys.readouterr().out


def test_categories_are_counted_from_features_that_are_kept(
    squares_folder, tiny_backbone_file, tmp_path, monkeypatch
) -> None:
    of = Collection("squares0", load_table(squares_folder / "squares.csv"), 4)
    backbone = load_backbone(BackboneConfig(str(tiny_backbone_file)))
    features = embed(of, backbone, "cpu", tmp_path)
    monkeypatch.setattr(folder_methods, "embed_table", None)  # a second time nothing is embedded
    assert np.array_equal(embed(of, backbone, "cpu", tmp_path), features)
    found = counted(of, features, "cpu")
    assert found.k >= len(of.table.known)
    assert found.k == pick_k(estimate_table(of.table, features, "cpu"))


def test_without_a_collection_a_sentence_says_what_to_name(tmp_path, capsys) -> None:
    assert main(["--out", str(tmp_path / "none.json")]) == 2
    assert "Name the collections to train" in capsys.readouterr().err
