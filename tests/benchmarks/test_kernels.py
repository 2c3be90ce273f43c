"""Where the time of a step goes: what is watched adds up."""

from __future__ import annotations

import kernels
import pytest
from kernels import Times, Watched, main


def test_stages_are_told_with_what_takes_longest_first(monkeypatch, capsys) -> None:
    monkeypatch.setattr(kernels, "STAGES", (Watched("SimGCD, exact", "simgcd", 0, 1),))
    words = ["--device", "cpu", "--images", "8", "--batch", "4", "--steps", "1", "--most", "5"]
    assert main(words) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("SimGCD, exact: ")
    spent = [float(line.split()[0]) for line in rest]
    assert len(spent) == 5
    assert spent == sorted(spent, reverse=True)
    clock, device = (float(word) for word in first.split() if word.replace(".", "").isdigit())
    assert sum(spent) <= device + 0.01
    assert device <= 2.1 * clock  # on two cores


def test_a_line_says_how_often() -> None:
    (line,) = Times(2.0, 1.0, [(1.0, 11.0, "mm"), (0.5, 2.0, "gelu")]).lines(1)
    assert line.split() == ["1.000", "ms", "11.0", "x", "mm"]


@pytest.mark.parametrize("stage", kernels.STAGES, ids=lambda stage: stage.name)
def test_a_stage_is_watched_within_one_kind_of_step(stage: Watched) -> None:
    """SPTNet's prompt and network take turns of TURN steps, the first of which is one short."""
    if stage.method == "sptnet":
        assert (stage.warmup + 1) % kernels.TURN == 0
