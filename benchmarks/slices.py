"""How many slices an engine does in a second, and what its driver holds meanwhile: collections of 10^8 and 10^9 images,
simulated.

    python benchmarks/slices.py --slices 24414                     # 10^8 images in slices of 4,096, in this process
    python benchmarks/slices.py --slices 24414 --engine ray --actors 2
    python benchmarks/slices.py --loop 1024                        # real photographs: slices against the plain loop

The job of a simulated slice reads its row of the plan and writes 1 kB, beside and renamed. With --synced it waits for
the disk as well, as a real part does: then it is the disk that is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from holotype.data.paths import Paths
from holotype.embeddings.executor import Executor, run_shards
from holotype.embeddings.shards import ShardRequest, part_file, prepare_shards, read_shard_paths
from holotype.utils.atomic import write_bytes

CONTENT = bytes(1000)


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
    assert sum(1 for _ in planned.numbers()) == slices
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


# -- against the plain loop -------------------------------------------------------------------------------


def compare_loop(n: int, repeats: int, place: Path, longer: int = 500) -> dict[str, object]:
    """Seconds of the processor, and of the clock, for n made photographs and the embedded network: one stream through
    all of them with everything in memory, and slices of 512. In turns; the medians.

    longer: side of a photograph in pixels.
    """
    from holotype.config.schema import BackboneConfig
    from holotype.data.load import load_table, stream_paths
    from holotype.embeddings.store import EmbedShard, backbone_facts, embed_table
    from holotype.models.backbone import load_backbone
    from holotype.utils.device import Device
    from measure import make_photographs

    make_photographs(place / "photos", n, longer=longer)
    network = load_backbone(BackboneConfig())

    def loop(folder: Path) -> None:
        embed_table(load_table(place / "photos"), network, Device.on("cpu"), folder)

    def slices(folder: Path) -> None:
        source = place / "photos"
        request = ShardRequest(backbone_facts(network), str(source), lambda: stream_paths(source), 512)
        planned = prepare_shards(folder, request)
        job = EmbedShard(str(folder), BackboneConfig(), "cpu")
        job.use(network)
        assert planned.run(partial(run_shards, job), lambda number, tally: None) == {}

    found: dict[str, list[tuple[float, float]]] = {"loop": [], "slices": []}
    loop(place / "warm")
    for turn in range(repeats):
        for name, run in (("loop", loop), ("slices", slices)):
            before = time.process_time(), time.perf_counter()
            run(place / f"{name}-{turn}")
            found[name].append((time.process_time() - before[0], time.perf_counter() - before[1]))
    told: dict[str, object] = {"images": n, "repeats": repeats}
    for i, clock in enumerate(("processor", "clock")):
        medians = {name: float(np.median([both[i] for both in seconds])) for name, seconds in found.items()}
        told |= {f"{name}_{clock}_s": round(value, 1) for name, value in medians.items()}
        told[f"{clock}_ratio"] = round(medians["loop"] / medians["slices"], 3)
    return told


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--slices", type=int, default=2000)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--synced", action="store_true", help="wait for the disk after each slice")
    parser.add_argument("--loop", type=int, metavar="IMAGES", help="compare with the plain loop instead")
    parser.add_argument("--repeats", type=int, default=3, help="with --loop")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        place = given.folder or Path(temporary)
        if given.loop:
            print(json.dumps(compare_loop(given.loop, given.repeats, place)))
        else:
            print(
                json.dumps(simulate(given.slices, given.engine, given.actors, given.synced, place / "parts"))
            )


if __name__ == "__main__":
    sys.exit(main())
