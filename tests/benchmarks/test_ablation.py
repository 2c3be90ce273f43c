"""The figure of the ablation shows the paired differences that the records hold."""

from __future__ import annotations

from pathlib import Path

import ablation
import figures
import pytest

from holotype.errors import InputError
from holotype.runs.study import read_study
from made_study import add_run, write_study

STUDY = """question: What does each part add?
datasets: [cub]
seeds: [0, 1, 2]
reference: rpc
rows:
  rpc: {method: rpc}
  no-fusion: {method: rpc, settings: {method.alpha: 0}}
  no-align: {method: rpc, settings: {method.lambda_1: 0}}
  no-new: {method: rpc, settings: {method.lambda_2: 0}}
"""


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    """Old without L_align: 4, 5 and 6 lower; New: equal. Seed 2 of no-new was not run."""
    study = write_study(tmp_path, STUDY, "ablation")
    runs = {"rpc": (70, 71, 72), "no-align": (66, 66, 66), "no-new": (73, 75), "no-fusion": (70, 71, 72)}
    for row, scores in runs.items():
        for seed, old in enumerate(scores):
            add_run(tmp_path, row, seed, old, 50, study="ablation")
    return study


def test_parts_are_paired_by_seed(study_file: Path) -> None:
    parts = ablation.read_parts(read_study(study_file), study_file.parent / "results")
    assert [part.name for part in parts] == ["no-align", "no-new", "no-fusion"]
    assert parts[0].gains["old"] == pytest.approx([-4, -5, -6])
    assert parts[0].gains["new"] == pytest.approx([0, 0, 0])
    assert parts[1].gains["old"] == pytest.approx([3, 4])


def test_the_figure_has_its_words_and_the_same_bytes_each_time(
    study_file: Path, tmp_path: Path, capsys
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "a.svg"
    assert figures.main(["ablation", "--study", str(study_file), "--out", str(out)]) == 0
    assert "without L_align: all" in capsys.readouterr().out
    before = out.read_bytes()
    for word in ("without L_align", "without L_new", "without fusion", "-5.0", "+3.5", "95 % interval"):
        assert word in out.read_text(), word
    figures.main(["ablation", "--study", str(study_file), "--out", str(out)])
    assert out.read_bytes() == before


def test_rows_that_were_not_run_are_told(study_file: Path) -> None:
    for file in (study_file.parent / "results" / "runs").iterdir():
        file.unlink()
    with pytest.raises(InputError, match="ablation has no records of the row rpc; run it first"):
        ablation.read_parts(read_study(study_file), study_file.parent / "results")
