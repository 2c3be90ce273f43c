"""Load a backbone by name: any timm vision transformer, split into a frozen trunk and a trained tail.

The weights come from the package itself ("embedded"), from a local safetensors file, or from the
Hugging Face hub by timm's name (origins.py).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
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
    published_pool,
    requested_backbone,
)
from holotype.errors import InputError
from holotype.models.hub import is_repository, load_from_hub, repository_origin
from holotype.models.tail import Model, check_blocks, split_backbone
from holotype.models.weights_io import (
    WeightsOrigin,
    check_normalisation,
    find_origin,
    load_network,
)
from holotype.models.zoo import UNKNOWN, build_untrained, has_conditions, licence_text, model_outline

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


def load_backbone(config: BackboneConfig, *, fetch: bool = True) -> Backbone:
    """Build the network that `config` names, with its weights, in float32 on the CPU.

    fetch: without it, weights of the hub are left out, so that the network has the shape and the speed alone.
    """
    mean, std = requested_backbone(config)
    hub = is_repository(config.name)
    origin = repository_origin(config.name, fetch=fetch) if hub else find_origin(config)
    check_normalisation(origin, mean)
    outline = model_outline(origin.arch, **origin.settings)
    size = _image_size(config, origin, outline)
    check_blocks(config.train_blocks, len(outline.blocks), origin.arch)
    pool = find_pool(outline, config.pool, origin.arch, own_pool=origin.own_pool)
    # timm draws initial weights that are overwritten at once: the caller's generator is not to notice.
    with torch.random.fork_rng(devices=[]):
        if origin.file is not None:
            model = load_network(origin, origin.file, size)
        elif fetch:
            model = load_from_hub(origin.arch, size)
        else:
            model = build_untrained(origin.arch, img_size=size, **origin.settings)
    digest = origin.digest or state_digest(model.state_dict())
    dim = int(model.num_features)
    set_pool(model, pool)
    trunk, tail = split_backbone(model, config.train_blocks)
    usual = [getattr(origin, key) or _rgb(outline.pretrained_cfg[key]) for key in ("mean", "std")]
    mean, std = mean or usual[0], std or usual[1]
    changes: dict[str, Any] = {"pool": pool} if pool else {}
    changes |= {"mean": list(mean), "std": list(std)} if [mean, std] != usual else {}
    licence = origin.licence or UNKNOWN
    own_file = licence == UNKNOWN and not hub  # one that does not say
    if fetch and config.name != "embedded" and not own_file:
        (log.warning if has_conditions(licence) else log.info)(licence_text(origin.name, licence))
    return Backbone(trunk, tail, dim, size, mean, std, origin.name, digest, origin.caveat, changes, licence)


def _image_size(config: BackboneConfig, origin: WeightsOrigin, outline: Model) -> int:
    wanted, native, arch = config.image_size, origin.image_size, origin.arch
    _, height, width = outline.pretrained_cfg["input_size"]
    if wanted is None and native is None and height != width:
        raise InputError(f"{arch} was made for {height} x {width} pixels, not for squares: set image_size.")
    size = wanted if wanted is not None else native or height
    if wanted is None and size == DINOV2_NATIVE and "dinov2" in arch:
        size = DINOV2_SIZE
        log.info(
            f"{origin.name} sees {size} x {size} pixels, a sixth of the work of the {DINOV2_NATIVE} that it was made "
            f"with; --image-size {DINOV2_NATIVE} (in training --backbone.image_size) asks for these."
        )
    patch = int(outline.patch_embed.feat_ratio())
    if size < patch or size % patch:
        near = max(patch, round(size / patch) * patch)
        raise InputError(f"An image_size of {size} is no multiple of {arch}'s patch of {patch}: use {near}.")
    return size


def state_digest(state: Mapping[str, Tensor]) -> str:
    """sha256 of the values in the order of their names, wherever they lie."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].detach().cpu().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _rgb(values: Any) -> RGB:
    red, green, blue = (float(v) for v in values)
    return red, green, blue
