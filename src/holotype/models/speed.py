"""How long a network takes for an image, and how large it is, measured with random weights, which take no longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from holotype.models.zoo import build_untrained

SPEED_BATCH = 4
"""Images in a pass."""
ENOUGH_SECONDS, MIN_PASSES = 0.5, 2
"""Seconds and passes after which the best time is taken."""


Clock = Callable[[], float]


@dataclass(frozen=True)
class Speed:
    """Of one network on one device."""

    parameters: int
    milliseconds: float
    """An image, whole network, forward: as many seconds for 1,000 images."""


def measure_speed(
    arch: str,
    image_size: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    clock: Clock = time.perf_counter,
) -> Speed:
    """Build the network with random weights and time it; nothing is fetched."""
    with torch.random.fork_rng(devices=[]):
        model: nn.Module = build_untrained(arch, img_size=image_size)
    model = model.eval().requires_grad_(False).to(device, dtype)
    images = torch.zeros(SPEED_BATCH, 3, image_size, image_size, device=device, dtype=dtype)
    seconds = fastest_pass(lambda: model(images), device, clock)
    return Speed(sum(p.numel() for p in model.parameters()), 1000 * seconds / SPEED_BATCH)


@torch.no_grad()
def fastest_pass(run: Callable[[], object], device: torch.device, clock: Clock = time.perf_counter) -> float:
    """Seconds of the fastest of several passes after a first one that warms up.

    clock: time.process_time counts what the processor does for us alone, whoever else it works for.
    """
    run()
    best, started, passes = float("inf"), clock(), 0
    while passes < MIN_PASSES or clock() - started < ENOUGH_SECONDS:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        begun = clock()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best, passes = min(best, clock() - begun), passes + 1
    return best
