"""How many slices an engine does in a second, and what `embed` and `assign` hold meanwhile.

    python benchmarks/slices.py --slices 24414                     # 10^8 images in slices of 4,096, in this process
    python benchmarks/slices.py --slices 24414 --engine ray --actors 2
    python benchmarks/slices.py --memory                           # 10^4, 10^5 and 10^6 images, three kinds of sources
    python benchmarks/slices.py --memory 100000

The job of a simulated slice reads its row of the plan and writes 1 kB, beside and renamed. With --synced it waits for
the disk as well, as a real part does: then it is the disk that is measured. With --memory all is real but the network,
which gives noise: the stream of the source, the plan, the stamps of the files, parts of 4,096 features of 768 numbers,
or of 4,096 placed images. Each measurement is a process of its own, and its peak is the one that the system has seen.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.paths import Paths
from holotype.embeddings.executor import Executor, run_shards
from holotype.embeddings.shards import (
    ShardFolder,
    ShardRequest,
    existing_parts,
    part_file,
    prepare_shards,
    read_shard_paths,
)
from holotype.utils.atomic import write_bytes

CONTENT = bytes(1000)
ROWS = (10_000, 100_000, 1_000_000)
EACH, DIM = 4096, 768
IN_A_FOLDER = 1000


@dataclass(frozen=True)
class WriteKilobyte:
    """A slice whose answer is 1 kB."""

    folder: str
    synced: bool = False

    def ready(self) -> None:
        read_shard_paths(self.folder, 0)

    def __call__(self, number: int) -> int:
        read_shard_paths(self.folder, number)
        part = part_file(Path(self.folder), number)
        if self.synced:
            write_bytes(part, CONTENT)
        else:
            beside = part.with_name(f".{part.name}.{os.getpid()}")
            beside.write_bytes(CONTENT)
            os.replace(beside, part)
        return number


def simulate(slices: int, engine: str, actors: int, synced: bool, folder: Path) -> dict[str, object]:
    """Plan, run and list again; the plan has one path a slice."""

    def paths() -> Paths:
        return Paths(
            "/photos", (f"/photos/{number // 1000:06d}/{number:09d}.jpg" for number in range(slices))
        )

    told: dict[str, object] = {
        "engine": engine,
        "actors": actors if engine == "ray" else 1,
        "slices": slices,
        "synced": synced,
    }
    start = time.perf_counter()
    planned = prepare_shards(folder, ShardRequest({"format": 0}, "/photos", paths, 1))
    told["plan_s"] = round(time.perf_counter() - start, 1)
    job, start = WriteKilobyte(str(folder), synced), time.perf_counter()
    with _engine(job, engine, actors) as run:
        told["start_s"] = round(time.perf_counter() - start, 1)
        start = time.perf_counter()
        failed = planned.run(run, lambda number, answer: None)
        seconds = time.perf_counter() - start
    assert failed == {}, failed
    told |= {"run_s": round(seconds, 1), "slices_per_s": round(slices / seconds)}
    start = time.perf_counter()
    assert len(existing_parts(folder)) == slices
    told["listing_s"] = round(time.perf_counter() - start, 2)
    return told | {"peak_MB": peak()}


@contextmanager
def _engine(job: WriteKilobyte, engine: str, actors: int) -> Iterator[Executor]:
    if engine == "local":
        yield partial(run_shards, job)
        return
    from holotype.embeddings.executor import ray_session

    with ray_session(job, None, actors, gpus=False) as on_ray:
        yield on_ray


def peak() -> int:
    """MB of memory that this process had at most."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)


# -- memory ---------------------------------------------------------------------------------------------


def through(plan: Callable[[], ShardFolder], make_job: Callable[[ShardFolder], Any]) -> dict[str, object]:
    """Plan and slices in this process, with the peak after each."""
    before, start = peak(), time.perf_counter()
    planned = plan()
    told = {"rows": planned.n, "imports_MB": before, "plan_MB": peak()}
    told["plan_s"] = round(time.perf_counter() - start, 1)
    failed = planned.run(partial(run_shards, make_job(planned)), lambda number, answer: None)
    assert failed == {}, failed
    return told | {"peak_MB": peak(), "all_s": round(time.perf_counter() - start, 1)}


def embed_noise(source: Path, folder: Path) -> dict[str, object]:
    """`holotype embed` with noise in the network's place."""
    from holotype.config.schema import BackboneConfig
    from holotype.data.load import stream_paths
    from holotype.embeddings import store

    def noise(paths: Any, encoder: object, size: int, batches: Any, found: Any, **settings: Any) -> Any:
        for rows in batches:
            found.features[rows] = np.random.default_rng(0).standard_normal((len(rows), DIM))
            yield rows, True

    class Noise(store.EmbedShard):
        def network(self, digest: str, images: int) -> Any:
            return None

    store.encode_rows = noise  # type: ignore[assignment]
    facts = {"format": 0, "dim": DIM, "image_size": 224, "backbone_digest": ""}
    wanted = ShardRequest(facts, str(source), lambda: stream_paths(source), EACH)
    job = Noise(str(folder), BackboneConfig(), "cpu")
    return through(lambda: prepare_shards(folder, wanted), lambda planned: job)


def assign_noise(run: Path, source: Path, folder: Path) -> dict[str, object]:
    """`holotype assign` in slices, with noise in the network's place; run: a trained one."""
    from holotype.data.load import stream_paths
    from holotype.export.assign import _load_once, assign_job, assign_request
    from holotype.runs.model_io import ModelReader

    job = assign_job(run, folder, "cpu")
    trained = _load_once(job.run, job.device)[0].trained  # which the job finds there

    def stream(paths: list[str], progress: bool = False) -> Iterator[ModelReader]:
        features = np.random.default_rng(0).standard_normal((len(paths), trained.backbone.dim))
        nothing = np.full(len(paths), "", dtype=object)
        yield ModelReader(features.astype(np.float32), nothing, nothing)

    trained.stream = stream  # type: ignore[method-assign]  # the one place where images go through the network
    wanted = assign_request(job, str(source), lambda: stream_paths(source), EACH)
    return through(lambda: prepare_shards(folder, wanted), lambda planned: job)


def make_sources(rows: int, place: Path) -> dict[str, Path]:
    """The same image so many times: as links in folders of 1,000, in a Parquet file, and in a list of those links."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(stream, "PNG")
    (place / "one.png").write_bytes(stream.getvalue())
    folder, listed = place / "folder", place / "list.csv"
    with listed.open("w") as lines:
        lines.write("path\n")
        for number in range(rows):
            inner = folder / f"{number // IN_A_FOLDER:06d}"
            if number % IN_A_FOLDER == 0:
                inner.mkdir(parents=True)
            os.symlink(place / "one.png", inner / f"{number:09d}.png")
            lines.write(f"folder/{inner.name}/{number:09d}.png\n")
    schema = pa.schema([("image", pa.struct([("bytes", pa.binary())]))])
    with pq.ParquetWriter(place / "images.parquet", schema) as writer:
        for first in range(0, rows, 10_000):
            some = [{"bytes": stream.getvalue()}] * min(10_000, rows - first)
            writer.write_table(pa.table({"image": pa.array(some, schema[0].type)}, schema))
    return {"folder": folder, "Parquet of images": place / "images.parquet", "CSV list": listed}


def make_run(place: Path, images: str = "fashion-sample", *flags: str) -> Path:
    """A run of k-means, which takes seconds on the embedded sample: how it was trained makes no difference here.

    In a process of its own: a process that is started later inherits this one's peak.
    """
    words = [sys.executable, "-m", "holotype", "train", "kmeans", images, "--device", "cpu", "--no-progress"]
    subprocess.run([*words, *flags, "--out", str(place / "run")], check=True, capture_output=True)
    return place / "run"


def measure_memory(place: Path, most: int) -> None:
    run = make_run(place)
    for rows in (one for one in ROWS if one <= most):
        inner = place / str(rows)
        inner.mkdir()
        for kind, source in make_sources(rows, inner).items():
            for command, more in (("embed", []), ("assign", ["--run", str(run)])):
                words = [sys.executable, __file__, "--one", str(source), *more]
                words += ["--folder", str(inner / f"{command} {kind}")]
                found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
                print(json.dumps({"command": command, "source": kind, **found}), flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--slices", type=int, default=2000)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--synced", action="store_true", help="wait for the disk after each slice")
    parser.add_argument("--memory", type=int, nargs="?", const=max(ROWS), metavar="ROWS", help="at most")
    parser.add_argument("--one", type=Path, metavar="SOURCE", help="of --memory, which starts it for each")
    parser.add_argument("--run", type=Path, help="with --one: assign by this run instead of embed")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        place = given.folder or Path(temporary)
        if given.memory:
            measure_memory(place, given.memory)
            return
        if given.one:
            found = assign_noise(given.run, given.one, place) if given.run else embed_noise(given.one, place)
        else:
            found = simulate(given.slices, given.engine, given.actors, given.synced, place / "parts")
        print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
