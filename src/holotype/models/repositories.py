"""What the configuration of a repository on the hub says of its network: timm's, open_clip's or transformers'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holotype.config.schema import RGB, as_rgb
from holotype.errors import InputError
from holotype.models.networks import check_name, import_timm

Config = Mapping[str, Any]

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
CLIP_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin", *WEIGHTS)
DINOV2_SIZES = {384: "small", 768: "base", 1024: "large", 1536: "giant"}
DINOV3_SIZES = {384: "small", 768: "base", 1024: "large", 1280: "huge_plus", 4096: "7b"}
CLIP_SIZES = {768: "base", 1024: "large", 1280: "huge", 1408: "giant", 1664: "gigantic"}
SIGLIP_SIZES = {768: "base", 1024: "large", 1152: "so400m", 1536: "giantopt"}
"""Width of a network to its name in timm."""
TWINS = {
    "beit": "vit_base_patch16_224.augreg_in21k",
    "convnext": "vit_base_patch14_dinov2.lvd142m",
    "dinov3_convnext": "vit_base_patch16_dinov3.lvd1689m",
    "swin": "vit_base_patch14_dinov2.lvd142m",
    "vit": "vit_base_patch16_224.augreg_in21k, or vit_base_patch16_224.dino for facebook/dino-vitb16",
    "vit_mae": "vit_base_patch16_224.mae",
}
"""Kinds of transformers' networks that are not read, and what to take in their place."""


@dataclass(frozen=True)
class Described:
    """A network as its repository describes it."""

    arch: str
    files: tuple[str, ...] = WEIGHTS
    """Names that its weights may have, the best first."""
    image_size: int | None = None
    mean: RGB | None = None
    std: RGB | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    own_pool: bool = False
    licence: str = ""


def of_timm(content: Config) -> Described:
    """config.json as timm writes it."""
    cfg, settings = content.get("pretrained_cfg") or {}, dict(content.get("model_args") or {})
    base = str(content["architecture"]).partition(".")[0]
    tagged = f"{base}.{cfg.get('tag')}"
    arch = tagged if tagged in import_timm().list_pretrained() else base
    check_name(arch, with_weights=False)
    size = (
        settings.pop("img_size", None) or (cfg.get("input_size") or content.get("input_size") or [None])[-1]
    )
    settings.pop("num_classes", None)
    if content.get("global_pool") in ("token", "avg", "map"):
        settings.setdefault("global_pool", content["global_pool"])
    mean, std = (as_rgb(key, cfg[key]) if cfg.get(key) else None for key in ("mean", "std"))
    own = int(content.get("num_classes") or 0) > 0
    return Described(
        arch, WEIGHTS, _side(size), mean, std, settings, own_pool=own, licence=str(cfg.get("license") or "")
    )


def of_open_clip(content: Config, where: str) -> Described:
    """open_clip_config.json: the tower for images, a network of timm or open_clip's own."""
    model, preprocess = content["model_cfg"], content.get("preprocess_cfg") or {}
    vision = model["vision_cfg"]
    settings: dict[str, Any] = {}
    if name := vision.get("timm_model_name"):
        arch = str(name)
        if vision.get("timm_pool") in ("token", "avg", "map"):
            settings["global_pool"] = vision["timm_pool"]
        check_name(arch, with_weights=False)
    else:
        quick = model.get("quick_gelu", False)
        arch = _clip(vision.get("width"), vision.get("patch_size"), quick, vision.get("image_size"), where)
    mean, std = (as_rgb(key, preprocess[key]) if key in preprocess else None for key in ("mean", "std"))
    return Described(arch, CLIP_WEIGHTS, _side(vision.get("image_size")), mean, std, settings)


def of_transformers(content: Config, preprocess: Config, where: str) -> Described:
    """config.json and preprocessor_config.json as transformers writes them."""
    vision = content.get("vision_config") or content
    kind = str(vision.get("model_type") or content.get("model_type") or "").removesuffix("_vision_model")
    width, patch = vision.get("hidden_size", 768), vision.get("patch_size", 16)
    size = vision.get("image_size")
    if kind in ("dinov2", "dinov2_with_registers"):
        registers = f"_reg{vision.get('num_register_tokens', 4)}" if kind != "dinov2" else ""
        arch = f"vit_{DINOV2_SIZES.get(width)}_patch{patch}{registers}_dinov2"
    elif kind == "dinov3_vit":
        plus = "_plus" if vision.get("use_gated_mlp") and width == 384 else ""
        biased = "_qkvb" if vision.get("query_bias", True) and width != 4096 else ""
        arch, size = f"vit_{DINOV3_SIZES.get(width)}{plus}_patch{patch}_dinov3{biased}", 256
    elif kind == "clip":
        quick = vision.get("hidden_act", "quick_gelu") == "quick_gelu"
        arch = _clip(width, patch, quick, size, where)
    elif kind == "siglip":
        arch = _nearest(f"vit_{SIGLIP_SIZES.get(width)}_patch{patch}_siglip", size)
    else:
        twin = (
            f": take timm's twin, {TWINS[kind]}" if kind in TWINS else ": choose a vision transformer of timm"
        )
        raise InputError(
            f"{where} holds a network of transformers' kind {kind or 'unknown'}, not read here{twin}."
        )
    _check_there(arch, where)
    mean, std = (
        as_rgb(k, preprocess[f"image_{k}"]) if f"image_{k}" in preprocess else None for k in ("mean", "std")
    )
    return Described(arch, WEIGHTS, _side(size), mean, std)


def _clip(width: Any, patch: Any, quick: bool, size: Any, where: str) -> str:
    arch = _nearest(f"vit_{CLIP_SIZES.get(width)}_patch{patch}_clip{'_quickgelu' if quick else ''}", size)
    _check_there(arch, where)
    return arch


def _nearest(start: str, size: Any) -> str:
    """timm's name for an image size, or that for another: positions are resampled."""
    found = import_timm().list_models(f"{start}_*")
    return f"{start}_{size}" if f"{start}_{size}" in found else next(iter(found), start)


def _check_there(arch: str, where: str) -> None:
    if not import_timm().is_model(arch):
        raise InputError(
            f"{where} describes a network that timm does not have ({arch}): choose a vision transformer of timm, or "
            "convert the weights into a .safetensors file of one."
        )


def _side(size: Any) -> int | None:
    """Of a square, from a number or a pair."""
    if isinstance(size, list | tuple):
        size = size[-1]
    return int(size) if size else None
