"""What is lost without each part of RPC: the figure of a study whose rows remove one part each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from curves import COLOURS
from drawing import drawn, pyplot
from study_table import interval_of, name_of, paired

from holotype.errors import InputError
from holotype.machine.files import write_bytes
from holotype.runs.records import Records
from holotype.runs.study import Study, read_study
from holotype.runs.sweep import select
from holotype.runs.tables import SCORES, make_row

NAMES = {"no-align": "without L_align", "no-new": "without L_new", "no-fusion": "without fusion"}
"""Rows of the study and what the figure calls them, from top to bottom."""


@dataclass(frozen=True)
class Part:
    """A row minus the reference, in points, for every seed that both have."""

    name: str
    gains: dict[str, list[float]]
    """Score -> differences."""


def read_parts(study: Study, results: Path) -> list[Part]:
    """The rows of NAMES, each paired with the study's reference."""
    records = list(Records(results).by_key.values())
    found = {}
    for name in (study.reference, *NAMES):
        row = study.rows.get(name or "")
        made = select(study, row, name_of(row.datasets[0]), records) if row else []
        if row is None or not made:
            raise InputError(
                f"{study.name} has no records of the row {name or 'that it is compared with'}; run it first."
            )
        found[row.name] = make_row(made, row.name)
    reference = found[study.reference or ""]
    gains = {name: {score: paired(found[name], reference, score) for score in SCORES} for name in NAMES}
    if few := [name for name in NAMES if min(map(len, gains[name].values())) < 2]:
        raise InputError(f"{few[0]} shares fewer than two seeds with {reference.facts['variant']}; run more.")
    return [Part(name, gains[name]) for name in NAMES]


def draw(parts: Sequence[Part]) -> bytes:
    """A panel for each score: a point for each part, with the 95 % interval of its mean."""
    plt = pyplot()
    figure, axes = plt.subplots(
        1, len(SCORES), figsize=(5.8, 2.4), sharex=True, sharey=True, layout="constrained"
    )
    for ax, score in zip(axes, SCORES, strict=True):
        ax.axvline(0, lw=0.8, color="#888888")
        for place, part in enumerate(parts):
            values = part.gains[score]
            low, high = interval_of(values)
            ax.plot([low, high], [place, place], lw=2, color=COLOURS[score])
            ax.plot(mean(values), place, "o", ms=6, color=COLOURS[score])
            ax.annotate(
                f"{mean(values):+.1f}", (mean(values), place), xytext=(0, 7), textcoords="offset points",
                ha="center", fontsize=8, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip
        ax.set_title(score.title())
        ax.set_ylim(len(parts) - 0.5, -0.7)
    n = len(parts[0].gains["all"])
    axes[0].set_yticks(range(len(parts)), [NAMES[part.name] for part in parts])
    figure.supxlabel(f"points lost or gained: mean of {n} pairs, 95 % interval", fontsize=9)
    return drawn(figure)


def make(study_file: Path, out: Path) -> None:
    """Draw the parts of a study, and say what each is worth."""
    parts = read_parts(read_study(study_file), study_file.resolve().parent / "results")
    write_bytes(out, draw(parts))
    for part in parts:
        told = [f"{score} {mean(v):+.1f} ± {stdev(v):.1f}" for score, v in part.gains.items()]
        print(f"{NAMES[part.name]}: {', '.join(told)} ({len(part.gains['all'])} pairs).")
