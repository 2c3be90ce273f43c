"""Assign one shard of new images: the job that every executor runs.

A part has the columns of export/assign.py. Its footer keeps a digest of the stamps of its images: where a file has
changed since, the slice is placed anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.data.hashing import file_stamps
from holotype.data.paths import Paths
from holotype.embeddings.shards import PLAN_FILE, ShardRequest, absolute_source, part_file, read_shard_paths
from holotype.errors import InputError
from holotype.export.assign import (
    ASSIGN_COLUMNS,
    BOX_COLUMNS,
    AssignResult,
    CorrectedModel,
    assign_batch,
    load_corrected,
    schema_of,
)
from holotype.methods.registry import allow_code
from holotype.results.discovery import Discovery
from holotype.runs.model_io import load_model
from holotype.utils.atomic import refuse_links
from holotype.utils.serialization import TABLE_MARK, read_parquet_table, write_parquet

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ASSIGN_FORMAT = "assigned, 1"

log = logging.getLogger("holotype")

_models: dict[tuple[str, str, str], CorrectedModel] = {}
"""By run, digest and device: a process loads its model once."""


@dataclass(frozen=True)
class AssignShard:
    """Places the images of a slice, and writes its part. Plain, and can be pickled."""

    run: str
    """Folder of the run, absolute, as is the next one."""
    folder: str
    digest: str
    """Of the model and of its categories as they stand now."""
    device: str
    run_id: str
    allows_code: bool = False
    """May the method be one that the run names as package.module:Class?"""
    boxed: bool = False
    """Are some of all the images boxes? Then every part has their columns."""

    def ready(self) -> None:
        read_shard_paths(Path(self.folder) / PLAN_FILE, 0)
        if not Path(self.run).is_dir():
            raise InputError(f"{self.run} is not there; all machines that work on it must see it.")

    def __call__(self, number: int, advance: Callable[[int], None] = lambda more: None) -> AssignResult:
        paths = read_shard_paths(Path(self.folder) / PLAN_FILE, number)
        file, stamp = part_file(Path(self.folder), number), _digest("\0".join(file_stamps(paths)).encode())
        table, last = _cached_model(file, paths, stamp), len(paths)
        if table is None:
            table, last = self._place(paths, stamp, advance)
            write_parquet(file, table)
        advance(last)
        assigned = AssignResult(file)
        assigned.count(table.to_pandas())
        return assigned

    def _place(self, paths: list[str], stamp: str, advance: Callable[[int], None]) -> tuple[pa.Table, int]:
        """The rows, and how many images `advance` has not been told of."""
        import pandas as pd
        import pyarrow as pa

        model, done = self.model(), 0
        frames: list[pd.DataFrame] = []
        for part in model.trained.stream(paths):
            if frames:
                advance(len(frames[-1]))
            frames.append(assign_batch(model, paths[done : done + len(part.problem)], part))
            done += len(part.problem)
        frame = pd.concat(frames, ignore_index=True)
        names = (*ASSIGN_COLUMNS, *BOX_COLUMNS) if self.boxed else ASSIGN_COLUMNS
        schema = schema_of(names).with_metadata({TABLE_MARK: json.dumps({"stamps": stamp})})
        if self.boxed:
            frame = _with_pictures(frame.reindex(columns=list(names)))
        return pa.Table.from_pandas(frame, schema=schema, preserve_index=False), len(frames[-1])

    def model(self) -> CorrectedModel:
        key = (self.run, self.digest, self.device)
        if key not in _models:
            with allow_code(self.allows_code):
                loaded = load_corrected(Path(self.run), load_model(self.run, self.device))
            if model_digest(Path(self.run), loaded) != self.digest:
                raise InputError(
                    f"The model or the corrections of {self.run} have changed since the command began."
                )
            _models.clear()
            _models[key] = loaded
        return _models[key]


def _with_pictures(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of boxes filled in for a slice that has none: its pictures are whole."""
    return frame.assign(file=frame["file"].fillna(frame["path"]), box=frame["box"].fillna(""))


def _cached_model(file: Path, paths: Sequence[str], stamp: str) -> pa.Table | None:
    """The part that is there, where it is whole and of the same files."""
    try:
        table = read_parquet_table(file)
        told = json.loads((table.schema.metadata or {})[TABLE_MARK])["stamps"]
        same = told == stamp and table["path"].to_pylist() == list(paths)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning(f"{file} cannot be read ({error}), and is made again.")
        return None
    return table if same else None


# -- what the parts are of ------------------------------------------------------------------------------


def assign_job(run: Path, folder: Path, device: str, *, here: str | None = None) -> AssignShard:
    """The job, with the model loaded in this process. here: the device of this process, where others do the slices."""
    refuse_links(run)
    loaded = load_corrected(run, load_model(run, here or device))
    digest, run_id = model_digest(run, loaded), loaded.trained.run_id
    job = AssignShard(str(run.resolve()), str(folder.resolve()), digest, device, run_id)
    _models.clear()
    if here is None:
        _models[job.run, job.digest, device] = loaded
    return job


def assign_request(job: AssignShard, images: str, paths: Callable[[], Paths], each: int) -> ShardRequest:
    facts = {"format": ASSIGN_FORMAT, "run_id": job.run_id, "model": job.digest}
    return ShardRequest(facts, absolute_source(images), paths, each, {"run": job.run})


def model_digest(run: Path, model: CorrectedModel) -> str:
    """Of the weights and of everything by which people have changed where images go since. Nothing in it was computed,
    so that it is the same on every machine."""
    stands: dict[str, Any] = {
        "end": model.end,
        "called": {id: [one.name, one.kind] for id, one in model.called.items()},
        "ids": list(model.ids),
        "asleep": sorted(model.asleep),
        "curve": [list(point) for point in model.curve],
    }
    if model.centres is not None:  # those of the images as they lie now
        images = Discovery.load(run).images
        stands["images"] = [list(images["category_id"]), list(images["note"].fillna(""))]
    return _digest(json.dumps(stands, sort_keys=True).encode(), _weights(run))


def _weights(run: Path) -> bytes:
    from holotype.runs.model_io import ModelConfig

    return ModelConfig.read(run).weights.encode()


def _digest(*content: bytes) -> str:
    found = hashlib.sha256()
    for one in content:
        found.update(len(one).to_bytes(8, "little") + one)
    return found.hexdigest()
