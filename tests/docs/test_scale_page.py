"""docs/scale.md: its commands are taken by the command line, and its numbers are those of the code."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest

from holotype.cli.executor import SMALL_SHARD
from holotype.embeddings.executor import MAX_CONSECUTIVE_FAILURES
from holotype.embeddings.ray import MAX_RESTARTS, SECONDS_TO_ANSWER, SECONDS_TO_START
from holotype.embeddings.shards import IMAGES_PER_PLAN_SHARD

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
LINES = [
    line.partition(" #")[0].strip()
    for block in BLOCKS
    for line in block.splitlines()
    if line.startswith("holotype ")
]


@pytest.mark.parametrize("line", LINES)
def test_a_command_is_taken(line: str) -> None:
    line = line.replace("$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT", "3/1000")
    _, name, *words = shlex.split(line)
    if name == "discover":  # has settings in place of a parser
        assert set(words) & {"--out"}
        return
    given = importlib.import_module(f"holotype.cli.{name}").make_parser().parse_args(words)
    assert given.out in ("features", "placed", "/data/features")


def test_every_way_has_three_commands() -> None:
    for title in ("A laptop", "One GPU", "Slurm", "Ray on a cluster"):
        first = PAGE.partition(f"## {title}\n")[2].partition("```bash\n")[2].partition("```")[0]
        assert len(first.strip().splitlines()) == 3, title
        assert "**What it costs.**" in PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"slices of at most {IMAGES_PER_PLAN_SHARD:,} images" in PAGE
    assert f"On a CPU a slice is {SMALL_SHARD} images" in PAGE
    assert MAX_RESTARTS == 3
    assert "a slice kills three workers" in PAGE
    assert MAX_CONSECUTIVE_FAILURES == 8
    assert "eight slices fail" in PAGE
    assert f"after {SECONDS_TO_ANSWER:.0f} seconds at most" in PAGE
    assert SECONDS_TO_START == 120
    assert "after two minutes" in PAGE


def test_every_figure_has_its_command() -> None:
    figures = PAGE.partition("## Figures\n")[2]
    assert "two CPU cores" in figures
    for words in ("--slices 24414", "--slices 244141", "--engine ray", "slice_memory.py", "--loop"):
        assert f"benchmarks/slices.py {words}" in figures or words in figures
