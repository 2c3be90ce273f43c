"""Votes and the second opinion, measured: what is drawn, what is counted as left, and what the page says of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import votes
from stability import Judge
from tests.benchmarks.test_folder_methods import Y, made
from votes import RECORD, deviations, divide, draw, kinds, main, measure, table, trust, voices

from holotype.categories.agreement import Training, agree

TOP = Path(__file__).resolve().parents[2]
EMBEDDED = (np.eye(4, 6)[Y] + 0.2 * np.random.default_rng(0).normal(size=(40, 6))).astype(np.float32)


def keep(work: Path, method: str, wrong: float, seeds: int = 9) -> None:
    """Trainings that are each wrong about a share of the images."""
    random = np.random.default_rng(len(method) + seeds)
    said = np.where(random.random((seeds, 40)) < wrong, random.integers(0, 4, (seeds, 40)), Y)
    (work / "said").mkdir(exist_ok=True)
    file = work / "said" / f"made0+{method}.npz"
    np.savez(file, category=said.astype(np.int16), probability=np.full(said.shape, 0.9, np.float16), k=4)


def test_nine_are_the_first_ones_or_drawn(tmp_path: Path) -> None:
    keep(tmp_path, "rpc", 0.5)
    keep(tmp_path, "uno", 0.5)
    said, k = voices(tmp_path, "made0")
    assert k == 4
    first = draw(said, 0)
    assert first == [[*said["rpc"][:5], *said["uno"][:4]]]
    drawn = draw(said, 6)
    assert [len(group) for group in drawn] == [9] * 6
    for group in drawn:
        of_rpc = [any(one is own for own in said["rpc"]) for one in group]
        assert of_rpc == [True] * 5 + [False] * 4
    assert len({tuple(map(id, group)) for group in drawn}) == 6


def test_mistakes_are_held_by_the_doubtful_images_or_left(tmp_path: Path) -> None:
    """Of 30 unlabelled images three are wrong; eight are doubtful, and the least likely ones come first."""
    wrong = Y.copy()
    wrong[[8, 18, 28]] = (Y[[8, 18, 28]] + 1) % 4
    together = agree([Training(wrong, np.full(40, 0.9))] * 3, 2, 4)
    found = trust(Judge.make(made()), together, EMBEDDED, pooled=False)
    assert found["all"] == 90.0
    assert found["held"] + 30 * found["left"] / 3 == pytest.approx(1, abs=1e-3)
    assert found["held"] == 1.0  # the frozen features know better


def test_both_ways_are_measured_in_the_mean_over_draws(tmp_path: Path) -> None:
    keep(tmp_path, "rpc", 0.6)
    keep(tmp_path, "uno", 0.6)
    said, _ = voices(tmp_path, "made0")
    row = measure(made(), draw(said, 3), EMBEDDED)
    each = [measure(made(), [group], EMBEDDED) for group in draw(said, 3)]
    for way in ("votes", "pooled", "weighed"):
        assert row[way]["all"] == pytest.approx(np.mean([one[way]["all"] for one in each]), abs=1e-3)
    assert row["votes"]["all"] == row["pooled"]["all"] < row["weighed"]["all"]


def test_divisions_use_every_training_once(tmp_path: Path, monkeypatch) -> None:
    keep(tmp_path, "rpc", 0.5, seeds=18)
    keep(tmp_path, "uno", 0.5, seeds=18)
    said, _ = voices(tmp_path, "made0")
    asked: list[list[Training]] = []
    plain = votes.agree
    monkeypatch.setattr(votes, "agree", lambda group, *rest: asked.append(group) or plain(group, *rest))
    found = divide(made(), said, EMBEDDED, 1)
    assert {name: [len(one) for one in values] for name, values in found.items()} == {
        "one": [18],
        "rpc 9": [2],
        "turns 9": [3],
        "weighed 9": [3],
        "turns 15": [2],
        "weighed 15": [2],
    }
    for groups, trainings in ((asked[:2], 18), (asked[2:5], 27), (asked[5:], 30)):
        used = [id(one) for group in groups for one in group]
        assert len(used) == len(set(used)) == trainings


def test_the_rows_of_the_table_are_who_chose_and_who_did_not() -> None:
    names = {"cub5": (0, False), "full": (0, False), "cub18": (0, False), "sample10": (0, False)}
    names |= {"cub12": (0, True), "cub13": (0, True), "cub24": (6, False), "cub25": (6, False)}
    rows = {name: {"draws": draws, "told": told} for name, (draws, told) in names.items()}
    assert kinds(rows) == {
        "chose the way": ["cub5", "full"],
        "ten others": ["cub18", "sample10"],
        "twelve that were told": ["cub12", "cub13"],
        "sixteen, six draws each": ["cub24", "cub25"],
    }


def test_a_training_that_is_not_there_is_named(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(votes, "find_collection", lambda word, roots, work: made())
    assert main(["made0", "--work", str(tmp_path), "--out", str(tmp_path / "none.json")]) == 2
    assert "made0+rpc.npz is not there; train it with" in capsys.readouterr().err


def test_the_pages_have_the_tables_of_the_record() -> None:
    rows = json.loads((TOP / RECORD).read_text())["rows"]
    page = (TOP / "docs" / "studies" / "32-votes.md").read_text()
    assert table(rows) in page
    assert deviations(rows) in page
    assert [len(names) for names in kinds(rows).values()] == [13, 10, 12, 16]
    assert deviations(rows) in (TOP / "docs" / "stability.md").read_text()
