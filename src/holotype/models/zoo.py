"""Model zoo: timm networks that fit, and a short list of recommended backbones.

timm is imported inside the functions: it takes seconds.

Licences are those that the weights were published under when the list was made; loading prints what holds then.
"""

from __future__ import annotations

import difflib
import pickle
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from holotype.config.schema import RGB
from holotype.errors import InputError
from holotype.models.hub_client import download_error, hub_request, short_error
from holotype.models.licences import has_conditions
from holotype.models.tail import Model

HUB_CLIENTS = ("huggingface_hub", "httpx", "httpx2", "requests", "urllib3")
"""Packages whose errors speak of the network."""
CACHE_NAMES = (
    "model.safetensors",
    "pytorch_model.bin",
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.bin",
)
"""Names that weights have on the hub."""


def import_timm() -> ModuleType:
    """timm, which takes seconds to import."""
    from holotype.utils import torchvision_compat as _torchvision

    _torchvision.patch_torchvision()  # timm imports torchvision
    with warnings.catch_warnings():
        # tqdm's remark in a notebook without ipywidgets; none of its bars is shown
        warnings.filterwarnings("ignore", message="IProgress not found")
        import timm

    return timm


def check_name(name: str, *, with_weights: bool) -> None:
    """Refuse names that timm does not know (or has no weights for), with the nearest ones it does."""
    timm = import_timm()
    tag_known = "." not in name or name in timm.list_pretrained()
    if timm.is_model(name) and tag_known:
        if with_weights and not timm.is_model_pretrained(name):
            raise InputError(
                f"timm has no weights for {name}: give the path of a .safetensors file with arch {name}, mean and std."
            )
        return
    usable = timm.list_models(["vit_*", "eva*", "deit3_*"]) + timm.list_pretrained(
        ["vit_*", "eva*", "deit3_*"]
    )
    near = difflib.get_close_matches(name, usable, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "timm.list_pretrained() lists those it knows."
    raise InputError(f'timm knows no network "{name}": {hint}')


def licence_of(name: str) -> str:
    """Licence of timm's weights of that name; "" where it says none."""
    return str(import_timm().get_pretrained_cfg(name).license or "")


def licence_of_files(arch: str) -> str:
    """What a file with this network is under, as far as the name tells: with a tag, the licence of these weights.

    Without one it may be anybody's work, unless timm knows the network by weights with strings attached alone, as of
    DINOv3; then these. Else "".
    """
    if "." in arch:
        return licence_of(arch)
    found = sorted({licence_of(name) for name in import_timm().list_pretrained(f"{arch}.*")})
    return " or ".join(found) if all(has_conditions(licence) for licence in found) else ""


def normalisations(arch: str) -> dict[tuple[RGB, RGB], list[str]]:
    """Mean and std of the weights that a name may mean, timm's first ones first, each with the names of the weights.

    One for a name with a tag; several where weights of one network expect different images; none where timm has none.
    """
    timm = import_timm()
    first = f"{arch}.{timm.get_pretrained_cfg(arch).tag}" if "." not in arch else arch
    names = [arch] if "." in arch else timm.list_pretrained(f"{arch}.*")
    found: dict[tuple[RGB, RGB], list[str]] = {}
    for name in sorted(names, key=lambda name: name != first):
        cfg = timm.get_pretrained_cfg(name)  # of a name that timm knows
        found.setdefault((tuple(cfg.mean), tuple(cfg.std)), []).append(name)
    return found


def model_outline(arch: str, **settings: object) -> Model:
    """The network without storage: what it is, before anything is downloaded."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        model = build_untrained(arch, **settings)
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


def build_untrained(arch: str, **settings: object) -> Model:
    """The network before its weights, which are not drawn where it can do without."""
    timm = import_timm()
    try:
        return timm.create_model(arch, pretrained=False, num_classes=0, weight_init="skip", **settings)
    except TypeError:  # not every class of networks has that setting
        return timm.create_model(arch, pretrained=False, num_classes=0, **settings)


def load_from_hub(arch: str, size: int) -> Model:
    """The network with the weights of timm's name; a hub out of reach and a damaged file become advice."""
    timm = import_timm()
    try:
        with hub_request():
            return timm.create_model(arch, pretrained=True, num_classes=0, img_size=size)
    except Exception as error:
        repository = timm.get_pretrained_cfg(arch).hf_hub_id or f"timm/{arch}"
        if _is_code(error):
            raise InputError(
                f"The weights of {arch} that the Hugging Face hub hands out as {repository} would run code when they "
                "are loaded, and were not: give the path of a .safetensors file that you trust, or use the embedded "
                "backbone."
            ) from error
        if _is_corrupt(error):
            raise InputError(_damage_error(arch, repository, error)) from error
        if is_network_error(error):
            raise InputError(
                f"The weights of {arch} could not be fetched from the Hugging Face hub ({download_error(error)}): "
                f"try again, or run `holotype backbones fetch {arch}` where there is a network and name the file that "
                "it writes as the backbone, or use the embedded backbone."
            ) from error
        raise


def _is_code(error: Exception) -> bool:
    """Weights are loaded without running what a pickle asks for; timm, or torch, says so where it asks."""
    return isinstance(error, RuntimeError | pickle.UnpicklingError) and bool(
        re.search("weights[_ ]only", str(error), re.IGNORECASE)
    )


def _is_corrupt(error: Exception) -> bool:
    from safetensors import SafetensorError

    torn = isinstance(error, RuntimeError) and "PytorchStreamReader" in str(error)  # what torch.load says
    return isinstance(error, SafetensorError | EOFError | zipfile.BadZipFile | pickle.UnpicklingError) or torn


def is_network_error(error: Exception) -> bool:
    """The hub's client changes its HTTP library between versions, and not all their errors are OSErrors."""
    package = type(error).__module__.partition(".")[0]
    wrong_sum = isinstance(error, RuntimeError) and "invalid hash value" in str(error)  # what torch.hub says
    return isinstance(error, OSError) or package in HUB_CLIENTS or wrong_sum


def _damage_error(arch: str, repository: str, error: Exception) -> str:
    """The sentence about weights that were fetched and cannot be read."""
    files = " and ".join(str(file) for file in _download(repository))
    what = f"delete {files}" if files else f"delete {repository} from the hub's cache (hf cache)"
    return (
        f"The weights of {arch} were not fetched whole from the Hugging Face hub ({short_error(error)}): "
        f"{what}, and run "
        "the same command again."
    )


def _download(repository: str) -> list[Path]:
    """Files of a repository in the hub's cache; where it keeps links to them, what these point to."""
    from huggingface_hub import try_to_load_from_cache

    found = [try_to_load_from_cache(repository, name) for name in CACHE_NAMES]
    return [Path(file).resolve() for file in found if isinstance(file, str)]


@dataclass(frozen=True)
class RecommendedBackbone:
    """A backbone of the list."""

    name: str
    """As --backbone takes it."""
    arch: str
    """timm's network, by which size and speed can be told without its weights."""
    licence: str
    words: str
    image_size: int = 224


USES = {
    "photos": "photographs of things, scenes, art, products",
    "nature": "animals, plants, fungi, camera traps",
    "medical": "radiology, pathology, microscopy",
    "industrial": "parts, surfaces, defects, aerial views: images without faces",
}
DINOV2 = "self-supervised on 142 M curated images; no labels, no text"
RECOMMENDED: dict[str, tuple[RecommendedBackbone, ...]] = {
    "photos": (
        RecommendedBackbone(
            "vit_base_patch14_dinov2.lvd142m",
            "vit_base_patch14_dinov2",
            "apache-2.0",
            f"{DINOV2}; what auto takes on a GPU",
        ),
        RecommendedBackbone(
            "vit_small_patch14_dinov2.lvd142m",
            "vit_small_patch14_dinov2",
            "apache-2.0",
            "the same, smaller; what auto takes on a CPU",
        ),
        RecommendedBackbone(
            "vit_base_patch16_dinov3.lvd1689m",
            "vit_base_patch16_dinov3",
            "dinov3-license",
            "DINOv2's successor; its licence goes with every model made from it",
            256,
        ),
        RecommendedBackbone(
            "embedded", "vit_tiny_patch16_224", "mit", "in the package, no network needed; coarse", 128
        ),
    ),
    "nature": (
        RecommendedBackbone(
            "hf-hub:imageomics/bioclip",
            "vit_base_patch16_clip_224",
            "mit",
            "trained on 10 M images of 450,000 taxa with their names",
        ),
        RecommendedBackbone(
            "vit_base_patch14_dinov2.lvd142m",
            "vit_base_patch14_dinov2",
            "apache-2.0",
            "where kinds differ by more than taxonomy: poses, behaviour, habitat",
        ),
    ),
    "medical": (
        RecommendedBackbone(
            "hf-hub:microsoft/BiomedCLIP-PubMedBERT_256-vit_base_patch16_224",
            "vit_base_patch16_224",
            "mit",
            "trained on 15 M figures of papers with captions; its makers mean it for research",
        ),
        RecommendedBackbone(
            "vit_base_patch14_reg4_dinov2.lvd142m",
            "vit_base_patch14_reg4_dinov2",
            "apache-2.0",
            "for kinds of images that BiomedCLIP never saw",
        ),
    ),
    "industrial": (
        RecommendedBackbone(
            "vit_base_patch14_reg4_dinov2.lvd142m",
            "vit_base_patch14_reg4_dinov2",
            "apache-2.0",
            f"{DINOV2}; registers keep small details from being drowned",
        ),
        RecommendedBackbone(
            "vit_small_patch14_reg4_dinov2.lvd142m",
            "vit_small_patch14_reg4_dinov2",
            "apache-2.0",
            "the same, smaller",
        ),
    ),
}
"""The best first; none of the first ones has strings attached."""
