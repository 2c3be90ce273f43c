"""Differences of rows in pairs of the same seed: against numbers worked out by hand, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pairs import differences, main
from study_table import interval_of

from made_study import STUDY, add_run, write_study

SCORES = {"simgcd": [(60, 40), (61, 42), (62, 41)], "rpc": [(61, 42), (63, 42), (65, 43)]}
"""Row -> Old and New of the seeds 0, 1 and 2: RPC has 1, 2 and 3 more of Old, and 2, 0 and 2 of New."""


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name in ("parts", "others"):
        write_study(tmp_path, STUDY, name)
    for row, scores in SCORES.items():
        for seed, (old, new) in enumerate(scores):
            add_run(tmp_path, row, seed, old, new)
    return tmp_path


def asked(capsys: pytest.CaptureFixture[str], top: Path, *rows: str) -> tuple[int, str]:
    code = main([*rows, "--experiments", str(top / "experiments")])
    out = capsys.readouterr()
    return code, out.out + out.err


def test_an_interval_worked_out_by_hand() -> None:
    """1, 2 and 3: their mean deviates by 1 / sqrt(3), and t for two degrees of freedom is 4.303."""
    low, high = interval_of([1.0, 2.0, 3.0])
    assert ((low + high) / 2, low, high) == (
        2.0,
        pytest.approx(2 - 4.303 / 3**0.5, abs=1e-3),
        pytest.approx(4.484, abs=1e-3),
    )


def test_the_first_minus_the_second(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = asked(capsys, top, "parts:rpc", "parts:simgcd")
    assert code == 0
    # a quarter of the images is of known classes: All is 1.75, 0.5 and 2.25 more
    assert told == (
        "All +1.5 (-0.7 to 3.7), Old +2.0 (-0.5 to 4.5), New +1.3 (-1.5 to 4.2)\n3 seeds: 0 1 2\n"
    )


def test_a_row_of_several_studies(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other study has the same rows, so the same records: they count once."""
    both = ("parts:rpc,others:rpc", "parts:simgcd,others:simgcd")
    assert asked(capsys, top, *both) == asked(capsys, top, "parts:rpc", "parts:simgcd")


def test_a_difference_of_differences() -> None:
    a, b, c = ({seed: np.full(3, value + seed) for seed in (1, 2)} for value in (5.0, 3.0, 1.0))
    seeds, found = differences([a, b, c, c | {3: np.zeros(3)}])
    assert seeds == [1, 2]
    assert np.array_equal(found, np.full((2, 3), 2.0))
    assert np.array_equal(differences([a, c, b, c])[1], np.full((2, 3), 2.0))


def test_seeds_that_one_row_lacks_are_told(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        add_run(top, "no-align", seed, 60 + seed, 40)
    told = asked(capsys, top, "parts:rpc", "parts:no-align")[1]
    assert told.endswith("2 seeds: 0 1; 1 other seeds are not in every row\n")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (("parts:rpc",), "Name two rows or four, not 1."),
        (("parts:rpc", "parts"), "parts names no row; write STUDY:ROW, with STUDY.yaml in "),
        (("parts:rpc", "absent:rpc"), "absent:rpc names no row; write STUDY:ROW"),
        (("parts:rpc", "parts:absent"), "absent"),
        (("parts:rpc", "parts:no-new"), "These rows share 0 seeds; an interval needs two."),
    ],
)
def test_bad_names_are_one_sentence(
    top: Path, capsys: pytest.CaptureFixture[str], rows: tuple[str, ...], told: str
) -> None:
    code, said = asked(capsys, top, *rows)
    assert code == 2
    assert told in said
    assert said.count("\n") == 1
