"""From a name to a network: any vision transformer of timm, split into a frozen trunk and a trained tail.

The weights come from the package itself ("embedded"), from a local safetensors file, or from the
Hugging Face hub by timm's name. timm is imported inside the functions: it takes seconds.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from holotype.errors import InputError
from holotype.machine.imports import importing
from holotype.models.tails import Model, check_blocks, split

CAVEAT = (
    "This backbone was made for the project by distilling an ImageNet-supervised teacher (EfficientNet-Lite2)"
    " on 121 k images, which include all CUB images, train and test, without their labels: scores made with "
    "it are comparable with each other, not with published DINO tables."
)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

HUB_CLIENTS = ("huggingface_hub", "httpx", "httpx2", "requests", "urllib3")

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
EMBEDDED = Path(__file__).parent / "weights" / "vit_tiny_patch16_128.safetensors"


def load_backbone(config: BackboneConfig) -> Backbone:
    """Build the network that `config` names, with its weights, in float32 on the CPU."""
    origin = _origin(config)
    outline = _outline(origin.arch)
    size = _image_size(config.image_size, origin.image_size, outline, origin.arch)
    check_blocks(config.train_blocks, len(outline.blocks), origin.arch)
    # timm draws initial weights that are overwritten at once: the caller's generator is not to notice.
    with torch.random.fork_rng(devices=[]):
        model = _from_hub(origin, size) if origin.file is None else _from_file(origin, origin.file, size)
    digest = origin.digest or state_digest(model.state_dict())
    dim = int(model.num_features)
    trunk, tail = split(model, config.train_blocks)
    mean = origin.mean or _rgb(outline.pretrained_cfg["mean"])
    std = origin.std or _rgb(outline.pretrained_cfg["std"])
    return Backbone(trunk, tail, dim, size, mean, std, origin.name, digest, origin.caveat)


def _timm() -> ModuleType:
    with importing():
        from holotype.machine import torchvision_cure as _torchvision

        _torchvision.cure()  # timm imports torchvision
        import timm

    return timm


def _origin(config: BackboneConfig) -> _Origin:
    """Find out what `config.name` means: the embedded file, a local file, or a name for the hub."""
    name = config.name
    path = EMBEDDED if name == "embedded" else Path(name).expanduser()
    if path.suffix == ".safetensors" or path.is_file():
        return _file_origin(path, config.arch, "embedded" if name == "embedded" else path.stem)
    if "/" in name or "\\" in name or path.is_dir() or path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        raise InputError(f"There is no backbone file {name}: give the path of an existing .safetensors file.")
    _check_name(name, with_weights=True)
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
    _check_name(arch, with_weights=False)
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
    except SafetensorError as error:
        raise InputError(
            f"The backbone file {path} is not a safetensors file ({error}): convert other checkpoints with "
            "safetensors.torch.save_file, since nothing here unpickles."
        ) from error
    with path.open("rb") as stream:
        return said, hashlib.file_digest(stream, "sha256").hexdigest()


def _check_name(name: str, *, with_weights: bool) -> None:
    """Refuse names that timm does not know (or has no weights for), with the nearest ones it does."""
    timm = _timm()
    tag_known = "." not in name or name in timm.list_pretrained() or not with_weights
    if timm.is_model(name) and tag_known:
        if with_weights and not timm.is_model_pretrained(name):
            raise InputError(
                f"timm has no weights for {name}: give the path of a .safetensors file with arch {name}."
            )
        return
    usable = timm.list_models(["vit_*", "eva*", "deit3_*"]) + timm.list_pretrained(
        ["vit_*", "eva*", "deit3_*"]
    )
    near = difflib.get_close_matches(name, usable, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "timm.list_pretrained() lists those it knows."
    raise InputError(f'timm knows no network "{name}": {hint}')


def _outline(arch: str) -> Model:
    """The network without storage: what it is, before anything is downloaded."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        model = _blank(arch)
    from timm.models.eva import Eva
    from timm.models.vision_transformer import VisionTransformer

    kinds: tuple[type[nn.Module], ...] = (VisionTransformer, Eva)
    same = ("forward_features", "forward_head", "pool")
    if not any(all(getattr(type(model), f, None) is getattr(kind, f) for f in same) for kind in kinds):
        raise InputError(
            f"{arch} is a {type(model).__name__}, not a plain vision transformer, so it has no last blocks "
            "to train on their own: choose a ViT of timm (DINO, DINOv2, DINOv3, CLIP, SigLIP, MAE, EVA)."
        )
    return model


def _blank(arch: str, **settings: object) -> Model:
    """The network before its weights, which are not drawn where it can do without."""
    timm = _timm()
    try:
        return timm.create_model(arch, pretrained=False, num_classes=0, weight_init="skip", **settings)
    except TypeError:  # not every class of networks has that setting
        return timm.create_model(arch, pretrained=False, num_classes=0, **settings)


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


def _from_hub(origin: _Origin, size: int) -> Model:
    """Fetch weights by timm's name; a hub out of reach becomes advice."""
    timm = _timm()
    try:
        return timm.create_model(origin.arch, pretrained=True, num_classes=0, img_size=size)
    except Exception as error:
        # The hub's client changes its HTTP library between versions, and not all their errors are OSErrors.
        package = type(error).__module__.partition(".")[0]
        if not isinstance(error, OSError) and package not in HUB_CLIENTS:
            raise
        repository = timm.get_pretrained_cfg(origin.arch).hf_hub_id or f"timm/{origin.arch}"
        raise InputError(
            f"The weights of {origin.arch} could not be fetched from the Hugging Face hub "
            f"({type(error).__name__}): download model.safetensors of {repository} where there is a network "
            f"and give its path as the backbone with arch {origin.arch}, or use the embedded backbone."
        ) from error


def _from_file(origin: _Origin, path: Path, size: int) -> Model:
    """Build `origin.arch` and load `path` into it: every key must fit, and half precision becomes float32."""
    from safetensors.torch import load_file

    model = _blank(origin.arch, img_size=size)
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
