"""The study of seeds: its sums are right, and it reads what was trained before."""

from __future__ import annotations

import json

import numpy as np
import pools
import pytest
from pools import pool
from stability import Judge, fates, line, main, summarise, voices
from twenty import Collection, find_collection

from holotype.data.sources import load_table
from holotype.data.table import Table

Y = np.repeat(np.arange(4), 10)


def made() -> Collection:
    label = np.array(["a" if i < 5 else "b" if 10 <= i < 15 else "" for i in range(40)], dtype=object)
    paths = np.array([f"{i}.png" for i in range(40)], dtype=object)
    truth = np.array(list("abcd"), dtype=object)[Y]
    return Collection("made0", Table(paths, label, ("a", "b"), truth), 4)


def row(chosen: str, one: list[float], several: list[float]) -> dict:
    same = {"one": one, "several": several}
    other = {"one": [1.0, 1.0], "several": [1.0, 1.0]}
    sizes = {"equal": same if chosen == "equal" else other, "different": other if chosen == "equal" else same}
    return {
        "collection": "x",
        "spread": 0.1,
        "chosen": chosen,
        "all": sizes,
        "error": {"one": 0.1, "several": 0.05},
    }


def test_all_is_that_of_the_unlabelled_images() -> None:
    judge = Judge.make(made())
    assert judge.score(Y) == 100
    assert judge.score(np.where(Y == 3, 2, Y)) == pytest.approx(100 * 20 / 30)
    assert judge.purity(np.where(Y == 3, 2, Y), 2) == 0.5
    assert np.isnan(judge.purity(np.where(Y == 3, 2, Y), 3))


def test_categories_that_come_back_are_told_with_their_purity() -> None:
    judge, merged = Judge.make(made()), np.where(Y == 3, 2, Y)
    assert fates(judge, Y, np.stack([Y, Y, merged])) == [[2, 1.0], [2, 1.0]]


def test_a_voice_is_the_best_category() -> None:
    p = np.array([[[0.7, 0.3], [0.1, 0.9]]], dtype=np.float16)
    (one,) = voices(p)
    assert one.category.tolist() == [0, 1]
    assert one.probability == pytest.approx([0.7, 0.9], abs=1e-3)


def test_deviations_are_pooled_over_collections() -> None:
    told = summarise([row("equal", [10.0, 14.0], [12.0, 12.0]), row("different", [20.0, 26.0], [23.0, 25.0])])
    assert told["now"] == {"mean": 18.0, "deviation": 1.0, "n": 4}
    assert told["one, chosen sizes"]["deviation"] == pytest.approx(np.sqrt((8 + 18) / 2), abs=0.01)
    assert told["before"]["mean"] == (12 + 1) / 2
    assert "equal  12.0 ± 2.8 ->  12.0 ± 0.0" in line(row("equal", [10.0, 14.0], [12.0, 12.0]))


def test_divisions_of_the_seeds_tell_the_deviation_within_each() -> None:
    one = row("equal", [10.0, 14.0], [12.0, 12.0])
    one["all"]["equal"]["redrawn"] = [[10.0, 12.0], [20.0, 24.0]]
    told = summarise([one])["now, redrawn"]
    assert told == {"mean": 16.5, "deviation": round(float(np.sqrt((2 + 8) / 2)), 2), "n": 2}


def test_what_was_trained_is_read(tmp_path) -> None:
    p = np.random.default_rng(0).random((3, 40, 4)).astype(np.float16)
    (tmp_path / "pools").mkdir()
    np.savez(tmp_path / "pools" / "made0+equal.npz", p=p)
    assert (pool(made(), "frozen", "equal", 2, 10, tmp_path, "cpu") == p[:2]).all()


def test_whole_trainings_are_kept_and_differ_in_their_seed_alone(
    squares_folder, tiny_backbone_file, tmp_path, monkeypatch
) -> None:
    squares = load_table(squares_folder / "squares.csv")
    monkeypatch.setattr(pools, "BACKBONE", str(tiny_backbone_file))
    of = Collection("squares0", squares, 4)
    first = pool(of, "whole", "equal", 2, 4, tmp_path, "cpu")
    assert first.shape == (2, len(squares), 4)
    assert not (first[0] == first[1]).all()
    (tmp_path / "whole" / "squares0+equal+4+1.npz").unlink()
    again = pool(of, "whole", "equal", 2, 4, tmp_path, "cpu")
    assert (again == first).all()


def test_a_whole_study_of_a_small_part(tmp_path, capsys) -> None:
    of, random = find_collection("sample3", {}, tmp_path), np.random.default_rng(0)
    (tmp_path / "features").mkdir()
    features = random.normal(size=(len(of.table), 5, 8)).astype(np.float32)  # embedding them takes long
    np.savez(tmp_path / "features" / "sample3.npz", f=features)
    words = [
        "sample3",
        "--redrawn",
        "3",
        "--seeds",
        "4",
        "--together",
        "2",
        "--steps",
        "20",
        "--work",
        str(tmp_path),
    ]
    assert main([*words, "--out", str(tmp_path / "record.json")]) == 0
    record = json.loads((tmp_path / "record.json").read_text())
    (found,) = record["collections"]
    assert [len(found["all"]["equal"][name]) for name in ("one", "several", "redrawn")] == [4, 2, 3]
    assert (
        record["command"]
        == "python benchmarks/stability.py sample3 --redrawn 3 --seeds 4 --together 2 --steps 20"
    )
    assert set(record["summary"]) == {
        "before",
        "several, equal sizes",
        "one, chosen sizes",
        "now",
        "now, redrawn",
    }
    assert "now: " in capsys.readouterr().out
    assert main(["sample3", "--seeds", "1"]) == 2
    assert main([*words, "--sizes", "different"]) == 2  # the labels have chosen equal ones
    assert "choose equal sizes, which were not trained" in capsys.readouterr().err
