"""`holotype assign`: new images into the categories of a run, without training."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.cli.common import (
    SOURCES,
    Parser,
    add_box_flags,
    add_code_flag,
    add_overwrite_flag,
    add_running_flags,
    box_options,
    echo,
    is_rank0_output,
    plural,
)
from holotype.cli.executor import (
    RAY_EXECUTOR,
    add_executor_flags,
    check_executor_flags,
    run_sharded,
    shard_size,
    wants_shards,
)
from holotype.utils.locks import lock_folder

if TYPE_CHECKING:
    from holotype.export.assign import AssignResult

SHOWN = 20
"""Categories that are listed on the terminal; the file has them all."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    check_executor_flags(given)
    if wants_shards(given) or (given.out and _is_folder(Path(given.out))):
        return _assign_slices(given)
    from holotype.export.assign import assign_images

    assigned = assign_images(
        Path(given.run),
        given.images,
        out=Path(given.out) if given.out else None,
        copy_to=Path(given.copy_to) if given.copy_to else None,
        overwrite=given.overwrite,
        device=given.device,
        progress=not given.no_progress,
        skip_missing=given.skip_missing,
        **box_options(given.boxes, given.box_confidence),
    )
    if is_rank0_output():
        echo(summary(assigned))
        if given.copy_to:
            echo(f"Folders of links, one per category: {given.copy_to}")
    return 0


def _is_folder(out: Path) -> bool:
    return out.is_dir() or not out.suffix


def _assign_slices(given: Any) -> int:
    """The answer as a folder of parts."""
    from holotype.errors import InputError
    from holotype.export.assign import ASSIGNED, AssignResult, source_stem

    for flag, value in (("--copy-to", given.copy_to), ("--overwrite", given.overwrite)):
        if value:
            raise InputError(f"{flag} goes with one file of answers; leave it out, or the flags of slices.")
    folder = Path(given.out or Path(given.run) / ASSIGNED / source_stem(given.images))
    if not _is_folder(folder):
        raise InputError(
            f"The answer in slices is a folder, and --out {given.out} names a file; name a folder."
        )
    assigned = AssignResult(folder)
    with (
        contextlib.nullcontext() if given.only else lock_folder(folder)
    ):  # with --only others may work there as well
        code = _fill(folder, given, assigned)
    if is_rank0_output():
        echo(summary(assigned))
    return code


def _fill(folder: Path, given: Any, assigned: AssignResult) -> int:
    from holotype.embeddings.executor import shard_of_process
    from holotype.embeddings.shards import prepare_shards
    from holotype.export.assign import assign_job, assign_request, image_stream

    how = {**box_options(given.boxes, given.box_confidence), "skip_missing": given.skip_missing}
    here = "cpu" if given.engine == RAY_EXECUTOR else None
    job = assign_job(Path(given.run), folder, given.device, here=here)
    wanted = assign_request(job, given.images, lambda: image_stream(given.images, **how), shard_size(given))
    planned = prepare_shards(folder, wanted, shard_of_process(given.only) if given.only else None)
    job = replace(job, boxed=planned.boxed, allows_code=given.allow_code)
    return run_sharded(planned, job, given, "Placing images", assigned.add)


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype assign",
        description="Place new images in the categories of a run, without training, and mark those "
        "that fit nothing.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of a finished run")
    parser.add_argument(
        "images",
        metavar="NEW_IMAGES",
        help=f"{SOURCES}; or one image",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="where the table goes, .csv or .parquet (default: RUN/assigned/NEW_IMAGES.csv); a name without an ending "
        "is a folder of Parquet parts, which a rerun continues",
    )
    parser.add_argument(
        "--copy-to", metavar="DIR", help="also write a new folder with a folder of links per category"
    )
    add_overwrite_flag(parser, "the file --out if it exists, and a folder --copy-to that Holotype wrote")
    add_box_flags(parser)
    parser.add_argument(
        "--skip-missing",
        action="store_true",
        help="with --boxes and tables: leave out missing pictures and impossible boxes",
    )
    add_executor_flags(parser)
    add_code_flag(parser)
    add_running_flags(parser)
    return parser


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
