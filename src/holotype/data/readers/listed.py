"""A CSV, TSV or Parquet file that lists images by their paths."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from holotype.data.containers import image_exists
from holotype.data.lists import match, read_list
from holotype.data.stores import StoreProblem
from holotype.data.table import Table
from holotype.data.walk import walk
from holotype.errors import InputError
from holotype.utils.text import suggest_path


def from_csv(
    file: Path, root: Path | None = None, *, skip_missing: bool = False, whole: bool = False
) -> Table:
    """Rows of a CSV, TSV or Parquet file with the columns `path` (or `file_name`) and `label`.

    An empty label means unlabelled; a file with a path column only is unlabelled throughout. A column `truth` is kept
    for scoring, one `group` for bursts, and one `box` makes parts of pictures the images. Relative paths start at
    `root`, or at the file's own folder; those of another machine are seen through (matching.py). The apostrophe that
    keeps a label in a CSV file from being a formula is dropped; nothing else is interpreted: "NA" and "001" are names.
    skip_missing: rows without an image are left out. whole: where there are boxes, pictures without one stay.
    """
    file = Path(file)
    if root is not None and not Path(root).is_dir():
        raise InputError(f"The folder {root} does not exist{suggest_path(root)}; check its name.")
    base = Path(os.path.abspath(file.parent if root is None else root))

    def others() -> list[str]:
        return sorted(str(path) for path in walk(base).images)

    missing = f"paths in {file} do not exist"
    rows = read_list(file)
    try:
        listed = match(
            rows, (base,), image_exists, others, missing=missing, skip_missing=skip_missing, whole=whole
        )
    except StoreProblem as problem:  # the list may name objects in a store
        raise InputError(str(problem)) from problem
    if not listed.path:
        without = "has a box" if rows.box is not None else f"is there; relative paths start at {base}"
        raise InputError(f"None of the images that {file} lists {without}.")
    return Table(
        path=np.array(listed.path, dtype=object),
        label=np.array(listed.label, dtype=object),
        known=tuple(sorted(set(listed.label) - {""})),
        truth=None if listed.hidden is None else np.array(listed.hidden, dtype=object),
        group=None if listed.group is None else np.array(listed.group, dtype=object),
        weight=None if listed.weight is None else np.array(listed.weight, dtype=object),
        name=file.stem,
        root=str(base),
    )
