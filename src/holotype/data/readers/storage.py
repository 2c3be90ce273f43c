"""Read images below a storage address; the first folder below it is the label."""

from __future__ import annotations

import logging
import posixpath

import numpy as np

from holotype.data.formats import IMAGE_EXTENSIONS
from holotype.data.paths import relative
from holotype.data.readers.folder import folder_label, read_packed_folder
from holotype.data.storage import StorageError, list_files, split_query, with_query
from holotype.data.table import Table
from holotype.errors import InputError

log = logging.getLogger("holotype")


def read_bucket(address: str, name: str) -> Table:
    """Every image below `address`, as a folder; where there is none, the Parquet files with images or the tars."""
    try:
        found = [one.address for one in list_files(address)]
    except StorageError as problem:
        raise InputError(str(problem)) from problem
    bare, query = split_query(address)
    folder = bare.rstrip("/").rpartition("/")[0] if found == [address] else bare.rstrip("/")
    root = with_query(folder, query)
    below = dict(zip(found, relative(found, root), strict=True))
    seen = [one for one in found if not any(part.startswith(".") for part in below[one].split("/"))]
    images = [one for one in seen if _ending(one) in IMAGE_EXTENSIONS]
    if not images:
        if (
            packed := read_packed_folder([one for one in seen if _ending(one) in (".parquet", ".tar")], name)
        ) is not None:
            return packed
        kinds = ", ".join(IMAGE_EXTENSIONS)
        raise InputError(f"There is no image in {address}; objects that end in {kinds} count as images.")
    if passed := len(found) - len(images):
        log.info(f"Skipped: {passed:,} objects that are no images.")
    images.sort(key=lambda one: below[one].split("/"))
    label = [folder_label(below[one].split("/")) for one in images]
    return Table(
        path=np.array(images, dtype=object),
        label=np.array(label, dtype=object),
        known=tuple(sorted(set(label) - {""})),
        name=name,
        root=root,
    )


def _ending(address: str) -> str:
    return posixpath.splitext(split_query(address)[0])[1].lower()
