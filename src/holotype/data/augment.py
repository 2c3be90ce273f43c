"""Augmentation: random crops and flips (weak views), RandAugment and Cutout (strong views).

What is done to each image is drawn first, into a `Recipe` of CPU tensors, and can be replayed. Rows are
grouped by operation on the host, so nothing waits for the device. Every operation works on uint8 and
rounds as Pillow does, the geometric ones with nearest-neighbour sampling in Pillow's own 16.16 fixed-point
arithmetic; the results are equal to Pillow's bit for bit and do not depend on the device.

This is the reference augmentation of the field, which is crop and flip only. Positions are drawn on the
CPU from a given generator, so that a run can be repeated; the pixels are cut by `ImageStore.crop`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from holotype.errors import InputError

GREY = 127
"""Fills what a geometric operation uncovers, and the Cutout square."""
LEVELS = 10
"""Magnitudes are drawn from 1/LEVELS, 2/LEVELS, ... 1 (FixMatch's m)."""
N_OPS = 2
"""Operations of an image."""
PROBABILITY = 0.5
"""Each drawn operation is carried out with this probability."""

OpDraw = Literal["batch", "group", "none"]


@dataclass(frozen=True, eq=False)
class Recipe:
    """What to do to each of B images: `N_OPS` operations in order, then Cutout. All tensors on the CPU."""

    op: Tensor
    """(B, N_OPS) int64, index into OPERATIONS."""
    magnitude: Tensor
    """(B, N_OPS) float64 in [0, 1]."""
    sign: Tensor
    """(B, N_OPS) int64, -1 or 1: direction of rotation, shear and translation."""
    apply: Tensor
    """(B, N_OPS) bool, whether the operation is carried out."""
    cutout: Tensor
    """(B, 2) float64 in [0, 1): centre of the grey square as a share of height and of width."""

    def __len__(self) -> int:
        return len(self.op)

    def take(self, rows: Tensor) -> Recipe:
        """Return the recipe of `rows` (indices or a mask, on the CPU)."""
        return Recipe(*(getattr(self, field.name)[rows] for field in fields(self)))


def draw_recipe(
    n: int, generator: torch.Generator, *, share: OpDraw = "batch", group: Tensor | None = None
) -> Recipe:
    """Draw a recipe for n images.

    share: "batch" gives all rows the same recipe, "group" gives it to the rows with the same id in `group`
    ((n,) int64 on the CPU), "none" draws every row independently. Cutout's place is shared like the rest.
    """
    if (group is not None) != (share == "group") or (group is not None and len(group) != n):
        raise InputError(f"share={share!r}: one group id for each image belongs to share='group' alone.")
    if share == "batch":
        source, count = torch.zeros(n, dtype=torch.int64), 1
    elif group is not None:
        ids, source = torch.unique(group, return_inverse=True)
        count = len(ids)
    else:
        source, count = torch.arange(n), n
    shape = (count, N_OPS)
    level = torch.randint(1, LEVELS + 1, shape, generator=generator)
    drawn = Recipe(
        op=torch.randint(len(OPERATIONS), shape, generator=generator),
        magnitude=level.double() / LEVELS,
        sign=torch.randint(2, shape, generator=generator) * 2 - 1,
        apply=torch.rand(shape, generator=generator) < PROBABILITY,
        cutout=torch.rand(count, 2, dtype=torch.float64, generator=generator),
    )
    return drawn.take(source)


def apply_recipe(images: Tensor, recipe: Recipe) -> Tensor:
    """Carry out `recipe` on images, (B, 3, H, W) uint8, and return new images of the same kind."""
    if len(images) != len(recipe):
        raise InputError(f"The recipe is for {len(recipe)} images, the batch has {len(images)}.")
    op = torch.where(recipe.apply, recipe.op, IDENTITY)
    result = images.contiguous()
    for slot in range(op.shape[1]):
        result = _apply_slot(result, op[:, slot], recipe.magnitude[:, slot], recipe.sign[:, slot])
    return _cutout(result, recipe.cutout)


def _apply_slot(images: Tensor, op: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """One operation per row. op, magnitude, sign: (B,) on the CPU."""
    counts = torch.bincount(op, minlength=len(OPERATIONS)).tolist()
    present = [index for index, count in enumerate(counts) if count and index != IDENTITY]
    if not present:
        return images
    if len(present) == 1 and counts[present[0]] == len(images):
        return _OPERATIONS[present[0]](images, magnitude, sign)
    result = images.clone()
    order = torch.argsort(op, stable=True)
    rows = _dispatch(order, images)
    for index in present:
        start = sum(counts[:index])
        part = slice(start, start + counts[index])
        host = order[part]
        changed = _OPERATIONS[index](images.index_select(0, rows[part]), magnitude[host], sign[host])
        result.index_copy_(0, rows[part], changed)
    return result


def _cutout(images: Tensor, centre: Tensor) -> Tensor:
    """A grey square of half the shorter side around each centre, clipped at the borders.

    images: (B, 3, H, W) uint8; centre: (B, 2) shares of height and width, on the CPU.
    """
    height, width = images.shape[-2:]
    side = min(height, width) // 2
    sides = torch.tensor([height, width], dtype=torch.float64)
    start = _dispatch((centre * sides).floor().long() - side // 2, images)
    inside = []
    for axis, length in enumerate((height, width)):
        position = torch.arange(length, device=images.device)
        first = start[:, axis, None]
        inside.append((position >= first) & (position < first + side))
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return images.masked_fill(square, GREY)


def _dispatch(host: Tensor, like: Tensor) -> Tensor:
    """A CPU tensor on the device of `like`, without waiting for it."""
    return host.to(like.device, non_blocking=True)


# Each operation below takes images (b, 3, H, W) uint8 and, on the CPU, magnitude (b,) in [0, 1] and
# sign (b,) of -1 or 1, and returns new images. Those that have no strength ignore both.


def _auto_contrast(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Stretch each channel to 0..255."""
    # Pillow truncates a float64 product; so are the 256 table entries, on the CPU for a device without float64 (the
    # only wait here). The division is between tensors: torch makes a product of a number over a tensor.
    where = torch.device("cpu") if images.device.type == "mps" else images.device
    low, high = (side((2, 3)).to(where).double()[..., None] for side in (images.amin, images.amax))
    scale = high.new_full((), 255) / (high - low).clamp_min(1)
    level = torch.arange(256, device=where, dtype=torch.float64)
    table = (level * scale + -low * scale).clamp(0, 255)
    return _apply_lut(images, torch.where(high > low, table, level))


def _brightness(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Towards black."""
    return _blend(images.new_zeros(()), images, magnitude)


def _colour(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Towards grey."""
    return _blend(_luminance(images), images, magnitude)


def _contrast(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Towards the image's mean luminance."""
    n = images.shape[2] * images.shape[3]
    total = _luminance(images).sum((1, 2, 3), keepdim=True, dtype=torch.int64)
    return _blend((2 * total + n) // (2 * n), images, magnitude)


def _equalise(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Flatten each channel's histogram."""
    flat = images.flatten(2).long()
    one = flat.new_ones(()).expand_as(flat)
    count = flat.new_zeros(*flat.shape[:2], 256).scatter_add_(2, flat, one)
    brightest = images.amax((2, 3)).long()[..., None]
    step = (flat.shape[2] - count.gather(2, brightest)) // 255
    below = count.cumsum(2) - count
    table = ((step // 2 + below) // step.clamp_min(1)).clamp_max(255)
    level = torch.arange(256, device=images.device)
    return _apply_lut(images, torch.where(step > 0, table, level))


def _identity(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Nothing."""
    return images


def _posterise(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Keep the upper 4 to 8 bits."""
    bits = 4 + (4 * magnitude).long()
    mask = 256 - 2 ** (8 - bits)
    return images & _dispatch(mask.to(torch.uint8), images)[:, None, None, None]


def _rotate(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """By up to 30 degrees about the centre."""
    height, width = images.shape[-2:]
    angle = -math.radians(30) * magnitude * sign
    cos, sin = angle.cos(), angle.sin()
    x, y = width / 2, height / 2
    return _warp(images, cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y)


def _sharpness(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Towards a 3 x 3 smoothing (centre weight 5, neighbours 1); border pixels stay."""
    wide = images.short()
    column = wide[..., :-2, :] + wide[..., 1:-1, :] + wide[..., 2:, :]
    total = column[..., :-2] + column[..., 1:-1] + column[..., 2:] + 4 * wide[..., 1:-1, 1:-1]
    wide[..., 1:-1, 1:-1] = (2 * total + 13) // 26
    return _blend(wide, images, magnitude)


def _shear_x(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Shift each row by up to 0.3 of its distance from the top."""
    return _warp(images, 1, 0.3 * magnitude * sign, 0, 0, 1, 0)


def _shear_y(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Shift each column by up to 0.3 of its distance from the left."""
    return _warp(images, 1, 0, 0, 0.3 * magnitude * sign, 1, 0)


def _solarise(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """Invert what is not darker than a threshold in 0..256."""
    threshold = _dispatch(256 - (256 * magnitude).short(), images)[:, None, None, None]
    return torch.where(images < threshold, images, 255 - images)


def _translate_x(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """By whole pixels, up to 0.3 of the width."""
    return _warp(images, 1, 0, (0.3 * magnitude * images.shape[-1]).floor() * sign, 0, 1, 0)


def _translate_y(images: Tensor, magnitude: Tensor, sign: Tensor) -> Tensor:
    """By whole pixels, up to 0.3 of the height."""
    return _warp(images, 1, 0, 0, 0, 1, (0.3 * magnitude * images.shape[-2]).floor() * sign)


def _luminance(images: Tensor) -> Tensor:
    """(b, 1, H, W) int32, ITU-R 601 luminance in 16-bit fixed point, as Pillow converts to grey."""
    red, green, blue = images.int().split(1, dim=1)
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16


def _blend(base: Tensor, images: Tensor, magnitude: Tensor) -> Tensor:
    """base + f (images - base), truncated, with f = 0.05 + 0.9 magnitude per row, in float32 as in Pillow."""
    factor = _dispatch((0.05 + 0.9 * magnitude).float(), images)[:, None, None, None]
    base = base.float()
    return (base + factor * (images.float() - base)).to(torch.uint8)


def _apply_lut(images: Tensor, table: Tensor) -> Tensor:
    """Replace every value by its entry (truncated) in the channel's table, (b, 3, 256)."""
    return table.to(torch.uint8).to(images.device).gather(2, images.flatten(2).long()).view_as(images)


def _warp(images: Tensor, *matrix: Tensor | float) -> Tensor:
    """Nearest-neighbour affine map: output pixel (x, y) shows input (a x + b y + c, d x + e y + f).

    matrix: a, b, c, d, e, f; each a number or (b,) on the CPU. Positions are pixel centres, in 16.16 fixed
    point.
    """
    height, width = images.shape[-2:]
    one = torch.ones(len(images), dtype=torch.float64)
    a, b, c, d, e, f = (one * entry for entry in matrix)
    exact = torch.stack([a, b, c + 0.5 * (a + b), d, e, f + 0.5 * (d + e)])
    a, b, c, d, e, f = _dispatch((exact * 65536 + 0.5).floor().int(), images)[:, :, None, None]
    y = torch.arange(height, device=images.device, dtype=torch.int32)[:, None]
    x = torch.arange(width, device=images.device, dtype=torch.int32)
    column = (a * x + b * y + c) >> 16
    row = (d * x + e * y + f) >> 16
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    index = (row * width + column).where(inside, 0).long().flatten(1)[:, None, :].expand(-1, 3, -1)
    moved = images.flatten(2).gather(2, index).view_as(images)
    return moved.masked_fill(~inside[:, None], GREY)


_OPERATIONS: list[Callable[[Tensor, Tensor, Tensor], Tensor]] = [
    *(_auto_contrast, _brightness, _colour, _contrast, _equalise, _identity, _posterise, _rotate),
    *(_sharpness, _shear_x, _shear_y, _solarise, _translate_x, _translate_y),
]
OPERATIONS = tuple(operation.__name__.lstrip("_") for operation in _OPERATIONS)
"""Names of the operations, in the order of `Recipe.op`."""
IDENTITY = OPERATIONS.index("identity")


@dataclass(frozen=True, eq=False)
class CropParams:
    """Where to cut one square out of each of B images; cut first, then mirrored where `flip` holds."""

    top: Tensor
    """(B,) int64, first row of the crop."""
    left: Tensor
    """(B,) int64, first column of the crop."""
    flip: Tensor
    """(B,) bool, whether the crop is mirrored left to right."""

    def __len__(self) -> int:
        return len(self.top)

    def take(self, rows: Tensor) -> CropParams:
        """Return the crops of `rows` (indices or a mask)."""
        return CropParams(self.top[rows], self.left[rows], self.flip[rows])

    def to(self, device: torch.device | str) -> CropParams:
        """Return the same crops on `device`, copied without waiting for it."""
        return CropParams(*(x.to(device, non_blocking=True) for x in (self.top, self.left, self.flip)))


def draw_crops(height: Tensor, width: Tensor, size: int, generator: torch.Generator) -> CropParams:
    """Draw uniform random crops with a mirror at probability 1/2.

    height, width: (B,) int64 on the CPU, the stored images' sides, both at least `size`.
    An image may stand in several rows, one per view. top is uniform over the integers 0..height-size, left
    over 0..width-size, both ends included.
    """
    return crops_at(height, width, size, torch.rand(3, len(height), dtype=torch.float64, generator=generator))


def crops_at(height: Tensor, width: Tensor, size: int, u: Tensor) -> CropParams:
    """Return the crops of uniform numbers u, (3, B) float64 in [0, 1)."""
    _check_fit(height, width, size)
    # In float64 the product stays below its integer bound, so the floor never leaves the range.
    top = (u[0] * (height - size + 1)).floor().long()
    left = (u[1] * (width - size + 1)).floor().long()
    return CropParams(top, left, u[2] < 0.5)


def centre_crops(height: Tensor, width: Tensor, size: int) -> CropParams:
    """Return the evaluation crop of each image; offsets of half a pixel round to the even side.

    height, width: (B,) int64 on the CPU.
    """
    _check_fit(height, width, size)
    top = ((height - size).double() / 2).round().long()
    left = ((width - size).double() / 2).round().long()
    return CropParams(top, left, torch.zeros(len(height), dtype=torch.bool))


def normalise(
    images: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor, dtype: torch.dtype
) -> Tensor:
    """Return (images / 255 - mean) / std, per channel.

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
        raise InputError(f"A crop of {size} pixels does not fit image {row} of the batch; leave it out.")
