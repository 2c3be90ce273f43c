"""`BackboneConfig`: which network gives the features, and what it expects of an image."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from holotype.errors import InputError
from holotype.machine.rules import Count, Side

RGB = tuple[float, float, float]
"""Of red, green and blue."""
Pool = Literal["auto", "token", "mean"]
POOLS = ("auto", "token", "mean")

IMAGENET_MEAN: RGB = (0.485, 0.456, 0.406)
IMAGENET_STD: RGB = (0.229, 0.224, 0.225)
DINOV2_NATIVE, DINOV2_SIZE = 518, 224
"""Side in pixels of the images that DINOv2 was made with, and of those that it gets here unless somebody asks: a sixth
of the work."""


@dataclass
class BackboneConfig:
    """Which network gives the features, and how much of it learns."""

    name: str = "embedded"
    """Backbone: "embedded" (ships with the package), timm's name of a vision transformer (fetched from the
    Hugging Face hub, for example vit_base_patch16_224.dino), a repository there (hf-hub:imageomics/bioclip), or the
    path of a .safetensors file."""
    arch: str | None = None
    """timm's name of the network in a local file; needed unless the file's metadata says it (key `timm`)."""
    image_size: Side | None = None
    """Side of the square input in pixels; by default the one the weights were made for, and 224 for DINOv2."""
    train_blocks: Count = 1
    """How many of the last blocks learn; the rest stays frozen. Papers use 1 or 2."""
    pool: Pool = "auto"
    """What becomes the feature: token (the CLS token), mean (of the patches), or auto: what the makers of the weights
    take. timm takes the mean for DINOv3, its makers the CLS token."""
    mean: RGB | None = None
    """Mean of red, green and blue that a local file expects, as in [0.485, 0.456, 0.406]; by default what its metadata
    or the tag of arch says."""
    std: RGB | None = None
    """Standard deviation of the same, as in [0.229, 0.224, 0.225]."""


def lasting(config: BackboneConfig) -> BackboneConfig:
    """The same network by a name that is good in every folder: files by their absolute path."""
    file = Path(config.name).expanduser()
    known = config.name in ("embedded", "auto") or not file.is_file()
    return config if known else replace(config, name=os.path.abspath(file))


def as_rgb(name: str, value: Any) -> RGB:
    """Three numbers, from a list or from text such as 0.485,0.456,0.406. name: of the setting, for the sentence."""
    try:
        parts = value.strip("[]() ").split(",") if isinstance(value, str) else list(value)
        red, green, blue = (float(part) for part in parts)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} is {value!r}, which is not three numbers; write them as 0.485,0.456,0.406."
        ) from error
    if not all(math.isfinite(one) and 0 <= one <= 1 for one in (red, green, blue)):
        raise InputError(
            f"{name} is {value!r}, but images go from 0 to 1; divide by 255 what is of 0 to 255."
        )
    if name == "std" and not min(red, green, blue) > 0:
        raise InputError(f"std is {value!r}, and nothing can be divided by 0; give three numbers above 0.")
    return red, green, blue


def asked_for(config: BackboneConfig) -> tuple[RGB | None, RGB | None]:
    """Mean and std as somebody gave them, checked."""
    if (config.mean is None) != (config.std is None):
        there, lacks = ("mean", "std") if config.std is None else ("std", "mean")
        raise InputError(f"{there} is given without {lacks}; give both, or neither.")
    return tuple(  # type: ignore[return-value]
        None if value is None else as_rgb(name, value)
        for name, value in (("mean", config.mean), ("std", config.std))
    )


def makers_pool(arch: str) -> Literal["token"] | None:
    """What the makers of a network take as its feature, where timm takes something else."""
    return "token" if "dinov3" in arch.partition(".")[0] else None
