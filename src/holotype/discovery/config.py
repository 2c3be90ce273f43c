"""`DiscoverConfig`: the settings of a discovery, and what is wrong with them. The flags of `holotype discover`, the
parameters of `Discoverer` and the arguments of `discover` are its fields."""

from __future__ import annotations

import dataclasses
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from holotype.errors import InputError

if TYPE_CHECKING:
    from holotype.models.backbone import BackboneConfig

COUNTS = ("steps", "sample", "image_size")
"""Settings that are numbers of something, or None."""
TEXTS = ("method", "backbone", "device")
ANSWERS = ("auto", "yes", "no")


@dataclass(frozen=True)
class DiscoverConfig:
    """Settings of a discovery; a value that cannot be is an InputError."""

    k: int | Literal["auto"] = "auto"
    """Number of categories, known and new together; auto estimates it."""
    method: str = "rpc"
    """Method that finds the categories: a name from `holotype methods`, or one of your own as package.module:Class."""
    backbone: str = "auto"
    """The network: auto takes the best that can be had; embedded, timm's name, or a .safetensors file."""
    arch: str | None = None
    """timm's name of the network in a .safetensors file."""
    image_size: int | None = None
    """Side of the backbone's input in pixels."""
    steps: int | None = None
    """Training steps; by default 1,000 on a CPU and 6,000 on a GPU."""
    sample: int | None = None
    """Images to train on at most, by default 5,000 on a CPU and 200,000 on a GPU; the rest is placed afterwards."""
    long_tail: Literal["auto", "yes", "no"] | bool = "auto"
    """Expect categories of very different sizes: yes, no, or auto, which asks the sizes of the labelled classes."""
    seed: int = 0
    """Seed of everything random."""
    seeds: int | Literal["auto"] = "auto"
    """Trainings with different seeds, which place the images together; auto: several where one takes a minute or
    two."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda or mps."""

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        if self.k != "auto":
            set_field(self, "k", whole("k", self.k, "neither auto nor a number of categories"))
        for name in COUNTS:
            if getattr(self, name) is not None:
                set_field(self, name, whole(name, getattr(self, name), "not a number of at least 1"))
        set_field(self, "seed", whole("seed", self.seed, "not a whole number of at least 0", least=0))
        if self.seeds != "auto":
            set_field(self, "seeds", whole("seeds", self.seeds, "neither auto nor a number of trainings"))
        for name in TEXTS:
            set_field(self, name, text(name, getattr(self, name)))
        if self.arch is not None:
            set_field(self, "arch", text("arch", self.arch))
        set_field(self, "long_tail", answer("long_tail", self.long_tail))

    @property
    def network(self) -> BackboneConfig:
        """The backbone as the models take it."""
        from holotype.models.backbone import BackboneConfig

        return BackboneConfig(self.backbone, arch=self.arch, image_size=self.image_size)

    def with_network(self, network: BackboneConfig) -> DiscoverConfig:
        """The same settings with the backbone that was taken."""
        size = network.image_size
        return dataclasses.replace(self, backbone=network.name, arch=network.arch, image_size=size)


def whole(name: str, value: Any, complaint: str, least: int = 1) -> int:
    """The whole number that was given, as a number or as text; 2.5, True and `many` are told."""
    try:
        if isinstance(value, str):
            number = int(value) if value.isascii() and value.isdigit() else least - 1
        else:
            number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(f"{name} is {value!r}, which is {complaint}; give one.")
    return number


def answer(name: str, value: Any) -> str:
    """auto, yes or no; True and False are yes and no."""
    found = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
    if found not in ANSWERS:
        raise InputError(f"{name} is {value!r}, which is none of {', '.join(ANSWERS)}; give one of these.")
    return str(found)


def text(name: str, value: Any) -> str:
    """Paths may stand for names."""
    found = str(value) if value is not None and not isinstance(value, bool | int | float) else ""
    if not found:
        raise InputError(f"{name} is {value!r}, which is not a name; give one.")
    return found
