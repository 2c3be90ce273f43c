"""The figures of the documents, from nothing but recorded numbers; the same input gives the same bytes.

    python benchmarks/figures.py curves --study experiments/curves.yaml --out docs/curves.svg
    python benchmarks/figures.py ablation --study experiments/ablation.yaml --out docs/ablation.svg
    python benchmarks/figures.py mechanism --files experiments/results/mechanism/a.json ... --out docs/mechanism.svg
    python benchmarks/figures.py tsne --files a.npz b.npz --out docs/tsne.svg

curves: scores of RPC over lambda_1, lambda_2 and alpha (curves.py). The rows of the study are called `lambda_1=0.2`
and so on; a row `rpc` has the defaults and is a point of all three. ablation: what is lost without each part of RPC
(ablation.py). mechanism: what benchmarks/mechanism.py watched. tsne: maps of features, each file with `points` (N, 2),
`class` (N,), `kind` (N,) of known or novel, and `name`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ablation
import curves
import numpy as np
from drawing import drawn, pyplot
from script import one_sentence

from holotype.errors import InputError
from holotype.machine.files import write_bytes

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
KEY_INCHES = 2.1
"""Room for what the lines are, to the right of the panels."""

MAX_BYTES = 290_000
"""Of a map; the repository takes no larger file than 300 kB."""
RESOLUTIONS = (150, 120, 90, 70, 50)
"""Dots per inch of the points of a map, tried in this order until the file is small enough."""
COLOURED = 10
"""Known classes, and as many novel ones, that have a colour in a map."""


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
    """A column for each file and a line of panels for each title: as wide as a page, so its letters can be read."""
    plt = pyplot()
    shown = [(title, names) for title, names in panels if any(set(names) & set(f["series"]) for f in files)]
    if not shown:
        raise InputError("The files have none of the series that the figure shows; see PANELS in figures.py.")
    size = (1.4 * len(files) + KEY_INCHES, 1.5 * len(shown))
    figure, axes = plt.subplots(
        len(shown), len(files), figsize=size, sharex=True, sharey="row", squeeze=False, layout="constrained"
    )
    for (title, names), line in zip(shown, axes, strict=True):
        for ax, content in zip(line, files, strict=True):
            draw_panel(ax, content, names)
        lines = {
            one.get_label(): one for ax in line for one in ax.lines if not one.get_label().startswith("_")
        }
        line[-1].legend(
            lines.values(),
            lines,
            title=title,
            alignment="left",
            loc="center left",
            bbox_to_anchor=(1.02, 0.5),
        )
    for ax, content in zip(axes[0], files, strict=True):
        ax.set_title(content["name"])
    for ax in axes[-1]:
        ax.set_xlabel("epoch")
    return drawn(figure)


def draw_panel(ax: Any, content: dict[str, Any], names: Sequence[str]) -> None:
    """The series of one file over its epochs; those that it does not have are left out."""
    for name in names:
        if name in content["series"]:
            values = np.array(content["series"][name], dtype=float)  # a gap is null, and becomes nan
            ax.plot(content["epochs"], values, lw=1.4, color=LINES.get(name), label=name.rpartition("/")[2])
    ax.axhline(0, lw=0.5, color=BETWEEN)


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


OF_A_STUDY = {"curves": curves.make, "ablation": ablation.make}
"""Figures of a study's records; the others are of files."""

# -- the command ------------------------------------------------------------------------------------------


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in (*OF_A_STUDY, "mechanism", "tsne"):
        add = kinds.add_parser(kind).add_argument
        add("--out", type=Path, required=True, help="file of the figure, .svg")
        if kind not in OF_A_STUDY:
            add("--files", type=Path, nargs="+", required=True)
            continue
        add("--study", type=Path, required=True)
    return parser


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    given = make_parser().parse_args(words)
    if given.kind in OF_A_STUDY:
        OF_A_STUDY[given.kind](given.study, given.out)
    elif given.kind == "mechanism":
        write_bytes(given.out, draw_mechanism([read_series(path) for path in given.files]))
    else:
        write_bytes(given.out, small_maps([read_map(path) for path in given.files]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
