"""`holotype doctor`: versions, devices, hub and a self-test, to paste into a bug report."""

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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holotype import __version__
from holotype.cli.common import Parser, echo, echo_json
from holotype.errors import InputError
from holotype.utils.device import cpu_count, default_precision, pick_device
from holotype.utils.memory import MemoryConfig, available_memory, cache_folder, list_cache
from holotype.utils.text import format_bytes

CHECKED_PACKAGES = [
    "torch",
    "torchvision",
    "timm",
    "numpy",
    "pandas",
    "pillow",
    "rich",
    "huggingface-hub",
    "onnxruntime",
]
SECONDS_FOR_HUB = 2.0
SECONDS_FOR_TEST = 5.0
TEST_CLASSES = ("Sneaker", "Trouser")
"""Of the sample: nobody takes one for the other."""
IMAGES_PER_CLASS = 8
"""Images of either class that the self-test embeds."""
TEST_SIZES = (1_000, 10_000, 100_000)
"""Collections for which the views of the token cache are told."""

CheckFacts = dict[str, Any]


def run_checks(paths: bool = False) -> CheckFacts:
    """Everything, by chapter. paths: name folders as they are, instead of what they are."""
    online = hub_online()
    facts = {
        "versions": installed_versions(),
        "machine": machine_facts(),
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
    found: CheckFacts = {"holotype": __version__, "python": platform.python_version()}
    for name in CHECKED_PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    import torch

    return found | {"cuda of torch": torch.version.cuda or "none"}


def machine_facts() -> CheckFacts:
    return {
        "system": platform.platform(),
        "cores": cpu_count(),
        "memory available": format_bytes(available_memory()),
        "stdout": getattr(sys.stdout, "encoding", None) or "unknown",
    }


def gpu_facts() -> list[CheckFacts]:
    import torch

    found = []
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_name(number)
        found.append({"name": name, "memory": format_bytes(total), "free": format_bytes(free)})
    if torch.backends.mps.is_available():
        memory = format_bytes(torch.mps.recommended_max_memory())
        found.append({"name": "mps", "memory": memory, "free": "unknown"})
    return found


def cache_facts(paths: bool) -> CheckFacts:
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

    return run_within(SECONDS_FOR_HUB, lambda: hub_answers(SECONDS_FOR_HUB)) is True


def auto_choices(online: bool) -> CheckFacts:
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
    views = {f"{n:,} images": plan_length(n, steps, device).cache_views for n in TEST_SIZES}
    told = next(iter(views.values())) if len(set(views.values())) == 1 else views
    precision = default_precision(device)
    return {"device": device, "precision": precision, "backbone": backbone, "cache views of discover": told}


def self_test() -> CheckFacts:
    """Embed some images of the embedded sample with the embedded backbone, and look whether classes come apart."""
    try:
        _import_all()
        started = time.monotonic()
        found = run_within(SECONDS_FOR_TEST, embed_sample)
    except Exception as error:  # whatever it is, it is what somebody wants to report
        return {"passed": False, "words": f"{type(error).__name__}: {error}"}
    seconds = f"{time.monotonic() - started:.1f} s"
    if found is None:
        words = f"not done within {SECONDS_FOR_TEST:.0f} s; the machine may be busy"
        return {"passed": False, "words": words}
    within_class, between = found
    likeness = f"cosine {within_class:.2f} within classes, {between:.2f} between"
    words = f"{2 * IMAGES_PER_CLASS} images in {seconds}; {likeness}"
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
    rows = np.concatenate([np.flatnonzero(sample.label == name)[:IMAGES_PER_CLASS] for name in TEST_CLASSES])
    backbone = load_backbone(BackboneConfig("embedded"))
    store = ImageStore.decode(list(sample.path[rows]), backbone.image_size, progress=False)
    if problems := [problem for problem in store.problem if problem]:
        raise InputError(problems[0])
    source = FreshViews(store, Encoder(backbone, Device.on("auto")))
    with torch.no_grad():
        features = evaluation_features(source, torch.arange(len(rows))).float().cpu()
    cosine = torch.nn.functional.normalize(features, dim=1)
    alike = cosine @ cosine.T
    same = torch.arange(2).repeat_interleave(IMAGES_PER_CLASS)
    within_class = (same[:, None] == same) & ~torch.eye(len(rows), dtype=torch.bool)
    return float(alike[within_class].mean()), float(alike[same[:, None] != same].mean())


def run_within(seconds: float, work: Callable[[], Any]) -> Any:
    """Return what `work` returns, or None where it takes longer; raise what it raises."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        if outcome.done():  # that of the work
            raise
        return None


def redact_names(facts: Any) -> Any:
    """The same without the home folder and the name of its owner, wherever a text holds them."""
    if isinstance(facts, Mapping):
        return {key: redact_names(value) for key, value in facts.items()}
    if isinstance(facts, list):
        return [redact_names(value) for value in facts]
    if not isinstance(facts, str):
        return facts
    for home in {os.path.expanduser("~"), os.path.realpath(os.path.expanduser("~"))} - {"~", "/"}:
        facts = re.sub(re.escape(home) + r"(?![\w.-])", "~", facts)
    owner = re.escape(path_owner())
    return re.sub(rf"(?<![\w.-]){owner}(?![\w.-])", "USER", facts) if owner else facts


def path_owner() -> str:
    """Who runs this; "" where the system has no name, or one that says nothing of a person."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""
    return "" if name == "root" else name


@dataclass
class DoctorOptions:
    """Check the installation: versions, hardware, whether the Hugging Face hub answers, what auto means here, and
    whether embedding a few images works (5 seconds at most). The output contains neither your name nor your folders.
    Exit code 3: the self-test failed."""

    json: bool = False
    """The same as JSON."""
    paths: bool = False
    """Show the full paths of folders."""


def make_parser() -> Parser:
    return Parser("doctor", DoctorOptions)


def command(argv: Sequence[str]) -> int:
    options: DoctorOptions = make_parser().parse_args(argv)
    from holotype.cli import DONE, NOT_WELL

    facts = run_checks(paths=options.paths)
    echo_json(facts) if options.json else echo(checks_text(facts))
    return DONE if facts["self-test"]["passed"] else NOT_WELL


def checks_text(facts: Mapping[str, Any]) -> str:
    """A chapter for each kind of fact."""
    lines = []
    for chapter, content in facts.items():
        lines.append(chapter)
        if chapter == "gpus":
            gpus = [f"  {gpu['name']}, {gpu['memory']}, {gpu['free']} free" for gpu in content]
            lines += gpus or ["  none"]
        else:
            lines += [f"  {name}: {_fact_text(value)}" for name, value in content.items()]
    return "\n".join(lines)


def _fact_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {_fact_text(one)}" for name, one in value.items())
    return str(value)
