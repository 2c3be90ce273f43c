"""`holotype assign`: new images into the categories of a run, without training."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holotype.cli.common import BoxOptions, CodeOptions, Dir, Parser, RunDir, echo, is_rank0_output
from holotype.cli.embed import ShardOptions, run_sharded
from holotype.errors import InputError
from holotype.utils.locks import lock_folder
from holotype.utils.text import plural

if TYPE_CHECKING:
    from holotype.export.assign import AssignResult

SHOWN = 20
"""Categories that are listed on the terminal; the file has them all."""


@dataclass(kw_only=True)
class AssignOptions(BoxOptions, ShardOptions, CodeOptions):
    """Place new images in the categories of a run, without training, and mark those that fit nothing."""

    run: RunDir
    """Folder of a finished run."""
    images: Annotated[str, "NEW_IMAGES"]
    """Folder of images, CSV or Parquet file that lists them, Parquet file or tars that hold them ('{000..099}.tar'), an
    address (s3://bucket/photos, gs://, abfs://, hf://datasets/...), or one image."""
    out: Annotated[Path, "FILE"] | None = None
    """Where the table goes, .csv or .parquet (default: RUN/assigned/NEW_IMAGES.csv); a name without an ending is a
    folder of Parquet parts, which a rerun continues."""
    copy_to: Dir | None = None
    """Also write a new folder with a folder of links per category."""
    overwrite: bool = False
    """Replace the file --out if it exists, and a folder --copy-to that Holotype wrote."""

    @property
    def wants_shards(self) -> bool:
        """Whether the answer is a folder of parts."""
        slices = (self.engine, self.only, self.ray_address, self.actors, self.slice)
        return any(slices) or (self.out is not None and _is_folder(self.out))


def make_parser() -> Parser:
    return Parser("assign", AssignOptions)


def command(argv: Sequence[str]) -> int:
    options: AssignOptions = make_parser().parse_args(argv)
    options.check()
    if options.wants_shards:
        return _assign_slices(options)
    from holotype.export.assign import assign_images

    assigned = assign_images(
        options.run,
        options.images,
        out=options.out,
        copy_to=options.copy_to,
        overwrite=options.overwrite,
        device=options.device,
        progress=not options.no_progress,
        **options.box_options,
    )
    if is_rank0_output():
        echo(summary(assigned))
        if options.copy_to:
            echo(f"Folders of links, one per category: {options.copy_to}")
    return 0


def _is_folder(out: Path) -> bool:
    return out.is_dir() or not out.suffix


def _assign_slices(options: AssignOptions) -> int:
    """The answer as a folder of parts."""
    from holotype.embeddings.shards import prepare_shards
    from holotype.export.assign import (
        ASSIGNED,
        AssignResult,
        assign_job,
        assign_request,
        image_stream,
        source_stem,
    )

    for flag, value in (("--copy-to", options.copy_to), ("--overwrite", options.overwrite)):
        if value:
            raise InputError(f"{flag} goes with one file of answers; leave it out, or the flags of slices.")
    folder = options.out or options.run / ASSIGNED / source_stem(options.images)
    if not _is_folder(folder):
        raise InputError(f"The answer in slices is a folder, and --out {folder} names a file; name a folder.")
    assigned = AssignResult(folder)
    # with --only others may work there as well
    with contextlib.nullcontext() if options.only else lock_folder(folder):
        job = assign_job(options.run, folder, options.device, here="cpu" if options.engine == "ray" else None)
        stream = partial(image_stream, options.images, **options.box_options)
        wanted = assign_request(job, options.images, stream, options.shard_size)
        planned = prepare_shards(folder, wanted, options.share)
        job = replace(job, boxed=planned.boxed, allows_code=options.allow_code)
        code = run_sharded(planned, job, options, "Placing images", assigned.add)
    if is_rank0_output():
        echo(summary(assigned))
    return code


def summary(assigned: AssignResult) -> str:
    """What a person wants to see afterwards."""
    kinds = assigned.kinds
    lines = [
        f"{plural(assigned.n, 'image')}: {kinds['known']:,} in known classes, {kinds['novel']:,} in new categories."
    ]
    common = assigned.categories.most_common(SHOWN)
    lines += [f"  {n:>7,}  {name or 'no category (rejected)'}" for name, n in common]
    if len(assigned.categories) > SHOWN:
        lines.append(f"  and {len(assigned.categories) - SHOWN} smaller categories")
    if assigned.unfit:
        lines.append(
            f"{assigned.unfit:,} of them fit nothing well (fits = False in the table); look at these first."
        )
    if assigned.unread:
        lines.append(f"{assigned.unread:,} could not be read; the column problem says why.")
    lines.append(f"Every image with its category: {assigned.out}")
    return "\n".join(lines)
