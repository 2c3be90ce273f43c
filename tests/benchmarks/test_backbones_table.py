"""The table says what the record says, and nothing in the record is inexact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from backbones import NETWORKS, SPEEDS
from backbones_table import backbones_table

from holotype.errors import InputError
from holotype.models.recommended import RECOMMENDED

TOP = Path(__file__).resolve().parent.parent.parent
RECORD = TOP / "experiments" / "results" / "backbones" / "cpu.json"


def test_the_record_holds_every_network_and_every_tail_is_exact() -> None:
    rows = json.loads(RECORD.read_text())["rows"]
    assert [row["name"] for row in rows] == [name for several in NETWORKS.values() for name, _ in several]
    for row in rows:
        if "refused" not in row:
            most = 1e-9 if row["double"] else 1e-4
            assert max(row["values"], row["gradients"]) < most, row["name"]
    assert sum("refused" in row for row in rows) == 4
    rotary = [row for row in rows if row.get("tail") == "RotaryTail"]
    assert all(row["tail_ms"] < 0.5 * row["whole_ms"] for row in rotary)


def test_the_page_shows_the_record() -> None:
    """exhibits.py --check says the same of all pages."""
    assert backbones_table(RECORD.parent) in (TOP / "docs" / "backbones.md").read_text()


def test_speeds_of_the_recommended_networks_are_recorded() -> None:
    networks = json.loads(SPEEDS.read_text())["networks"]
    assert networks.keys() == {
        f"{one.arch} {one.image_size}" for several in RECOMMENDED.values() for one in several
    }


def test_a_folder_without_a_record(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="measure again"):
        backbones_table(tmp_path)
