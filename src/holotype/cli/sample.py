"""`holotype sample`: some images of a large collection that show all of it, with weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.cli.common import Parser, add_overwrite_flag, echo, is_rank0_output, typed_argument
from holotype.config.types import Count, Seed
from holotype.errors import InputError
from holotype.utils.text import plural

if TYPE_CHECKING:
    from holotype.embeddings.coreset import CoresetSample, NoLabels

DEFAULT_SIZE = 200_000
DEFAULT_OUT = "sample.parquet"


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.data.labels import check_target, write_sample_file
    from holotype.embeddings.coreset import draw_coreset
    from holotype.embeddings.store import EmbeddingParts

    out = Path(given.out)
    check_target(out, given.overwrite)
    parts = EmbeddingParts(given.embeddings)
    labels = read_labels(given, parts.root)
    sample = draw_coreset(
        parts, given.n, cells=given.cells, labels=labels, seed=given.seed, progress=not given.no_progress
    )
    facts = {"n": given.n, "cells": sample.n_cells, "seed": given.seed, "images": sample.n_images}
    path = [parts.absolute(one) for one in sample.path]
    write_sample_file(out, path, sample.label, sample.weight, sample.cell, facts)
    if is_rank0_output():
        echo(sample_summary(sample, given.n, out))
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype sample",
        description="Draw a coverage sample from the embeddings of a collection: cells of images that look alike, "
        "about the same number of images from each, and weights to estimate the whole collection. Labelled images "
        "are always kept. The same command always gives the same sample.",
    )
    parser.add_argument("embeddings", metavar="EMBEDDINGS", help="folder that holotype embed has written")
    parser.add_argument(
        "--n",
        type=typed_argument("--n", Count),
        default=DEFAULT_SIZE,
        metavar="IMAGES",
        help="images of the sample, labelled ones included (default: 200000)",
    )
    parser.add_argument(
        "--cells",
        type=typed_argument("--cells", Count),
        metavar="CELLS",
        help="cells that the collection is cut into (default: a tenth of --n, at most 2000)",
    )
    parser.add_argument(
        "--labels",
        metavar="FILE",
        help="CSV or Parquet file with the columns path and label (default: sub-folders)",
    )
    parser.add_argument(
        "--no-labels", action="store_true", help="no image is labelled; sub-folders mean nothing"
    )
    parser.add_argument(
        "--out", metavar="FILE", default=DEFAULT_OUT, help=f"the sample (default: {DEFAULT_OUT})"
    )
    parser.add_argument(
        "--seed",
        type=typed_argument("--seed", Seed),
        default=0,
        metavar="SEED",
        help="another seed draws another sample",
    )
    add_overwrite_flag(parser, "the file --out if it exists")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    return parser


def read_labels(given: Any, root: str) -> NoLabels:
    from holotype.embeddings.coreset import FileLabels, FolderLabels, NoLabels

    if given.no_labels and given.labels:
        raise InputError("--labels and --no-labels contradict each other; leave out one.")
    if given.labels:
        return FileLabels(Path(given.labels), root)
    return NoLabels() if given.no_labels else FolderLabels(root)


def sample_summary(sample: CoresetSample, n: int, out: Path) -> str:
    taken, all_ = len(sample.path), plural(sample.n_images, "image")
    if sample.n_images <= n:
        lines = [f"There are only {all_}, no more than the {n:,} asked for: {out} holds all of them."]
    else:
        lines = [f"{taken:,} of {all_} from {plural(sample.n_cells, 'cell')}: {out}"]
    if sample.n_labelled:
        lines.append(f"{plural(sample.n_labelled, 'image is', 'images are')} labelled, which were all kept.")
    if taken > sample.n_labelled:
        free = [weight for weight, label in zip(sample.weight, sample.label, strict=True) if not label]
        lines.append(f"One without a label stands for {min(free):,.1f} to {max(free):,.1f} images.")
    if sample.n_unread:
        lines.append(f"Left out, since they could not be read: {plural(sample.n_unread, 'image')}.")
    return "\n".join(lines)
