"""`holotype assign`: new images into the categories of a run, without training."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from pathlib import Path

from holotype.cli.common import echo
from holotype.cli.embed import check_shards, run_sharded, shard_size
from holotype.cli.options import AssignOptions
from holotype.embeddings.shards import prepare_shards
from holotype.errors import InputError
from holotype.export import assign
from holotype.utils.locks import lock_folder
from holotype.utils.text import plural

SHOWN = 20
"""Categories that are listed on the terminal; the file has them all."""


def assign_command(options: AssignOptions) -> int:
    share = check_shards(options)
    sliced = any((options.engine, options.only, options.slice))
    if sliced or (options.out is not None and _is_folder(options.out)):
        return _assign_slices(options, share)
    names = ("out", "copy_to", "overwrite", "device", "progress")
    how = {name: getattr(options, name) for name in names} | options.box_options | {"open_new": options.open}
    echo(assign_summary(assign.assign_images(options.run, options.images, **how)))
    if options.copy_to:
        echo(f"Folders of links, one per category: {options.copy_to}")
    return 0


def _is_folder(out: Path) -> bool:
    return out.is_dir() or not out.suffix


def _assign_slices(options: AssignOptions, share: tuple[int, int] | None) -> int:
    """Write the answer as a folder of parts."""
    given = (("--copy-to", options.copy_to), ("--overwrite", options.overwrite), ("--open", options.open))
    for flag, value in given:
        if value:
            raise InputError(f"{flag} goes with one file of answers; leave it out, or the flags of slices.")
    folder = options.out or options.run / assign.ASSIGNED / assign.source_stem(options.images)
    if not _is_folder(folder):
        raise InputError(f"The answer in slices is a folder, and --out {folder} names a file; name a folder.")
    assigned, here = assign.AssignResult(folder), "cpu" if options.engine == "ray" else None
    with contextlib.nullcontext() if share else lock_folder(folder):  # with --only others may work there
        job = assign.assign_job(options.run, folder, options.device, here=here)
        stream = partial(assign.image_stream, options.images, **options.box_options)
        request = assign.assign_request(job, options.images, stream, shard_size(options))
        planned = prepare_shards(folder, request, share)
        job = replace(job, boxed=planned.boxed, allows_code=options.allow_code)
        code = run_sharded(planned, job, options, "Placing images", assigned.add)
    echo(assign_summary(assigned))
    return code


def assign_summary(assigned: assign.AssignResult) -> str:
    """Return what a person wants to see afterwards."""
    known, novel = assigned.kinds["known"], assigned.kinds["novel"]
    lines = [f"{plural(assigned.n, 'image')}: {known:,} in known classes, {novel:,} in new categories."]
    common = assigned.categories.most_common(SHOWN)
    lines += [f"  {n:>7,}  {name or 'no category (rejected)'}" for name, n in common]
    if len(assigned.categories) > SHOWN:
        lines.append(f"  and {len(assigned.categories) - SHOWN} smaller categories")
    if opened := assigned.kinds["open"]:
        n = len([name for name in assigned.categories if name.startswith("open-")])
        lines.append(
            f"{opened:,} in {plural(n, 'provisional category', 'provisional categories')}; add the images to the "
            "collection, and the next round of discover proposes them."
        )
    if assigned.waiting:
        lines.append(f"{assigned.waiting:,} more fit no category, and are too few to open one yet.")
    if assigned.unfit:
        lines.append(f"{assigned.unfit:,} fit nothing well (fits = False in the table); look at these first.")
    if assigned.unread:
        lines.append(f"{assigned.unread:,} could not be read; the column problem says why.")
    return "\n".join([*lines, f"Every image with its category: {assigned.out}"])
