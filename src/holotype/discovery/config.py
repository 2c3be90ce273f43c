"""`DiscoverConfig`: the settings of a discovery, and what is wrong with them. The flags of `holotype discover`, the
parameters of `Discoverer` and the arguments of `discover` are its fields."""

from __future__ import annotations

import dataclasses
import difflib
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from holotype.errors import InputError
from holotype.machine.rules import LARGEST_SIDE, MOST_FEW, MOST_STEPS, Count, Few, Seed, Side, Steps
from holotype.models.config import POOLS, RGB, as_rgb

if TYPE_CHECKING:
    from holotype.models.config import BackboneConfig

COUNTS = {"steps": MOST_STEPS, "sample": None, "image_size": LARGEST_SIDE}
"""Settings that are numbers of something, or None, and the largest that each may be."""
TEXTS = ("backbone", "device")
AUTO, NO = "auto", "no"
"""Of `bursts`."""
ANSWERS = ("auto", "yes", "no")
OF_NETWORK = ("arch", "image_size", "pool", "mean", "std")
"""Settings of the backbone beside its name, which the models call the same."""


@dataclass(frozen=True)
class DiscoverConfig:
    """Settings of a discovery; a value that cannot be is an InputError."""

    k: Count | Literal["auto"] = "auto"
    """Number of categories, known and new together; auto estimates it."""
    method: str | None = None
    """Method that finds the categories: a name from `holotype methods`, or one of your own as package.module:Class.
    Several names with commas between them: where there are several trainings, they take turns. By default rpc,uno on a
    CPU and rpc on a GPU."""
    backbone: str = "auto"
    """The network: auto takes the best available one; or embedded, timm's name, hf-hub:ORGANISATION/REPOSITORY, or a
    .safetensors file."""
    arch: str | None = None
    """timm's name of the network in a .safetensors file."""
    image_size: Side | None = None
    """Side of the backbone's input in pixels."""
    pool: str = "auto"
    """What to use as the feature: token (CLS), mean (of the patches), or auto: as the makers of the weights do."""
    mean: RGB | None = None
    """Mean of red, green and blue that a .safetensors file expects, for example 0.485,0.456,0.406."""
    std: RGB | None = None
    """Standard deviation of the same, for example 0.229,0.224,0.225."""
    steps: Steps | None = None
    """Training steps; by default 1,000 on a CPU and 6,000 on a GPU."""
    sample: Count | None = None
    """Most images to train on, by default 5,000 on a CPU and 200,000 on a GPU; the rest is placed afterwards."""
    long_tail: Literal["auto", "yes", "no"] | bool = "auto"
    """Expect categories of very different sizes: yes, no, or auto, which decides by the labelled classes."""
    bursts: str = AUTO
    """Count similar frames of one camera, taken within seconds, as one image: auto allows 10 seconds, a number sets
    the seconds, no counts every image. A column group in the list of labels overrides this."""
    seed: Seed = 0
    """Seed of everything random."""
    seeds: Few | Literal["auto"] = "auto"
    """Number of trainings with different seeds, which vote on the images; auto: by the kind of device and the number of
    images (5 for hundreds of images on a CPU)."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda or mps."""

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        if self.k != "auto":
            set_field(self, "k", whole("k", self.k, "neither auto nor a number of categories"))
        for name, most in COUNTS.items():
            if getattr(self, name) is not None:
                told = "not a number of at least 1" + (f" and at most {most:,}" if most else "")
                set_field(self, name, whole(name, getattr(self, name), told, most=most))
        told = "not a whole number of at least 0 and below 2**63"
        set_field(self, "seed", whole("seed", self.seed, told, least=0, most=2**63 - 1))
        if self.seeds != "auto":
            told = f"neither auto nor a number of trainings, at most {MOST_FEW}"
            set_field(self, "seeds", whole("seeds", self.seeds, told, most=MOST_FEW))
        if self.method is not None:
            set_field(self, "method", names("method", self.method))
        for name in TEXTS:
            set_field(self, name, text(name, getattr(self, name)))
        if self.arch is not None:
            set_field(self, "arch", text("arch", self.arch))
        set_field(self, "bursts", bursts(self.bursts))
        set_field(self, "long_tail", answer("long_tail", self.long_tail))
        if self.pool not in POOLS:
            raise InputError(f"pool is {self.pool!r}, which is not {', '.join(POOLS)}; give one of these.")
        for name in ("mean", "std"):
            if getattr(self, name) is not None:
                set_field(self, name, as_rgb(name, getattr(self, name)))

    @property
    def network(self) -> BackboneConfig:
        """The backbone as the models take it."""
        from holotype.models.config import BackboneConfig

        return BackboneConfig(self.backbone, **{name: getattr(self, name) for name in OF_NETWORK})

    def with_network(self, network: BackboneConfig) -> DiscoverConfig:
        """The same settings with the backbone that was taken."""
        taken = {name: getattr(network, name) for name in OF_NETWORK}
        return dataclasses.replace(self, backbone=network.name, **taken)


def by_name(settings: Mapping[str, Any]) -> DiscoverConfig:
    """The settings that were given by their names; one that there is not is told, with the nearest that there is."""
    names = [one.name for one in dataclasses.fields(DiscoverConfig)]
    for name in settings:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}."
            raise InputError(f"discover does not take the setting {name!r}; {hint}")
    return DiscoverConfig(**settings)


def whole(name: str, value: Any, complaint: str, least: int = 1, most: int | None = None) -> int:
    """The whole number that was given, as a number or as text; 2.5, True and `many` are told."""
    try:
        if isinstance(value, str):
            number = int(value) if value.isascii() and value.isdigit() else least - 1
        else:
            number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or (most is not None and number > most):
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


def names(name: str, value: Any) -> str:
    """Names with commas between them, and no spaces."""
    found = [one.strip() for one in text(name, value).split(",")]
    if not all(found):
        raise InputError(
            f"{name} is {value!r}, which lacks a name beside a comma; give names, as in rpc,uno."
        )
    return ",".join(found)


def bursts(value: Any) -> str:
    """auto, no, or a positive number of seconds as text."""
    given = str(value).strip().lower() if not isinstance(value, bool) else ""
    if given in (AUTO, NO):
        return given
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError(f"bursts is {value!r}, which is neither auto, no nor a number of seconds; give one.")
    return f"{seconds:g}"
