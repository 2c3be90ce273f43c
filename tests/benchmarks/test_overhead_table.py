"""The table of overheads: the paper's numbers beside ours, one column of times for each machine."""

from __future__ import annotations

import json
from pathlib import Path

import exhibits
import pytest
from overhead_table import overhead_table

from holotype.errors import InputError


def write(folder: Path, hardware: str, ms: float, *, heads: int = 6_449_408, captured: bool = False) -> None:
    row = {
        "name": "simgcd",
        "method": "simgcd",
        "what": "two heads",
        "parameters": {"backbone": 85_798_656, "heads": heads},
        "macs": {"backbone": 17_563_060_224, "heads": 6_445_056},
        "step": {"ms": ms, "captured": captured},
    }
    record = {"hardware": hardware, "commit": "abc", "torch": "2.11", "command": "python it", "batch": 128}
    record |= {"arch": "vit", "image_size": 224, "k": 200, "n_known": 100}
    other = {**row, "name": "debgcd-compact", "method": "debgcd"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{hardware}.json").write_text(json.dumps({**record, "rows": [row, other]}))


def test_counts_times_and_the_remark(tmp_path: Path) -> None:
    write(tmp_path, "card", 3.25, captured=True)
    write(tmp_path, "cores", 812.0)
    text = overhead_table(tmp_path)
    assert "| ms a step, card | ms a step, cores |" in text
    ours = "| 92.25 | 92.25 | 17.57 | 6.45 | 17.60 | 3.25 (captured) | 812 |"
    assert f"| simgcd | two heads {ours}" in text
    assert "| debgcd-compact | two heads | 92.25 |  | 17.57 | 6.45 |  |" in text  # the paper has no such row
    assert "a head of 1.29 M parameters" in text
    assert "0.32 G would need it at about 250 positions" in text
    assert "commit abc" in text


def test_files_that_count_differently_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "card", 3.0)
    write(tmp_path, "cores", 800.0, heads=7)
    with pytest.raises(InputError, match="different parameters"):
        overhead_table(tmp_path)


def test_nothing_or_something_else_in_the_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"overhead\.py first"):
        overhead_table(tmp_path)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match="lacks rows"):
        overhead_table(tmp_path)


def test_a_block_of_a_document(tmp_path: Path) -> None:
    write(tmp_path / "experiments" / "results" / "overhead", "card", 3.0)
    page = tmp_path / "README.md"
    page.write_text("<!-- table: overhead kind=overhead -->\n<!-- end of table -->\n")
    assert exhibits.main([], tmp_path) == 0
    assert "| 92.25 |" in page.read_text()
