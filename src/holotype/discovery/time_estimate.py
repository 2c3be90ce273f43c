"""Time estimate of a discovery on this device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from holotype.config.schema import DiscoverConfig
from holotype.data.image_store import CROP_FRACTION, decode_in_order
from holotype.data.table import Table
from holotype.discovery.training_plan import VIEWS_OF_A_STEP, methods_of, plan_length, resolve_settings
from holotype.models.backbone import Backbone
from holotype.models.heads import Projector
from holotype.models.token_cache import CacheViews
from holotype.models.zoo import fastest_pass
from holotype.results.ensemble import votes_in_words
from holotype.runs.build import effective_views, stages_of
from holotype.runs.resolve import default_experiment
from holotype.training.encoder import Encoder
from holotype.utils.device import Device

IMAGES_READ = 16
"""Images that are read to see how long it takes."""
TIMED_BATCH = {"cpu": 8}
"""Images that are sent through the trunk for the same reason; on a CPU more of them take as much longer."""
SENT_ELSEWHERE = 128
SHORT_PHRASE = "under a minute"
WHOLE_NETWORK = 3
"""Times a pass of the network that a view takes where gradients run through all of it."""


@dataclass(frozen=True)
class Throughput:
    """Seconds for one image or view."""

    reading: float
    trunk: float
    tail: float
    """Forwards and backwards, with a head."""


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds."""

    embedding: float
    training: float
    device: str
    network: str
    trainings: int = 1
    """With different seeds, side by side."""

    @property
    def words(self) -> str:
        place = "this CPU" if self.device == "cpu" else "this GPU"
        whole = duration_phrase(self.embedding + self.training)
        several = f"{self.trainings} trainings" if self.trainings > 1 else "training"
        parts = f"embedding {duration_phrase(self.embedding)}, {several} {duration_phrase(self.training)}"
        told = whole if whole == SHORT_PHRASE else f"{whole} ({parts})"
        votes = votes_in_words(self.trainings)
        return f"Time on {place}, roughly: {told}, with the network {self.network}. {votes}"


def estimate_time(
    table: Table, config: DiscoverConfig, backbone: Backbone, trainings: int, to_embed: int | None = None
) -> TimeEstimate:
    """Of a discovery from its beginning, or of a round. backbone: the one that will be taken, or one of the same shape.
    to_embed: images of which there are no features yet, where these are not all."""
    compute = Device.on(config.device)
    device = compute.device.type
    plan = plan_length(
        min(len(table), resolve_settings(config)["sample"]), resolve_settings(config)["steps"], device
    )
    pace = measure_throughput(table, backbone, compute, plan.batch_size * VIEWS_OF_A_STEP)
    work = TrainingWork.of(len(table), config, pace, device)
    return TimeEstimate(
        embedding_seconds(len(table) if to_embed is None else to_embed, pace, device),
        work.shared + trainings * work.steps,
        device,
        f"{backbone.name} at {backbone.image_size} pixels",
        trainings,
    )


def embedding_seconds(n: int, pace: Throughput, device: str) -> float:
    """On a CPU reading and computing share the processors; on a GPU one goes on behind the other."""
    return n * (pace.reading + pace.trunk if device == "cpu" else max(pace.reading, pace.trunk))


@dataclass(frozen=True)
class TrainingWork:
    """Seconds of training."""

    shared: float
    """Reading the sample, and filling the token cache where there is one: the same for any number of trainings."""
    steps: float
    """Of one training; 0 for a method that does not train."""

    @classmethod
    def of(cls, n: int, config: DiscoverConfig, pace: Throughput, device: str) -> TrainingWork:
        """Where methods take turns, one training is the mean of theirs."""
        each = [cls.of_method(method, n, config, pace, device) for method in methods_of(config)]
        return cls(max(one.shared for one in each), sum(one.steps for one in each) / len(each))

    @classmethod
    def of_method(
        cls, method: str, n: int, config: DiscoverConfig, pace: Throughput, device: str
    ) -> TrainingWork:
        wanted = resolve_settings(config)
        n = min(n, wanted["sample"])
        plan = plan_length(n, wanted["steps"], device)
        experiment = default_experiment(method, "images")
        experiment.train.epochs = plan.epochs
        stages = stages_of(experiment)
        if not stages:
            return cls(n * pace.reading, 0.0)
        views = effective_views(
            experiment, None if plan.cache_views == "off" else CacheViews.parse(plan.cache_views)
        )
        filling = n * views.entries * pace.trunk if views else 0.0
        of_view = [_seconds_per_view(stage.needs == "images", views is not None, pace) for stage in stages]
        of_image = sum(
            seconds * (stage.views.weak + stage.views.strong)
            for seconds, stage in zip(of_view, stages, strict=True)
        ) / len(stages)
        return cls(n * pace.reading + filling, wanted["steps"] * plan.batch_size * of_image)


def _seconds_per_view(whole: bool, cached: bool, pace: Throughput) -> float:
    if whole:
        return WHOLE_NETWORK * pace.trunk
    return pace.tail if cached else pace.trunk + pace.tail


def measure_throughput(table: Table, backbone: Backbone, compute: Device, views: int) -> Throughput:
    """Read some images from all over the table, and send some through the network. No weight is changed.

    views: of a training step, which the tail sees at once. A first pass of each part warms up the device and does not
    count, nor do passes that others who use the machine have slowed down.
    """
    rows = np.unique(np.linspace(0, len(table) - 1, IMAGES_READ).astype(int))
    started = time.monotonic()
    for _ in decode_in_order(
        [str(path) for path in table.path[rows]], int(backbone.image_size / CROP_FRACTION), None, False
    ):
        pass
    reading = (time.monotonic() - started) / len(rows)
    encoder, device, size = Encoder(backbone, compute), compute.device, backbone.image_size
    n = TIMED_BATCH.get(device.type, SENT_ELSEWHERE)
    images = torch.zeros(n, 3, size, size, dtype=torch.uint8, device=device)
    trunk = fastest_pass(lambda: encoder.inputs(images), device) / n
    tokens = encoder.inputs(images[:1]).repeat_interleave(views, dim=0)
    with torch.random.fork_rng(devices=[]):
        head = Projector(backbone.dim).to(device, compute.dtype)
    return Throughput(reading, trunk, fastest_pass(lambda: learn(encoder, head, tokens), device) / views)


def learn(encoder: Encoder, head: Projector, tokens: torch.Tensor) -> Sequence[torch.Tensor | None]:
    """Compute the gradients of the tail and a head, and leave none behind. Methods have such a head, and with a small
    backbone it takes most of a step."""
    learning = [p for p in (*encoder.tail.parameters(), *head.parameters()) if p.requires_grad]
    with torch.enable_grad():
        with encoder.compute.autocast():
            features = encoder.tail(tokens)
        total = head(features.to(encoder.dtype)).sum()
    return torch.autograd.grad(total, learning, allow_unused=True)


def duration_phrase(seconds: float) -> str:
    """About how long that is: 20 -> `under a minute`, 5000 -> `1.4 hours`."""
    if seconds < 50:
        return SHORT_PHRASE
    if seconds < 90:
        return "a minute"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} minutes"
    if seconds < 36 * 3600:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 86400:.1f} days"
