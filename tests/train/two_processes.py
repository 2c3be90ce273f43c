"""The work of one process of the pool in test_gather.py: every method, in float64, then its weights to a file."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from holotype.data.store import ImageStore
from holotype.machine.device import Compute

from .conftest import World, draw_squares
from .stubs import OwnEncoder, TwoStages

CASES: dict = {
    "simgcd": ("simgcd", {}),
    "debgcd": ("debgcd", {"arch": "compact"}),  # the published head is too large for a unit test
    "rpc": ("rpc", {}),
    "stages": (TwoStages, {}),
    "images": (OwnEncoder, {}),
    "cached": ("rpc", {}),
}


def train_all(world: World, out: Path, rank: int) -> None:
    for name, (method, settings) in CASES.items():
        compute = Compute.on("cpu", "fp64")
        cache = world.cache(out / "cache", compute=compute) if name == "cached" else None
        loop = world.loop(method, epochs=3, compute=compute, settings=settings, cache=cache)
        placed = loop.fit()
        tensors = {**loop.model_tensors(), "placed": placed.category}
        save_file({k: v.contiguous() for k, v in tensors.items()}, out / f"{name}-{rank}.safetensors")


def worker(rank: int, size: int, images: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{out}/meeting", rank=rank, world_size=size)
    folder = Path(images)
    table = draw_squares(folder / str(rank))
    world = World(table, ImageStore.decode(list(table.path), 32, progress=False))
    train_all(world, Path(out), rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit("this file is work for test_gather.py")
