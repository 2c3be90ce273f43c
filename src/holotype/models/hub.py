"""`hf-hub:org/repo`: a repository on the Hugging Face hub, such as BioCLIP or a network that one has trained.

Only what is needed is fetched, and what lies in the client's cache is not fetched again.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import yaml

from holotype.errors import InputError
from holotype.models.hub_client import asking_hub, brief, why_not_fetched
from holotype.models.networks import is_of_the_network, outline_of
from holotype.models.origins import Origin, file_digest, read_metadata
from holotype.models.repositories import Described, of_open_clip, of_timm, of_transformers

PREFIX = "hf-hub:"
OPEN_CLIP, CONFIG, PREPROCESS, CARD = (
    "open_clip_config.json",
    "config.json",
    "preprocessor_config.json",
    "README.md",
)


def is_repository(name: str) -> bool:
    return name.startswith(PREFIX)


def repository_origin(name: str, *, fetch: bool) -> Origin:
    """What a repository holds. fetch: its weights as well; else the description alone."""
    found = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", name.removeprefix(PREFIX))
    if found is None:
        raise InputError(f"{name!r} names no repository: write {PREFIX}organisation/repository.")
    repository = Repository(name, found[1], found[2])
    described = repository.describe()
    check_buildable(described, name)
    file = repository.weights(described) if fetch else None
    return Origin(
        name,
        described.arch,
        file,
        described.image_size,
        described.mean,
        described.std,
        file_digest(file) if file else "",
        settings=described.settings,
        own_pool=described.own_pool,
        licence=described.licence or repository.licence(),
    )


def check_buildable(described: Described, name: str) -> None:
    """Refuse settings of a network that timm does not take; its own complaints are of many kinds."""
    try:
        outline_of(described.arch, **described.settings)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"timm cannot build the network of {name} ({described.arch} with {described.settings}: {brief(error)})."
        ) from error


class Repository:
    """Files of one repository, of one revision."""

    def __init__(self, name: str, id: str, revision: str | None) -> None:
        self.name, self.id, self.revision = name, id, revision

    def describe(self) -> Described:
        content = self.read(CONFIG)
        try:
            if "architecture" in content:
                return of_timm(content)
            if clip := self.read(OPEN_CLIP):
                return of_open_clip(clip, self.name)
            if "model_type" in content:
                return of_transformers(content, self.read(PREPROCESS), self.name)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"The configuration of {self.name} cannot be read ({type(error).__name__}: {error})."
            ) from error
        raise InputError(
            f"{self.name} has neither a {CONFIG} of timm or transformers nor an {OPEN_CLIP}, so nobody knows "
            "which network it holds: download its weights and give their path with arch."
        )

    def weights(self, described: Described) -> Path:
        for file in described.files:
            if (found := self.file(file)) is not None:
                if found.suffix == ".safetensors":
                    read_metadata(found)  # half a file is told here
                return found
        raise InputError(f"{self.name} holds no weights under any of the names {', '.join(described.files)}.")

    def licence(self) -> str:
        """As the first lines of its card name it."""
        card = self.file(CARD)
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
            place = (
                os.environ.get("HF_ENDPOINT") or None
            )  # as it is now: the client looks when it is imported
            with asking_hub():
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
            if is_of_the_network(error):
                raise InputError(self._out_of_reach(error)) from error
            raise

    def _out_of_reach(self, error: Exception) -> str:
        return (
            f"{self.name} could not be fetched from the Hugging Face hub ({why_not_fetched(error)}): try again, or run "
            f"`holotype backbones fetch {self.name}` where there is a network and name the file that it writes as the "
            "backbone."
        )
