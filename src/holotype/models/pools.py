"""What becomes the feature of an image: the CLS token, the mean of the patches, or what the network itself does."""

from __future__ import annotations

from holotype.config.schema import POOLS, BackboneConfig, Pool, published_pool
from holotype.errors import InputError
from holotype.models.whole_tail import Model

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


def foreseen(config: BackboneConfig) -> dict[str, str | None]:
    """What an identity will say of the pool (None: nothing), as far as the settings alone tell; else empty."""
    from holotype.models.networks import outline_of
    from holotype.models.origins import find_origin

    if config.pool == "auto":
        # metadata and repositories may say anything
        silent = config.arch is None and (config.name.endswith(".safetensors") or ":" in config.name)
        return {} if silent else {"pool": published_pool(config.arch or config.name)}
    try:
        arch = find_origin(config).arch
        return {"pool": find_pool(outline_of(arch), config.pool, arch) or None}
    except InputError:  # it is not here; whoever loads it will be told
        return {}


def set_pool(model: Model, pool: str) -> None:
    """pool: of find_pool. The norms stay where they are; an attention pool goes."""
    if pool:
        model.global_pool, model.attn_pool = KINDS[pool], None
