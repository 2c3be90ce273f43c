"""`holotype sample`: some images of a large collection that show all of it, with weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holotype.cli.common import File, LabelsOptions, Parser, ProgressOptions, echo, is_rank0_output
from holotype.config.types import Count, Seed
from holotype.errors import InputError
from holotype.utils.text import plural

if TYPE_CHECKING:
    from holotype.embeddings.coreset import CoresetSample, NoLabels


@dataclass(kw_only=True)
class SampleOptions(LabelsOptions, ProgressOptions):
    """Draw a coverage sample from the embeddings of a collection: cells of images that look alike, about the same
    number of images from each, and weights to estimate the whole collection. Labelled images are always kept. The same
    command always gives the same sample."""

    embeddings: Annotated[Path, "EMBEDDINGS"]
    """Folder that holotype embed has written."""
    n: Annotated[Count, "IMAGES"] = 200_000
    """Images of the sample, labelled ones included."""
    cells: Count | None = None
    """Cells that the collection is cut into (default: a tenth of --n, at most 2000)."""
    no_labels: bool = False
    """No image is labelled; sub-folders mean nothing."""
    out: File = Path("sample.parquet")
    """The sample."""
    seed: Seed = 0
    """Another seed draws another sample."""
    overwrite: bool = False
    """Replace the file --out if it exists."""


def make_parser() -> Parser:
    return Parser("sample", SampleOptions)


def command(argv: Sequence[str]) -> int:
    options: SampleOptions = make_parser().parse_args(argv)
    from holotype.data.labels import write_sample_file
    from holotype.embeddings.coreset import draw_coreset
    from holotype.embeddings.store import EmbeddingParts
    from holotype.utils.atomic import refuse_existing

    out = options.out
    refuse_existing(out, options.overwrite, (".parquet",))
    parts = EmbeddingParts(options.embeddings)
    labels = read_labels(options, parts.root)
    sample = draw_coreset(
        parts,
        options.n,
        cells=options.cells,
        labels=labels,
        seed=options.seed,
        progress=not options.no_progress,
    )
    facts = {"n": options.n, "cells": sample.n_cells, "seed": options.seed, "images": sample.n_images}
    path = [parts.absolute(one) for one in sample.path]
    columns = {"path": path, "label": sample.label, "weight": sample.weight}
    write_sample_file(out, columns | {"cell": sample.cell.astype("int32")}, facts)
    if is_rank0_output():
        echo(sample_summary(sample, options.n, out))
    return 0


def read_labels(options: SampleOptions, root: str) -> NoLabels:
    from holotype.embeddings.coreset import FileLabels, FolderLabels, NoLabels

    if options.no_labels and options.labels:
        raise InputError("--labels and --no-labels contradict each other; leave out one.")
    if options.labels:
        return FileLabels(options.labels, root)
    return NoLabels() if options.no_labels else FolderLabels(root)


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
