"""`holotype compare`, `holotype plot`, `holotype features`: finished runs beside each other and as files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from holotype.cli.common import aligned, echo
from holotype.cli.options import CompareOptions, FeaturesOptions, PlotOptions
from holotype.config.parse import value_text
from holotype.errors import InputError
from holotype.runs.compare import Comparison, compare
from holotype.runs.plot import plot_runs
from holotype.runs.run_result import load
from holotype.utils.serialization import write_parquet
from holotype.utils.text import plural

MOST_CLASSES = 5
"""Shown at either end."""


def compare_command(options: CompareOptions) -> None:
    echo("\n".join(comparison_lines(compare(options.runs))))


def comparison_lines(found: Comparison) -> list[str]:
    """Return the text for people."""
    lines = [
        f"A: {found.names[0]}    B: {found.names[1]}    {plural(len(found.seeds), 'pair')} of equal seeds"
    ]
    lines += [f"  {key}: {value_text(a)} -> {value_text(b)}" for key, (a, b) in found.settings.items()]
    if found.scores["first"].isna().all():
        lines.append("The true classes are not known, so there is nothing to score.")
    else:
        rows = [["", "A", "B", "B - A", "95 % interval", "p"]]
        for name, row in found.scores.iterrows():
            interval, p = "", ""
            if not math.isnan(row.low):
                interval = f"{row.low:+.1f} to {row.high:+.1f}"
                p = "" if math.isnan(row.p) else f"{row.p:.3f}"
            rows.append(
                [str(name), f"{row['first']:.1f}", f"{row.second:.1f}", f"{row.difference:+.1f}", interval, p]
            )
        lines += ["", *aligned(rows, right=(1, 2, 3, 4, 5))]
        if len(found.seeds) == 1:
            lines.append("One pair has no interval; run more seeds.")
        else:
            each = ", ".join(f"seed {seed} {value:+.1f}" for seed, value in found.pairs["all"].items())
            lines.append(f"All by pair: {each}. Intervals and p are of Student's paired t.")
    if found.classes is not None:
        ends = found.classes if len(found.classes) <= 2 * MOST_CLASSES else None
        shown = (
            [found.classes]
            if ends is not None
            else [found.classes[:MOST_CLASSES], found.classes[-MOST_CLASSES:]]
        )
        rows = [["class", "kind", "n", "A", "B", "B - A"]]
        for number, part in enumerate(shown):
            rows += [["..."] + [""] * 5] if number else []
            for name, row in part.iterrows():
                figures = [
                    f"{row.n:.0f}",
                    f"{row['first']:.1f}",
                    f"{row.second:.1f}",
                    f"{row.difference:+.1f}",
                ]
                rows.append([str(name), row.kind, *figures])
        lines += ["", *aligned(rows, right=(2, 3, 4, 5))]
    return [
        *lines,
        "",
        f"{100 * found.agreement:.0f} % of the unlabelled images are in the same category in both.",
    ]


def plot_command(options: PlotOptions) -> None:
    first = options.runs[0]
    out = options.out or (first / "plot.png" if len(options.runs) == 1 else Path("plot.png"))
    echo(plot_runs(options.runs, out))


def features_command(options: FeaturesOptions) -> None:
    import pyarrow as pa

    run, out = load(options.run), options.out or options.run / "features.parquet"
    if out.suffix.lower() != ".parquet":
        raise InputError(f"{out} must end in .parquet; choose another --out.")
    read = np.isfinite(run.features).all(axis=1)
    columns = {name: list(run.images[name][read]) for name in ("path", "label", "category", "probability")}
    columns["vector"] = list(run.features[read])
    if options.logits:
        columns["logits"] = list(run.logits[read])
    write_parquet(out, pa.table(columns))
    left = f"; {plural(int((~read).sum()), 'image')} could not be read" if not read.all() else ""
    echo(f"{out}: {read.sum():,} vectors of {run.features.shape[1]} numbers{left}")
