"""The benchmark of a whole run: it ends in time, and one file holds what was measured."""

from __future__ import annotations

import json
from functools import partial

import pytest

import whole_run
from measure import Plan, make_photographs

WORDS = ["--device", "cpu", "--arch", "test_vit", "--n-images", "64", "--minutes", "5"]


@pytest.fixture(autouse=True)
def little_effort(monkeypatch) -> None:
    monkeypatch.setattr(whole_run, "make_photographs", partial(make_photographs, longer=80))
    monkeypatch.setattr(whole_run, "cpu_count", lambda: 2)
    monkeypatch.setitem(whole_run.SIZES, "cpu", whole_run.Sizes(64, "2+1", 1, Plan(1, 1, 1), 16, large=12))
    monkeypatch.setattr(whole_run, "SIDES", (640, 480))
    monkeypatch.setattr(whole_run, "STARTS", 1)
    for name in (
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "PYTHONPYCACHEPREFIX",
        "PYTHONDONTWRITEBYTECODE",
    ):
        monkeypatch.setenv(name, "")  # so that they are as before when the test is over


def test_a_run_from_the_command_and_its_steps(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(whole_run, "KINDS", {"all compiled": whole_run.KINDS["all compiled"]})
    out = tmp_path / "whole.json"
    assert whole_run.main([*WORDS, "--only", "steps,whole,together", "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == record
    steps = [(row["blocks"], row["method"], row["kind"]) for row in record["parts"]["steps"]]
    assert len(set(steps)) == 6
    (whole,) = record["parts"]["whole"]
    assert whole["process_seconds"] > whole["wall_seconds"] > 0
    assert [row["runs"] for row in record["parts"]["together"]] == [8, 8]
    assert whole_run.main([*WORDS, "--only", "steps", "--minutes", "0", "--out", str(out)]) == 0
    assert json.loads(out.read_text())["parts"] == {"steps": []}


def test_reading_and_starting_are_measured(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(
        whole_run, "SAMPLE", (*whole_run.SAMPLE, "--cache-views=off")
    )  # seconds, not a minute
    out = tmp_path / "whole.json"
    assert whole_run.main([*WORDS, "--only", "start,reading,photographs", "--out", str(out)]) == 0
    record = json.loads(out.read_text())["parts"]
    assert list(record) == ["reading", "start", "photographs"]
    alone, *rows = record["reading"]
    assert alone["decode"] > 0
    assert [(row["kind"], row["count"]) for row in rows] == [("threads", 1), ("threads", 2), ("store", 2)]
    assert all(row["images_per_second"] > 0 for row in rows)
    assert [row["kind"] for row in record["start"]] == ["cold", "warm"]
    whole, smaller, difference = record["photographs"]
    assert whole["images"] == smaller["images"] == 12
    assert difference["mean"] <= 4
    assert whole_run.main([*WORDS, "--only", "nothing", "--out", str(out)]) == 2
    assert "'nothing'" in capsys.readouterr().err
