"""Shard plan and shard folder: which image is in which shard, what is done, missing or failed.

plan.parquet has the column `path` and a row group for each slice, so that whoever does a slice reads its own paths
and no others. It is written in a stream: nobody ever holds the paths of all images.

manifest.json     of which images and which network; written after the plan, so that where it is, the plan is whole
plan.parquet      which image is in which slice (embeddings/shards.py)
part-NNNNNN.parquet   the answers; beside and renamed
failed.json       slices that could not be done, with the reason; of --only 2/4 it is failed-2-of-4.json
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from holotype.data.boxes import split_box
from holotype.data.paths import Paths, relative
from holotype.embeddings.executor import Executor, OnDone, OnFailed, run_with_retry
from holotype.errors import InputError
from holotype.utils.atomic import atomic_path, write_text
from holotype.utils.locks import wait_for_lock
from holotype.utils.serialization import CorruptFile, dump_json, read_json

PLAN_FILE = "plan.parquet"
IMAGES_PER_PLAN_SHARD = 4096
"""Images of a slice at most."""
PART_NAME = re.compile(r"part-(\d{6,})\.parquet")


@dataclass(frozen=True)
class ShardPlan:
    """What a plan is of."""

    n: int
    """Images."""
    digest: str
    """sha256 of their paths as seen from the root, in their order."""
    boxed: bool
    """Are some of the images boxes?"""


def write_shard_plan(file: Path, paths: Paths, each: int) -> ShardPlan:
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
            for some in _batches(
                paths.each, each * max(IMAGES_PER_PLAN_SHARD // each, 1)
            ):  # small slices, many at once
                counted.add(some)
                writer.write_table(
                    pa.table({"path": pa.array(some, pa.string())}, schema), row_group_size=each
                )
    except OSError as error:
        raise InputError(
            f"{file} could not be written ({error.strerror or error}); free some space or choose another place."
        ) from error
    return counted.planned()


def count_paths(paths: Paths) -> ShardPlan:
    """What the plan of these paths would be of."""
    counted = _Counted(paths.root)
    for some in _batches(paths.each, IMAGES_PER_PLAN_SHARD):
        counted.add(some)
    return counted.planned()


def is_shard_plan(file: Path, planned: ShardPlan, root: str, each: int) -> bool:
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


def read_shard_paths(file: Path, number: int) -> list[str]:
    """The paths of a slice, absolute. Raises InputError where the plan cannot be read."""
    import pyarrow as pa

    try:
        stat = os.stat(file)
        opened = _open_plan(str(file), stat.st_mtime_ns, stat.st_size)
        paths: list[str] = opened.read_row_group(number).column("path").to_pylist()
    except (OSError, pa.ArrowException, ValueError, KeyError, IndexError) as error:
        raise InputError(
            f"{file} cannot be read ({' '.join(str(error).split())[:160]}); the same command without --only makes it "
            "anew. All machines that work on it must see its folder."
        ) from error
    return paths


@lru_cache(maxsize=2)
def _open_plan(file: str, mtime: int, size: int) -> Any:
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

    def planned(self) -> ShardPlan:
        return ShardPlan(self.n, self._digest.hexdigest(), self.boxed)


# -- answers --------------------------------------------------------------------------------------------


def part_file(folder: Path, number: int) -> Path:
    """Where the answer of a slice goes."""
    return folder / f"part-{number:06d}.parquet"


def existing_parts(folder: Path) -> set[int]:
    """Numbers of the slices whose answers lie in the folder. They are whole: they were written beside and renamed."""
    with os.scandir(folder) as listed:
        return {int(found[1]) for entry in listed if (found := PART_NAME.fullmatch(entry.name))}


MANIFEST_FILE = "manifest.json"
PER_SHARD_KEY = "images_per_shard"

log = logging.getLogger("holotype")


@dataclass(frozen=True)
class ShardRequest:
    """What somebody asks for."""

    facts: Mapping[str, Any]
    """Of the network and the format: what must be equal for a part to be of use, and words for readers."""
    told: Mapping[str, str]
    """Those of the facts that must be equal, and how a person calls them."""
    source: str
    """As it was named; absolute."""
    paths: Callable[[], Paths]
    """Begins a new stream of the images each time."""
    each: int
    """Images of a slice, where the folder is new."""


@dataclass(frozen=True)
class ShardFolder:
    """A folder whose plan is there."""

    folder: Path
    n: int
    """Images."""
    each: int
    root: str
    boxed: bool
    only: tuple[int, int] = (0, 1)
    """Which share of the slices is ours: every second one's number, from the first one's on."""

    @property
    def slices(self) -> int:
        return -(-self.n // self.each)

    @property
    def own(self) -> range:
        return range(self.only[0], self.slices, self.only[1])

    @property
    def own_images(self) -> int:
        last = self.slices - 1
        return len(self.own) * self.each - ((last + 1) * self.each - self.n if last in self.own else 0)

    def numbers(self) -> Iterator[int]:
        """Ours: first those without a part, then those with one, which the job looks at."""
        there = existing_parts(self.folder)
        missing = (number for number in self.own if number not in there)
        return itertools.chain(missing, (number for number in self.own if number in there))

    def run(self, engine: Executor, done: OnDone) -> OnFailed:
        """Do our slices; returns those that are still missing, with the reason."""
        failed = run_with_retry(engine, self.numbers(), done, self._note)
        there = existing_parts(self.folder)
        for number in self.own:
            if number not in there:
                failed.setdefault(number, f"it was not tried, or its part is not in {self.folder}")
        self._note(failed)
        return failed

    def sentence(self, failed: OnFailed) -> str:
        """What to say of slices that are still missing."""
        first = min(failed)
        return (
            f"{len(failed):,} of the {len(self.own):,} slices could not be done, as slice {first} ({failed[first]}); "
            f"{self._failed_file} lists them, and the same command tries them again."
        )

    @property
    def _failed_file(self) -> Path:
        i, n = self.only
        return self.folder / ("failed.json" if n == 1 else f"failed-{i + 1}-of-{n}.json")

    def _note(self, failed: OnFailed) -> None:
        if failed:
            write_text(
                self._failed_file, dump_json({"slices": {str(one): failed[one] for one in sorted(failed)}})
            )
        else:
            self._failed_file.unlink(missing_ok=True)


def prepare_shards(folder: Path, wanted: ShardRequest, only: tuple[int, int] | None = None) -> ShardFolder:
    """The folder with a plan of these images and this network: written, or found there and compared.

    Of several commands that come at once one writes it, and the others wait. only: which share is ours; a plan that is
    there is then believed, and the images are not listed again, as long as the source has the same name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with wait_for_lock(folder / MANIFEST_FILE, "the plan"):
            there = _check_agrees(folder, wanted, believed=only is not None)
    except InputError:
        with contextlib.suppress(OSError):
            folder.rmdir()  # where nothing was there before
        raise
    return ShardFolder(
        folder, there["n"], there[PER_SHARD_KEY], there["root"], there["boxed"], only or (0, 1)
    )


def _check_agrees(folder: Path, wanted: ShardRequest, believed: bool) -> dict[str, Any]:
    """The manifest, as it is in the folder now."""
    there = _read(folder, wanted)
    if there is None:
        return _begin(folder, wanted, wanted.each)
    if believed and there["source"] == wanted.source and (folder / PLAN_FILE).is_file():
        return there
    paths = wanted.paths()
    now = count_paths(paths)
    _compare(folder, _changed(there, now))
    if there["root"] == paths.root and is_shard_plan(
        folder / PLAN_FILE, now, paths.root, there[PER_SHARD_KEY]
    ):
        return there
    if there["root"] == paths.root:
        log.warning(f"{folder / PLAN_FILE} is gone or was damaged, and is made again.")
    return _begin(folder, wanted, there[PER_SHARD_KEY])  # else the images were moved


def _begin(folder: Path, wanted: ShardRequest, each: int) -> dict[str, Any]:
    """Write the plan, and then the manifest."""
    paths = wanted.paths()
    planned = write_shard_plan(folder / PLAN_FILE, paths, each)
    made = {
        **wanted.facts,
        "images": planned.digest,
        "n": planned.n,
        "boxed": planned.boxed,
        "root": paths.root,
        "source": wanted.source,
        PER_SHARD_KEY: each,
    }
    write_text(folder / MANIFEST_FILE, dump_json(made))
    return made


def _read(folder: Path, wanted: ShardRequest) -> dict[str, Any] | None:
    """The manifest, once it was compared; None where there is none."""
    path = folder / MANIFEST_FILE
    if not has_manifest(folder):
        return None
    try:
        there = read_json(path)
        each = int(there[PER_SHARD_KEY])
    except (ValueError, KeyError, TypeError, OSError) as error:
        reason = str(error) if isinstance(error, CorruptFile) else repr(error)
        raise InputError(f"{path} cannot be read ({reason}); remove {folder} and run it again.") from error
    differs = [told for key, told in wanted.told.items() if there.get(key) != wanted.facts.get(key)]
    _compare(folder, differs if each >= 1 else [*differs, "the size of a shard"])
    return dict(there)


def has_manifest(folder: Path) -> bool:
    """Whether a manifest is there; InputError where shards are there without one."""
    there = (folder / MANIFEST_FILE).is_file()
    if not there and any(folder.glob("part-*.parquet")):
        raise InputError(
            f"{folder} holds shards but no {MANIFEST_FILE}, so nobody knows of what; remove the folder."
        )
    return there


def _changed(there: Mapping[str, Any], now: ShardPlan) -> list[str]:
    words = {"the list of images": now.digest == there["images"], "the number of images": now.n == there["n"]}
    return [told for told, same in words.items() if not same]


def _compare(folder: Path, differs: list[str]) -> None:
    if differs:
        raise InputError(
            f"{folder} holds answers about something else (not the same: {', '.join(differs)}); choose another folder, "
            "or remove this one to begin again."
        )


def absolute_source(source: str, plain: bool) -> str:
    """What a source is called in a manifest. plain: it is a path, and no address or pattern."""
    return os.path.abspath(source) if plain else source
