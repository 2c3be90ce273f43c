"""What the runs of corrections.py come to: means over seeds, paired differences, lines and a table for the docs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from study_table import interval_of

FIGURES = ("round 1", "corrected", "round 2")
NUMBERS = (*FIGURES, "others")


# -- over seeds ---------------------------------------------------------------------------------------------


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each collection, over its seeds; and of `mean`, over seeds with the mean over collections of each."""
    names = list(dict.fromkeys(row["collection"] for row in rows))
    told = {name: over_seeds([row for row in rows if row["collection"] == name]) for name in names}
    seeds = [{row["seed"] for row in rows if row["collection"] == name} for name in names]
    common = sorted(set.intersection(*seeds)) if seeds else []
    if len(names) > 1 and common:
        means = []
        for seed in common:
            of_seed = [row["untouched"] for row in rows if row["seed"] == seed]
            means.append(
                {"untouched": {name: mean_of([row.get(name) for row in of_seed]) for name in NUMBERS}}
            )
        rise = sum(one["rise"] for one in told.values()), sum(one["pairs"] for one in told.values())
        told["mean"] = over_seeds(means) | {"rise": rise[0], "pairs": rise[1]}
    return told


def over_seeds(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard error of each figure, and the paired difference with its interval."""
    values = {name: [row["untouched"].get(name) for row in rows] for name in NUMBERS}
    told: dict[str, Any] = {name: [mean_of(each), error_of(each)] for name, each in values.items()}
    for name, before in (("difference", "round 1"), ("over others", "others")):
        pairs = [
            b - a for a, b in zip(values[before], values["round 2"], strict=True) if a is not None is not b
        ]
        told[name], told[f"{name}, interval"] = mean_of(pairs), interval(pairs)
        if name == "difference":
            told |= {"rise": sum(one > 0 for one in pairs), "pairs": len(pairs)}
    return told


def mean_of(values: Sequence[float | None]) -> float | None:
    there = [one for one in values if one is not None]
    return round(float(np.mean(there)), 3) if there else None


def error_of(values: Sequence[float | None]) -> float | None:
    """Standard error of the mean."""
    there = [one for one in values if one is not None]
    return round(float(np.std(there, ddof=1) / np.sqrt(len(there))), 3) if len(there) > 1 else None


def interval(differences: Sequence[float]) -> list[float] | None:
    """Its ends, 95 %; None of fewer than two."""
    return [round(end, 2) for end in interval_of(differences)] if len(differences) > 1 else None


# -- told ---------------------------------------------------------------------------------------------------


def line(row: dict[str, Any]) -> str:
    def cells(of: str) -> str:
        return " -> ".join(f"{row[of][name]:5.1f}" for name in FIGURES)

    edits = " ".join(f"{kind} {n}" for kind, n in row["edits"].items())
    return (
        f"{row['collection']:>8} seed {row['seed']} untouched {cells('untouched')}  everything {cells('everything')}  "
        f"k {row['k'][0]} -> {row['k'][1]}  {row['corrections']} corrections ({edits}), {row['labels']} labels  "
        f"{row['seconds'][0]:.0f} + {row['seconds'][1]:.0f} s"
    )


def told_line(name: str, one: dict[str, Any]) -> str:
    figures = ", ".join(f"{figure} {spread(one[figure])}" for figure in NUMBERS)
    return (
        f"{name:>8} {figures}; round 2 - round 1: {signed(one['difference'])} "
        f"{between(one['difference, interval'])}, {one['rise']} of {one['pairs']} rise; "
        f"round 2 - others: {signed(one['over others'])} {between(one['over others, interval'])}"
    )


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """One table of all runs, for the docs."""
    head = ("collection", "images", "corrections", *NUMBERS, "round 2 - round 1", "95 % interval", "rise")
    lines = [head, ("---",) * len(head)]
    for name, one in summarise(rows).items():
        own = [row for row in rows if row["collection"] == name] or rows
        images = f"{own[0]['images']:,}" if name != "mean" else ""
        made = f"{mean_of([row['corrections'] for row in own]):.0f}"
        figures = [spread(one[figure]) for figure in NUMBERS]
        difference = signed(one["difference"]), between(one["difference, interval"])
        lines.append((name, images, made, *figures, *difference, f"{one['rise']} of {one['pairs']}"))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def spread(pair: Sequence[float | None]) -> str:
    mean, error = pair
    return "-" if mean is None else f"{mean:.1f}" if error is None else f"{mean:.1f} ± {error:.1f}"


def signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"


def between(pair: Sequence[float] | None) -> str:
    return "-" if pair is None else f"({pair[0]:+.1f} to {pair[1]:+.1f})"
