"""Which reader reads a source: each claims endings of files, schemes of addresses, or folders, and no two the same.

Other packages add readers under the entry point `holotype.readers`: a Reader each.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path

from holotype.data.paths import Paths
from holotype.data.readers.csv import read_csv_table, stream_list
from holotype.data.readers.folder import read_folder, stream_folder
from holotype.data.readers.parquet import holds_images, read_parquet, stream_parquet
from holotype.data.readers.storage import read_bucket
from holotype.data.readers.webdataset import read_webdataset, stream_webdataset
from holotype.data.storage import (
    STORES,
    StorageError,
    is_address,
    is_pattern,
    list_files,
    scheme_of,
    split_query,
    with_query,
)
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.text import suggest_path

FOLDER = "folder"
PLUGINS = "holotype.readers"
BRACES = re.compile(r"\{([^{}]+)\}")
RANGE = re.compile(r"(\d+)\.\.(\d+)")
MAX_EXPANDED = 1_000_000
"""Files that braces may mean."""


@dataclass(frozen=True)
class ReaderOptions:
    """What a reader is told besides its source."""

    skip_missing: bool = False
    """Rows of a list without an image are left out."""
    whole: bool = False
    """Where a list has boxes, pictures without one stay."""


@dataclass(frozen=True)
class Reader:
    """Turns a source into a table of images."""

    name: str
    """In sentences."""
    claims: tuple[str, ...]
    """"folder", endings as .tar, schemes as s3://."""
    read: Callable[[str, ReaderOptions], Table]
    """source: as it was given."""
    has_labels: bool = False
    """Is the source a list that gives the labels, so that no second one can?"""
    stream: Callable[[str], Paths | None] | None = None
    """The paths of that table one by one, from a source that may have more than there is room for; None where it can
    only be read as a whole."""


class Registry:
    """Readers by what they claim."""

    def __init__(self, readers: Sequence[Reader] = ()) -> None:
        self._by_claim: dict[str, Reader] = {}
        for reader in readers:
            self.register(reader)

    def register(self, reader: Reader) -> None:
        """Raises InputError, and changes nothing, where another reader has claimed the same."""
        for claim in reader.claims:
            if claim in self._by_claim:
                other = self._by_claim[claim].name
                raise InputError(f"Two readers claim {claim}: {other} and {reader.name}; remove one of them.")
        self._by_claim |= dict.fromkeys(reader.claims, reader)

    def find(self, source: str) -> Reader:
        """The reader of a source; InputError where there is none."""
        ending = os.path.splitext(split_query(source)[0])[1].lower()
        if is_address(source):
            claim = ending if ending in (".parquet", ".tar") else f"{scheme_of(source)}://"
            if claim not in self._by_claim or f"{scheme_of(source)}://" not in self._by_claim:
                known = ", ".join(name for name in self._by_claim if name.endswith("://"))
                raise InputError(f"{source} is in no store that can be read; there are {known}.")
            return self._by_claim[claim]
        if os.path.isdir(source):
            return self._by_claim[FOLDER]
        if not os.path.exists(source) and not is_pattern(source):
            raise InputError(
                f"{source} does not exist{suggest_path(source)}; give a folder of images or a CSV or Parquet file."
            )
        if source.lower().endswith((".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")):
            raise InputError(f"{source} is compressed, so no image can be read by itself; unpack it to .tar.")
        if ending not in self._by_claim:
            raise InputError(
                f"{source} is neither a folder nor a .csv, .tsv, .parquet or .tar file; give one of these."
            )
        return self._by_claim[ending]


# -- several files --------------------------------------------------------------------------------------


def source_files(source: str) -> list[str]:
    """The files that 'shard-{000..099}.tar' or '*.tar' mean, absolute, in their order; one that is there is itself."""
    if not is_pattern(source):
        return [source if is_address(source) else os.path.abspath(source)]
    found = [file for one in expand_braces(source) for file in (_expand_stars(one) if "*" in one else [one])]
    files = [one if is_address(one) else os.path.abspath(one) for one in found]
    if not files:
        raise InputError(f"No file is called {source}; check the pattern.")
    gone = [file for file in files if not is_address(file) and not os.path.isfile(file)]
    if gone:
        raise InputError(
            f"{len(gone):,} of the {len(files):,} files of {source} are missing, as {gone[0]} is."
        )
    return files


def expand_braces(text: str) -> list[str]:
    """{000..099} and {a,b} written out, as a shell does."""
    parts = BRACES.split(text)
    choices: list[list[str]] = []
    total = 1
    for i, part in enumerate(parts):
        choices.append([part] if i % 2 == 0 else _choices(part))
        total *= len(choices[-1])
        if total > MAX_EXPANDED:
            raise InputError(
                f"{text} means more than {MAX_EXPANDED:,} files; name the folder that they lie in."
            )
    return ["".join(one) for one in product(*choices)]


def _choices(part: str) -> list[str]:
    found = RANGE.fullmatch(part)
    if not found:
        return part.split(",")
    first, last = int(found[1]), int(found[2])
    if last < first or last - first >= MAX_EXPANDED:
        raise InputError(
            f"{{{part}}} is no range of files; write the smaller number first, as in {{000..099}}."
        )
    return [f"{n:0{len(found[1])}d}" for n in range(first, last + 1)]


def _expand_stars(pattern: str) -> list[str]:
    if not is_address(pattern):
        return sorted(glob.glob(pattern))
    bare, query = split_query(pattern)
    folder = bare[: bare.index("*")].rpartition("/")[0]
    fits = re.compile("[^/]*".join(re.escape(part) for part in bare.split("*")))
    try:
        return [
            one.address
            for one in list_files(with_query(folder, query))
            if fits.fullmatch(split_query(one.address)[0])
        ]
    except StorageError as problem:
        raise InputError(str(problem)) from problem


def source_name(source: str | Path) -> str:
    """What a source is called in records: photos of photos/, s3://bucket/photos and photos.csv."""
    text = str(source)
    if not is_address(text) and not is_pattern(text):
        path = Path(text)
        return path.stem if path.suffix.lower() in (".csv", ".tsv", ".parquet", ".tar") else path.name
    last = split_query(text)[0].rstrip("/").rpartition("/")[2]
    stem, ending = os.path.splitext(last)
    name = stem if ending.lower() in (".parquet", ".tar") else last
    name = re.sub(r"[{}]", "", name).replace("..", "-")
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "images"


def folder_name(source: str | Path) -> str:
    """What a run folder is called after: the last part of a path, with its ending."""
    text = str(source)
    plain = not is_address(text) and not is_pattern(text)
    return Path(text).resolve().name if plain else source_name(text)


# -- the readers that come with the project -------------------------------------------------------------


def _parquet(source: str, how: ReaderOptions) -> Table:
    """Of images, or of paths where there is no column of images."""
    files = source_files(source)
    if len(files) == 1 and not is_address(files[0]) and not holds_images(files[0]):
        return read_csv_table(Path(source), skip_missing=how.skip_missing, whole=how.whole)
    return read_parquet(files, source_name(source))


def _stream_parquet(source: str) -> Paths | None:
    files = source_files(source)
    listing = len(files) == 1 and not is_address(files[0]) and not holds_images(files[0])
    return stream_list(source) if listing else stream_parquet(files)


BUILTIN_READERS = (
    Reader(
        "folders of images",
        (FOLDER,),
        lambda source, how: read_folder(Path(source)),
        stream=stream_folder,
    ),
    Reader(
        "lists of paths",
        (".csv", ".tsv"),
        lambda source, how: read_csv_table(Path(source), skip_missing=how.skip_missing, whole=how.whole),
        has_labels=True,
        stream=stream_list,
    ),
    Reader("Parquet files", (".parquet",), _parquet, stream=_stream_parquet),
    Reader(
        "tars",
        (".tar",),
        lambda source, how: read_webdataset(source_files(source), source_name(source)),
        stream=lambda source: stream_webdataset(source_files(source)),
    ),
    Reader(
        "stores on the network",
        tuple(f"{scheme}://" for scheme in STORES),
        lambda source, how: read_bucket(source, source_name(source)),
    ),
)


@cache
def readers() -> Registry:
    """Our own readers, and those that other packages bring."""
    found = Registry(BUILTIN_READERS)
    for entry in entry_points(group=PLUGINS):
        found.register(entry.load())
    return found
