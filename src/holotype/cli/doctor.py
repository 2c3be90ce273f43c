"""`holotype doctor`: versions, devices, hub and a self-test, to paste into a bug report."""

from __future__ import annotations

import getpass
import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holotype import __version__
from holotype.cli import DONE, NOT_WELL
from holotype.cli.common import echo, echo_json
from holotype.cli.options import DoctorOptions
from holotype.config.schema import BackboneConfig
from holotype.data.datasets.registry import load_benchmark
from holotype.discovery.backbone_choice import best_public_backbone, hub_answers
from holotype.discovery.training_plan import device_defaults, plan_length
from holotype.embeddings.store import embed_table
from holotype.errors import InputError
from holotype.models.backbone import load_backbone
from holotype.utils.device import Device, cpu_count, default_precision, pick_device
from holotype.utils.memory import MemoryConfig, available_memory, cache_folder, list_cache
from holotype.utils.text import format_bytes

PACKAGES = "torch torchvision timm numpy pandas pillow rich huggingface-hub onnxruntime"
SECONDS_FOR_HUB = 2.0
TEST_CLASSES = ("Sneaker", "Trouser")
"""Of the sample: nobody takes one for the other."""
IMAGES_PER_CLASS = 8
"""Images of either class that the self-test embeds."""
TEST_SIZES = (1_000, 10_000, 100_000)
"""Collections for which the views of the token cache are told."""

CheckFacts = dict[str, Any]


def doctor_command(options: DoctorOptions) -> int:
    facts = run_checks(paths=options.paths)
    echo_json(facts) if options.json else echo(checks_text(facts))
    return DONE if facts["self-test"]["passed"] else NOT_WELL


def checks_text(facts: Mapping[str, Any]) -> str:
    """Return a chapter for each kind of fact."""
    lines = []
    for chapter, content in facts.items():
        rows = [f"  {name}: {_fact_text(value)}" for name, value in content.items()]
        lines += [chapter, *(rows or ["  none"])]
    return "\n".join(lines)


def _fact_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {_fact_text(one)}" for name, one in value.items())
    return str(value)


def run_checks(paths: bool = False) -> CheckFacts:
    """Return everything, by chapter. paths: name folders as they are, instead of what they are."""
    online = hub_online()
    machine = {
        "system": platform.platform(),
        "cores": cpu_count(),
        "memory available": format_bytes(available_memory()),
        "stdout": getattr(sys.stdout, "encoding", None) or "unknown",
    }
    facts = {
        "versions": installed_versions(),
        "machine": machine,
        "gpus": gpu_facts(),
        "cache": cache_facts(paths),
        "hub": {"answers": online, "offline by HF_HUB_OFFLINE": bool(os.environ.get("HF_HUB_OFFLINE"))},
        "auto": auto_choices(online),
        "self-test": self_test(),
    }
    if paths:
        facts["paths"] = {"python": sys.executable, "holotype": str(Path(__file__).parents[1])}
    return facts if paths else redact_names(facts)


def installed_versions() -> CheckFacts:
    """Return the versions of Holotype, Python and what it stands on."""
    found: CheckFacts = {"holotype": __version__, "python": platform.python_version()}
    for name in PACKAGES.split():
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found | {"cuda of torch": torch.version.cuda or "none"}


def gpu_facts() -> CheckFacts:
    """Return name and memory of each GPU."""
    found = {}
    for number in range(torch.cuda.device_count()):
        free, total = map(format_bytes, torch.cuda.mem_get_info(number))
        found[f"cuda:{number}"] = f"{torch.cuda.get_device_name(number)}, {total}, {free} free"
    if torch.backends.mps.is_available():
        found["mps"] = format_bytes(torch.mps.recommended_max_memory())
    return found


def cache_facts(paths: bool) -> CheckFacts:
    """Return where the cache lies, and how much room it takes and has."""
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
    """Ask the hub, for SECONDS_FOR_HUB at most: looking up the name of a host knows no limit of its own."""
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(hub_answers(SECONDS_FOR_HUB)), daemon=True)
    asking.start()
    asking.join(SECONDS_FOR_HUB)
    return answers == [True]


def auto_choices(online: bool) -> CheckFacts:
    """Return what the settings called auto come to on this machine."""
    device, backbone = pick_device("auto"), "embedded"
    network, cached = best_public_backbone(BackboneConfig("auto"), device, online)
    if network is not None:
        backbone = f"{network.name}, {'in the local cache' if cached else 'to be fetched from the hub'}"
    steps = device_defaults(device).efforts["normal"].steps
    views = {f"{n:,} images": plan_length(n, steps, device).cache_views for n in TEST_SIZES}
    told = next(iter(views.values())) if len(set(views.values())) == 1 else views
    precision = default_precision(device)
    return {"device": device, "precision": precision, "backbone": backbone, "cache views of discover": told}


def self_test() -> CheckFacts:
    """Embed some images of the embedded sample with the embedded backbone, and look whether classes come apart."""
    started = time.monotonic()
    try:
        within_class, between = embed_sample()
    except Exception as error:  # whatever it is, it is what somebody wants to report
        return {"passed": False, "words": f"{type(error).__name__}: {error}"}
    likeness = f"cosine {within_class:.2f} within classes, {between:.2f} between"
    words = f"{2 * IMAGES_PER_CLASS} images in {time.monotonic() - started:.1f} s; {likeness}"
    return {"passed": within_class > between, "words": words}


def embed_sample() -> tuple[float, float]:
    """Return the mean cosine of images of one class, and of two classes. Not a number where features are."""
    sample, n = load_benchmark("fashion-sample").train, IMAGES_PER_CLASS
    rows = np.concatenate([np.flatnonzero(sample.label == name)[:n] for name in TEST_CLASSES])
    backbone = load_backbone(BackboneConfig("embedded"))
    with tempfile.TemporaryDirectory() as folder:
        embedded = embed_table(sample.take(rows), backbone, Device.on("auto"), Path(folder))
    if problems := [problem for problem in embedded.problem if problem]:
        raise InputError(problems[0])
    cosine = embedded.features / np.linalg.norm(embedded.features, axis=1, keepdims=True)
    alike, other = cosine @ cosine.T, ~np.eye(n, dtype=bool)
    within_class = np.stack([alike[:n, :n][other], alike[n:, n:][other]])
    return float(within_class.mean()), float(alike[:n, n:].mean())


def redact_names(facts: Any) -> Any:
    """Return the same without the home folder and the name of its owner, wherever a text holds them."""
    text = json.dumps(facts, ensure_ascii=False)
    for home in {os.path.expanduser("~"), os.path.realpath(os.path.expanduser("~"))} - {"~", "/"}:
        text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
    try:
        owner = getpass.getuser()
    except (KeyError, OSError, ImportError):  # the system has no name for whoever runs this
        owner = "root"
    # a name that says nothing of a person stays, and so do the names of facts
    hidden = text if owner == "root" else re.sub(rf'(?<![\w.-]){re.escape(owner)}(?![\w.-]|":)', "USER", text)
    return json.loads(hidden)
