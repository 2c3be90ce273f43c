"""Load a backbone by name: any timm vision transformer, split into a frozen trunk and a trained tail.

The weights come from the package itself ("embedded"), from a local safetensors file, or from the
Hugging Face hub by timm's name or that of a repository (hub.py).
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holotype.config.schema import (
    DINOV2_NATIVE,
    DINOV2_SIZE,
    POOLS,
    RGB,
    BackboneConfig,
    Pool,
    as_rgb,
    published_pool,
    requested_backbone,
    vector_dim,
)
from holotype.errors import InputError
from holotype.models.hub import load_from_hub, repository_origin
from holotype.models.tail import Model, VectorTail, check_blocks, split_backbone
from holotype.models.weights_io import (
    HUB_PREFIX,
    WeightsOrigin,
    check_normalisation,
    find_origin,
    load_weights,
    native_image_size,
)
from holotype.models.zoo import (
    RECOMMENDED,
    UNKNOWN,
    build_untrained,
    has_conditions,
    licence_text,
    model_outline,
)
from holotype.utils.atomic import write_bytes

KINDS = {"token": "token", "mean": "avg"}
"""By timm's names."""


def find_pool(model: Model, wanted: Pool, arch: str, *, own_pool: bool = False) -> str:
    """The pool that `wanted` means for a network: token or mean; "" where that is what timm does anyway.

    own_pool: the weights were trained with the network's own pool, which auto then keeps.
    """
    if wanted not in POOLS:
        raise InputError(f"pool is {wanted!r}, but it must be {', '.join(POOLS[:-1])} or {POOLS[-1]}.")
    usual = None if own_pool else published_pool(arch)
    found = usual if wanted == "auto" else wanted
    if found is None or KINDS[found] == model.global_pool:
        return ""
    if found == "token" and model.cls_token is None:
        raise InputError(f"pool is token, but {arch} has no CLS token: use mean, or auto for its own pool.")
    return found


def expected_pool(config: BackboneConfig) -> dict[str, str | None]:
    """What an identity will say of the pool (None: nothing), as far as the settings alone tell; else empty."""
    if config.pool == "auto":
        # metadata and repositories may say anything
        silent = config.arch is None and (config.name.endswith(".safetensors") or ":" in config.name)
        return {} if silent else {"pool": published_pool(config.arch or config.name)}
    try:
        arch = find_origin(config).arch
        return {"pool": find_pool(model_outline(arch), config.pool, arch) or None}
    except InputError:  # it is not here; whoever loads it will be told
        return {}


def set_pool(model: Model, pool: str) -> None:
    """pool: of find_pool. The norms stay where they are; an attention pool goes."""
    if pool:
        model.global_pool, model.attn_pool = KINDS[pool], None


log = logging.getLogger("holotype")


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
    changes: dict[str, Any] = field(default_factory=dict)
    """pool, mean and std where they are not those that weights of this name had before there was a choice. They decide
    the features, and stand in identities where they are something."""
    licence: str = ""
    """Of the weights, as whoever published them names it; unknown where nobody does."""


def load_backbone(config: BackboneConfig, *, fetch: bool = True, patches: bool = False) -> Backbone:
    """Build the network that `config` names, with its weights, in float32 on the CPU.

    fetch: without it, weights of the hub are left out, so that the network has the shape and the speed alone.
    patches: whether its tail gives the tokens of patches.
    """
    if (dim := vector_dim(config.name)) is not None:
        return _stand_in(config.name, dim)
    mean, std = requested_backbone(config)
    origin = _origin(config, fetch)
    check_normalisation(origin, mean)
    outline = model_outline(origin.arch, **origin.settings)
    size = _image_size(config, origin, outline)
    check_blocks(config.train_blocks, len(outline.blocks), origin.arch)
    pool = find_pool(outline, config.pool, origin.arch, own_pool=origin.own_pool)
    model = load_network(origin, size, fetch=fetch)
    digest = origin.digest or state_digest(model.state_dict())
    dim = int(model.num_features)
    set_pool(model, pool)
    trunk, tail = split_backbone(model, config.train_blocks, patches)
    usual = [getattr(origin, key) or as_rgb(key, outline.pretrained_cfg[key]) for key in ("mean", "std")]
    mean, std = mean or usual[0], std or usual[1]
    changes: dict[str, Any] = {"pool": pool} if pool else {}
    changes |= {"mean": list(mean), "std": list(std)} if [mean, std] != usual else {}
    licence = origin.licence or UNKNOWN
    own_file = licence == UNKNOWN and not config.name.startswith(HUB_PREFIX)  # one that does not say
    if fetch and config.name != "embedded" and not own_file:
        (log.warning if has_conditions(licence) else log.info)(licence_text(origin.name, licence))
    return Backbone(trunk, tail, dim, size, mean, std, origin.name, digest, origin.caveat, changes, licence)


def _stand_in(name: str, dim: int) -> Backbone:
    """Return what is in the place of a network where vectors are given."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tail = VectorTail(dim)
    digest = hashlib.sha256(name.encode()).hexdigest()
    return Backbone(nn.Identity(), tail, dim, 1, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), name, digest, caveat="")


def _origin(config: BackboneConfig, fetch: bool = True) -> WeightsOrigin:
    if config.name.startswith(HUB_PREFIX):
        return repository_origin(config.name, fetch=fetch)
    return find_origin(config)


def load_network(origin: WeightsOrigin, size: int, *, fetch: bool = True) -> Model:
    """Return the network of `origin` for images of `size` pixels, with its weights.

    fetch: without it, weights of the hub are left out.
    """
    # timm draws initial weights that are overwritten at once: the caller's generator is not to notice
    with torch.random.fork_rng(devices=[]):
        if origin.file is None and fetch:
            return load_from_hub(origin.arch, size)
        model = build_untrained(origin.arch, img_size=size, **origin.settings)
        if origin.file is not None:
            load_weights(model, origin.arch, origin.file)
        return model


def _image_size(config: BackboneConfig, origin: WeightsOrigin, outline: Model) -> int:
    size = native_image_size(origin, outline) if config.image_size is None else config.image_size
    if config.image_size is None and size == DINOV2_NATIVE and "dinov2" in origin.arch:
        size = DINOV2_SIZE
        log.info(
            f"{origin.name} sees {size} x {size} pixels, a sixth of the work of the {DINOV2_NATIVE} that it was made "
            f"with; --image-size {DINOV2_NATIVE} (in training --backbone.image-size) asks for these."
        )
    patch = int(outline.patch_embed.feat_ratio())
    if size < patch or size % patch:
        near = max(patch, round(size / patch) * patch)
        raise InputError(f"image_size {size} is no multiple of {origin.arch}'s patch of {patch}: use {near}.")
    return size


def state_digest(state: Mapping[str, Tensor]) -> str:
    """sha256 of the values in the order of their names, wherever they lie."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].detach().cpu().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True)
class DownloadedBackbone:
    """The file that was written."""

    file: Path
    nbytes: int
    tags: dict[str, str]


def download_backbone(name: str, folder: Path) -> DownloadedBackbone:
    """Bring the weights of a backbone into one file in `folder`, which `--backbone FILE` takes without a network.

    Its tags are those that any .safetensors file may have (docs/backbones.md).
    name: timm's, hf-hub:organisation/repository, or the name of a list of recommendations, for its first choice.
    """
    from safetensors.torch import save

    name = RECOMMENDED[name][0].name if name in RECOMMENDED else name
    if name in ("embedded", "auto") or name.endswith(".safetensors") or Path(name).expanduser().exists():
        raise InputError(
            f"There is nothing to fetch for {name}, which --backbone takes as it is: name a network, as `holotype "
            "backbones` lists them."
        )
    file = folder / f"{backbone_file_name(name)}.safetensors"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder with --to.")
    if file.exists() or file.is_symlink():
        raise InputError(
            f"{file} is there already, and nothing is overwritten: use it as the backbone, delete it, or name another "
            "folder with --to."
        )
    origin = _origin(BackboneConfig(name))
    check_normalisation(origin, None)
    outline = model_outline(origin.arch, **origin.settings)
    size = native_image_size(origin, outline)
    tags = metadata_tags(origin, outline, size)
    state = load_network(origin, size).state_dict()
    write_bytes(file, save({key: value.contiguous() for key, value in state.items()}, tags))
    return DownloadedBackbone(file, file.stat().st_size, tags)


def backbone_file_name(name: str) -> str:
    """Return the name of the file, without its ending."""
    return re.sub(r"[^\w.-]+", "-", name.removeprefix(HUB_PREFIX))


def metadata_tags(origin: WeightsOrigin, outline: Model, size: int) -> dict[str, str]:
    """Return the metadata by which the file is read again without other flags."""
    tags = {"timm": origin.arch, "image_size": str(size)}
    for key in ("mean", "std"):
        tags[key] = ",".join(str(float(x)) for x in getattr(origin, key) or outline.pretrained_cfg[key])
    pool, licence = "own" if origin.own_pool else "auto", origin.licence or UNKNOWN
    tags |= {"pool": pool, "license": licence, "source": origin.name}
    return tags | ({"settings": json.dumps(origin.settings)} if origin.settings else {})
