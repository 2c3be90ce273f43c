"""Dataclasses of settings: BackboneConfig, TrainConfig and DiscoverConfig."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from holotype.config.parse import (
    Bursts,
    CastError,
    Count,
    DeviceName,
    Epochs,
    LabelShare,
    Momentum,
    Name,
    Names,
    Natural,
    Positive,
    Seed,
    Side,
    SmallInt,
    SplitSeed,
    Steps,
    UnitInterval,
    Weight,
    cast,
)
from holotype.errors import InputError

RGB = tuple[float, float, float]
"""Of red, green and blue."""
Pool = Literal["auto", "token", "mean"]
POOLS = get_args(Pool)

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


def resolved_backbone(config: BackboneConfig) -> BackboneConfig:
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


def requested_backbone(config: BackboneConfig) -> tuple[RGB | None, RGB | None]:
    """Mean and std as somebody gave them, checked."""
    if (config.mean is None) != (config.std is None):
        there, lacks = ("mean", "std") if config.std is None else ("std", "mean")
        raise InputError(f"{there} is given without {lacks}; give both, or neither.")
    return tuple(  # type: ignore[return-value]
        None if value is None else as_rgb(name, value)
        for name, value in (("mean", config.mean), ("std", config.std))
    )


def published_pool(arch: str) -> Literal["token"] | None:
    """What the makers of a network take as its feature, where timm takes something else."""
    return "token" if "dinov3" in arch.partition(".")[0] else None


VECTOR_PREFIX = "vectors-"
"""Begins the name of a backbone that is none: vectors-384 stands for vectors of 384 numbers."""


def vector_config(dim: int) -> BackboneConfig:
    """Return how a run names vectors of `dim` numbers in the place of its network."""
    return BackboneConfig(f"{VECTOR_PREFIX}{dim}")


def vector_dim(name: str) -> int | None:
    """Return how long the vectors are that a name of `vector_config` means; None for a network."""
    found = re.fullmatch(rf"{VECTOR_PREFIX}([1-9][0-9]*)", name)
    return int(found[1]) if found else None


AUTO, NO = "auto", "no"
"""Of `bursts`."""
BACKBONE_FIELDS = ("arch", "image_size", "pool", "mean", "std")
"""Settings of the backbone beside its name, which the models call the same."""


@dataclass(frozen=True)
class DiscoverConfig:
    """Settings of a discovery; a value that cannot be is an InputError."""

    k: Count | Literal["auto"] = "auto"
    """Number of categories, known and new together; auto estimates it."""
    method: Names | None = None
    """Method that finds the categories: a name from `holotype methods`, or one of your own as package.module:Class.
    Several names with commas between them: where there are several trainings, they take turns. By default rpc,uno."""
    backbone: Name = "auto"
    """The network: auto takes the best available one; or embedded, timm's name, hf-hub:ORGANISATION/REPOSITORY, or a
    .safetensors file."""
    arch: Name | None = None
    """timm's name of the network in a .safetensors file."""
    image_size: Side | None = None
    """Side of the backbone's input in pixels."""
    pool: Pool = "auto"
    """What to use as the feature: token (CLS), mean (of the patches), or auto: as the makers of the weights do."""
    mean: RGB | None = None
    """Mean of red, green and blue that a .safetensors file expects, for example 0.485,0.456,0.406."""
    std: RGB | None = None
    """Standard deviation of the same, for example 0.229,0.224,0.225."""
    effort: Literal["quick", "normal", "best"] = "normal"
    """How much time to spend: quick is for a first look, best trains longer and more often."""
    steps: Steps | None = field(default=None, metadata={"hidden": True})
    """Training steps of each training; by default as effort says."""
    sample: Count | None = None
    """Most images to train on, by default 5,000 on a CPU and 200,000 on a GPU; the rest is placed afterwards."""
    bursts: Bursts = AUTO
    """Count similar frames of one camera, taken within seconds, as one image: auto allows 10 seconds, a number sets
    the seconds, no counts every image. A column group in the list of labels overrides this."""
    seed: Seed = 0
    """Seed of everything random."""
    seeds: SmallInt | Literal["auto"] = field(default="auto", metadata={"hidden": True})
    """Number of trainings with different seeds, which vote on the images; auto: as effort says."""
    device: DeviceName = "auto"
    """Where to compute."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), include_extras=True)
        for name, value in _normalised(vars(self)).items():
            try:
                object.__setattr__(self, name, cast(value, hints[name]))
            except CastError as error:
                raise InputError(f"{name} must be {error}, not {value!r}.") from error

    @property
    def network(self) -> BackboneConfig:
        """The backbone as the models take it."""
        return BackboneConfig(self.backbone, **{name: getattr(self, name) for name in BACKBONE_FIELDS})

    def with_network(self, network: BackboneConfig) -> DiscoverConfig:
        """The same settings with the backbone that was taken."""
        taken = {name: getattr(network, name) for name in BACKBONE_FIELDS}
        return dataclasses.replace(self, backbone=network.name, **taken)


def parse_by_name(settings: Mapping[str, Any]) -> DiscoverConfig:
    """The settings that were given by their names; one that there is not is told, with the nearest that there is."""
    names = [one.name for one in dataclasses.fields(DiscoverConfig)]
    for name in settings:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}."
            raise InputError(f"discover does not take the setting {name!r}; {hint}")
    return DiscoverConfig(**settings)


def _normalised(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Spell settings that may be written in several ways in one."""
    found = dict(settings)
    if isinstance(found["method"], str):
        found["method"] = ",".join(name.strip() for name in found["method"].split(","))
    if isinstance(found["bursts"], int | float) and not isinstance(found["bursts"], bool):
        found["bursts"] = str(found["bursts"])
    if isinstance(found["bursts"], str):
        bursts = found["bursts"].strip().lower()
        with contextlib.suppress(ValueError):
            bursts = f"{float(bursts):g}"
        found["bursts"] = bursts
    for name in ("mean", "std"):
        if found[name] is not None:
            found[name] = as_rgb(name, found[name])
    return found


@dataclass
class ProtocolConfig:
    """Which images are labelled, and which are scored; the defaults are the GCD protocol."""

    label_share: LabelShare = field(default=0.5, metadata={"before": 0.5})
    """Share of the images of known classes that are labelled."""
    split_seed: SplitSeed = field(default=0, metadata={"before": 0})
    """Seed of the draw of labelled images, and of test images; training has its own."""
    stratified: bool = field(default=False, metadata={"before": False})
    """Label that share of each known class, and not of all of them together."""
    known: str | None = field(default=None, metadata={"before": None})
    """Text file with the names of the known classes, a line each; all others are novel. Default: the published split of
    a benchmark, the labelled classes of a collection of your own."""
    test_share: Momentum = field(default=0.0, metadata={"before": 0.0})
    """Share of the images of each class that training never sees, in place of the official test split."""
    inductive: bool = field(default=False, metadata={"before": False})
    """All, Old and New are of the test images, and not of the unlabelled training images."""

    @property
    def draws_labels(self) -> bool:
        """Whether images are labelled by a draw of its own, also in a collection whose labels are given."""
        usual = ProtocolConfig()
        names = ("label_share", "stratified", "known")
        return any(getattr(self, name) != getattr(usual, name) for name in names)


@dataclass
class TrainConfig:
    """How training runs; the defaults are those of SimGCD's released code, with a warm-up before them."""

    epochs: Epochs = 200
    """Epochs of a stage that does not set its own; an epoch is as many draws as there are images."""
    batch_size: Count = 128
    """Images per step over all processes together."""
    lr: Positive = 0.1
    """Learning rate of the first epoch; it falls to a thousandth along a cosine."""
    warmup: UnitInterval = field(default=0.05, metadata={"before": 0.0})
    """Share of the epochs in which the rate rises linearly to the cosine; 0 for none, as SimGCD's code has it. A stage
    that brings a pace of its own has none of it."""
    block_rate: UnitInterval = field(default=1.0, metadata={"before": 1.0})
    """Rate of a trained block, as a share of that of the block after it. Below 1, earlier blocks learn more slowly: at
    the full rate they lose most easily what they know."""
    optimiser: Literal["sgd", "adamw"] = field(default="sgd", metadata={"before": "sgd"})
    """sgd, with momentum, or adamw, as for LoRA and prompts; its rate is then about 1e-3 and lower."""
    momentum: Momentum = 0.9
    """Momentum of SGD, and the first beta of AdamW."""
    weight_decay: Weight = 5e-5
    """Weight decay of matrices; biases and other one-dimensional parameters have none."""
    clip: Weight = field(default=0.0, metadata={"before": 0.0})
    """Largest norm of all gradients together, to which longer ones are cut; 0: none is."""
    shards: Natural = field(default=0, metadata={"before": 0})
    """With several processes and a token cache: parts into which the images are dealt, such as 8, so that each process
    holds the tokens of its own parts alone; a multiple of the number of processes, and the same batches for any of
    them. 0: each process holds all tokens."""
    precision: Literal["auto", "fp32", "bf16", "fp64"] = "auto"
    """Arithmetic of the backbone: auto is bf16 on CUDA and fp32 elsewhere; heads and losses are fp32 (see matmul)."""
    matmul: Literal["highest", "high"] = "high"
    """Matrix products of heads and losses on CUDA: high allows TF32, whose 10 bits are those of the reference
    code's half precision, and takes a tenth off a step; highest is full fp32."""
    guard: bool = field(default=True, metadata={"before": True})
    """Where the loss leaves its course, go back to the last sound epoch, once, and on with half the rate; without it
    the run goes on, and ends where a loss is no number."""
    eval_every: Count = 10
    """Score every so many epochs, and after the last."""
    save_seconds: Weight = 60.0
    """Seconds between two saved states; one is also saved at the end and when stopped with Ctrl-C."""
    eager: bool = False
    """Run every operation by itself instead of compiling the trunk and replaying the step as one CUDA graph; for
    debugging a method on a GPU."""
