"""A collection in slices of at most 4,096 images: the plan says on disk which image is in which, and each slice's
answer is a file of its own.

plan.parquet has the column `path` and a row group for each slice, so that whoever does a slice reads its own paths
and no others. It is written in a stream: nobody ever holds the paths of all images.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from holotype.data.boxes import split_box
from holotype.data.paths import Paths, relative
from holotype.errors import InputError
from holotype.utils.atomic import atomic_path

PLAN = "plan.parquet"
LARGEST = 4096
"""Images of a slice at most."""
PART = re.compile(r"part-(\d{6,})\.parquet")


@dataclass(frozen=True)
class Planned:
    """What a plan is of."""

    n: int
    """Images."""
    digest: str
    """sha256 of their paths as seen from the root, in their order."""
    boxed: bool
    """Are some of the images boxes?"""


def write_plan(file: Path, paths: Paths, each: int) -> Planned:
    """Write the plan of slices of `each` images; a kill at any moment leaves the old one or the new one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("path", pa.string())], metadata={b"root": paths.root.encode()})
    how = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY", "write_statistics": False}
    counted = _Counted(paths.root)
    try:
        with (
            atomic_path(file) as part,
            pq.ParquetWriter(part, schema, compression="zstd", write_page_checksum=True, **how) as writer,
        ):
            for some in _batches(paths.each, each * max(LARGEST // each, 1)):  # small slices, many at once
                counted.add(some)
                writer.write_table(
                    pa.table({"path": pa.array(some, pa.string())}, schema), row_group_size=each
                )
    except OSError as error:
        raise InputError(
            f"{file} could not be written ({error.strerror or error}); free some space or choose another place."
        ) from error
    return counted.planned()


def count_paths(paths: Paths) -> Planned:
    """What the plan of these paths would be of."""
    counted = _Counted(paths.root)
    for some in _batches(paths.each, LARGEST):
        counted.add(some)
    return counted.planned()


def is_plan(file: Path, planned: Planned, root: str, each: int) -> bool:
    """Whether a file is, whole and undamaged, the plan of these images in slices of `each`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counted, sizes = _Counted(root), []
    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as opened:
            for number in range(opened.num_row_groups):
                some = opened.read_row_group(number).column("path").to_pylist()
                counted.add(some)
                sizes.append(len(some))
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError):
        return False
    return counted.planned() == planned and all(size == each for size in sizes[:-1])


def read_slice(file: Path, number: int) -> list[str]:
    """The paths of a slice, absolute. Raises InputError where the plan cannot be read."""
    import pyarrow as pa

    try:
        stat = os.stat(file)
        opened = _opened(str(file), stat.st_mtime_ns, stat.st_size)
        paths: list[str] = opened.read_row_group(number).column("path").to_pylist()
    except (OSError, pa.ArrowException, ValueError, KeyError, IndexError) as error:
        raise InputError(
            f"{file} cannot be read ({' '.join(str(error).split())[:160]}); the same command without --only makes it "
            "anew. All machines that work on it must see its folder."
        ) from error
    return paths


@lru_cache(maxsize=2)
def _opened(file: str, mtime: int, size: int) -> Any:
    """mtime and size are there for the cache: a plan that changed is opened again."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(file, page_checksum_verification=True)


def _batches(paths: Iterator[str], each: int) -> Iterator[list[str]]:
    while some := list(islice(paths, each)):
        yield some


class _Counted:
    """A digest of paths that come one after the other."""

    def __init__(self, root: str) -> None:
        self.root, self.n, self.boxed, self._digest = root, 0, False, hashlib.sha256()

    def add(self, paths: list[str]) -> None:
        self.n += len(paths)
        self.boxed = self.boxed or any(split_box(path)[1] for path in paths if "#" in path)
        self._digest.update("".join(json.dumps(name) + "\n" for name in self._names(paths)).encode("ascii"))

    def _names(self, paths: list[str]) -> list[str]:
        start = self.root.rstrip("/") + "/"
        if self.root.startswith("/") and all(path.startswith(start) for path in paths):
            return [path[len(start) :] for path in paths]  # the same, and faster
        return relative(paths, self.root)

    def planned(self) -> Planned:
        return Planned(self.n, self._digest.hexdigest(), self.boxed)


# -- answers --------------------------------------------------------------------------------------------


def part_file(folder: Path, number: int) -> Path:
    """Where the answer of a slice goes."""
    return folder / f"part-{number:06d}.parquet"


def parts_there(folder: Path) -> set[int]:
    """Numbers of the slices whose answers lie in the folder. They are whole: they were written beside and renamed."""
    with os.scandir(folder) as listed:
        return {int(found[1]) for entry in listed if (found := PART.fullmatch(entry.name))}
