"""The work of one process of the pool in test_processes.py: every method, in float64, then its weights to a file; and
what processes tell each other."""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from holotype.errors import InputError
from holotype.methods import METHODS
from holotype.models.zoo import patch_torchvision
from holotype.training import build_token_cache
from holotype.training.checkpoint import Checkpointer, CheckpointState, Position
from holotype.utils.device import Device
from holotype.utils.distributed import (
    all_gather_object,
    broadcast_object,
    local_world_size,
    run_on_rank0,
    world_size,
)
from holotype.utils.memory import Budget
from tests.narrow import narrow

from .conftest import World, decoded
from .explodes import Explodes
from .stubs import COMPOSED, STUBS

patch_torchvision()  # before the server of forks imports timm
LONG = ("promptcal", "sptnet")
"""Whose epochs are many times as long, and who have two stages anyway."""
CASES: dict = {
    **{name: (name, {}) for name in (*METHODS, *COMPOSED)},
    **{name: (kind, {}) for name, kind in STUBS.items()},
    "adamw": ("simgcd", {}),
    "cached": ("rpc", {}),
    "cached in shards": ("rpc", {}),
    "cached tokens then images": (STUBS["tokens then images"], {}),
}


def train_all(world: World, out: Path, rank: int) -> None:
    for name, (method, settings) in CASES.items():
        compute = Device.on("cpu", "fp64")
        shards = 4 if name == "cached in shards" else 0
        cached = name.startswith("cached")
        cache = world.cache(out / "cache", compute=compute, shards=shards) if cached else None
        if cache and shards:  # each process has its part alone
            assert len(cache.tokens) == len(world.table) * cache.views.entries // world_size()
        epochs = 1 if name in LONG else 2
        more = {"optimiser": "adamw", "lr": 1e-3, "clip": 0.5} if name == "adamw" else {}
        loop = world.loop(
            method, epochs=epochs, compute=compute, settings=settings, cache=cache, shards=shards, **more
        )
        placed = loop.fit()
        tensors = {**loop.model_tensors(), "placed": placed.category}
        save_file({k: v.contiguous() for k, v in tensors.items()}, out / f"{name}-{rank}.safetensors")


def worker(rank: int, size: int, images: str, out: str) -> None:
    meet(rank, out)
    train_all(decoded(Path(images) / str(rank)), Path(out), rank)
    dist.destroy_process_group()


def restarts(rank: int, out: str) -> None:
    """A run that leaves its course, with a folder that the first process alone writes to, and one that always does."""
    meet(rank, out)
    folder = Path(out) / f"images-{rank}"
    folder.mkdir()
    world = decoded(folder)
    fuse = {"limit": 0.04, "at": 1}
    loop = world.loop(Explodes, epochs=3, lr=0.1, momentum=0.0, settings=fuse, out=Path(out) / "run")
    loop.fit()
    try:
        world.loop(Explodes, epochs=3, lr=0.1, momentum=0.0).fit()
        sentence = ""
    except InputError as error:
        sentence = str(error)
    told = [vars(restart) for restart in loop.guard.restarts]
    note(out, rank, restarts=told, weights=digest(*loop.model_tensors().values()), sentence=sentence)


def meet(rank: int, out: str) -> None:
    narrow()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/meeting", rank=rank, world_size=2)


def note(out: str, rank: int, **facts: object) -> None:
    (Path(out) / f"noted-{rank}.json").write_text(json.dumps(facts))
    dist.destroy_process_group()


def tells(rank: int, out: str) -> None:
    meet(rank, out)

    def fail() -> None:
        raise InputError("the first one's" if rank == 0 else "not asked")

    try:
        run_on_rank0(fail)
        fault = ""
    except InputError as error:
        fault = str(error)
    first = run_on_rank0(lambda: rank)
    assert broadcast_object(rank) == 0
    journal = Checkpointer(Path(out) / f"run-{rank}")  # on a disk each
    journal.save(CheckpointState(Position(0, 1, 2, 5, True), 2.5, {"a": torch.ones(3)}))  # by the first alone
    state = journal.resume()
    step = None if state is None else [state.position.counter, state.tensors["a"].tolist()]
    told = {"first": first, "all": all_gather_object(10 * rank), "fault": fault, "here": local_world_size()}
    note(out, rank, **told, resumed=step)


ROOMS = {
    "second has a byte less": ([0, 1], "host"),
    "first has a byte less": ([1, 0], "host"),
    "second has no memory": ([0, 10**9], "disk"),
    "first has no memory": ([10**9, 0], "disk"),
}
"""Bytes that each process lacks for a cache of 16+8 views, and where the cache lies then."""


def caches(rank: int, out: str) -> None:
    """Open a cache of 16+8 views in each of ROOMS, on one disk and on a disk each, and once more."""
    meet(rank, out)
    world = decoded(Path(out) / str(rank))
    nbytes = 48 * 25 * 6 * 32 * 2  # of 16+8 views and the centre
    found = {}
    for name, (less, _) in ROOMS.items():
        room = Budget(0, max(0, nbytes - less[rank]), 10**9)
        build_token_cache.find_budget = lambda *_, room=room: room
        for shared in (True, False):
            folder = Path(out) / name / ("disk" if shared else f"disk-{rank}")
            cache = world.cache(folder, "16+8")
            tokens = digest(cache.tokens)
            if rank == 1 and not shared:
                shutil.rmtree(folder)  # a file that only one of them has
            again = world.cache(folder, "16+8")
            found[f"{name} {shared}"] = [str(cache.views), cache.level, tokens, digest(again.tokens)]
    loop = world.loop("rpc", epochs=1, cache=cache)
    loop.fit()
    note(out, rank, found=found, weights=digest(*loop.model_tensors().values()))


def digest(*tensors: torch.Tensor) -> str:
    content = b"".join(t.flatten().view(torch.uint8).numpy().tobytes() for t in tensors)
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    sys.exit("this file is work for test_processes.py")
