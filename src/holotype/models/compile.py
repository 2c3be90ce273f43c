"""Compile the frozen trunk for a GPU.

The blocks of a transformer differ in their weights alone, so compiling them one by one costs the time of
one (seconds instead of a minute). Of what comes before them, a convolution whose windows do not overlap is a
matrix product on the patches, which is ten times faster that way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holotype.data.augment import normalise

log = logging.getLogger("holotype")


class CompiledBlocks:
    """The blocks of a trunk, compiled where they are; where that fails they run as they are, and a line says so."""

    def __init__(self, trunk: Any) -> None:
        self.trunk, self.proven, self.undone = trunk, False, False
        for block in getattr(trunk, "blocks", ()):
            if block._compiled_call_impl is None:  # runs of a sweep share a trunk
                block.compile(dynamic=False)

    def run(self, function: Callable[..., Tensor], *given: Any) -> Tensor:
        """function(*given), which calls some of the blocks."""
        if self.proven:
            return function(*given)
        try:
            found = function(*given)
        except Exception as error:  # compilers fail in many ways: no C compiler, no Triton, ...
            self.undo()
            found = function(*given)  # an error that is not the compiler's shows itself here
            reason = f"{type(error).__name__}: {str(error).strip().split(chr(10))[0]}"
            log.warning("The trunk could not be compiled (%s); it runs uncompiled, which is slower.", reason)
        self.proven = True
        return found

    def undo(self) -> None:
        self.undone = True
        for block in getattr(self.trunk, "blocks", ()):
            block._compiled_call_impl = None  # what nn.Module.compile sets


class CompiledTrunk(nn.Module):
    """Images (n, 3, S, S) uint8 -> tokens (n, N, D), compiled for one n, without gradient."""

    def __init__(self, trunk: Any, mean: Tensor, std: Tensor, dtype: torch.dtype) -> None:
        super().__init__()
        self.trunk, self.mean, self.std, self.dtype = trunk, mean, std, dtype
        self.normalise = torch.compile(normalise, dynamic=False)
        if is_patch_convolution(getattr(trunk.patch_embed, "proj", None)):
            trunk.patch_embed.proj = PatchProduct(trunk.patch_embed.proj)
        self.blocks = CompiledBlocks(trunk)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        return self.blocks.run(self._run, images)

    def _run(self, images: Tensor) -> Tensor:
        scale = normalise if self.blocks.undone else self.normalise
        tokens: Tensor = self.trunk(scale(images, self.mean, self.std, self.dtype))
        return tokens


class PatchProduct(nn.Module):
    """A convolution whose stride is its window, as a matrix product. (n, 3, S, S) -> (n, D, S/p, S/p)."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = convolution.weight, convolution.bias  # under the same names
        self.side = convolution.stride

    def forward(self, images: Tensor) -> Tensor:
        height, width = (int(side) for side in self.side)
        patches = images.unflatten(3, (-1, width)).unflatten(2, (-1, height))  # (n, 3, h, p, w, p)
        patches = patches.permute(0, 2, 4, 1, 3, 5).flatten(3)
        return F.linear(patches, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


def is_patch_convolution(module: nn.Module | None) -> bool:
    return (
        type(module) is nn.Conv2d
        and module.stride == module.kernel_size
        and module.padding == (0, 0)
        and module.dilation == (1, 1)
        and module.groups == 1
    )
