"""The Hugging Face hub: weights of timm, and repositories as backbones.

Only what is needed is fetched, and what lies in the client's cache is not fetched again.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import textwrap
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from holotype.config.schema import as_rgb
from holotype.errors import InputError
from holotype.models.tail import Model
from holotype.models.weights_io import HUB_PREFIX, WeightsOrigin, read_metadata, weights_digest
from holotype.models.zoo import import_timm, model_outline

CONFIG, OPEN_CLIP = "config.json", "open_clip_config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
CLIP_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin", *WEIGHTS)
"""Names that weights may have in a repository, the best first."""
DINOV2_SIZES = {384: "small", 768: "base", 1024: "large", 1536: "giant"}
DINOV3_SIZES = {384: "small", 768: "base", 1024: "large", 1280: "huge_plus", 4096: "7b"}
CLIP_SIZES = {768: "base", 1024: "large", 1280: "huge", 1408: "giant", 1664: "gigantic"}
SIGLIP_SIZES = {768: "base", 1024: "large", 1152: "so400m", 1536: "giantopt"}
"""Width of a network to its name in timm."""
CLIENT = "huggingface_hub"
HUB_RETRIES = ("thrown while requesting", "Retrying in ")
"""Parts of the client's messages about a retry."""
MAX_ERROR_TEXT = 150
"""Characters of an error that are shown."""
HUB_CLIENTS = (CLIENT, "httpx", "httpx2", "requests", "urllib3")
"""Packages whose errors speak of the network."""

log = logging.getLogger(__name__)


@contextmanager
def hub_request() -> Iterator[None]:
    """Replace the client's messages about a dozen retries by one line; --verbose shows them all."""
    import huggingface_hub.utils  # noqa: F401 (brings the handlers of its logger)

    announced = False

    def hide_retries(record: logging.LogRecord) -> bool:
        nonlocal announced
        if record.levelno > logging.WARNING or not any(words in record.getMessage() for words in HUB_RETRIES):
            return True
        if not announced:
            announced = True
            log.info("The Hugging Face hub does not answer; it is asked again for up to a minute.")
        return False

    handlers = [] if log.isEnabledFor(logging.DEBUG) else logging.getLogger(CLIENT).handlers[:]
    for handler in handlers:
        handler.addFilter(hide_retries)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(hide_retries)


def short_error(error: Exception) -> str:
    """Return the reason of a failure in a few words: the kind and the first line of an error, cut between words."""
    from huggingface_hub import constants
    from huggingface_hub.errors import LocalEntryNotFoundError

    if isinstance(error, LocalEntryNotFoundError):
        return "HF_HUB_OFFLINE forbids to ask it" if constants.HF_HUB_OFFLINE else "it does not answer"
    line = textwrap.shorten(str(error).strip().partition("\n")[0], MAX_ERROR_TEXT, placeholder=" ...")
    return ": ".join(filter(None, (type(error).__name__, line)))


def is_network_error(error: Exception) -> bool:
    """The hub's client changes its HTTP library between versions, and not all their errors are OSErrors."""
    package = type(error).__module__.partition(".")[0]
    wrong_sum = isinstance(error, RuntimeError) and "invalid hash value" in str(error)  # what torch.hub says
    return isinstance(error, OSError) or package in HUB_CLIENTS or wrong_sum


def out_of_reach(what: str, name: str, error: Exception) -> InputError:
    return InputError(
        f"{what} could not be fetched from the Hugging Face hub ({short_error(error)}): try again, or run "
        f"`holotype backbones fetch {name}` where there is a network and name the file that it writes as the backbone, "
        "or use the embedded backbone."
    )


def load_from_hub(arch: str, size: int) -> Model:
    """Return the network with the weights of timm's name; a hub out of reach or a damaged file is an InputError."""
    from huggingface_hub import try_to_load_from_cache
    from safetensors import SafetensorError

    timm = import_timm()
    try:
        with hub_request():
            return timm.create_model(arch, pretrained=True, num_classes=0, img_size=size)
    except Exception as error:
        repository = timm.get_pretrained_cfg(arch).hf_hub_id or f"timm/{arch}"
        # weights are loaded without running what a pickle asks for; timm, or torch, says so where it asks
        refused = isinstance(error, RuntimeError | pickle.UnpicklingError)
        if refused and re.search("weights[_ ]only", str(error), re.IGNORECASE):
            raise InputError(
                f"The weights of {arch} that the Hugging Face hub hands out as {repository} would run code when they "
                "are loaded, and were not: give the path of a .safetensors file that you trust, or use the embedded "
                "backbone."
            ) from error
        torn = isinstance(error, RuntimeError) and "PytorchStreamReader" in str(error)  # what torch.load says
        damaged = SafetensorError | EOFError | zipfile.BadZipFile | pickle.UnpicklingError
        if torn or isinstance(error, damaged):
            cached = [try_to_load_from_cache(repository, name) for name in CLIP_WEIGHTS]
            files = " and ".join(str(Path(file).resolve()) for file in cached if isinstance(file, str))
            raise InputError(
                f"The weights of {arch} were not fetched whole from the Hugging Face hub ({short_error(error)}): "
                f"delete {files or f'{repository} from its cache (hf cache)'}, and run the same command again."
            ) from error
        if is_network_error(error):
            raise out_of_reach(f"The weights of {arch}", arch, error) from error
        raise


def repository_origin(name: str, *, fetch: bool) -> WeightsOrigin:
    """Describe the network of a repository. fetch: download its weights, too."""
    found = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", name.removeprefix(HUB_PREFIX))
    if found is None:
        raise InputError(f"{name!r} names no repository: write {HUB_PREFIX}organisation/repository.")
    repository = HubRepository(name, found[1], found[2])
    origin, files = repository.describe()
    try:
        model_outline(origin.arch, **origin.settings)
    except InputError:
        raise
    except Exception as error:  # timm's own complaints are of many kinds
        raise InputError(
            f"timm cannot build the network of {name} ({origin.arch} with {origin.settings}: {short_error(error)}): "
            "choose a vision transformer of timm."
        ) from error
    origin = replace(origin, licence=origin.licence or repository.licence())
    if not fetch:
        return origin
    file = repository.weights(files)
    return replace(origin, file=file, digest=weights_digest(file))


class HubRepository:
    """Files of one repository, of one revision."""

    def __init__(self, name: str, id: str, revision: str | None) -> None:
        self.name, self.id, self.revision = name, id, revision

    def describe(self) -> tuple[WeightsOrigin, tuple[str, ...]]:
        """Return what its configuration says, and the names that its weights may have."""
        content = self.read(CONFIG)
        try:
            if "architecture" in content:
                return from_timm_config(content, self.name), WEIGHTS
            if clip := self.read(OPEN_CLIP):
                return from_open_clip_config(clip, self.name), CLIP_WEIGHTS
            if "model_type" in content:
                preprocess = self.read("preprocessor_config.json")
                return from_transformers_config(content, preprocess, self.name), WEIGHTS
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"The configuration of {self.name} cannot be read ({type(error).__name__}: {error})."
            ) from error
        raise InputError(
            f"{self.name} has neither a {CONFIG} of timm or transformers nor an {OPEN_CLIP}, so nobody knows "
            "which network it holds: download its weights and give their path with arch."
        )

    def weights(self, names: tuple[str, ...]) -> Path:
        """Fetch the first file that there is; half a file is an InputError."""
        for name in names:
            if (file := self.file(name)) is not None:
                if file.suffix == ".safetensors":
                    read_metadata(file)
                return file
        raise InputError(f"{self.name} holds no weights under any of the names {', '.join(names)}.")

    def licence(self) -> str:
        """Return the licence that the model card names, "" where it names none."""
        from huggingface_hub import metadata_load

        card = self.file("README.md")
        try:
            metadata = (metadata_load(card) if card else None) or {}
        except (ValueError, yaml.YAMLError):
            return ""
        licence = metadata.get("license")
        licence = ", ".join(map(str, licence)) if isinstance(licence, list) else str(licence or "")
        return str(metadata.get("license_name") or licence) if licence in ("", "other") else licence

    def read(self, name: str) -> dict[str, Any]:
        """Read a JSON file; empty where there is none."""
        file = self.file(name)
        try:
            content = json.loads(file.read_text(encoding="utf-8")) if file else {}
        except ValueError as error:
            problem = f"{name} of {self.name} is no JSON ({error}); delete {file} and run again."
            raise InputError(problem) from error
        return content if isinstance(content, dict) else {}

    def file(self, name: str) -> Path | None:
        """Return a file in the client's cache, fetched where it is not there; None where the repository has none."""
        from huggingface_hub import errors, hf_hub_download

        try:
            endpoint = os.environ.get("HF_ENDPOINT") or None  # the client looks when it is imported
            with hub_request():
                return Path(hf_hub_download(self.id, name, revision=self.revision, endpoint=endpoint))
        except errors.GatedRepoError as error:
            raise InputError(
                f"{self.name} is given to those who accept its terms: accept them on https://huggingface.co/{self.id}, "
                "then log in with `hf auth login`."
            ) from error
        except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
            raise InputError(f"The hub has no {self.name}, or it is private: check the name.") from error
        except Exception as error:
            offline = isinstance(error, errors.LocalEntryNotFoundError)
            if isinstance(error, errors.EntryNotFoundError) and not offline:
                return None
            if offline or is_network_error(error):
                raise out_of_reach(self.name, self.name, error) from error
            raise


Config = Mapping[str, Any]


def from_timm_config(content: Config, name: str) -> WeightsOrigin:
    """Describe the network of a config.json as timm writes it. name: of the repository."""
    cfg, settings = content.get("pretrained_cfg") or {}, dict(content.get("model_args") or {})
    base = str(content["architecture"]).partition(".")[0]
    tagged = f"{base}.{cfg.get('tag')}"
    shape = cfg.get("input_size") or content.get("input_size") or [None]
    size = settings.pop("img_size", None) or shape[-1]
    settings.pop("num_classes", None)
    if content.get("global_pool") in ("token", "avg", "map"):
        settings.setdefault("global_pool", content["global_pool"])
    return WeightsOrigin(
        name,
        tagged if tagged in import_timm().list_pretrained() else base,
        image_size=_image_side(size),
        **_normalisation(cfg),
        settings=settings,
        own_pool=int(content.get("num_classes") or 0) > 0,
        licence=str(cfg.get("license") or ""),
    )


def from_open_clip_config(content: Config, name: str) -> WeightsOrigin:
    """Describe the image tower of an open_clip_config.json, a network of timm or open_clip's own."""
    model, vision = content["model_cfg"], content["model_cfg"]["vision_cfg"]
    size, settings = vision.get("image_size"), {}
    if arch := str(vision.get("timm_model_name") or ""):
        if vision.get("timm_pool") in ("token", "avg", "map"):
            settings["global_pool"] = vision["timm_pool"]
    else:
        arch = _clip_arch(vision.get("width"), vision.get("patch_size"), model.get("quick_gelu", False), size)
    normalisation = _normalisation(content.get("preprocess_cfg") or {})
    return WeightsOrigin(name, arch, image_size=_image_side(size), **normalisation, settings=settings)


def from_transformers_config(content: Config, preprocess: Config, name: str) -> WeightsOrigin:
    """Describe the network of a config.json and a preprocessor_config.json as transformers writes them."""
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
        arch = _clip_arch(width, patch, vision.get("hidden_act", "quick_gelu") == "quick_gelu", size)
    elif kind == "siglip":
        arch = _nearest_arch(f"vit_{SIGLIP_SIZES.get(width)}_patch{patch}_siglip", size)
    else:
        raise InputError(
            f"{name} holds a network of transformers' kind {kind or 'unknown'}, not read here: take the same network "
            "by timm's name, such as vit_base_patch16_224.dino for facebook/dino-vitb16."
        )
    normalisation = _normalisation(preprocess, "image_")
    return WeightsOrigin(name, arch, image_size=_image_side(size), **normalisation)


def _normalisation(content: Config, prefix: str = "") -> dict[str, Any]:
    """Return mean and std as far as a configuration has them."""
    return {key: as_rgb(key, content[prefix + key]) for key in ("mean", "std") if content.get(prefix + key)}


def _clip_arch(width: Any, patch: Any, quick_gelu: bool, size: Any) -> str:
    activation = "_quickgelu" if quick_gelu else ""
    return _nearest_arch(f"vit_{CLIP_SIZES.get(width)}_patch{patch}_clip{activation}", size)


def _nearest_arch(start: str, size: Any) -> str:
    """Return timm's name for an image size, or that for another: positions are resampled."""
    found = import_timm().list_models(f"{start}_*")
    return f"{start}_{size}" if f"{start}_{size}" in found else next(iter(found), start)


def _image_side(size: Any) -> int | None:
    """Return the side of a square, from a number or a pair."""
    size = size[-1] if isinstance(size, list | tuple) else size
    return int(size) if size else None
