"""What the device can do: its matrix products, and the frozen trunk against them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from measure import time_call
from torch import Tensor, nn

SIDES = {"cuda": 8192, "cpu": 1536}
"""Side of the square matrices whose product sets the ceiling."""


def matmul_tflops(device: torch.device, dtype: torch.dtype, side: int, repeats: int = 20) -> float:
    """TFLOP/s of a product of two square matrices of random numbers (zeros run faster than any real data)."""
    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(side, side, device=device, generator=generator).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    seconds = time_call(lambda: torch.mm(a, b, out=out), device, repeats=repeats)
    return 2 * side**3 / seconds / 1e12


def count_macs(network: nn.Module, images: Tensor) -> int:
    """Multiply-accumulates of a vision transformer on `images`: its linear layers, convolutions and attention.

    Norms, activations and additions are not counted, as is the custom.
    """
    total = 0

    def add(macs: int) -> None:
        nonlocal total
        total += macs

    def linear(layer: nn.Linear, given: tuple[Tensor, ...], out: Tensor) -> None:
        add(out.numel() * layer.in_features)

    def convolution(layer: nn.Conv2d, given: tuple[Tensor, ...], out: Tensor) -> None:
        add(out.numel() * layer.weight[0].numel())

    def attention(layer: Any, given: tuple[Tensor, ...], out: Tensor) -> None:
        batch, tokens = given[0].shape[:2]
        add(2 * batch * tokens**2 * layer.num_heads * layer.head_dim)  # scores, then weighted values

    hooks = []
    for layer in network.modules():
        kind: Callable[..., None] | None = None
        if isinstance(layer, nn.Linear):
            kind = linear
        elif isinstance(layer, nn.Conv2d):
            kind = convolution
        elif hasattr(layer, "num_heads") and hasattr(layer, "head_dim"):
            kind = attention
        if kind is not None:
            hooks.append(layer.register_forward_hook(kind))
    try:
        with torch.no_grad():
            network(images)
    finally:
        for hook in hooks:
            hook.remove()
    return total


def measure_trunk(
    run: Callable[[Tensor], Tensor], macs: int, images: Tensor, repeats: int = 20, side: int | None = None
) -> dict[str, Any]:
    """The trunk alone, as the loop runs it, against the matrix product of the same device and arithmetic.

    run: normalised images (n, 3, S, S) -> tokens; macs: multiply-accumulates of one image.
    """
    device, dtype, views = images.device, images.dtype, len(images)
    with torch.no_grad():
        seconds = time_call(lambda: run(images), device, repeats=repeats)
    reached = 2 * macs * views / seconds / 1e12
    side = side or SIDES.get(device.type, 4096)
    ceiling = matmul_tflops(device, dtype, side, repeats)
    return {
        "views": views,
        "arithmetic": str(dtype).removeprefix("torch."),
        "trunk_ms": round(1e3 * seconds, 3),
        "gmac_per_view": round(macs / 1e9, 3),
        "trunk_tflops": round(reached, 3),
        "matmul_tflops": round(ceiling, 3),
        "matmul_side": side,
        "share": round(reached / ceiling, 3),
    }
