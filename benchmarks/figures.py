"""The figures of the documents, from nothing but recorded numbers; the same input gives the same bytes.

    python benchmarks/figures.py curves --study experiments/curves.yaml --out docs/curves.svg
    python benchmarks/figures.py mechanism --files results/mechanism/a.json ... --out docs/mechanism.svg
    python benchmarks/figures.py tsne --files a.npz b.npz --out docs/tsne.svg

curves: scores of RPC over lambda_1, lambda_2 and alpha. The rows of the study are called `lambda_1=0.2` and so on;
a row `rpc` has the defaults and is a point of all three. mechanism: what benchmarks/mechanism.py watched. tsne: maps
of features, each file with `points` (N, 2), `class` (N,), `kind` (N,) of known or novel, and `name`.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from script import one_sentence

from holotype.errors import InputError
from holotype.files import write_bytes
from holotype.methods.rpc_config import RPCConfig
from holotype.results import SCORES, read_results, summarise
from holotype.study import Study, read_study

TOP = Path(__file__).resolve().parent.parent
PARAMETERS = ("lambda_1", "lambda_2", "alpha")
DEFAULTS = {name: float(getattr(RPCConfig(), name)) for name in PARAMETERS}
COLOURS = {"all": "#222222", "old": "#0072b2", "new": "#d55e00"}
CLAIM = 1.0
"""Points of All within which the paper says that the parameters stay."""

Panel = tuple[str, tuple[str, ...]]
PANELS: list[Panel] = [
    ("mean w_old (known, novel: unlabelled)", ("w_old/labelled", "w_old/known", "w_old/novel")),
    (
        "share of L_new's weight",
        (
            *("weight/known-known, same class", "weight/known-known, other class", "weight/known-novel"),
            *("weight/novel-novel, same class", "weight/novel-novel, other class"),
        ),
    ),
    ("L_new's pull on known images", ("pull to own prototype",)),
    ("w_old as a detector", ("rho", "auroc", "calibration")),
    ("scores", ("old", "new")),
]
"""Of the figure `mechanism`; series that a file does not have are left out."""
KNOWN, NOVEL, BETWEEN = "#0072b2", "#d55e00", "#999999"
LINES = {
    "w_old/labelled": "#222222",
    "w_old/known": KNOWN,
    "w_old/novel": NOVEL,
    "old": KNOWN,
    "new": NOVEL,
    "weight/known-known, same class": KNOWN,
    "weight/known-known, other class": "#8fc3e0",
    "weight/novel-novel, same class": NOVEL,
    "weight/novel-novel, other class": "#f0b48a",
    "weight/known-novel": BETWEEN,
    "pull to own prototype": KNOWN,
    "rho": "#222222",
    "auroc": "#009e73",
    "calibration": "#cc79a7",
}
"""Known is blue and novel is orange in every panel."""

MAX_BYTES = 290_000
"""Of a map; the repository takes no larger file than 300 kB."""
RESOLUTIONS = (150, 120, 90, 70, 50)
"""Dots per inch of the points of a map, tried in this order until the file is small enough."""
COLOURED = 10
"""Known classes, and as many novel ones, that have a colour in a map."""

Points = dict[str, dict[float, dict[str, list[float]]]]
"""Parameter, value, score -> per cent of each seed."""


def pyplot() -> Any:
    """matplotlib, which only figures need, set to draw the same bytes each time."""
    try:
        import_module("matplotlib").use("Agg")
    except ImportError as error:
        raise InputError(
            "Figures need matplotlib, which is not installed: pip install matplotlib."
        ) from error
    plt = import_module("matplotlib.pyplot")
    plt.rcdefaults()
    plt.rcParams.update({"svg.hashsalt": "holotype", "svg.fonttype": "none", "font.size": 9})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
    return plt


def drawn(figure: Any, dpi: int = 100) -> bytes:
    """The figure as SVG, without the date and the version that matplotlib would write into it."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", dpi=dpi, metadata={"Date": None, "Creator": None})
    pyplot().close(figure)
    return stream.getvalue()


# -- curves -----------------------------------------------------------------------------------------------


def points(study: Study, results: Path) -> Points:
    """The scores of every value of every parameter."""
    rows = summarise(read_results(results).values())
    found: Points = {name: {} for name in PARAMETERS}
    for row in rows:
        variant = row.facts["variant"]
        if variant not in study.rows:
            continue
        scores = {score: row.scores[score] or [] for score in SCORES}
        for name, value in places(variant):
            if value in found[name]:
                raise InputError(
                    f"{results} holds results of {name} = {value:g} under two settings or data sets; a curve has "
                    "one: move the others away."
                )
            found[name][value] = scores
    if not any(found.values()):
        raise InputError(f"{results} holds no results of {study.name}; run holotype bench --study first.")
    return found


def places(variant: str) -> list[tuple[str, float]]:
    """The points that a row of the study is; none for a row of another kind."""
    if variant == "rpc":
        return list(DEFAULTS.items())
    match = re.fullmatch(rf"({'|'.join(PARAMETERS)})=([0-9.]+)", variant)
    return [(match[1], float(match[2]))] if match else []


def spread(
    study: Study, results: Path | None = None, within: dict[str, tuple[float, float]] | None = None
) -> dict[str, float]:
    """Largest minus smallest mean All of each parameter, in points.

    within: the lowest and the highest value of a parameter that count; all of them unless given.
    """
    found = points(study, results or TOP / "results" / study.name)
    gaps = {}
    for name, values in found.items():
        low, high = (within or {}).get(name, (-np.inf, np.inf))
        means = [mean(scores["all"]) for v, scores in values.items() if scores["all"] and low <= v <= high]
        if means:
            gaps[name] = max(means) - min(means)
    return gaps


def draw_curves(found: Points) -> bytes:
    """A panel for each parameter: mean over seeds, and a band of one standard deviation."""
    plt = pyplot()
    shown = [name for name in PARAMETERS if found[name]]
    figure, axes = plt.subplots(
        1, len(shown), figsize=(3.2 * len(shown), 2.8), sharey=True, squeeze=False, layout="constrained"
    )
    for ax, name in zip(axes[0], shown, strict=True):
        values = sorted(found[name])
        for score in SCORES:
            seeds = [found[name][value][score] for value in values]
            centre = np.array([mean(each) if each else np.nan for each in seeds])
            width = np.array([stdev(each) if len(each) > 1 else 0.0 for each in seeds])
            ax.plot(values, centre, "o-", ms=3, lw=1.2, color=COLOURS[score], label=score.title())
            ax.fill_between(values, centre - width, centre + width, color=COLOURS[score], alpha=0.15, lw=0)
        ax.axvline(DEFAULTS[name], color="#888888", lw=0.8, ls=":", label="default")
        ax.set_xlabel(name)
    axes[0][0].set_ylabel("per cent")
    lines, names = axes[0][0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(names))
    return drawn(figure)


def curves(study_file: Path, out: Path, within: dict[str, tuple[float, float]]) -> None:
    study = read_study(study_file)
    results = study_file.resolve().parent.parent / "results" / study.name
    found = points(study, results)
    write_bytes(out, draw_curves(found))
    for name, gap in spread(study, results, within).items():
        low, high = within.get(name, (-np.inf, np.inf))
        values = [value for value in sorted(found[name]) if low <= value <= high]
        verdict = "within" if gap <= CLAIM else "more than"
        print(
            f"{name} from {values[0]:g} to {values[-1]:g}: mean All moves by {gap:.1f} points, {verdict} 1."
        )


# -- mechanism --------------------------------------------------------------------------------------------


def read_series(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        name, epochs, series = (content[key] for key in ("name", "epochs", "series"))
        uneven = [key for key, values in series.items() if len(values) != len(epochs)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} does not hold name, epochs and series ({error}); give a file of benchmarks/mechanism.py."
        ) from error
    if uneven:
        raise InputError(
            f"{path} has a series {uneven[0]!r} that is not as long as its epochs; make it again."
        )
    return {"name": name, "epochs": epochs, "series": series}


def draw_mechanism(files: Sequence[dict[str, Any]], panels: Sequence[Panel] = tuple(PANELS)) -> bytes:
    """A line of panels for each file; the panels of a column have one scale."""
    plt = pyplot()
    shown = [(title, names) for title, names in panels if any(set(names) & set(f["series"]) for f in files)]
    if not shown:
        raise InputError("The files have none of the series that the figure shows; see PANELS in figures.py.")
    size = (2.9 * len(shown), 2.2 * len(files))
    figure, axes = plt.subplots(
        len(files), len(shown), figsize=size, sharex=True, sharey="col", squeeze=False, layout="constrained"
    )
    for place, (line, content) in enumerate(zip(axes, files, strict=True)):
        top = place == 0
        for ax, (title, names) in zip(line, shown, strict=True):
            for name in names:
                if name in content["series"]:
                    values = np.array(content["series"][name], dtype=float)  # a gap is null, and becomes nan
                    word = name.rpartition("/")[2]
                    ax.plot(content["epochs"], values, lw=1.4, color=LINES.get(name), label=word)
            if len(ax.lines) > 1 and top:
                ax.legend(fontsize=6.5, frameon=False, loc="best", labelspacing=0.2)
            ax.axhline(0, lw=0.5, color=BETWEEN)
            ax.set_title(title if top else "", fontsize=9)
        line[0].set_ylabel(content["name"], fontsize=10)
    for ax in axes[-1]:
        ax.set_xlabel("epoch")
    return drawn(figure)


# -- maps -------------------------------------------------------------------------------------------------


def read_map(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {key: arrays[key] for key in ("points", "class", "kind", "name")}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} does not hold points, class, kind and name ({error}).") from error
    n = len(found["class"])
    if found["points"].shape != (n, 2) or found["kind"].shape != (n,):
        raise InputError(f"{path} does not hold one point and one kind for each of its {n} classes.")
    return found


def coloured(maps: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """For known and for novel: the classes with most images over all maps, ties by name."""
    chosen = {}
    for kind in ("known", "novel"):
        counts = Counter(name for one in maps for name in one["class"][one["kind"] == kind].tolist())
        by_name = sorted(counts.items())
        chosen[kind] = [name for name, _ in sorted(by_name, key=lambda item: -item[1])[:COLOURED]]
    return chosen


def draw_maps(maps: Sequence[dict[str, Any]], dpi: int) -> bytes:
    """Side by side, the same classes in the same colours; points are pixels inside the SVG, to keep it small."""
    plt = pyplot()
    classes, colours = coloured(maps), plt.get_cmap("tab20").colors
    figure, axes = plt.subplots(
        1, len(maps), figsize=(4.2 * len(maps), 4.4), squeeze=False, layout="constrained"
    )
    for ax, one in zip(axes[0], maps, strict=True):
        x, y = one["points"].T
        others = ~np.isin(one["class"], [*classes["known"], *classes["novel"]])
        ax.scatter(x[others], y[others], s=3, lw=0, color="#dddddd", zorder=-2)
        for first, (kind, marker) in enumerate((("known", "o"), ("novel", "^"))):
            for i, name in enumerate(classes[kind]):
                here = (one["class"] == name) & (one["kind"] == kind)
                ax.scatter(
                    x[here], y[here], s=9, lw=0, marker=marker, color=colours[2 * i + first], zorder=-1
                )
        ax.set_rasterization_zorder(0)
        ax.set_axis_off()
        ax.set_title(str(one["name"]))
    figure.supxlabel(
        f"circles: {len(classes['known'])} known classes, triangles: {len(classes['novel'])} novel ones, "
        "grey: all others",
        fontsize=8,
    )
    return drawn(figure, dpi)


def small_maps(maps: Sequence[dict[str, Any]]) -> bytes:
    """At the highest resolution that the size allows."""
    for dpi in RESOLUTIONS:
        content = draw_maps(maps, dpi)
        if len(content) <= MAX_BYTES:
            return content
    raise InputError(f"{len(maps)} maps do not fit into {MAX_BYTES:,} bytes; draw fewer of them at a time.")


# -- the command ------------------------------------------------------------------------------------------


def read_range(text: str) -> tuple[str, tuple[float, float]]:
    match = re.fullmatch(rf"({'|'.join(PARAMETERS)})=([0-9.]+):([0-9.]+)", text)
    if not match:
        raise InputError(f"--within {text} is not of the form PARAMETER=LOW:HIGH, as in lambda_1=0.2:0.8.")
    return match[1], (float(match[2]), float(match[3]))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in ("curves", "mechanism", "tsne"):
        add = kinds.add_parser(kind).add_argument
        add("--out", type=Path, required=True, help="file of the figure, .svg")
        if kind != "curves":
            add("--files", type=Path, nargs="+", required=True)
            continue
        add("--study", type=Path, required=True)
        add("--within", action="append", default=[], metavar="PARAMETER=LOW:HIGH", help="range of the spread")
    return parser


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    given = make_parser().parse_args(words)
    if given.kind == "curves":
        curves(given.study, given.out, dict(map(read_range, given.within)))
    elif given.kind == "mechanism":
        write_bytes(given.out, draw_mechanism([read_series(path) for path in given.files]))
    else:
        write_bytes(given.out, small_maps([read_map(path) for path in given.files]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
