"""The Hugging Face hub: weights of timm, repositories as backbones, and backbones in one file for use offline.

Only what is needed is fetched, and what lies in the client's cache is not fetched again.

The tags of the file are those that any .safetensors file may have (docs/backbones.md): `timm`, `image_size`, `mean`,
`std`, `pool`, `license`, and `settings` where the network is not the plain one of its name. `source` says where it
came from.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from holotype.config.schema import BackboneConfig
from holotype.errors import InputError
from holotype.models.convert import (
    CLIP_WEIGHTS,
    HubModel,
    from_open_clip_config,
    from_timm_config,
    from_transformers_config,
)
from holotype.models.tail import Model
from holotype.models.weights_io import (
    WeightsOrigin,
    check_normalisation,
    find_origin,
    load_network,
    read_metadata,
    weights_digest,
)
from holotype.models.zoo import RECOMMENDED, UNKNOWN, import_timm, model_outline
from holotype.utils.atomic import atomic_write

PREFIX = "hf-hub:"
CONFIG, OPEN_CLIP = "config.json", "open_clip_config.json"


CLIENT = "huggingface_hub"
HUB_RETRIES = ("thrown while requesting", "Retrying in ")
"""What the client's lines about a try hold."""
MAX_ERROR_TEXT = 150
"""Characters of an error that are told."""
HUB_CLIENTS = ("huggingface_hub", "httpx", "httpx2", "requests", "urllib3")
"""Packages whose errors speak of the network."""

log = logging.getLogger(__name__)


class _RetryLog(logging.Filter):
    """Lets no line about a try pass; the first one is told in other words."""

    def __init__(self) -> None:
        super().__init__()
        self.told = False

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno > logging.WARNING or not any(words in record.getMessage() for words in HUB_RETRIES):
            return True
        if not self.told:
            self.told = True
            log.info("The Hugging Face hub does not answer; it is asked again for up to a minute.")
        return False


@contextmanager
def hub_request() -> Iterator[None]:
    """Around calls of the client, which says two lines for each of a dozen tries; --verbose shows them all."""
    import huggingface_hub.utils  # noqa: F401 (brings the handlers of its logger)

    handlers = [] if log.isEnabledFor(logging.DEBUG) else logging.getLogger(CLIENT).handlers[:]
    tries = _RetryLog()
    for handler in handlers:
        handler.addFilter(tries)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(tries)


def download_error(error: Exception) -> str:
    """The reason in a few words, for a sentence about what could not be fetched."""
    from huggingface_hub import constants
    from huggingface_hub.errors import LocalEntryNotFoundError

    if not isinstance(error, LocalEntryNotFoundError):
        return short_error(error)
    return "HF_HUB_OFFLINE forbids to ask it" if constants.HF_HUB_OFFLINE else "it does not answer"


def short_error(error: Exception) -> str:
    """Kind and first line of an error, cut between words where it is long."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    line = lines[0].strip()
    if len(line) > MAX_ERROR_TEXT:
        line = f"{line[:MAX_ERROR_TEXT].rpartition(' ')[0] or line[:MAX_ERROR_TEXT]} ..."
    return f"{type(error).__name__}: {line}"


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
    files = " and ".join(str(file) for file in _cached_files(repository))
    what = files or f"{repository} from the hub's cache (hf cache)"
    return (
        f"The weights of {arch} were not fetched whole from the Hugging Face hub ({short_error(error)}): delete "
        f"{what}, and run the same command again."
    )


def _cached_files(repository: str) -> list[Path]:
    """Files of a repository in the hub's cache; where it keeps links to them, what these point to."""
    from huggingface_hub import try_to_load_from_cache

    found = [try_to_load_from_cache(repository, name) for name in CLIP_WEIGHTS]
    return [Path(file).resolve() for file in found if isinstance(file, str)]


def is_repository(name: str) -> bool:
    return name.startswith(PREFIX)


def repository_origin(name: str, *, fetch: bool) -> WeightsOrigin:
    """What a repository holds. fetch: its weights as well; else the description alone."""
    found = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", name.removeprefix(PREFIX))
    if found is None:
        raise InputError(f"{name!r} names no repository: write {PREFIX}organisation/repository.")
    repository = HubRepository(name, found[1], found[2])
    described = repository.describe()
    check_buildable(described, name)
    file = repository.weights(described) if fetch else None
    shared = {key: value for key, value in vars(described).items() if key not in ("files", "licence")}
    licence, digest = described.licence or repository.licence(), weights_digest(file) if file else ""
    return WeightsOrigin(name, file=file, digest=digest, licence=licence, **shared)


def check_buildable(described: HubModel, name: str) -> None:
    """Refuse settings of a network that timm does not take; its own complaints are of many kinds."""
    try:
        model_outline(described.arch, **described.settings)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"timm cannot build the network of {name} ({described.arch} with {described.settings}: "
            f"{short_error(error)})."
        ) from error


class HubRepository:
    """Files of one repository, of one revision."""

    def __init__(self, name: str, id: str, revision: str | None) -> None:
        self.name, self.id, self.revision = name, id, revision

    def describe(self) -> HubModel:
        content = self.read(CONFIG)
        try:
            if "architecture" in content:
                return from_timm_config(content)
            if clip := self.read(OPEN_CLIP):
                return from_open_clip_config(clip, self.name)
            if "model_type" in content:
                return from_transformers_config(content, self.read("preprocessor_config.json"), self.name)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"The configuration of {self.name} cannot be read ({type(error).__name__}: {error})."
            ) from error
        raise InputError(
            f"{self.name} has neither a {CONFIG} of timm or transformers nor an {OPEN_CLIP}, so nobody knows "
            "which network it holds: download its weights and give their path with arch."
        )

    def weights(self, described: HubModel) -> Path:
        for file in described.files:
            if (found := self.file(file)) is not None:
                if found.suffix == ".safetensors":
                    read_metadata(found)  # half a file is told here
                return found
        raise InputError(f"{self.name} holds no weights under any of the names {', '.join(described.files)}.")

    def licence(self) -> str:
        """As the first lines of its card name it."""
        card = self.file("README.md")
        text = card.read_text(encoding="utf-8", errors="replace") if card else ""
        head = re.match(r"---\s*\n(.*?)\n---", text, re.DOTALL)
        try:
            said = yaml.safe_load(head[1]) if head else {}
        except yaml.YAMLError:
            return ""
        said = said if isinstance(said, dict) else {}
        named = said.get("license")
        named = ", ".join(map(str, named)) if isinstance(named, list) else str(named or "")
        return str(said.get("license_name") or named) if named in ("", "other") else named

    def read(self, name: str) -> dict[str, Any]:
        """A JSON file; empty where there is none."""
        file = self.file(name)
        if file is None:
            return {}
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(
                f"{name} of {self.name} is no JSON ({error}); delete {file} and run again."
            ) from error
        return found if isinstance(found, dict) else {}

    def file(self, name: str) -> Path | None:
        """A file in the client's cache, fetched where it is not there; None where the repository has none."""
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import (
            EntryNotFoundError,
            GatedRepoError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        try:
            place = os.environ.get("HF_ENDPOINT") or None  # the client looks when it is imported
            with hub_request():
                return Path(hf_hub_download(self.id, name, revision=self.revision, endpoint=place))
        except GatedRepoError as error:
            raise InputError(
                f"{self.name} is given to those who accept its terms: accept them on https://huggingface.co/{self.id}, "
                "then log in with `hf auth login`."
            ) from error
        except (RepositoryNotFoundError, RevisionNotFoundError) as error:
            raise InputError(
                f"There is no {self.name} on the hub, or it is private: check the name."
            ) from error
        except LocalEntryNotFoundError as error:
            raise InputError(self._out_of_reach(error)) from error
        except EntryNotFoundError:
            return None
        except Exception as error:
            if is_network_error(error):
                raise InputError(self._out_of_reach(error)) from error
            raise

    def _out_of_reach(self, error: Exception) -> str:
        return (
            f"{self.name} could not be fetched from the Hugging Face hub ({download_error(error)}): try again, or run "
            f"`holotype backbones fetch {self.name}` where there is a network and name the file that it writes as the "
            "backbone."
        )


BACKBONE_SUFFIX = ".safetensors"


@dataclass(frozen=True)
class DownloadedBackbone:
    """What was written."""

    file: Path
    nbytes: int
    tags: dict[str, str]


def download_backbone(name: str, folder: Path) -> DownloadedBackbone:
    """Bring the weights of a backbone into one file in `folder`, which `--backbone FILE` takes without a network.

    name: timm's, hf-hub:organisation/repository, or the name of a list of recommendations, for its first choice.
    """
    name = RECOMMENDED[name][0].name if name in RECOMMENDED else name
    check_downloadable(name)
    file = folder / f"{backbone_file_name(name)}{BACKBONE_SUFFIX}"
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder with --to.")
    if file.exists() or file.is_symlink():
        raise InputError(
            f"{file} is there already, and nothing is overwritten: use it as the backbone, delete it, or name another "
            "folder with --to."
        )
    origin = repository_origin(name, fetch=True) if is_repository(name) else find_origin(BackboneConfig(name))
    check_normalisation(origin, None)
    outline = model_outline(origin.arch, **origin.settings)
    size = native_image_size(origin, outline)
    tags = metadata_tags(origin, outline, size, name)
    with torch.random.fork_rng(devices=[]):  # timm draws weights that are overwritten at once
        model = load_network(origin, origin.file, size) if origin.file else load_from_hub(origin.arch, size)
    write_weights(file, model, tags)
    return DownloadedBackbone(file, file.stat().st_size, tags)


def check_downloadable(name: str) -> None:
    """Refuse names of what is on this machine already, and repositories without their prefix."""
    if name == "embedded":
        raise InputError(
            "The embedded backbone comes with the package: --backbone embedded needs no network."
        )
    if name == "auto":
        raise InputError("auto names no network of its own: name one, as `holotype backbones` lists them.")
    if Path(name).expanduser().exists() or name.endswith(BACKBONE_SUFFIX):
        raise InputError(f"{name} is a file: give its path with --backbone, there is nothing to fetch.")
    if re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", name):
        raise InputError(f"{name} looks like a repository of the Hugging Face hub: write {PREFIX}{name}.")


def backbone_file_name(name: str) -> str:
    """Of the file, without its ending."""
    return re.sub(r"[^\w.-]+", "-", name.removeprefix(PREFIX))


def native_image_size(origin: WeightsOrigin, outline: Model) -> int:
    """Side of the images that the weights were made for, in pixels: others are made of these when they are loaded."""
    _, height, width = outline.pretrained_cfg["input_size"]
    if origin.image_size is None and height != width:
        raise InputError(
            f"{origin.arch} was made for {height} x {width} pixels, not for squares: choose another network."
        )
    return origin.image_size or int(height)


def metadata_tags(origin: WeightsOrigin, outline: Model, size: int, name: str) -> dict[str, str]:
    tags = {"timm": origin.arch, "image_size": str(size)}
    for key in ("mean", "std"):
        tags[key] = ",".join(str(float(x)) for x in getattr(origin, key) or outline.pretrained_cfg[key])
    tags |= {
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
