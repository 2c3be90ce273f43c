"""docs/correct.md, run as it stands on coloured squares with a tiny network; docs/formats.md says what is written."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from holotype.discovery import pipeline
from holotype.embeddings import store
from holotype.report import page_data
from holotype.results import discovery, edits
from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Discovery, EditState, RunFacts
from holotype.results.edits import Edit, edits_csv, read_edits
from holotype.runs import identity, model_io, record

DOCS = Path(__file__).resolve().parents[2] / "docs"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return [block for name, block in FENCE.findall(text) if name == language]


@pytest.fixture
def photos(tmp_path, monkeypatch, squares_folder) -> None:
    """photos/ and labels.csv, in the folder in which the commands run."""
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    frame = pd.read_csv(squares_folder / "squares.csv", keep_default_na=False)
    for path in frame.path:
        shutil.copy(squares_folder / path, Path("photos") / Path(path).name)
    labelled = frame[frame.label != ""].assign(path=frame.path.map(lambda path: Path(path).name))
    labelled[["path", "label"]].to_csv("labels.csv", index=False)


def test_the_commands_run(photos, holotype, tiny_backbone_file) -> None:
    small = ("--backbone", tiny_backbone_file, "--k", 4, "--steps", 4, "--device", "cpu", "--no-progress")
    first = holotype("discover", "photos/", "--labels", "labels.csv", *small)
    assert first.code == 0, first.err
    run = Path("runs/photos-discover")
    first_found = Discovery.load(run)
    odd = [path for path in first_found.images.path if "blue" in path][
        :4
    ]  # so short a training finds nothing new
    made = [Edit(first_found.run_id, "t", "move", path, "", "blue ones") for path in odd]
    made += [Edit(first_found.run_id, "t", "confirm", path, "blue ones", "blue ones") for path in odd]
    Path("edits.csv").write_text(edits_csv(made), encoding="utf-8")
    lines = [line for block in blocks("correct.md", "bash") for line in block.splitlines()]
    report, discover = (shlex.split(line) for line in lines if "--edits" in line)
    outcome = holotype(*report[1:])
    assert outcome.code == 0, outcome.err
    assert "8 edits applied." in outcome.out
    assert Discovery.load(run).category("blue ones").n == 4
    outcome = holotype(*discover[1:], *small)
    assert outcome.code == 0, outcome.err
    again = Discovery.load(run)
    assert again.run_id != first_found.run_id
    assert "blue ones" in again.known
    assert (run / "rounds" / "1" / "discovery.json").is_file()


def test_formats_are_told(tmp_path) -> None:
    text = (DOCS / "formats.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| (`.+?`) \|", text, re.MULTILINE)
    names = {name for cell in told for name in re.findall(r"`([\w.]+)`", cell)}
    assert names >= {*IMAGE_TABLE_COLUMNS, *edits.EDIT_COLUMNS, *edits.ACTIONS}
    (example,) = blocks("formats.md", "csv")
    (tmp_path / "edits.csv").write_text(example, encoding="utf-8")
    assert {edit.action for edit in read_edits(tmp_path / "edits.csv")} == set(edits.ACTIONS)


def test_versions_and_keys_are_told() -> None:
    rows = [
        line.split(" | ") for line in (DOCS / "formats.md").read_text().splitlines() if line.startswith("| `")
    ]
    told = {name: row for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    versions = {
        "discovery.json": discovery.DISCOVERY_SCHEMA.format,
        "model.json": model_io.MODEL_FORMAT,
        "identity.json": identity.IDENTITY_FORMAT,
        "scores.json": record.RECORD_FORMAT,
        "edits.csv": edits.LOG_FORMAT,
        "embeddings/": store.EMBEDDINGS_FORMAT,
        "report/": page_data.PAGE_FORMAT,
    }
    assert {name: told[name][1] for name in versions} == {name: str(n) for name, n in versions.items()}
    assert f"as a whole: {pipeline.CLAIM_FORMAT}," in told["identity.json"][2]
    facts = [one.name for one in fields(RunFacts)]
    parts = [one.name for one in fields(record.Record)]
    assert [name for name in (*facts, *parts) if name not in told] == []
    for key, kind in {
        "scores": record.Scores,
        "placed": record.AssignedCounts,
        "made": record.RunMeta,
        "edits": EditState,
    }.items():
        assert [one.name for one in fields(kind) if f"`{one.name}`" not in told[key][1]] == [], key
