"""`holotype estimate-k`: how many categories there may be, as a range with its curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holotype.cli.common import Dir, Parser, echo, is_rank0_output
from holotype.cli.embed import ImageOptions, ImageSource, embed_source, read_source
from holotype.config.types import Count, Seed
from holotype.errors import InputError
from holotype.utils.atomic import clean_partial_tree, refuse_links
from holotype.utils.locks import lock_folder

if TYPE_CHECKING:
    from holotype.clustering.k_curve import CountEstimate

WIDTH = 30
"""Characters of the longest bar of the curve."""


@dataclass(kw_only=True)
class EstimateOptions(ImageOptions):
    """Estimate how many categories there are, known ones included: a range, with its curve. Labels of at least two
    classes make it much better."""

    k_max: Annotated[Count, "N"] | None = None
    """Largest number to consider (default: two images in each, and at most the larger of 1,000 and twice the known
    classes)."""
    seed: Annotated[Seed, "N"] = 0
    """Seed of k-means."""
    out: Dir | None = None
    """Folder for embeddings and count.json (default: runs/NAME-estimate-k)."""


def make_parser() -> Parser:
    return Parser("estimate-k", EstimateOptions)


def command(argv: Sequence[str]) -> int:
    options: EstimateOptions = make_parser().parse_args(argv)
    from holotype.clustering.estimate_k import count_key, estimate_table, write_count

    collection = read_source(options)
    folder = options.out or Path("runs") / f"{collection.name}-estimate-k"
    path, k_max, seed = folder / "count.json", options.k_max, options.seed
    with lock_folder(folder):
        refuse_links(folder)
        clean_partial_tree(folder)
        embedded, digest = embed_source(collection.table, options, folder / "embeddings")
        table = collection.table.with_problems(embedded.problem)
        if not table.usable.any():
            raise InputError(
                f"None of the {len(table):,} images of {options.images} can be read ({table.problem[0]}); check the "
                "files."
            )
        progress = not options.no_progress
        estimate = estimate_table(
            table, embedded.features, options.device, k_max=k_max, seed=seed, progress=progress
        )
        write_count(path, estimate, count_key(table, digest, seed, k_max))  # as `discover` reads it
    if is_rank0_output():
        echo(estimate_summary(estimate, collection))
        echo(f"The curve as numbers: {path}")
    return 0


def estimate_summary(estimate: CountEstimate, collection: ImageSource) -> str:
    """The range in words and the curve as bars."""
    lines = [estimate.words]
    if collection.classes is not None:
        lines.append(f"{collection.name} has {collection.classes} classes.")
    return "\n".join([*lines, "", *curve_lines(estimate), ""])


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
