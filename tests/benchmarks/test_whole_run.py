"""The benchmark of a whole run: it ends in time, and one file holds what was measured."""

from __future__ import annotations

import json
from functools import partial

import whole_run
from measure import Plan, make_photographs

WORDS = ["--device", "cpu", "--arch", "test_vit", "--n-images", "64", "--minutes", "5"]


def test_a_run_from_the_command_and_its_steps(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(whole_run, "make_photographs", partial(make_photographs, longer=80))
    monkeypatch.setitem(whole_run.SIZES, "cpu", whole_run.Sizes(64, "2+1", 1, Plan(1, 1, 1), 16))
    monkeypatch.setattr(whole_run, "KINDS", {"all compiled": whole_run.KINDS["all compiled"]})
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # so that they are as before when the test is over
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
