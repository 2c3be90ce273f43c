"""Locate backbone weights by name, and load them into a network under timm's names.

Wrappers (`module.`, `backbone.`, `teacher.`) are taken off; the layouts of transformers' DINOv2, DINOv3, CLIP and
SigLIP become those of the original repositories, which timm itself reads.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holotype.config.schema import IMAGENET_MEAN, IMAGENET_STD, RGB, BackboneConfig, as_rgb
from holotype.errors import InputError
from holotype.models.tail import Model
from holotype.models.zoo import check_name, import_timm, licence_of, licence_of_files
from holotype.utils.text import suggest_path

CAVEAT = (
    "This backbone was made for the project by distilling an ImageNet-supervised teacher (EfficientNet-Lite2)"
    " on 121 k images, which include all CUB images, train and test, without their labels: scores made with "
    "it are comparable with each other, not with published DINO tables."
)
MADE_LICENCE = "mit"
"""Licence of the networks made for the project."""
HUB_PREFIX = "hf-hub:"
"""Of repositories on the Hugging Face hub."""
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
    """Find out which file or weights of timm `config.name` means."""
    name = config.name
    path = EMBEDDED if name == "embedded" else Path(name).expanduser()
    if path.suffix == ".safetensors" or path.is_file():
        return _file_origin(path, config)
    if "/" in name or "\\" in name or path.is_dir() or path.suffix in (".pt", ".pth", ".bin", ".ckpt"):
        raise InputError(
            f"There is no backbone file {name}: give the path of an existing .safetensors file, or write "
            f"{HUB_PREFIX}organisation/repository for one of the Hugging Face hub."
        )
    check_name(name, with_weights=True)
    return WeightsOrigin(name, name, licence=licence_of(name))


def _file_origin(path: Path, config: BackboneConfig) -> WeightsOrigin:
    """Describe a safetensors file by its metadata, or by its stem or content where we made it."""
    tags, digest = read_metadata(path), weights_digest(path)
    same = [made for made in TEST_BACKBONES.values() if made.digest == digest]
    made = TEST_BACKBONES.get(path.stem) or next(iter(same), None)
    arch = config.arch or tags.get("timm") or (made.arch if made else None)
    if arch is None:
        raise InputError(
            f"The backbone file {path} does not say which network it holds: set arch to timm's name of it, "
            "with the tag of its weights, for example vit_base_patch16_224.dino."
        )
    check_name(arch, with_weights=False)
    try:
        size = int(tags["image_size"]) if "image_size" in tags else None
        mean, std = (as_rgb(key, tags[key]) if key in tags else None for key in ("mean", "std"))
        settings = {} if config.arch else dict(json.loads(tags.get("settings", "{}")))
    except (ValueError, TypeError, InputError) as error:
        problem = f"The metadata of {path} (image_size, mean, std, settings) cannot be read: {error}"
        raise InputError(f"{problem.rstrip('.')}.") from error
    licence = tags.get("license") or tags.get("licence")
    if made is not None:
        size, mean, std = size or made.image_size, mean or IMAGENET_MEAN, std or IMAGENET_STD
        licence = MADE_LICENCE
    name, own_pool = "embedded" if config.name == "embedded" else path.stem, tags.get("pool") == "own"
    licence, caveat = licence or licence_of_files(arch), CAVEAT if made else ""
    return WeightsOrigin(name, arch, path, size, mean, std, digest, caveat, settings, own_pool, licence)


def check_normalisation(origin: WeightsOrigin, asked: RGB | None) -> None:
    """Refuse weights whose normalisation nobody knows: those of one network expect different ones."""
    arch = origin.arch
    if asked is not None or (origin.mean is not None and origin.std is not None) or origin.name == arch:
        return
    timm = import_timm()
    names = [arch] if "." in arch else timm.list_pretrained(f"{arch}.*")
    expected = {(tuple(cfg.mean), tuple(cfg.std)): cfg.tag for cfg in map(timm.get_pretrained_cfg, names)}
    if len(expected) == 1:
        return
    tags = " or ".join(f"{arch}.{tag}" for tag in list(expected.values())[:3])
    raise InputError(
        f"Nothing says which mean and std the weights in {origin.file or origin.name} expect, since arch {arch} is the "
        f"network of several: give arch with the tag of its weights{f' ({tags})' if tags else ''}, or mean and std "
        "(ImageNet's, as of DINO: 0.485,0.456,0.406 and 0.229,0.224,0.225)."
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


def native_image_size(origin: WeightsOrigin, outline: Model) -> int:
    """Return the side in pixels of the images that the weights were made for."""
    _, height, width = outline.pretrained_cfg["input_size"]
    if origin.image_size is None and height != width:
        raise InputError(
            f"{origin.arch} was made for {height} x {width} pixels, not for squares: set image_size, or choose another "
            "network."
        )
    return origin.image_size or int(height)


def load_weights(model: Model, arch: str, file: Path) -> None:
    """Copy the weights of a file into a network; InputError where they do not fit."""
    state = to_timm_names(read_state(file))
    state = {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
    state = _drop_zero_biases(state, model, arch, file)
    try:
        state = _filter(model)(state, model)  # resamples positions for another image size
    except (KeyError, RuntimeError) as error:
        raise InputError(f"The weights in {file} do not fit {arch} ({error}): check arch.") from error
    own = model.state_dict()
    kept = {k: v for k, v in state.items() if not k.startswith("head.")}  # a classifier we do not use
    wrong = {
        "missing": [k for k in own if k not in kept],
        "unexpected": [k for k in kept if k not in own],
        "of another shape": [k for k in own if k in kept and own[k].shape != kept[k].shape],
    }
    if any(wrong.values()):
        found = "; ".join(f"{len(k)} {what}: {', '.join(k[:3])}" for what, k in wrong.items() if k)
        raise InputError(f"The weights in {file} do not fit {arch} ({found}): check arch and image_size.")
    model.load_state_dict(kept)


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


State = dict[str, Tensor]
Rules = Sequence[tuple[str, str]]

WRAPPERS = {
    "_orig_mod", "backbone", "model", "module", "teacher",
    "clip", "dinov2", "dinov2_with_registers", "dinov3_vit", "siglip", "vision_model", "vit",
}  # fmt: skip
"""Parts of names that say where a network lay, and nothing of it; the second line is transformers'."""
LAYOUT_MARKS = {
    "patch_embed.proj.weight": "timm",
    "embeddings.patch_embeddings.projection.weight": "DINOv2",
    "embeddings.patch_embeddings.weight": "DINOv3",
    "embeddings.patch_embedding.weight": "CLIP",
}
"""The name of the first layer tells the layout."""
COMMON: Rules = (
    (r"^embeddings\.(cls_token|mask_token)$", r"\1"),
    (r"^(?:model\.|encoder\.)?layers?\.(\d+)\.", r"blocks.\1."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
)
LAYOUTS: dict[str, Rules] = {
    "DINOv2": (
        *COMMON,
        (r"^embeddings\.register_tokens$", "register_tokens"),
        (r"^embeddings\.position_embeddings$", "pos_embed"),
        (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
        (r"\.attention\.attention\.([qkv])(uery|ey|alue)\.", r".attn.\1."),
        (r"\.attention\.output\.dense\.", ".attn.proj."),
        (r"\.mlp\.weights_in\.", ".mlp.w12."),
        (r"\.mlp\.weights_out\.", ".mlp.w3."),
        (r"^layernorm\.", "norm."),
    ),
    "DINOv3": (
        *COMMON,
        (r"^embeddings\.register_tokens$", "storage_tokens"),
        (r"^embeddings\.patch_embeddings\.", "patch_embed.proj."),
        (r"\.attention\.([qkv])_proj\.", r".attn.\1."),
        (r"\.attention\.o_proj\.", ".attn.proj."),
    ),
    "CLIP": (
        *COMMON,
        (r"^embeddings\.class_embedding$", "cls_token"),
        (r"^embeddings\.position_embedding\.weight$", "pos_embed"),
        (r"^embeddings\.patch_embedding\.", "patch_embed.proj."),
        (r"^pre_layrnorm\.", "norm_pre."),
        (r"^post_layernorm\.", "norm."),
        (r"\.self_attn\.([qkv])_proj\.", r".attn.\1."),
        (r"\.self_attn\.out_proj\.", ".attn.proj."),
        (r"\.layer_norm([12])\.", r".norm\1."),
        (r"^head\.probe$", "attn_pool.latent"),
        (r"^head\.attention\.out_proj\.", "attn_pool.proj."),
        (r"^head\.layernorm\.", "attn_pool.norm."),
        (r"^head\.mlp\.", "attn_pool.mlp."),
    ),
}
"""SigLIP is CLIP without a CLS token and with an attention pool."""
DROPPED = re.compile(r"^embeddings\.position_ids$|^pooler\.|^classifier\.")
MLP = {"up_proj": "fc1", "down_proj": "fc2"}
GATED_MLP = {"gate_proj": "w1", "up_proj": "w2", "down_proj": "w3"}


def to_timm_names(state: Mapping[str, Tensor]) -> State:
    """Return the weights of one network under names that timm reads."""
    state, layout = unwrap_state(state)
    if layout == "timm" or not state:
        return state
    kept = {name: value for name, value in state.items() if not DROPPED.match(name)}
    found = _joined({_renamed(name, LAYOUTS[layout]): value for name, value in kept.items()})
    if layout == "DINOv2":
        found.setdefault("mask_token", torch.zeros(1))  # by which timm knows the layout; it drops it
    if layout == "DINOv3":
        found = _with_mlp(found)
    return _shaped(found) if layout == "CLIP" else found


def unwrap_state(state: Mapping[str, Tensor]) -> tuple[State, str]:
    """The weights without wrappers, a teacher's before others, and their layout: timm, or a key of LAYOUTS."""
    found = []
    for mark, layout in LAYOUT_MARKS.items():
        for name in state:
            prefix = name.removesuffix(mark)
            if name.endswith(mark) and set(prefix.split(".")) <= WRAPPERS | {""}:
                found.append(("teacher" not in prefix, len(prefix), prefix, layout))
    if not found:
        return dict(state), "timm"
    *_, prefix, layout = min(found)
    inside = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    return inside, layout


def _renamed(name: str, rules: Rules) -> str:
    for pattern, new in rules:
        name = re.sub(pattern, new, name)
    return name


def _joined(state: State) -> State:
    """Queries, keys and values as one matrix; a bias that is missing beside others is one of zeros."""
    found: State = {name: value for name, value in state.items() if not re.search(r"\.attn\.[qkv]\.", name)}
    for name, query in state.items():
        if not name.endswith(".attn.q.weight"):
            continue
        start = name.removesuffix("q.weight")
        found[f"{start}qkv.weight"] = torch.cat([state[f"{start}{one}.weight"] for one in "qkv"])
        biases = [state.get(f"{start}{one}.bias") for one in "qkv"]
        if any(bias is not None for bias in biases):
            none = torch.zeros(len(query), dtype=query.dtype)
            found[f"{start}qkv.bias"] = torch.cat([none if bias is None else bias for bias in biases])
    return found


def _with_mlp(state: State) -> State:
    """The layers of an MLP, which are called the same with and without a gate."""
    names = GATED_MLP if any(".mlp.gate_proj." in name for name in state) else MLP
    return {
        re.sub(r"\.mlp\.(\w+_proj)\.", lambda found: f".mlp.{names[found[1]]}.", name): value
        for name, value in state.items()
    }


def _shaped(state: State) -> State:
    """Tokens and positions with a dimension for the batch, and a pool with its own matrix for queries."""
    found: State = {}
    for name, value in state.items():
        if name in ("cls_token", "pos_embed"):
            found[name] = value.reshape(1, -1, value.shape[-1])
        elif name.startswith("head.attention.in_proj_"):
            kind = name.removeprefix("head.attention.in_proj_")
            width = len(value) // 3
            found[f"attn_pool.q.{kind}"], found[f"attn_pool.kv.{kind}"] = value[:width], value[width:]
        else:
            found[name] = value
    return found
