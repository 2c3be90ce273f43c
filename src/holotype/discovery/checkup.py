"""What `holotype doctor` finds out: versions, the machine, the hub, whether embedding works, what `auto` chooses."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holotype import __version__
from holotype.errors import InputError
from holotype.utils.cache_dir import list_cache
from holotype.utils.device import cpu_count, default_precision, pick_device
from holotype.utils.memory import MemoryConfig, available_memory, cache_folder, format_bytes

PACKAGES = (
    "torch",
    "torchvision",
    "timm",
    "numpy",
    "pandas",
    "pillow",
    "rich",
    "huggingface-hub",
    "onnxruntime",
)
SECONDS_FOR_HUB = 2.0
SECONDS_FOR_TEST = 5.0
CLASSES = ("Sneaker", "Trouser")
"""Of the sample: nobody takes one for the other."""
EACH = 8
"""Images of either class that the self-test embeds."""
SIZES = (1_000, 10_000, 100_000)
"""Collections for which the views of the token cache are told."""

Facts = dict[str, Any]


def examine(paths: bool = False) -> Facts:
    """Everything, by chapter. paths: name folders as they are, instead of what they are."""
    online = hub_online()
    facts = {
        "versions": versions(),
        "machine": machine(),
        "gpus": gpus(),
        "cache": cache(paths),
        "hub": {"answers": online, "offline by HF_HUB_OFFLINE": bool(os.environ.get("HF_HUB_OFFLINE"))},
        "auto": choices(online),
        "self-test": self_test(),
    }
    if paths:
        facts["paths"] = {"python": sys.executable, "holotype": str(Path(__file__).parents[1])}
    return facts if paths else without_names(facts)


def versions() -> Facts:
    found: Facts = {"holotype": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    import torch

    return found | {"cuda of torch": torch.version.cuda or "none"}


def machine() -> Facts:
    return {
        "system": platform.platform(),
        "cores": cpu_count(),
        "memory available": format_bytes(available_memory()),
        "stdout": getattr(sys.stdout, "encoding", None) or "unknown",
    }


def gpus() -> list[Facts]:
    import torch

    found = []
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        found.append({"name": name, "memory": format_bytes(total), "free": format_bytes(free)})
    if torch.backends.mps.is_available():
        found.append(
            {"name": "mps", "memory": format_bytes(torch.mps.recommended_max_memory()), "free": "unknown"}
        )
    return found


def cache(paths: bool) -> Facts:
    folder = cache_folder(MemoryConfig())
    set_by_hand = os.path.isabs(os.environ.get("XDG_CACHE_HOME", ""))
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return {
        "folder": str(folder) if paths else ("set by XDG_CACHE_HOME" if set_by_hand else "the usual one"),
        "kept": format_bytes(sum(kept.nbytes for kept in list_cache(folder))),
        "disk free": format_bytes(shutil.disk_usage(there).free),
        "can be written": os.access(there, os.W_OK),
    }


def hub_online() -> bool:
    """Asked for SECONDS_FOR_HUB at most: looking up the name of a host knows no limit of its own."""
    from holotype.discovery.backbone_choice import hub_answers

    return within(SECONDS_FOR_HUB, lambda: hub_answers(SECONDS_FOR_HUB)) is True


def choices(online: bool) -> Facts:
    """What the settings called auto come to on this machine."""
    from holotype.config.schema import BackboneConfig
    from holotype.discovery.backbone_choice import best_public_backbone
    from holotype.discovery.training_plan import DEFAULT_STEPS, GPU_STEPS, plan_length

    device = pick_device("auto")
    network, cached = best_public_backbone(BackboneConfig("auto"), device, online)
    if network is None:
        backbone = "embedded"
    else:
        backbone = f"{network.name}, {'in the local cache' if cached else 'to be fetched from the hub'}"
    steps = DEFAULT_STEPS.get(device, GPU_STEPS)
    views = {f"{n:,} images": plan_length(n, steps, device).cache_views for n in SIZES}
    told = next(iter(views.values())) if len(set(views.values())) == 1 else views
    precision = default_precision(device)
    return {"device": device, "precision": precision, "backbone": backbone, "cache views of discover": told}


def self_test() -> Facts:
    """Embed some images of the embedded sample with the embedded backbone, and look whether classes come apart."""
    try:
        _import_all()
        started = time.monotonic()
        found = within(SECONDS_FOR_TEST, embed_sample)
    except Exception as error:  # whatever it is, it is what somebody wants to report
        return {"passed": False, "words": f"{type(error).__name__}: {error}"}
    seconds = f"{time.monotonic() - started:.1f} s"
    if found is None:
        return {
            "passed": False,
            "words": f"not done within {SECONDS_FOR_TEST:.0f} s; the machine may be busy",
        }
    within_class, between = found
    words = f"{2 * EACH} images in {seconds}; cosine {within_class:.2f} within classes, {between:.2f} between"
    return {"passed": within_class > between, "words": words}


def _import_all() -> None:
    """What embedding needs: how long that takes says nothing about its speed."""
    import holotype.data.datasets.registry
    import holotype.training.views  # noqa: F401
    from holotype.models.zoo import import_timm

    import_timm()


def embed_sample() -> tuple[float, float]:
    """Mean cosine of images of one class, and of two classes. Not a number where features are."""
    import numpy as np
    import torch

    from holotype.config.schema import BackboneConfig
    from holotype.data.datasets.registry import load_benchmark
    from holotype.data.image_store import ImageStore
    from holotype.models.backbone import load_backbone
    from holotype.training.encoder import Encoder
    from holotype.training.views import FreshViews, evaluation_features
    from holotype.utils.device import Device

    sample = load_benchmark("fashion-sample").train
    rows = np.concatenate([np.flatnonzero(sample.label == name)[:EACH] for name in CLASSES])
    backbone = load_backbone(BackboneConfig("embedded"))
    store = ImageStore.decode(list(sample.path[rows]), backbone.image_size, progress=False)
    if problems := [problem for problem in store.problem if problem]:
        raise InputError(problems[0])
    source = FreshViews(store, Encoder(backbone, Device.on("auto")))
    with torch.no_grad():
        features = evaluation_features(source, torch.arange(len(rows))).float().cpu()
    cosine = torch.nn.functional.normalize(features, dim=1)
    alike = cosine @ cosine.T
    same = torch.arange(2).repeat_interleave(EACH)
    within_class = (same[:, None] == same) & ~torch.eye(len(rows), dtype=torch.bool)
    return float(alike[within_class].mean()), float(alike[same[:, None] != same].mean())


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """What `work` returns, or None where it takes longer; what it raises is raised here."""
    outcome: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    return outcome[0] if outcome else None


def without_names(facts: Any) -> Any:
    """The same without the home folder and the name of its owner, wherever a text holds them."""
    if isinstance(facts, Mapping):
        return {key: without_names(value) for key, value in facts.items()}
    if isinstance(facts, list):
        return [without_names(value) for value in facts]
    if not isinstance(facts, str):
        return facts
    for home in {os.path.expanduser("~"), os.path.realpath(os.path.expanduser("~"))} - {"~", "/"}:
        facts = re.sub(re.escape(home) + r"(?![\w.-])", "~", facts)
    return re.sub(rf"(?<![\w.-]){re.escape(owner())}(?![\w.-])", "USER", facts) if owner() else facts


def owner() -> str:
    """Who runs this; "" where the system has no name, or one that says nothing of a person."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""
    return "" if name == "root" else name
