"""What the name of a backbone means: the embedded file, a file of one's own, or weights of timm on the hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holotype.config.schema import IMAGENET_MEAN, IMAGENET_STD, RGB, BackboneConfig, as_rgb
from holotype.errors import InputError
from holotype.models.networks import check_name, licence_of, licence_of_files, normalisations
from holotype.utils.text import suggest_path

CAVEAT = (
    "This backbone was made for the project by distilling an ImageNet-supervised teacher (EfficientNet-Lite2)"
    " on 121 k images, which include all CUB images, train and test, without their labels: scores made with "
    "it are comparable with each other, not with published DINO tables."
)
OURS = "mit"
"""Licence of the networks made for the project."""
EMBEDDED = Path(__file__).parent / "weights" / "vit_tiny_patch16_128.safetensors"


@dataclass(frozen=True)
class Origin:
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
class Made:
    """A network made for the project, known by its file's stem or content."""

    arch: str
    image_size: int
    digest: str


MADE = {
    "vit_tiny_patch16_128": Made(
        "vit_tiny_patch16_224", 128, "3b54bfcb1e28e11cf68e86ad7f7ac5b75676237282d9eac2be8713e9201a683d"
    ),
    "vit_small_patch14_224": Made(
        "vit_small_patch14_dinov2", 224, "f9f413eaeff4c5dddb518a8e20e54e38fd5bc608af9e6f26c8efea5d54291f43"
    ),
}


def caveat_of(digest: str) -> str:
    """What a reader of scores made with these weights must know; "" for networks that others made."""
    return CAVEAT if any(digest == made.digest for made in MADE.values()) else ""


def find_origin(config: BackboneConfig) -> Origin:
    """Find out what `config.name` means."""
    name, path = config.name, _file_of(config.name)
    if path is not None:
        return _file_origin(path, config, "embedded" if name == "embedded" else path.stem)
    if "/" in name or "\\" in name or Path(name).suffix in (".pt", ".pth", ".bin", ".ckpt"):
        raise InputError(f"There is no backbone file {name}: give the path of an existing .safetensors file.")
    check_name(name, with_weights=True)
    return Origin(name, name, licence=licence_of(name))


def _file_of(name: str) -> Path | None:
    """The file that a name stands for, there or not; None for a name of timm."""
    path = EMBEDDED if name == "embedded" else Path(name).expanduser()
    if path.is_dir():
        raise InputError(f"There is no backbone file {name}: give the path of an existing .safetensors file.")
    return path if path.suffix == ".safetensors" or path.is_file() else None


def _file_origin(path: Path, config: BackboneConfig, name: str) -> Origin:
    """What a safetensors file says about itself: its metadata, else its known stem or content."""
    said, digest = read_metadata(path), file_digest(path)
    made = MADE.get(path.stem) or next((m for m in MADE.values() if m.digest == digest), None)
    arch = config.arch or said.get("timm") or (made.arch if made else None)
    if arch is None:
        raise InputError(
            f"The backbone file {path} does not say which network it holds: set arch to timm's name of it, "
            "with the tag of its weights, for example vit_base_patch16_224.dino."
        )
    check_name(arch, with_weights=False)
    size, mean, std = _described(said, path)
    if made is not None:
        size, mean, std = size or made.image_size, mean or IMAGENET_MEAN, std or IMAGENET_STD
    licence = OURS if made else said.get("license") or said.get("licence") or licence_of_files(arch)
    own, settings = said.get("pool") == "own", {} if config.arch else _settings(said, path)
    caveat = CAVEAT if made else ""
    return Origin(name, arch, path, size, mean, std, digest, caveat, settings, own, licence)


def _described(said: Mapping[str, str], path: Path) -> tuple[int | None, RGB | None, RGB | None]:
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


def check_normalisation(origin: Origin, asked: RGB | None) -> None:
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


def file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
