"""What each method adds to the network: parameters, multiply-accumulates, and the time of a training step.

    python benchmarks/overhead.py

Counts come from the modules themselves. Step times come from the loop that real runs use, captured on a GPU, on a
token cache of random numbers: what tokens hold does not change how long a step takes. The figures go to
experiments/results/overhead/HARDWARE.json, and benchmarks/exhibits.py makes the table of them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Plan, command, facts
from ours import Bench, measure_loop
from script import one_sentence
from speed import find_device
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from world import World

from holotype.data.store import ImageStore
from holotype.errors import InputError
from holotype.machine.files import write_text
from holotype.methods import Method, find_method
from holotype.models.cache import CacheViews, TokenCache
from holotype.runs.settings import resolve

IMAGES = 512
"""Made-up images whose tokens the steps draw from; more would change nothing but the memory."""
VIEWS = CacheViews(weak=2, strong=1)
"""As many as a step of the most demanding method draws."""
STEPS = {"cuda": 1000, "cpu": 6}
"""Measured, unless --steps says otherwise; any other device is measured like a CPU."""


@dataclass(frozen=True)
class Variant:
    """A method in one form."""

    method: str
    what: str
    """For the table."""
    preset: str = "default"
    settings: dict[str, Any] = field(default_factory=dict)


VARIANTS = {
    "simgcd": Variant("simgcd", "projector and classifier"),
    "debgcd-published": Variant("debgcd", "SimGCD's heads, debiased classifier, five-layer detector"),
    "debgcd-compact": Variant(
        "debgcd", "SimGCD's heads, debiased classifier, compact detector", settings={"method.arch": "compact"}
    ),
    "rpc": Variant("rpc", "preset `default`: the heads of debgcd-compact"),
    "rpc-reading": Variant("rpc", "preset `reading`: SimGCD's heads, compact detector", "reading"),
}
"""One block is trained in all of them, so that only what they add differs."""


class Sizes(World):
    """A world whose methods are the variants, with CUB's recipe."""

    def configured(self, name: str, settings: Mapping[str, Any]) -> tuple[type[Method], Any]:
        variant = VARIANTS[name]
        experiment = resolve(variant.method, "cub", variant.preset, {**variant.settings, **settings})
        return find_method(variant.method), experiment.method


# -- counts -----------------------------------------------------------------------------------------------


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def macs(module: nn.Module, *shape: int) -> int:
    """Multiply-accumulates of one forward pass of zeros of a shape.

    Without storage: on a CPU attention runs as one fused operation that the counter does not know.
    """
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.to("meta")(torch.zeros(shape, device="meta"))
    return int(counter.get_total_flops()) // 2


def count(world: World, name: str) -> dict[str, dict[str, int]]:
    """Parameters and MACs of the network as timm builds it, and of the heads on the one vector it returns."""
    network = world.model()
    dim = int(network.num_features)
    method = world.method(name, dim)
    counted = {"backbone": parameters(network), "heads": parameters(method)}
    cost = {
        "backbone": macs(network, 1, 3, world.image_size, world.image_size),
        "heads": sum(macs(head, 1, dim) for head in method.children()),
    }
    return {"parameters": counted, "macs": cost}


# -- step times -------------------------------------------------------------------------------------------


def blank_store(n: int, size: int) -> ImageStore:
    """n images without a pixel: steps on a cache never look at one."""
    zeros, words = torch.zeros(n, dtype=torch.int64), np.full(n, "", dtype=object)
    return ImageStore(torch.zeros(0, dtype=torch.uint8), zeros, zeros, zeros, size, words, words)


@torch.no_grad()
def random_cache(bench: Bench, n: int) -> TokenCache:
    """A cache of n images as open_cache makes it, but for its content."""
    world, backbone = bench.world, bench.backbone()
    tail: Any = backbone.tail
    image = torch.zeros(1, 3, world.image_size, world.image_size)
    _, width = tail.prepare(backbone.trunk(image)).shape
    on_gpu = world.device.type == "cuda"
    generator = torch.Generator(world.device).manual_seed(0)
    content = torch.empty(
        (n * VIEWS.entries, width),
        dtype=torch.bfloat16 if on_gpu else torch.float16,
        device=world.device,
    ).normal_(generator=generator)
    return TokenCache(VIEWS, "device" if on_gpu else "host", content, torch.arange(n))


def plan_of(steps: int) -> Plan:
    blocks = min(steps, 20)
    return Plan(warmup=max(1, min(steps // 5, 20)), blocks=blocks, size=steps // blocks)


def measure(world: World, steps: int) -> list[dict[str, Any]]:
    """One row for each variant."""
    bench, n = Bench(world, str(VIEWS), Path()), len(world.paths)
    store, cache, rows = blank_store(n, world.image_size), random_cache(bench, n), []
    for name, variant in VARIANTS.items():
        step = measure_loop(bench, name, plan_of(steps), store, cache)
        kept = ("ms", "mean_ms", "slowest_ms", "steps", "captured", "arithmetic", "pipeline")
        row = {"name": name, "method": variant.method, "what": variant.what, **count(world, name)}
        rows.append({**row, "step": {key: step[key] for key in kept}})
        print(f"{name}: {step['ms']:.2f} ms a step", flush=True)
    return rows


# -- the command ------------------------------------------------------------------------------------------


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", choices=("auto", "cuda", "cpu"), default="auto", help="where to compute")
    add("--steps", type=int, help="steps measured (1,000 on a GPU, 6 on a CPU)")
    add("--batch", type=int, default=128, help="images of a step")
    add("--arch", default="vit_base_patch16_224", help="timm's name of the network; its weights are random")
    add("--image-size", type=int, default=224, help="side of its input")
    add("--k", type=int, default=200, help="categories, half of them known (200 as in CUB)")
    add("--results", type=Path, default=Path("experiments/results/overhead"), help="folder of the file")
    return parser


def file_name(hardware: str) -> str:
    """`1-x-nvidia-h200.json`"""
    return re.sub(r"[^a-z0-9]+", "-", hardware.lower()).strip("-") + ".json"


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else list(words)
    given = make_parser().parse_args(words)
    for name in ("steps", "batch", "image_size", "k"):
        value = getattr(given, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} is {value}; give a positive number.")
    device = find_device(given.device)
    paths = [f"{i}.jpg" for i in range(max(IMAGES, given.batch))]
    world = Sizes(paths, given.arch, given.image_size, given.batch, given.k, device)
    record = {**facts(device), "command": command(words, "overhead.py"), "arch": given.arch}
    record |= {"image_size": given.image_size, "batch": given.batch, "k": given.k}
    record["n_known"] = len(world.table().known)
    record["rows"] = measure(world, given.steps or STEPS.get(device.type, STEPS["cpu"]))
    path = given.results / file_name(record["hardware"])
    write_text(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
