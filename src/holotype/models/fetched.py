"""A backbone in one file, to carry to a machine without a network: its weights, and all that must be known of them.

The tags of the file are those that any .safetensors file may have (docs/backbones.md): `timm`, `image_size`, `mean`,
`std`, `pool`, `license`, and `settings` where the network is not the plain one of its name. `source` says where it
came from.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from holotype.config.schema import BackboneConfig
from holotype.errors import InputError
from holotype.models.fitting import network_of
from holotype.models.hub import PREFIX, is_repository, repository_origin
from holotype.models.licences import UNKNOWN
from holotype.models.networks import from_hub, outline_of
from holotype.models.origins import Origin, check_normalisation, find_origin
from holotype.models.recommended import RECOMMENDED
from holotype.models.whole_tail import Model
from holotype.utils.atomic import atomic_write

ENDING = ".safetensors"


@dataclass(frozen=True)
class Fetched:
    """What was written."""

    file: Path
    nbytes: int
    tags: dict[str, str]


def fetch_backbone(name: str, folder: Path) -> Fetched:
    """Bring the weights of a backbone into one file in `folder`, which `--backbone FILE` takes without a network.

    name: timm's, hf-hub:organisation/repository, or the name of a list of recommendations, for its first choice.
    """
    name = RECOMMENDED[name][0].name if name in RECOMMENDED else name
    check_fetchable(name)
    file = folder / f"{file_name(name)}{ENDING}"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder with --to.")
    if file.exists() or file.is_symlink():
        raise InputError(
            f"{file} is there already, and nothing is overwritten: use it as the backbone, delete it, or name another "
            "folder with --to."
        )
    origin = repository_origin(name, fetch=True) if is_repository(name) else find_origin(BackboneConfig(name))
    check_normalisation(origin, None)
    outline = outline_of(origin.arch, **origin.settings)
    size = native_size(origin, outline)
    tags = tags_of(origin, outline, size, name)
    with torch.random.fork_rng(devices=[]):  # timm draws weights that are overwritten at once
        model = network_of(origin, origin.file, size) if origin.file else from_hub(origin.arch, size)
    write_weights(file, model, tags)
    return Fetched(file, file.stat().st_size, tags)


def check_fetchable(name: str) -> None:
    """Refuse names of what is on this machine already, and repositories without their prefix."""
    if name == "embedded":
        raise InputError(
            "The embedded backbone comes with the package: --backbone embedded needs no network."
        )
    if name == "auto":
        raise InputError("auto names no network of its own: name one, as `holotype backbones` lists them.")
    if Path(name).expanduser().exists() or name.endswith(ENDING):
        raise InputError(f"{name} is a file: give its path with --backbone, there is nothing to fetch.")
    if re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", name):
        raise InputError(f"{name} looks like a repository of the Hugging Face hub: write {PREFIX}{name}.")


def file_name(name: str) -> str:
    """Of the file, without its ending."""
    return re.sub(r"[^\w.-]+", "-", name.removeprefix(PREFIX))


def native_size(origin: Origin, outline: Model) -> int:
    """Side of the images that the weights were made for, in pixels: others are made of these when they are loaded."""
    _, height, width = outline.pretrained_cfg["input_size"]
    if origin.image_size is None and height != width:
        raise InputError(
            f"{origin.arch} was made for {height} x {width} pixels, not for squares: choose another network."
        )
    return origin.image_size or int(height)


def tags_of(origin: Origin, outline: Model, size: int, name: str) -> dict[str, str]:
    mean, std = (
        getattr(origin, key) or tuple(map(float, outline.pretrained_cfg[key])) for key in ("mean", "std")
    )
    tags = {
        "timm": origin.arch,
        "image_size": str(size),
        "mean": ",".join(map(str, mean)),
        "std": ",".join(map(str, std)),
        "pool": "own" if origin.own_pool else "auto",
        "license": origin.licence or UNKNOWN,
        "source": name,
    }
    return tags | ({"settings": json.dumps(origin.settings)} if origin.settings else {})


def write_weights(file: Path, model: Model, tags: dict[str, str]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    state = {key: value.contiguous().clone() for key, value in model.state_dict().items()}

    def write(part: Path) -> None:
        try:
            save_file(state, part, metadata=tags)
        except SafetensorError as error:  # a full disk, too
            raise OSError(str(error)) from error

    atomic_write(file, write)
