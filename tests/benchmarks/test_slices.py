"""The simulation of large collections, with few slices."""

from __future__ import annotations

import json
import sys

import pytest
import slices
from slices import simulate


def test_a_simulation_does_every_slice(tmp_path) -> None:
    for synced in (False, True):
        told = simulate(50, "local", 1, synced, tmp_path / str(synced))
        assert told["slices"] == 50
        assert told["slices_per_s"] > 0
        assert len(list((tmp_path / str(synced)).glob("part-*.parquet"))) == 50


def test_the_command_prints_one_line(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["slices.py", "--slices", "20"])
    slices.main()
    assert json.loads(capsys.readouterr().out)["slices"] == 20


def test_slices_and_the_plain_loop(tmp_path) -> None:
    told = slices.compare_loop(6, 1, tmp_path, longer=60)
    assert told["processor_ratio"] > 0
    assert told["images"] == 6
