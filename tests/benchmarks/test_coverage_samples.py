"""The made collection of the samples, and what is counted on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from coverage_samples import Made, at_random, by_coverage, judge, main

from holotype.runs.embedded import Parts


def test_sizes_follow_zipf() -> None:
    size = np.bincount(Made(50_000, 20, 4, 0).category(), minlength=20)
    share = 1 / np.arange(1, 21)
    assert np.allclose(size / 50_000, share / share.sum(), atol=0.01)


def test_parts_hold_the_rows_in_any_sizes(tmp_path: Path) -> None:
    made = Made(300, 10, 8, 0)
    made.write(tmp_path / "e", each=128)
    parts = list(Parts(tmp_path / "e"))
    assert [len(part.path) for part in parts] == [128, 128, 44]
    feature, category = np.concatenate([part.feature for part in parts]), made.category()
    x = feature / np.linalg.norm(feature, axis=1, keepdims=True)
    same = category[:, None] == category
    assert (x @ x.T)[same & ~np.eye(300, dtype=bool)].mean() == pytest.approx(0.5, abs=0.15)
    assert (x @ x.T)[~same].mean() == pytest.approx(0.0, abs=0.15)


def test_what_is_counted() -> None:
    """Categories of 40, 10 and 2 images; the sample has 10, 1 and none of them."""
    category = np.repeat([0, 1, 2], [40, 10, 2])
    rows, weight = np.array([*range(10), 40]), np.array([4.0] * 10 + [5.0])
    found = judge(11, "by hand", category, rows, weight)
    assert found.found == (2, 1, 1)
    assert found.fewest == 0
    assert found.off == pytest.approx(0.5)


def test_a_coverage_sample_finds_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Made(8_000, 100, 32, 0)
    made.write(tmp_path / "e")
    category = made.category()
    random, coverage = at_random(made, category, 800), by_coverage(made, category, 800, tmp_path / "e", 160)
    assert coverage.found[1] > random.found[1]
    assert main(["--rows", "300", "--categories", "5", "--n", "20", "--dim", "8"]) == 0
    assert len([line for line in capsys.readouterr().out.splitlines() if line.startswith("| 20 |")]) == 2
    assert main(["--rows", "0"]) == 2


def test_the_number_of_categories_by_each_sample(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rows", "3000", "--categories", "20", "--n", "800", "--dim", "32", "--labelled", "0.1"]
    assert main(words) == 0
    lines = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| 800 |")]
    assert [line[2].strip().partition(",")[0] for line in lines] == ["at random", "coverage", "coverage"]
    assert int(lines[1][3]) == int(lines[2][3]) > int(lines[0][3])  # labelled images are all kept
    assert 10 < float(lines[2][4]) < 40
