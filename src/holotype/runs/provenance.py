"""Where a number comes from: versions, hardware, precision, commit, digests."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import holotype
from holotype.data.table import Table
from holotype.models.backbone import Backbone
from holotype.models.zoo import licence_terms
from holotype.utils.device import Device, cpu_count
from holotype.utils.distributed import world_size

PACKAGES = ("torch", "torchvision", "timm", "numpy", "scipy", "scikit-learn", "pillow", "safetensors")


def describe_provenance(backbone: Backbone, table: Table, compute: Device) -> dict[str, Any]:
    """The facts that stand beside every score."""
    return {
        "holotype": holotype.__version__,
        "commit": commit(),
        "command": " ".join(["holotype", *map(strip_folders, sys.argv[1:])]),
        "python": platform.python_version(),
        "versions": dict(package_versions()),
        "hardware": hardware(compute.device, world_size()),
        "processes": world_size(),
        "precision": compute.precision,
        "matmul": torch.get_float32_matmul_precision(),
        "backbone": {
            "name": backbone.name,
            "digest": backbone.digest,
            "caveat": backbone.caveat,
            **backbone.changes,
            **licence_notes(backbone),
        },
        "table": {
            "name": table.name,
            "fingerprint": table.fingerprint(),
            "images": len(table),
            "labelled": int(table.labelled.sum()),
            "unreadable": int((~table.usable).sum()),
        },
    }


@cache
def package_versions() -> dict[str, str]:
    """Of the packages that numbers depend on. Each is looked for on the disk."""
    return {name: version(name) for name in PACKAGES}


def licence_notes(backbone: Backbone) -> dict[str, str]:
    """The licence of the weights, and what somebody must know of it where it is not a free one."""
    if not backbone.licence:
        return {}
    terms = licence_terms(backbone.licence)
    return {"licence": backbone.licence} | ({"terms": terms} if terms else {})


def strip_folders(word: str) -> str:
    """A word of a command line with the last part of an absolute path alone: provenance is handed on, and folders name
    their owners. What repeats a run is config.yaml."""
    flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if not (value.startswith("~") or os.path.isabs(value) or re.match(r"[A-Za-z]:[\\/]", value)):
        return word
    last = re.split(r"[\\/]", value.rstrip("\\/"))[-1]
    return f"{flag}{equals}{last or value}"


def commit() -> str:
    """The commit of the source tree that runs, with a + if it was changed; "" outside a checkout.

    `HOLOTYPE_COMMIT` names it where the code runs without its .git folder.
    """
    return os.environ.get("HOLOTYPE_COMMIT") or _commit_of(Path(__file__).parent)


@cache
def _commit_of(here: Path) -> str:
    """Looked up once: what a long sweep runs is what it loaded, whatever is committed meanwhile."""

    def git(*words: str) -> str:
        found = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=False)
        return found.stdout.strip() if found.returncode == 0 else ""

    try:
        tracked = git("ls-files", "--error-unmatch", Path(__file__).name)
        if not tracked:
            return ""
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except OSError:
        return ""


def hardware(device: torch.device, processes: int = 1) -> str:
    """`1 x NVIDIA H200`, or `2 CPU cores`."""
    if device.type == "cuda":
        return f"{processes} x {torch.cuda.get_device_name(device)}"
    return f"{cpu_count()} CPU cores" if device.type == "cpu" else f"{platform.machine()} {device.type}"
