"""`holotype estimate-k`: how many categories there may be, as a range with its curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.cli.common import Parser, echo, is_rank0_output, typed_argument
from holotype.cli.embed import ImageSource, add_image_flags, embed_source, read_source
from holotype.config.types import Count, Seed
from holotype.utils.atomic import clean_partial_tree, refuse_links
from holotype.utils.locks import lock_folder

if TYPE_CHECKING:
    from holotype.clustering.k_curve import CountEstimate, CountPoint
    from holotype.data.table import Table
    from holotype.embeddings.store import Embeddings

WIDTH = 30
"""Characters of the longest bar of the curve."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    collection = read_source(given)
    folder = Path(given.out) if given.out else Path("runs") / f"{collection.name}-estimate-k"
    with lock_folder(folder):
        refuse_links(folder)
        clean_partial_tree(folder)
        embedded, digest = embed_source(collection.table, given, folder / "embeddings")
        table = collection.table.with_problems(embedded.problem)
        estimate = _estimate(table, embedded, given)
        path = _write(folder, estimate, table, digest, given)
    if is_rank0_output():
        echo(estimate_summary(estimate, collection))
        echo(f"The curve as numbers: {path}")
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype estimate-k",
        description="Estimate how many categories there are, known ones included: a range, with its curve. Labels of "
        "at least two classes make it much better.",
    )
    add_image_flags(parser)
    parser.add_argument(
        "--k-max",
        type=typed_argument("--k-max", Count),
        metavar="N",
        help="largest number to consider, at least 1 (default: two images in each, and at most the larger of 1,000 and "
        "twice the known classes)",
    )
    parser.add_argument(
        "--seed",
        type=typed_argument("--seed", Seed),
        default=0,
        metavar="N",
        help="seed of k-means, at least 0 and below 2**63 (default: 0)",
    )
    parser.add_argument(
        "--out", metavar="DIR", help="folder for embeddings and count.json (default: runs/NAME-estimate-k)"
    )
    return parser


def _estimate(table: Table, embedded: Embeddings, given: Any) -> CountEstimate:
    from holotype.clustering.estimate_k import estimate_table
    from holotype.errors import InputError

    if not table.usable.any():
        raise InputError(
            f"None of the {len(table):,} images of {given.images} can be read ({table.problem[0]}); check the files."
        )
    return estimate_table(
        table,
        embedded.features,
        given.device,
        k_max=given.k_max,
        seed=given.seed,
        progress=not given.no_progress,
    )


def _write(folder: Path, estimate: CountEstimate, table: Table, digest: str, given: Any) -> Path:
    """count.json as `discover` writes and reads it."""
    from holotype.clustering.estimate_k import count_key, write_count

    path = folder / "count.json"
    write_count(path, estimate, count_key(table, digest, given.seed, given.k_max))
    return path


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
        bar = "#" * round(WIDTH * max(value, 0) / top) if value == value else ""
        lines.append(f"{_mark(point, best, estimate)} {point.k:>6}  {_cells(point)}  {bar}".rstrip())
    return [*lines, "  * best, | in the range"]


def _mark(point: CountPoint, best: CountPoint, estimate: CountEstimate) -> str:
    if point is best:
        return " *"
    return " |" if estimate.low <= point.k <= estimate.high else "  "


def _cells(point: CountPoint) -> str:
    right = "-" if math.isnan(point.labelled_accuracy) else f"{100 * point.labelled_accuracy:.1f} %"
    silhouette = "-" if math.isnan(point.silhouette) else f"{point.silhouette:.3f}"
    return f"{right:>14}  {silhouette:>10}  {point.stability:>10.2f}"
