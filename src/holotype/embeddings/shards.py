"""Shard plan and shard folder: which image is in which shard, what is done, missing or failed.

plan.parquet has the column `path` and a row group for each shard, so that whoever does a shard reads its own paths
and no others. It is written in a stream: nobody ever holds the paths of all images.

manifest.json     of which network or model, and of which images; written after the plan
plan.parquet      which image is in which shard
part-NNNNNN.parquet   the results; written beside and renamed
failed.json       shards that could not be done, with the reason; of --only 2/4 it is failed-2-of-4.json
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from holotype.data.boxes import split_box
from holotype.data.paths import Paths, is_address, is_pattern, relative
from holotype.embeddings.executor import Executor, OnDone, OnFailed
from holotype.errors import InputError
from holotype.utils.atomic import atomic_path, write_text
from holotype.utils.locks import wait_for_lock
from holotype.utils.serialization import CorruptFile, dump_json, read_json

PLAN_FILE = "plan.parquet"
MANIFEST_FILE = "manifest.json"
IMAGES_PER_PLAN_SHARD = 4096
"""Images of a shard at most."""
log = logging.getLogger("holotype")
PART_NAME = re.compile(r"part-(\d{6,})\.parquet")


def write_shard_plan(file: Path, paths: Paths, each: int) -> dict[str, Any]:
    """Write the plan of shards of `each` images.

    Returns what a manifest says of it: n (images), images (sha256 of their paths as seen from the root, in their
    order), boxed (whether some of them are boxes).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("path", pa.string())])
    options = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY", "write_statistics": False}
    n, boxed, digest = 0, False, hashlib.sha256()
    several = each * max(IMAGES_PER_PLAN_SHARD // each, 1)  # many small shards at once
    with pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True, **options) as writer:
        while batch := list(islice(paths.each, several)):
            n += len(batch)
            boxed = boxed or any(split_box(path)[1] for path in batch if "#" in path)
            names = _names(batch, paths.root)
            digest.update("".join(json.dumps(name) + "\n" for name in names).encode("ascii"))
            writer.write_table(pa.table({"path": pa.array(batch, pa.string())}, schema), row_group_size=each)
    return {"n": n, "images": digest.hexdigest(), "boxed": boxed}


def _names(paths: list[str], root: str) -> list[str]:
    start = root.rstrip("/") + "/"
    if root.startswith("/") and all(path.startswith(start) for path in paths):
        return [path[len(start) :] for path in paths]  # the same, and faster
    return relative(paths, root)


def read_shard_paths(folder: Path | str, number: int) -> list[str]:
    """Return the paths of a shard, absolute. Raises InputError where the plan of its folder cannot be read."""
    import pyarrow as pa

    file = Path(folder) / PLAN_FILE
    try:
        stat = os.stat(file)
        opened = _open_plan(str(file), stat.st_mtime_ns, stat.st_size)
        paths: list[str] = opened.read_row_group(number).column("path").to_pylist()
    except (OSError, pa.ArrowException, ValueError, KeyError, IndexError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"{file} cannot be read ({reason}); run the command without --only once.") from error
    return paths


@lru_cache(maxsize=2)
def _open_plan(file: str, mtime: int, size: int) -> Any:
    """mtime and size are there for the cache: a plan that changed is opened again."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(file, page_checksum_verification=True)


def part_file(folder: Path, number: int) -> Path:
    """Return where the result of a shard goes."""
    return folder / f"part-{number:06d}.parquet"


def existing_parts(folder: Path) -> set[int]:
    """Return the numbers of the parts in a folder. They are whole: they were written beside and renamed."""
    with os.scandir(folder) as listed:
        return {int(match[1]) for entry in listed if (match := PART_NAME.fullmatch(entry.name))}


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder, None where there is none; InputError where parts lie there without one."""
    path = folder / MANIFEST_FILE
    if not path.is_file():
        if any(folder.glob("part-*.parquet")):
            raise InputError(f"{folder} holds parts but no {MANIFEST_FILE}; remove the folder.")
        return None
    try:
        manifest = read_json(path)
    except (OSError, CorruptFile) as error:
        raise InputError(f"{path} cannot be read ({error}); remove {folder} and run it again.") from error
    return dict(manifest) if isinstance(manifest, dict) else {}


def check_manifest(folder: Path, manifest: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Raise InputError unless all facts stand in the manifest of a folder."""
    if differs := [key.replace("_", " ") for key in facts if manifest.get(key) != facts[key]]:
        what = f"{folder} holds results of something else (not the same: {', '.join(differs)})"
        raise InputError(f"{what}; give the same settings as for it, or choose another folder.")


@dataclass(frozen=True)
class ShardRequest:
    """What is to be computed."""

    facts: Mapping[str, Any]
    """Of the network or model and the format: what must be equal for a part to be of use."""
    source: str
    """As it was named; absolute."""
    paths: Callable[[], Paths]
    """Begins a new stream of the images each time."""
    each: int
    """Images of a shard, where the folder is new."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of the manifest, for readers."""


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
    """Which share of the shards is ours: the first one's number, and how far it is to the next."""

    @property
    def own(self) -> range:
        return range(self.only[0], -(-self.n // self.each), self.only[1])

    @property
    def own_images(self) -> int:
        return sum(min(self.each, self.n - number * self.each) for number in self.own)

    def run(self, engine: Executor, done: OnDone) -> OnFailed:
        """Do our shards, and those that failed once more; returns what is still missing, with the reason."""
        # first those without a part, then those with one, which the job looks at
        failed = engine(sorted(self.own, key=existing_parts(self.folder).__contains__), done)
        self._note(failed)
        if failed:
            first = min(failed)
            log.info(f"{len(failed):,} slices failed, as {first} ({failed[first]}), and are tried again.")
            failed = engine(sorted(failed), done)
        existing = existing_parts(self.folder)
        for number in self.own:
            if number not in existing:
                failed.setdefault(number, f"it was not tried, or its part is not in {self.folder}")
        self._note(failed)
        return failed

    def sentence(self, failed: OnFailed) -> str:
        """Return what to say of shards that are still missing."""
        what = f"{len(failed):,} of the {len(self.own):,} slices failed, as {min(failed)} ({failed[min(failed)]})"
        return f"{what}; {self._failed_file} lists them, and the same command tries them again."

    @property
    def _failed_file(self) -> Path:
        i, n = self.only
        return self.folder / ("failed.json" if n == 1 else f"failed-{i + 1}-of-{n}.json")

    def _note(self, failed: OnFailed) -> None:
        if failed:
            reasons = {str(number): failed[number] for number in sorted(failed)}
            write_text(self._failed_file, dump_json({"slices": reasons}))
        else:
            self._failed_file.unlink(missing_ok=True)


def prepare_shards(folder: Path, request: ShardRequest, only: tuple[int, int] | None = None) -> ShardFolder:
    """Write the plan of these images, and the manifest, into a folder that is new or of the same.

    Of several commands that come at once one writes it, and the others wait. only: which share is ours; a plan that is
    there is then believed, and the images are not listed again, as long as the source has the same name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(folder / MANIFEST_FILE, "the plan"):
        manifest = _plan(folder, request, believed=only is not None)
    n, each, root, boxed = (manifest[name] for name in ("n", "images_per_shard", "root", "boxed"))
    return ShardFolder(folder, n, each, root, boxed, only or (0, 1))


def _plan(folder: Path, request: ShardRequest, believed: bool) -> dict[str, Any]:
    """Return the manifest once plan and manifest are those of the images as they are now."""
    file, before = folder / PLAN_FILE, read_manifest(folder)
    if before is not None:
        check_manifest(folder, before, request.facts)
        if believed and before.get("source") == request.source and file.is_file():
            return before
    each = before.get("images_per_shard", request.each) if before else request.each
    paths = request.paths()
    try:
        with atomic_path(file) as partial:
            plan = write_shard_plan(partial, paths, each)
            if before is not None:
                check_manifest(folder, before, {key: plan[key] for key in ("images", "n")})
    except OSError as error:
        raise InputError(f"{file} could not be written ({error.strerror or error}); make room.") from error
    place = {"root": paths.root, "source": request.source, "images_per_shard": each}
    # what readers are told stays as it was begun: an older folder has images decoded otherwise
    about = request.about if before is None else {key: before[key] for key in request.about if key in before}
    manifest = {**about, **request.facts, **plan, **place}
    write_text(folder / MANIFEST_FILE, dump_json(manifest))
    return manifest


def absolute_source(source: str) -> str:
    """Return what a source is called in a manifest: an absolute path, or the address or pattern as it is."""
    return source if is_address(source) or is_pattern(source) else os.path.abspath(source)
