"""Scores of RPC over lambda_1, lambda_2 and alpha: the points, how far they lie apart, and the figure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from drawing import drawn, pyplot

from holotype.errors import InputError
from holotype.machine.files import write_bytes
from holotype.methods.rpc_config import RPCConfig
from holotype.runs.records import Records
from holotype.runs.study import Study, read_study
from holotype.runs.sweep import select
from holotype.runs.tables import Row, make_row

PARAMETERS = ("lambda_1", "lambda_2", "alpha")
DEFAULTS = {name: float(getattr(RPCConfig(), name)) for name in PARAMETERS}
COLOURS = {"all": "#222222", "old": "#0072b2", "new": "#d55e00"}
CLAIM = 1.0
"""Points of All within which the paper says that the parameters stay."""

Scores = dict[str, list[float]]
"""Score -> per cent of each seed."""


@dataclass(frozen=True)
class Curve:
    """One parameter's points, over the seeds that all of them have: other seeds would shift some points alone."""

    seeds: tuple[int, ...]
    points: dict[float, Scores]


def read_curves(study: Study, results: Path) -> dict[str, Curve]:
    """The curve of every parameter of which there are records."""
    found: dict[str, dict[float, Row]] = {name: {} for name in PARAMETERS}
    records = [record for record in Records(results).by_key.values() if record.scores.all is not None]
    for row in study.rows.values():
        mine = select(study, row, row.datasets[0], records) if places(row.name) else []
        for name, value in places(row.name) if mine else []:
            found[name][value] = make_row(mine, row.name)
    if not any(found.values()):
        raise InputError(
            f"{results} holds no records of {study.name} with scores; run holotype bench --study first."
        )
    return {name: over_common_seeds(name, rows) for name, rows in found.items() if rows}


def over_common_seeds(name: str, rows: dict[float, Row]) -> Curve:
    seeds = sorted(set.intersection(*(set(row.seeds) for row in rows.values())))
    if not seeds:
        raise InputError(f"The points of {name} have no seed in common; run one seed for all of them.")
    points = {}
    for value, row in sorted(rows.items()):
        here = [row.seeds.index(seed) for seed in seeds]
        points[value] = {score: [values[i] for i in here] for score, values in row.scores.items() if values}
    return Curve(tuple(seeds), points)


def places(variant: str) -> list[tuple[str, float]]:
    """The points that a row of the study is; none for a row of another kind."""
    if variant == "rpc":
        return list(DEFAULTS.items())
    match = re.fullmatch(rf"({'|'.join(PARAMETERS)})=([0-9.]+)", variant)
    return [(match[1], float(match[2]))] if match else []


def spread(curve: Curve) -> float:
    """Largest minus smallest mean All, in points."""
    means = [mean(scores["all"]) for scores in curve.points.values()]
    return max(means) - min(means)


def draw(curves: dict[str, Curve]) -> bytes:
    """A panel for each parameter: mean over seeds, and a band of one standard deviation."""
    plt = pyplot()
    size = (3.2 * len(curves), 2.8)
    figure, axes = plt.subplots(
        1, len(curves), figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for ax, (name, curve) in zip(axes[0], curves.items(), strict=True):
        values = list(curve.points)
        for score in curve.points[values[0]]:  # of which the data set has images
            seeds = [curve.points[value][score] for value in values]
            centre = np.array([mean(each) for each in seeds])
            width = np.array([stdev(each) if len(each) > 1 else 0.0 for each in seeds])
            ax.plot(values, centre, "o-", ms=3, lw=1.2, color=COLOURS[score], label=score.title())
            ax.fill_between(values, centre - width, centre + width, color=COLOURS[score], alpha=0.15, lw=0)
        ax.axvline(DEFAULTS[name], color="#888888", lw=0.8, ls=":", label="default")
        ax.set_xlabel(f"{name}, {len(curve.seeds)} seed{'s' * (len(curve.seeds) > 1)}")
    axes[0][0].set_ylabel("per cent")
    lines, names = axes[0][0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(names))
    return drawn(figure)


def make(study_file: Path, out: Path) -> None:
    """Draw the curves of a study, and say how far each parameter moves All."""
    study = read_study(study_file)
    curves = read_curves(study, study_file.resolve().parent / "results")
    write_bytes(out, draw(curves))
    for name, curve in curves.items():
        low, *_, high = curve.points
        gap, seeds = spread(curve), ", ".join(map(str, curve.seeds))
        verdict = "within" if gap <= CLAIM else "more than"
        print(
            f"{name} from {low:g} to {high:g}: mean All moves by {gap:.1f} points, {verdict} 1 (seeds {seeds})."
        )
