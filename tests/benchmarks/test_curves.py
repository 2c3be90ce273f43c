"""The curves of lambda_1, lambda_2 and alpha show what was recorded, each over one set of seeds."""

from __future__ import annotations

import json
from pathlib import Path

import curves
import figures
import pytest

from holotype.errors import InputError
from holotype.machine.sealed import read_sealed
from holotype.runs.study import read_study
from made_study import add_run, write_study

ROWS = ("rpc", "lambda_1=0.2", "lambda_1=1", "lambda_2=0.0", "alpha=1.0", "simgcd")
STUDY = (
    "question: How far?\ndatasets: [cub]\nseeds: [0, 1, 7]\nrows:\n  simgcd: {method: simgcd}\n"
    + "".join(
        f"  {name}: {{method: rpc, settings: {{{f'method.{name}'.replace('=', ': ') if '=' in name else ''}}}}}\n"
        for name in ROWS
        if name != "simgcd"
    )
)


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    """Old and New are equal, and so is All; means: rpc 61, lambda_1 0.2 60.5 and 1.0 57, lambda_2 0 63, alpha 1 61."""
    study = write_study(tmp_path, STUDY, "curves")
    for row, first, second in (
        *(("rpc", 60, 62), ("lambda_1=0.2", 60, 61), ("lambda_1=1", 57, 57)),
        *(("lambda_2=0.0", 63, 63), ("alpha=1.0", 61, 61), ("simgcd", 10, 10)),
    ):
        for seed, score in enumerate((first, second)):
            add_run(tmp_path, row, seed, score, score, study="curves")
    return study


def read(study_file: Path) -> dict[str, curves.Curve]:
    return curves.read_curves(read_study(study_file), study_file.parent / "results")


def test_the_defaults_are_a_point_of_every_curve(study_file: Path) -> None:
    found = read(study_file)
    assert {name: list(curve.points) for name, curve in found.items()} == {
        "lambda_1": [0.2, 0.5, 1.0],
        "lambda_2": [0.0, 0.3],
        "alpha": [0.3, 1.0],
    }
    for name, default in (("lambda_1", 0.5), ("lambda_2", 0.3), ("alpha", 0.3)):
        assert found[name].points[default]["all"] == pytest.approx([60, 62])


def test_the_spread_of_means(study_file: Path) -> None:
    gaps = {name: curves.spread(curve) for name, curve in read(study_file).items()}
    assert gaps == pytest.approx({"lambda_1": 4.0, "lambda_2": 2.0, "alpha": 0.0})


def test_a_seed_that_one_point_lacks_moves_no_other_point(study_file: Path) -> None:
    top = study_file.parent.parent
    for row in ("rpc", "alpha=1.0"):
        add_run(top, row, 7, 99, 99, study="curves")
    found = read(study_file)
    assert found["alpha"].seeds == (0, 1, 7)
    assert found["alpha"].points[0.3]["all"] == pytest.approx([60, 62, 99])
    assert found["lambda_1"].seeds == (0, 1)
    assert found["lambda_1"].points[0.5]["all"] == pytest.approx([60, 62])


def test_points_without_a_common_seed_make_no_curve(tmp_path: Path) -> None:
    study = write_study(tmp_path, STUDY, "curves")
    add_run(tmp_path, "rpc", 0, 60, 60, study="curves")
    add_run(tmp_path, "alpha=1.0", 1, 60, 60, study="curves")
    with pytest.raises(InputError, match="alpha have no seed in common"):
        read(study)


def test_results_of_two_settings_make_no_curve(study_file: Path) -> None:
    other = {"changes": {"backbone.digest": "another"}, "study": "curves"}
    add_run(study_file.parent.parent, "rpc", 0, 50, 50, **other)
    with pytest.raises(InputError, match=r"records of two kinds, .* differ in backbone\.digest"):
        read(study_file)


def test_records_of_other_settings_are_no_points(study_file: Path) -> None:
    before = read(study_file)
    other = {"changes": {"train.epochs": 7}, "study": "curves"}
    add_run(study_file.parent.parent, "rpc", 0, 50, 50, **other)
    assert read(study_file) == before


def test_a_study_without_results_is_told(tmp_path: Path, capsys) -> None:
    study = write_study(tmp_path, STUDY, "curves")
    assert figures.main(["curves", "--study", str(study), "--out", str(tmp_path / "c.svg")]) == 2
    assert "holds no records of curves" in capsys.readouterr().err


def test_a_score_without_images_has_no_line(study_file: Path) -> None:
    """A data set may have no novel class, or no truth at all."""
    pytest.importorskip("matplotlib")
    change_scores(study_file, old=0.6, all=0.6, new=None, share_old=1.0)
    drawn = curves.draw(read(study_file))
    assert b"Old" in drawn
    assert b"New" not in drawn
    change_scores(study_file, all=None, old=None, new=None)
    with pytest.raises(InputError, match="holds no records of curves"):
        read(study_file)


def change_scores(study_file: Path, **values: float | None) -> None:
    for path in (study_file.parent / "results" / "runs").glob("*.json"):
        content = read_sealed(path)
        content["scores"] |= values
        path.write_text(json.dumps(content))


def test_the_command_draws_the_curves_and_tells_their_spread(
    study_file: Path, tmp_path: Path, capsys
) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "b.svg"):
        words = ["curves", "--study", str(study_file), "--out", str(tmp_path / name)]
        assert figures.main(words) == 0
    first = (tmp_path / "a.svg").read_bytes()
    assert first == (tmp_path / "b.svg").read_bytes()
    for word in (b"lambda_1, 2 seeds", b"lambda_2", b"alpha", b"Old", b"default"):
        assert word in first
    assert b"<dc:date>" not in first
    told = capsys.readouterr().out
    assert "lambda_1 from 0.2 to 1: mean All moves by 4.0 points, more than 1 (seeds 0, 1)." in told
    assert "alpha from 0.3 to 1: mean All moves by 0.0 points, within 1 (seeds 0, 1)." in told
