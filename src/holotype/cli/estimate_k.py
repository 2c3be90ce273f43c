"""`holotype estimate-k`: how many categories there may be, as a range with its curve."""

from __future__ import annotations

import math
from pathlib import Path

from holotype.cli.common import echo
from holotype.cli.embed import choose_network, read_source, source_label
from holotype.cli.options import EstimateKOptions
from holotype.clustering.estimate_k import count_key, estimate_table, write_count
from holotype.clustering.k_curve import CountEstimate
from holotype.data.datasets.registry import BENCHMARKS, read_dataset_info
from holotype.embeddings.store import embed_table
from holotype.errors import InputError
from holotype.utils.atomic import clean_partial_tree, refuse_links
from holotype.utils.device import Device
from holotype.utils.locks import lock_folder

WIDTH = 30
"""Characters of the longest bar of the curve."""


def estimate_k_command(options: EstimateKOptions) -> None:
    table, name, k_max, seed = read_source(options), source_label(options.images), options.k_max, options.seed
    folder = options.out or Path("runs") / f"{name}-estimate-k"
    path, device, progress = folder / "count.json", options.device, options.progress
    with lock_folder(folder):
        refuse_links(folder)
        clean_partial_tree(folder)
        backbone = choose_network(options).backbone
        embedded = embed_table(table, backbone, Device.on(device), folder / "embeddings", progress=progress)
        table = table.with_problems(embedded.problem)
        if not table.usable.any():
            read = f"None of the {len(table):,} images of {options.images} can be read ({table.problem[0]})"
            raise InputError(f"{read}; check the files.")
        estimate = estimate_table(table, embedded.features, device, k_max=k_max, seed=seed, progress=progress)
        write_count(path, estimate, count_key(table, backbone.digest, seed, k_max))  # as `discover` reads it
    echo(estimate.words)
    if name in BENCHMARKS:
        echo(f"{name} has {read_dataset_info(name).classes} classes.")
    echo("\n".join(["", *curve_lines(estimate), "", f"The curve as numbers: {path}"]))


def curve_lines(estimate: CountEstimate) -> list[str]:
    """One line per K: range and best marked, bars of the accuracy, or of the silhouette where nothing is labelled; one
    that says so where there is no curve."""
    if not estimate.points:
        return ["k-means was not run: with so many categories it would take hours."]
    labelled = not all(math.isnan(p.labelled_accuracy) for p in estimate.points)
    values = [p.labelled_accuracy if labelled else p.silhouette for p in estimate.points]
    top = max((value for value in values if value > 0), default=1.0)
    best = min(estimate.points, key=lambda p: abs(p.k - estimate.best))  # smoothing may put it between two
    lines = [f"        K  {'labelled right':>14}  silhouette  runs agree"]
    for point, value in zip(estimate.points, values, strict=True):
        mark = " *" if point is best else " |" if estimate.low <= point.k <= estimate.high else "  "
        bar = "#" * round(WIDTH * max(value, 0) / top) if value == value else ""
        right = "-" if math.isnan(point.labelled_accuracy) else f"{100 * point.labelled_accuracy:.1f} %"
        silhouette = "-" if math.isnan(point.silhouette) else f"{point.silhouette:.3f}"
        cells = f"{right:>14}  {silhouette:>10}  {point.stability:>10.2f}"
        lines.append(f"{mark} {point.k:>6}  {cells}  {bar}".rstrip())
    return [*lines, "  * best, | in the range"]
