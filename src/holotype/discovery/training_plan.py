"""Settings of a round: what the device fills in, sample, steps, batch size, cached views, methods."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holotype.config.schema import NO, DiscoverConfig
from holotype.data.table import Table, burst_units, first_frames
from holotype.methods import Stage, find_method
from holotype.utils.device import pick_device
from holotype.utils.serialization import FileSchema, to_dict

DEFAULT_STEPS = {"cpu": 1_000}
"""Training steps, unless told: minutes on a CPU."""
GPU_STEPS = 6_000
DEFAULT_SAMPLE = {"cpu": 5_000}
"""Images that are trained on, at most; the rest of a larger collection is placed afterwards, in a stream."""
GPU_SAMPLE = 200_000
DEFAULT_BATCH_SIZE = {"cpu": 64}
GPU_BATCH_SIZE = 128
DEFAULT_METHODS = {"cpu": "rpc,uno"}
"""Methods of the trainings, unless told: the two agree on more than RPC trained as often. With the steps of a GPU that
is not measured (docs/studies/31-folder-methods.md)."""
GPU_METHOD = "rpc"
CHEAP_PRESETS = ("light", "short")
"""Presets without an expensive head, or with a shorter stage on images."""
VIEWS_OF_A_STEP = 3
"""That RPC draws per image: two weak ones and a strong one."""
MIN_LABELLED_KEPT = 10
"""Labelled images of a class that a sample keeps whatever its size, as far as there are so many."""


@dataclass(frozen=True)
class TrainingPlan:
    """The length and the shape of training."""

    batch_size: int
    epochs: int
    cache_views: str
    """Of the token cache, as in --cache-views."""


def resolve_settings(config: DiscoverConfig) -> dict[str, Any]:
    """The settings that decide what comes out, with what the device decides filled in; backbone left out."""
    device = pick_device(config.device)
    return {
        "k": config.k,
        "steps": config.steps or DEFAULT_STEPS.get(device, GPU_STEPS),
        "sample": config.sample or DEFAULT_SAMPLE.get(device, GPU_SAMPLE),
        "method": config.method or DEFAULT_METHODS.get(device, GPU_METHOD),
        "long_tail": config.long_tail,
        "bursts": config.bursts,
        "seed": config.seed,
        "seeds": config.seeds,
    }


def methods_of(config: DiscoverConfig) -> tuple[str, ...]:
    """Those that trainings take in turn; the first trains where there is one training."""
    return tuple(resolve_settings(config)["method"].split(","))


def plan_length(n: int, steps: int, device: str) -> TrainingPlan:
    """For n images, each burst counted once. Small collections get small batches, so that an epoch has at least four
    steps."""
    largest = DEFAULT_BATCH_SIZE.get(device, GPU_BATCH_SIZE)
    batch_size = max(2, min(largest, n // 4))
    epochs = math.ceil(steps / max(n // batch_size, 1))
    return TrainingPlan(
        batch_size, max(epochs, 1), pick_views(n, steps * batch_size * VIEWS_OF_A_STEP, device)
    )


def spread_epochs(epochs: int, stages: Sequence[Stage]) -> int:
    """The epochs of training with which all stages together take at most `epochs`, or as few as they can."""
    found = epochs
    while found > 1 and sum(stage.length(found) for stage in stages) > epochs:
        found -= 1
    return found


def pick_preset(method: str, device: str) -> str:
    """A preset that costs less, where a method has one and the device is a CPU."""
    there = find_method(method).presets if device == "cpu" else ()
    return next((preset for preset in CHEAP_PRESETS if preset in there), "default")


def pick_views(n: int, drawn: int, device: str) -> str:
    """The largest token cache that costs less than half of drawing every view anew; 4+2 on every CPU."""
    if device == "cpu":
        return "4+2"
    worth = [views for views, entries in (("16+8", 25), ("4+2", 7)) if 2 * n * entries <= drawn]
    return worth[0] if worth else "off"


def draw_sample(table: Table, limit: int, seed: int) -> np.ndarray:
    """(n,) sorted rows to train on: all usable ones, or about `limit` of them where there are more.

    Every class keeps its share of labelled images, but at least ten of them where it has so many, and unlabelled
    images keep theirs. Of each burst at most one frame is drawn, where not all are taken.
    """
    usable = np.flatnonzero(table.usable)
    if len(usable) > limit:
        usable = first_frames(burst_units(table), usable)
    if len(usable) <= limit:
        return usable
    generator = np.random.default_rng(seed)
    share, target = limit / len(usable), table.target
    drawn = []
    for value in range(-1, len(table.known)):
        rows = usable[target[usable] == value]
        wanted = math.ceil(share * len(rows))
        if value >= 0:
            wanted = max(wanted, min(MIN_LABELLED_KEPT, len(rows)))
        drawn.append(generator.choice(rows, wanted, replace=False))
    return np.sort(np.concatenate(drawn))


# -- stored in the folder of a round --------------------------------------------------------------------

ROUND_FILE = "round.json"
ROUND_SCHEMA = FileSchema(3, "restore it from a copy, or run holotype discover with another --out")


@dataclass(frozen=True)
class RoundConfig:
    """Settings of a round, and what edits said to it."""

    settings: dict[str, Any]
    """As a person gave them; None where the device decides."""
    taken: dict[str, Any]
    """The same with what the device decides."""
    device: str = ""
    title: str = ""
    """What the collection is called."""
    groups: str = ""
    """Digest of the bursts that people have told (`stated_groups`), "" = none."""
    labels: dict[str, str] = field(default_factory=dict)
    """That edits had given, by the keys of the images."""
    rejected: list[str] = field(default_factory=list)
    """Keys of the images that edits keep out."""

    @classmethod
    def of(
        cls,
        config: DiscoverConfig,
        title: str,
        groups: str = "",
        labels: Mapping[str, str] | None = None,
        rejected: Iterable[str] = (),
    ) -> RoundConfig:
        taken, device = resolve_settings(config), pick_device(config.device)
        settings = {name: getattr(config, name) for name in taken}
        groups = "" if config.bursts == NO else groups
        return cls(settings, taken, device, title, groups, dict(labels or {}), sorted(rejected))

    def others(self, before: RoundConfig) -> list[str]:
        """What was asked for otherwise than before: --k 12 (was 10). Where only the device has changed: nothing."""
        settings = [
            f"{_flag_name(name, value)} (was {_shown_value(before.settings.get(name))})"
            for name, value in self.settings.items()
            if value != before.settings.get(name) and self.taken[name] != before.taken.get(name)
        ]
        if self.taken["bursts"] == NO or before.taken.get("bursts") == NO:
            return settings  # nobody has asked for groups, or that is said already
        return [*settings, *(["other groups"] if self.groups != before.groups else [])]

    def save(self, folder: Path) -> None:
        ROUND_SCHEMA.write(folder / ROUND_FILE, to_dict(self))


def stated_groups(table: Table, digests: Sequence[str]) -> str:
    """A digest of which images people have put into groups, "" where there are none; whatever the groups and the files
    are called. digests: (N,) of the contents of the images."""
    if table.group is None:
        return ""
    frames: dict[str, list[str]] = defaultdict(list)
    for name, digest in zip(table.group, digests, strict=True):
        frames[name].append(digest)
    told = sorted(sorted(group) for name, group in frames.items() if name and len(group) > 1)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16] if told else ""


def read_round_config(folder: Path) -> RoundConfig | None:
    """Of the round in `folder`; None where it was stopped before that was written."""
    file = folder / ROUND_FILE
    return ROUND_SCHEMA.make(file, RoundConfig) if file.is_file() else None


def _flag_name(name: str, value: Any) -> str:
    return f"--{name.replace('_', '-')} {_shown_value(value)}"


def _shown_value(value: Any) -> str:
    return "as usual" if value is None else f"{value}"
