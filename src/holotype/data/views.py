"""Weak views: random crop and mirror of the stored image, centre crop for evaluation, normalisation.

This is the reference augmentation of the field, which is crop and flip only. Positions are drawn on the
CPU from a given generator, so that a run can be repeated; the pixels are cut by `ImageStore.crop`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holotype.errors import InputError


@dataclass(frozen=True, eq=False)
class Crops:
    """Where to cut one square out of each of B images; cut first, then mirrored where `flip` holds."""

    top: Tensor
    """(B,) int64, first row of the crop."""
    left: Tensor
    """(B,) int64, first column of the crop."""
    flip: Tensor
    """(B,) bool, whether the crop is mirrored left to right."""

    def __len__(self) -> int:
        return len(self.top)

    def take(self, rows: Tensor) -> Crops:
        """The crops of `rows` (indices or a mask)."""
        return Crops(self.top[rows], self.left[rows], self.flip[rows])

    def to(self, device: torch.device | str) -> Crops:
        """The same crops on `device`, copied without waiting for it."""
        top, left, flip = (x.to(device, non_blocking=True) for x in (self.top, self.left, self.flip))
        return Crops(top, left, flip)


def draw_crops(height: Tensor, width: Tensor, size: int, generator: torch.Generator) -> Crops:
    """Uniform random crops with a mirror at probability 1/2.

    height, width: (B,) int64 on the CPU, the stored images' sides, both at least `size`.
    An image may stand in several rows, one per view. top is uniform over the integers 0..height-size, left
    over 0..width-size, both ends included.
    """
    _check_fit(height, width, size)
    # In float64 the product stays below its integer bound, so the floor never leaves the range.
    u = torch.rand(3, len(height), dtype=torch.float64, generator=generator)
    top = (u[0] * (height - size + 1)).floor().long()
    left = (u[1] * (width - size + 1)).floor().long()
    return Crops(top, left, u[2] < 0.5)


def centre_crops(height: Tensor, width: Tensor, size: int) -> Crops:
    """The evaluation crop of each image; offsets of half a pixel round to the even side.

    height, width: (B,) int64 on the CPU.
    """
    _check_fit(height, width, size)
    top = ((height - size).double() / 2).round().long()
    left = ((width - size).double() / 2).round().long()
    return Crops(top, left, torch.zeros(len(height), dtype=torch.bool))


def normalise(
    images: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor, dtype: torch.dtype
) -> Tensor:
    """(images / 255 - mean) / std, per channel.

    images: (..., 3, H, W) uint8. Computed in float32 (in float64 if that is asked for), then cast to `dtype`.
    mean, std: three numbers each; tensors that already lie on the images' device save a copy per call.
    """
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    shift, scale = (
        torch.as_tensor(x, dtype=exact).to(images.device, non_blocking=True).view(3, 1, 1)
        for x in (mean, std)
    )
    return images.to(exact).div_(255).sub_(shift).div_(scale).to(dtype)


def _check_fit(height: Tensor, width: Tensor, size: int) -> None:
    """Raise if a crop of `size` fits nowhere in some image."""
    short = torch.minimum(height, width) < size
    if bool(short.any()):
        row = int(short.nonzero()[0, 0])
        raise InputError(
            f"A crop of {size} x {size} does not fit image {row} of the batch, which is stored as "
            f"{int(height[row])} x {int(width[row])}; leave out images with a problem before cropping."
        )
