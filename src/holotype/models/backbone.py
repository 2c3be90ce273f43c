"""From a name to a network: any vision transformer of timm, split into a frozen trunk and a trained tail.

The weights come from the package itself ("embedded"), from a local safetensors file, or from the
Hugging Face hub by timm's name (networks.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holotype.errors import InputError
from holotype.models.networks import blank, check_name, from_hub, outline_of
from holotype.models.tails import check_blocks, split
from holotype.models.whole_tail import Model

CAVEAT = (
    "This backbone was made for the project by distilling an ImageNet-supervised teacher (EfficientNet-Lite2)"
    " on 121 k images, which include all CUB images, train and test, without their labels: scores made with "
    "it are comparable with each other, not with published DINO tables."
)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

RGB = tuple[float, float, float]


@dataclass
class BackboneConfig:
    """Which network gives the features, and how much of it learns."""

    name: str = "embedded"
    """Backbone: "embedded" (ships with the package), timm's name of a vision transformer (fetched from the
    Hugging Face hub, for example vit_base_patch16_224.dino), or the path of a .safetensors file."""
    arch: str | None = None
    """timm's name of the network in a local file; needed unless the file's metadata says it (key `timm`)."""
    image_size: int | None = None
    """Side of the square input in pixels; by default the one the weights were made for. Small DINOv2 and
    DINOv3 runs usually want 224."""
    train_blocks: int = 1
    """How many of the last blocks learn; the rest stays frozen. Papers use 1 or 2."""


@dataclass
class Backbone:
    """trunk(normalised images (B, 3, S, S)) -> tokens (B, N, D), tail(tokens) -> (B, dim)."""

    trunk: nn.Module
    tail: nn.Module
    dim: int
    image_size: int
    mean: RGB
    std: RGB
    name: str
    digest: str
    """sha256 of the weights' file; for weights from the hub, of the values in the order of their names."""
    caveat: str
    """What a reader of scores must know about this network; empty for public backbones."""


@dataclass(frozen=True)
class _Origin:
    """Where weights come from and what is known of them before the network is built."""

    name: str
    arch: str
    file: Path | None = None
    image_size: int | None = None
    mean: RGB | None = None
    std: RGB | None = None
    digest: str = ""
    caveat: str = ""


@dataclass(frozen=True)
class _Made:
    """A network made for the project, known by its file's stem or content."""

    arch: str
    image_size: int
    digest: str


MADE = {
    "vit_tiny_patch16_128": _Made(
        "vit_tiny_patch16_224", 128, "3b54bfcb1e28e11cf68e86ad7f7ac5b75676237282d9eac2be8713e9201a683d"
    ),
    "vit_small_patch14_224": _Made(
        "vit_small_patch14_dinov2", 224, "f9f413eaeff4c5dddb518a8e20e54e38fd5bc608af9e6f26c8efea5d54291f43"
    ),
}


def caveat_of(digest: str) -> str:
    """What a reader of scores made with these weights must know; "" for networks that others made."""
    return CAVEAT if any(digest == made.digest for made in MADE.values()) else ""


EMBEDDED = Path(__file__).parent / "weights" / "vit_tiny_patch16_128.safetensors"


def load_backbone(config: BackboneConfig, *, fetch: bool = True) -> Backbone:
    """Build the network that `config` names, with its weights, in float32 on the CPU.

    fetch: without it, weights of the hub are left out, so that the network has the shape and the speed alone.
    """
    origin = _origin(config)
    outline = outline_of(origin.arch)
    size = _image_size(config.image_size, origin.image_size, outline, origin.arch)
    check_blocks(config.train_blocks, len(outline.blocks), origin.arch)
    # timm draws initial weights that are overwritten at once: the caller's generator is not to notice.
    with torch.random.fork_rng(devices=[]):
        if origin.file is not None:
            model = _from_file(origin, origin.file, size)
        else:
            model = from_hub(origin.arch, size) if fetch else blank(origin.arch, img_size=size)
    digest = origin.digest or state_digest(model.state_dict())
    dim = int(model.num_features)
    trunk, tail = split(model, config.train_blocks)
    mean = origin.mean or _rgb(outline.pretrained_cfg["mean"])
    std = origin.std or _rgb(outline.pretrained_cfg["std"])
    return Backbone(trunk, tail, dim, size, mean, std, origin.name, digest, origin.caveat)


def _origin(config: BackboneConfig) -> _Origin:
    """Find out what `config.name` means: the embedded file, a local file, or a name for the hub."""
    name = config.name
    path = EMBEDDED if name == "embedded" else Path(name).expanduser()
    if path.suffix == ".safetensors" or path.is_file():
        return _file_origin(path, config.arch, "embedded" if name == "embedded" else path.stem)
    if "/" in name or "\\" in name or path.is_dir() or path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        raise InputError(f"There is no backbone file {name}: give the path of an existing .safetensors file.")
    check_name(name, with_weights=True)
    return _Origin(name, name)


def _file_origin(path: Path, arch: str | None, name: str) -> _Origin:
    """What a safetensors file says about itself: its metadata, else its known stem or content."""
    said, digest = _metadata(path)
    made = MADE.get(path.stem) or next((m for m in MADE.values() if m.digest == digest), None)
    arch = arch or said.get("timm") or (made.arch if made else None)
    if arch is None:
        raise InputError(
            f"The backbone file {path} does not say which network it holds: set arch to timm's name of it, "
            "for example vit_base_patch16_224."
        )
    check_name(arch, with_weights=False)
    try:
        size = int(said["image_size"]) if "image_size" in said else None
        mean, std = (_rgb(said[k].strip("[]() ").split(",")) if k in said else None for k in ("mean", "std"))
    except ValueError as error:
        raise InputError(
            f"The metadata of {path} (image_size, mean, std) cannot be read: {error}."
        ) from error
    if made is None:
        return _Origin(name, arch, path, size, mean, std, digest)
    size, mean, std = size or made.image_size, mean or IMAGENET_MEAN, std or IMAGENET_STD
    return _Origin(name, arch, path, size, mean, std, digest, CAVEAT)


def _metadata(path: Path) -> tuple[dict[str, str], str]:
    """The metadata of a safetensors file, and the sha256 of its content."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"There is no backbone file {path}: check the path.")
    try:
        with safe_open(path, framework="pt") as weights:
            said = weights.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"The backbone file {path} is not a whole safetensors file ({error}): if it was copied or downloaded, "
            "delete it and fetch it again; convert other checkpoints with safetensors.torch.save_file, since nothing "
            "here unpickles."
        ) from error
    with path.open("rb") as stream:
        return said, hashlib.file_digest(stream, "sha256").hexdigest()


def _image_size(wanted: int | None, native: int | None, outline: Model, arch: str) -> int:
    _, height, width = outline.pretrained_cfg["input_size"]
    if wanted is None and native is None and height != width:
        raise InputError(f"{arch} was made for {height} x {width} pixels, not for squares: set image_size.")
    size = wanted if wanted is not None else native or height
    patch = int(outline.patch_embed.feat_ratio())
    if size < patch or size % patch:
        near = max(patch, round(size / patch) * patch)
        raise InputError(f"An image_size of {size} is no multiple of {arch}'s patch of {patch}: use {near}.")
    return size


def _from_file(origin: _Origin, path: Path, size: int) -> Model:
    """Build `origin.arch` and load `path` into it: every key must fit, and half precision becomes float32."""
    from safetensors.torch import load_file

    model = blank(origin.arch, img_size=size)
    state = {k: v.float() if v.is_floating_point() else v for k, v in load_file(path).items()}
    try:
        state = _filter(model)(state, model)  # resamples positions for another image size
    except (KeyError, RuntimeError) as error:
        raise InputError(f"The weights in {path} do not fit {origin.arch} ({error}): check arch.") from error
    state = {k: v for k, v in state.items() if not k.startswith("head.")}  # a classifier we do not use
    own = model.state_dict()
    wrong = {
        "missing": [k for k in own if k not in state],
        "unexpected": [k for k in state if k not in own],
        "of another shape": [k for k in own if k in state and own[k].shape != state[k].shape],
    }
    if any(wrong.values()):
        told = "; ".join(f"{len(keys)} {what}: {', '.join(keys[:3])}" for what, keys in wrong.items() if keys)
        raise InputError(
            f"The weights in {path} do not fit {origin.arch} ({told}): check arch and image_size."
        )
    model.load_state_dict(state)
    return model


def _filter(model: Model) -> Callable[..., dict[str, Tensor]]:
    """timm's own translation of published checkpoints into its names."""
    from timm.models import eva, vision_transformer

    if isinstance(model, eva.Eva):
        return eva.checkpoint_filter_fn
    return partial(vision_transformer.checkpoint_filter_fn, adapt_layer_scale=True)


def state_digest(state: Mapping[str, Tensor]) -> str:
    """sha256 of the values in the order of their names, wherever they lie."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _rgb(values: Any) -> RGB:
    red, green, blue = (float(v) for v in values)
    return red, green, blue
