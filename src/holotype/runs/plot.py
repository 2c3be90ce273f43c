"""One figure of runs: losses and scores by epoch, scores over seeds, and of one run where its classes went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holotype.errors import InputError
from holotype.runs.run_result import RunResult, load
from holotype.runs.tables import SCORE_COLUMNS
from holotype.utils.atomic import atomic_write

NOT_TERMS = ("kind", "stage", "epoch", "counter", "lr", "seconds")
"""Columns of the log that are no losses."""
ENDINGS = (".png", ".pdf", ".svg")
MOST_CLASSES = 40
"""Whose names fit beside the matrix."""


def plot_runs(runs: Sequence[Path | str], out: Path) -> Path:
    """Draw finished runs into a file and return its path.

    Args:
        runs: Folders of runs.
        out: The file, whose ending says how it is written: .png, .pdf or .svg.
    """
    if out.suffix.lower() not in ENDINGS:
        raise InputError(f"{out} must end in {', '.join(ENDINGS)}; choose another --out.")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            "holotype plot needs matplotlib; install it with pip install 'holotype[figures]'."
        ) from error
    found = [load(run) for run in dict.fromkeys(map(str, runs))]
    counts = found[0].confusion if len(found) == 1 else None
    scored = any(run.record.scores.all is not None for run in found)
    watched = scored and any("score" in set(run.curves.get("kind", ())) for run in found)
    panels = [_draw_losses, *([_draw_curves] if watched else []), *([_draw_scores] if scored else [])]
    panels += [_draw_confusion] if counts is not None else []
    figure = Figure(figsize=(5.2 * len(panels), 4.4), layout="constrained")
    for axes, draw in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        draw(axes, found)
    kind = out.suffix.lower().removeprefix(".")
    atomic_write(out, lambda beside: figure.savefig(beside, format=kind, dpi=150))
    return out


def _name(run: RunResult, runs: Sequence[RunResult]) -> str:
    """What tells runs apart in a legend."""
    names = [(one.record.identity.method["name"], one.record.made.variant) for one in runs]
    method, variant = run.record.identity.method["name"], run.record.made.variant
    variants = {v for m, v in names if m == method}
    hashes = {one.record.identity.hash for one in runs if one.record.identity.method["name"] == method}
    if len(hashes) > len(variants):
        return run.folder.name
    return f"{method} ({variant})" if len(variants) > 1 or variant != "default" else str(method)


def _draw_losses(axes: Any, runs: Sequence[RunResult]) -> None:
    for run in runs:
        curves = run.curves
        if not len(curves):
            continue
        epochs = curves[curves.kind == "epoch"].dropna(axis=1, how="all")
        terms = [name for name in epochs.columns if name not in NOT_TERMS]
        for term in terms if len(runs) == 1 else ["loss"]:
            label = term if len(runs) == 1 else f"{_name(run, runs)}, seed {run.record.identity.seed}"
            axes.plot(range(1, len(epochs) + 1), epochs[term], label=label)
    axes.locator_params("x", integer=True)
    axes.set(xlabel="epoch", title="Loss" if len(runs) > 1 else "Losses and diagnostics")
    if axes.lines:
        axes.legend(fontsize="x-small")


def _draw_curves(axes: Any, runs: Sequence[RunResult]) -> None:
    """All while training and at the end; of one run Old and New as well."""
    names = SCORE_COLUMNS if len(runs) == 1 else ("all",)
    for run in runs:
        curves = run.curves
        lines = curves[curves.kind == "score"] if len(curves) else curves
        epochs = len(curves[curves.kind == "epoch"]) if len(curves) else 0
        for name in names:
            last = getattr(run.record.scores, name)
            points = [*zip(lines.counter, lines[name], strict=True)] if len(lines) else []
            per_epoch = max(curves.counter.max() / epochs, 1) if epochs else 1
            at = [counter / per_epoch for counter, _ in points]
            values = [value for _, value in points]
            if last is not None:
                at, values = [*at, epochs], [*values, last]
            label = name.title() if len(runs) == 1 else f"{_name(run, runs)}, seed {run.record.identity.seed}"
            axes.plot(at, [100 * value for value in values], marker="o", label=label)
    axes.locator_params("x", integer=True)
    axes.set(xlabel="epoch", ylabel="per cent", title="Scores" if len(runs) == 1 else "All")
    axes.legend(fontsize="x-small")


def _draw_scores(axes: Any, runs: Sequence[RunResult]) -> None:
    groups: dict[str, list[RunResult]] = {}
    for run in runs:
        groups.setdefault(run.record.identity.hash, []).append(run)
    width = 0.8 / len(groups)
    for number, group in enumerate(groups.values()):
        for place, name in enumerate(SCORE_COLUMNS):
            values = [getattr(run.record.scores, name) for run in group]
            values = [100 * value for value in values if value is not None]
            x, colour = place + (number - (len(groups) - 1) / 2) * width, f"C{number}"
            label = f"{_name(group[0], runs)}, n = {len(group)}" if not place else None
            axes.bar(x, sum(values) / max(len(values), 1), width * 0.9, color=colour, alpha=0.4, label=label)
            axes.plot([x] * len(values), values, "o", color=colour, markersize=4)
    axes.set_xticks(range(len(SCORE_COLUMNS)), [name.title() for name in SCORE_COLUMNS])
    axes.set(ylabel="per cent", title="Scores over seeds")
    axes.legend(fontsize="x-small")


def _draw_confusion(axes: Any, runs: Sequence[RunResult]) -> None:
    (run,) = runs
    counts, classes = run.confusion, run.per_class
    assert counts is not None
    assert classes is not None
    matched = [int(c) for c in classes.category if str(c) not in ("", "nan")]
    order = [*matched, *(c for c in counts.columns if c not in matched)]
    shares = counts.loc[classes["class"]].reindex(columns=order, fill_value=0)
    shares = shares.div(shares.sum(axis=1), axis=0)
    axes.imshow(shares, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    if len(shares) <= MOST_CLASSES:
        axes.set_yticks(range(len(shares)), list(shares.index), fontsize="x-small")
    axes.axhline(int((classes.kind == "known").sum()) - 0.5, color="white", linewidth=1)
    axes.set(xlabel="category, those of the classes first", title="Share of each class by category")
