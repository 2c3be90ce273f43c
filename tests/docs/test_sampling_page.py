"""docs/scale.md, the part on samples, followed: on coloured squares, with a tiny network and k-means."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest

from holotype.cli.sample import make_parser
from holotype.discovery import pipeline

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
PAGE = TEXT.partition("\n## Slices\n")[0]
BLOCK = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]


def test_the_four_commands(
    holotype, squares_folder: Path, tiny_backbone_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(squares_folder, tmp_path / "photos")
    original = pipeline.discover_table

    def small(table, config, folder, **how):
        config = dataclasses.replace(config, k=4, method="kmeans", backbone=str(tiny_backbone_file))
        return original(table, config, folder, **how)

    monkeypatch.setattr(pipeline, "discover_table", small)
    for words in (shlex.split(line)[1:] for line in BLOCK.strip().splitlines()):
        words = ["40" if word == "200000" else word for word in words]
        more = [] if words[0] == "sample" else ["--device", "cpu"]
        more += ["--backbone", str(tiny_backbone_file)] if words[0] == "embed" else []
        outcome = holotype(*words, *more, "--no-progress")
        assert outcome.code == 0, outcome.err
    assert len(pd.read_parquet("sample.parquet")) == 40
    assert len(pd.read_csv("assignments.csv")) == 64


def test_flags_of_the_page_are_flags() -> None:
    given = {flag for action in make_parser()._actions for flag in action.option_strings}
    assert set(re.findall(r"^\| `(--[a-z-]+)`", PAGE, re.MULTILINE)) <= given
