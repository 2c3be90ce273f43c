"""Locate backbone weights by name, and load them into a network."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holotype.config.schema import IMAGENET_MEAN, IMAGENET_STD, RGB, BackboneConfig, as_rgb
from holotype.errors import InputError
from holotype.models.convert import State, to_timm_names
from holotype.models.tail import Model
from holotype.models.zoo import (
    build_untrained,
    check_name,
    import_timm,
    licence_of,
    licence_of_files,
    normalisations,
)
from holotype.utils.text import suggest_path

CAVEAT = (
    "This backbone was made for the project by distilling an ImageNet-supervised teacher (EfficientNet-Lite2)"
    " on 121 k images, which include all CUB images, train and test, without their labels: scores made with "
    "it are comparable with each other, not with published DINO tables."
)
EMBEDDED_NAME = "mit"
"""Licence of the networks made for the project."""
EMBEDDED = Path(__file__).parent / "weights" / "vit_tiny_patch16_128.safetensors"


@dataclass(frozen=True)
class WeightsOrigin:
    """Where weights come from and what is known of them before the network is built."""

    name: str
    arch: str
    file: Path | None = None
    image_size: int | None = None
    mean: RGB | None = None
    std: RGB | None = None
    digest: str = ""
    caveat: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of timm's network, where it is not the plain one of its name."""
    own_pool: bool = False
    """Whether the weights were trained for a task with the network's own pool."""
    licence: str = ""
    """As whoever published the weights names it; "" where nobody says."""


@dataclass(frozen=True)
class TestBackbone:
    """A network made for the project, known by its file's stem or content."""

    arch: str
    image_size: int
    digest: str


TEST_BACKBONES = {
    "vit_tiny_patch16_128": TestBackbone(
        "vit_tiny_patch16_224", 128, "3b54bfcb1e28e11cf68e86ad7f7ac5b75676237282d9eac2be8713e9201a683d"
    ),
    "vit_small_patch14_224": TestBackbone(
        "vit_small_patch14_dinov2", 224, "f9f413eaeff4c5dddb518a8e20e54e38fd5bc608af9e6f26c8efea5d54291f43"
    ),
}


def backbone_caveat(digest: str) -> str:
    """What a reader of scores made with these weights must know; "" for networks that others made."""
    return CAVEAT if any(digest == made.digest for made in TEST_BACKBONES.values()) else ""


def find_origin(config: BackboneConfig) -> WeightsOrigin:
    """Find out what `config.name` means."""
    name, path = config.name, _weights_path(config.name)
    if path is not None:
        return _file_origin(path, config, "embedded" if name == "embedded" else path.stem)
    if "/" in name or "\\" in name or Path(name).suffix in (".pt", ".pth", ".bin", ".ckpt"):
        raise InputError(f"There is no backbone file {name}: give the path of an existing .safetensors file.")
    check_name(name, with_weights=True)
    return WeightsOrigin(name, name, licence=licence_of(name))


def _weights_path(name: str) -> Path | None:
    """The file that a name stands for, there or not; None for a name of timm."""
    path = EMBEDDED if name == "embedded" else Path(name).expanduser()
    if path.is_dir():
        raise InputError(f"There is no backbone file {name}: give the path of an existing .safetensors file.")
    return path if path.suffix == ".safetensors" or path.is_file() else None


def _file_origin(path: Path, config: BackboneConfig, name: str) -> WeightsOrigin:
    """What a safetensors file says about itself: its metadata, else its known stem or content."""
    said, digest = read_metadata(path), weights_digest(path)
    same = [made for made in TEST_BACKBONES.values() if made.digest == digest]
    made = TEST_BACKBONES.get(path.stem) or next(iter(same), None)
    arch = config.arch or said.get("timm") or (made.arch if made else None)
    if arch is None:
        raise InputError(
            f"The backbone file {path} does not say which network it holds: set arch to timm's name of it, "
            "with the tag of its weights, for example vit_base_patch16_224.dino."
        )
    check_name(arch, with_weights=False)
    size, mean, std = _describe_file(said, path)
    if made is not None:
        size, mean, std = size or made.image_size, mean or IMAGENET_MEAN, std or IMAGENET_STD
    licence = EMBEDDED_NAME if made else said.get("license") or said.get("licence") or licence_of_files(arch)
    own, settings = said.get("pool") == "own", {} if config.arch else _settings(said, path)
    caveat = CAVEAT if made else ""
    return WeightsOrigin(name, arch, path, size, mean, std, digest, caveat, settings, own, licence)


def _describe_file(said: Mapping[str, str], path: Path) -> tuple[int | None, RGB | None, RGB | None]:
    """Image size, mean and std of a file's metadata."""
    try:
        size = int(said["image_size"]) if "image_size" in said else None
        mean, std = (as_rgb(key, said[key]) if key in said else None for key in ("mean", "std"))
    except (ValueError, InputError) as error:
        raise InputError(
            f"The metadata of {path} (image_size, mean, std) cannot be read: {str(error).rstrip('.')}."
        ) from error
    return size, mean, std


def _settings(said: Mapping[str, str], path: Path) -> dict[str, Any]:
    """Settings of timm's network that a file's metadata names; they belong to the network that it names."""
    try:
        found = json.loads(said.get("settings", "{}"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"The metadata of {path} (settings) cannot be read: fetch the file again.")
    return found


def check_normalisation(origin: WeightsOrigin, asked: RGB | None) -> None:
    """Refuse weights whose normalisation nobody knows: those of one network expect different ones."""
    told = asked is not None or (origin.mean is not None and origin.std is not None)
    arch, path = origin.arch, origin.file or origin.name
    if told or origin.name == arch or len(found := normalisations(arch)) == 1:
        return
    tags = [names[-1] for names in found.values()]
    which = f"a tag ({' or '.join(tags[:3])})" if tags else "the tag of its weights, where timm has some"
    raise InputError(
        f"Nothing says which mean and std the weights in {path} expect, since arch {arch} is the network of several: "
        f"give arch with {which}, or mean and std (ImageNet's, as of DINO: 0.485,0.456,0.406 and 0.229,0.224,0.225)."
    )


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"There is no backbone file {path}{suggest_path(path)}: check the path.")
    try:
        with safe_open(path, framework="pt") as weights:
            return weights.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"The backbone file {path} is not a whole safetensors file ({error}): if it was copied or downloaded, "
            "delete it and fetch it again; convert other checkpoints with safetensors.torch.save_file, since nothing "
            "here unpickles."
        ) from error


def weights_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


REGISTERS = ("reg_token", "register_tokens", "storage_tokens")
"""Names of registers, here and in the original repositories."""


def load_network(origin: WeightsOrigin, file: Path, size: int) -> Model:
    """The network of `origin` for images of `size` pixels, with the weights of `file`."""
    model = build_untrained(origin.arch, img_size=size, **origin.settings)
    state = to_timm_names(read_state(file), str(file))
    state = {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
    _check_registers(state, model, origin.arch, file)
    state = _drop_zero_biases(state, model, origin.arch, file)
    try:
        state = _filter(model)(state, model)  # resamples positions for another image size
    except (KeyError, RuntimeError) as error:
        raise InputError(f"The weights in {file} do not fit {origin.arch} ({error}): check arch.") from error
    own = model.state_dict()
    kept = {k: v for k, v in state.items() if not k.startswith("head.")}  # a classifier we do not use
    wrong = {
        "missing": [k for k in own if k not in kept],
        "unexpected": [k for k in kept if k not in own],
        "of another shape": [k for k in own if k in kept and own[k].shape != kept[k].shape],
    }
    if any(wrong.values()):
        told = "; ".join(f"{len(keys)} {what}: {', '.join(keys[:3])}" for what, keys in wrong.items() if keys)
        raise InputError(
            f"The weights in {file} do not fit {origin.arch} ({told}): check arch and image_size."
        )
    model.load_state_dict(kept)
    return model


def read_state(file: Path) -> State:
    """A safetensors file, or a checkpoint of the hub; of the latter nothing but tensors is read."""
    from safetensors.torch import load_file

    if file.suffix != ".bin":
        return dict(load_file(file))
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{file} is no whole checkpoint of tensors ({type(error).__name__}): delete it, and run the same command "
            "again."
        ) from error
    found = found.get("state_dict", found) if isinstance(found, dict) else {}
    return {str(name): value for name, value in found.items() if isinstance(value, Tensor)}


def _check_registers(state: State, model: Model, arch: str, file: Path) -> None:
    """Name the network that does fit, where one of the two has registers and the other has none."""
    own = getattr(model, "reg_token", None)
    has = 0 if own is None else own.shape[1]
    there = next((state[name].shape[-2] for name in REGISTERS if name in state), 0)
    if there == has or "cls_token" not in state:
        return
    base, dot, tag = arch.partition(".")
    twin = re.sub(r"_reg\d+", "", base)
    twin = re.sub(r"(_patch\d+)", rf"\1_reg{there}", twin) if there else twin
    known = twin != base and import_timm().is_model(twin)
    advice = f"use arch {twin}{dot}{tag}" if known else "use the arch that they were made for"
    counts = (f"{there} registers" if there else "no registers", f"{has}" if has else "none")
    raise InputError(f"The weights in {file} hold {counts[0]}, but {arch} has {counts[1]}: {advice}.")


def _drop_zero_biases(state: State, model: Model, arch: str, file: Path) -> State:
    """DINOv3 exists with and without biases in its attention; those of zeros may go, others may not."""
    if "storage_tokens" not in state or getattr(model.blocks[0].attn, "q_bias", 0) is not None:
        return state
    biases = [name for name in state if name.endswith(".attn.qkv.bias")]
    if any(state[name].any() for name in biases):
        base, dot, tag = arch.partition(".")
        raise InputError(
            f"The weights in {file} have biases in their attention, which {arch} leaves out: use arch "
            f"{base}_qkvb{dot}{tag}."
        )
    return {name: value for name, value in state.items() if name not in biases}


def _filter(model: Model) -> Callable[..., State]:
    """timm's own translation of published checkpoints into its names."""
    from timm.models import eva, vision_transformer

    if isinstance(model, eva.Eva):
        return eva.checkpoint_filter_fn
    return partial(vision_transformer.checkpoint_filter_fn, adapt_layer_scale=True)
