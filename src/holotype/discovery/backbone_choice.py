"""`--backbone auto`: choose the best backbone available here."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from dataclasses import dataclass, replace

from holotype.config.schema import DINOV2_SIZE, BackboneConfig, vector_dim
from holotype.errors import InputError
from holotype.models.backbone import Backbone, load_backbone

PUBLIC_BACKBONE = ("vit_base_patch14_dinov2.lvd142m", "vit_small_patch14_dinov2.lvd142m")
"""timm's names, best first; on a CPU the smaller one comes first, which takes a quarter of the time."""
PUBLIC_SIZE = DINOV2_SIZE
"""Side of their input in pixels."""
SECONDS_TO_ANSWER = 3.0
"""The hub answers within this, or is taken for out of reach."""


@dataclass(frozen=True)
class BackboneChoice:
    """A backbone and a sentence about it."""

    config: BackboneConfig
    backbone: Backbone
    words: str


def choose_backbone(config: BackboneConfig, device: str) -> BackboneChoice:
    """Load the backbone that `config` names; "auto" takes a public one from the local cache or the hub if it can."""
    if config.name != "auto":
        backbone = load_backbone(config)
        if (dim := vector_dim(config.name)) is not None:
            return BackboneChoice(
                config, backbone, f"Vectors of {dim:,} numbers as they are, and no network."
            )
        return BackboneChoice(config, backbone, f"Backbone {backbone.name}, as asked for.")
    wanted, cached = best_public_backbone(config, device)
    if wanted is not None:
        try:
            backbone = load_backbone(wanted)
        except InputError as error:  # half a download, a full disk: said below, and never the end of a run
            reason = f"{wanted.name} could not be loaded ({error})"
        else:
            place = "the local cache" if cached else "the Hugging Face hub"
            return BackboneChoice(
                wanted, backbone, f"Backbone {wanted.name}, a public network, from {place}."
            )
    else:
        reason = "no public network is in the local cache and the Hugging Face hub does not answer"
    embedded = replace(config, name="embedded")
    return BackboneChoice(
        embedded,
        load_backbone(embedded),
        f"Backbone embedded: {reason}. It is small and sees 128 x 128 pixels: expect coarser categories and more "
        f"mistakes than with --backbone {PUBLIC_BACKBONE[0]} on a machine with a network.",
    )


def best_public_backbone(
    config: BackboneConfig, device: str, online: bool | None = None
) -> tuple[BackboneConfig | None, bool]:
    """The public network that "auto" takes, None where none can be had; and whether its weights are here already.

    online: whether the hub answers, for whoever has asked it already.
    """
    order = PUBLIC_BACKBONE if device.startswith("cuda") else PUBLIC_BACKBONE[::-1]
    cached = [name for name in order if is_cached(name)]
    if not cached and not (hub_answers() if online is None else online):
        return None, False
    size = config.image_size or PUBLIC_SIZE
    return replace(config, name=(cached or order)[0], image_size=size), bool(cached)


def preview_backbone(config: BackboneConfig, device: str) -> Backbone:
    """A network of the shape of the one that choose_backbone would load; nothing is fetched."""
    if config.name == "auto":
        config = best_public_backbone(config, device)[0] or replace(config, name="embedded")
    return load_backbone(config, fetch=False)


def is_cached(name: str) -> bool:
    """Do the weights of timm's `name` lie in the hub's local cache?"""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(f"timm/{name}", "model.safetensors"), str)


def hub_answers(seconds: float = SECONDS_TO_ANSWER) -> bool:
    """Can weights be fetched from the hub? A quick look, since a client of its own tries for minutes."""
    from huggingface_hub import constants

    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    asked = urllib.request.Request(
        f"{constants.ENDPOINT}/timm/{PUBLIC_BACKBONE[0]}/resolve/main/config.json", method="HEAD"
    )
    try:
        with urllib.request.urlopen(asked, timeout=seconds) as answer:
            return 200 <= answer.status < 300
    except (OSError, ValueError, urllib.error.URLError):
        return False
