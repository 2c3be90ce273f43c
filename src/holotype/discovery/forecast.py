"""How long a discovery will take on this device: a few images are read and sent through the network, and the plan is
multiplied out. Good to a factor of two: steps of methods differ, and so do images."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from holotype.data.ingest import in_order
from holotype.data.store import CROP_SHARE
from holotype.data.table import Table
from holotype.discovery.config import DiscoverConfig
from holotype.discovery.plan import make_plan, methods_of, resolved
from holotype.discovery.several import how_many
from holotype.machine.device import Compute
from holotype.models.backbone import Backbone
from holotype.models.cache import CacheViews
from holotype.runs.settings import default_experiment
from holotype.runs.views import drawn, stages_of
from holotype.training.encode import Encoder

READ = 16
"""Images that are read to see how long it takes."""
SENT = {"cpu": 8}
"""Images that are sent through the network for the same reason."""
SENT_ELSEWHERE = 128
PASSES, PATIENCE = 3, 1.0
"""How often they are sent, and the seconds that each time may take: a slow network gets fewer."""
BRIEF = "under a minute"
WHOLE_NETWORK = 3
"""Times a pass of the network that a view takes where gradients run through all of it."""


@dataclass(frozen=True)
class Pace:
    """Seconds for one image or view."""

    reading: float
    trunk: float
    tail: float
    """Forwards and backwards."""


@dataclass(frozen=True)
class Forecast:
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
        whole = in_words(self.embedding + self.training)
        several = f"{self.trainings} trainings" if self.trainings > 1 else "training"
        parts = f"embedding {in_words(self.embedding)}, {several} {in_words(self.training)}"
        told = whole if whole == BRIEF else f"{whole} ({parts})"
        return f"Time on {place}, roughly: {told}, with the network {self.network}."


def forecast(
    table: Table, config: DiscoverConfig, backbone: Backbone, to_embed: int | None = None
) -> Forecast:
    """Of a discovery from its beginning, or of a round. backbone: the one that will be taken, or one of the same shape.
    to_embed: images of which there are no features yet, where these are not all."""
    compute = Compute.on(config.device)
    pace = measure(table, backbone, compute)
    device = compute.device.type
    work, trainings = Work.of(len(table), config, pace, device), n_trainings(len(table), config, pace, device)
    return Forecast(
        embedding_seconds(len(table) if to_embed is None else to_embed, pace, device),
        work.shared + trainings * work.steps,
        device,
        f"{backbone.name} at {backbone.image_size} pixels",
        trainings,
    )


def n_trainings(n: int, config: DiscoverConfig, pace: Pace, device: str) -> int:
    """Of n images: as many as were asked for, or as time allows (several.py)."""
    n = min(n, resolved(config)["sample"])
    return how_many(Work.of(n, config, pace, device).steps, n) if config.seeds == "auto" else config.seeds


def count_trainings(table: Table, config: DiscoverConfig, backbone: Backbone) -> int:
    """The same, where nobody has measured the pace yet."""
    if config.seeds != "auto":
        return config.seeds
    compute = Compute.on(config.device)
    return n_trainings(len(table), config, measure(table, backbone, compute), compute.device.type)


def embedding_seconds(n: int, pace: Pace, device: str) -> float:
    """On a CPU reading and computing share the processors; on a GPU one goes on behind the other."""
    return n * (pace.reading + pace.trunk if device == "cpu" else max(pace.reading, pace.trunk))


@dataclass(frozen=True)
class Work:
    """Seconds of training."""

    shared: float
    """Reading the sample, and filling the token cache where there is one: the same for any number of trainings."""
    steps: float
    """Of one training; 0 for a method that does not train."""

    @classmethod
    def of(cls, n: int, config: DiscoverConfig, pace: Pace, device: str) -> Work:
        """Where methods take turns, one training is the mean of theirs."""
        each = [cls.of_method(method, n, config, pace, device) for method in methods_of(config)]
        return cls(max(one.shared for one in each), sum(one.steps for one in each) / len(each))

    @classmethod
    def of_method(cls, method: str, n: int, config: DiscoverConfig, pace: Pace, device: str) -> Work:
        wanted = resolved(config)
        n = min(n, wanted["sample"])
        plan = make_plan(n, wanted["steps"], device)
        experiment = default_experiment(method, "images")
        experiment.train.epochs = plan.epochs
        stages = stages_of(experiment)
        if not stages:
            return cls(n * pace.reading, 0.0)
        views = drawn(experiment, None if plan.cache_views == "off" else CacheViews.parse(plan.cache_views))
        filling = n * views.entries * pace.trunk if views else 0.0
        of_view = [_of_view(stage.needs == "images", views is not None, pace) for stage in stages]
        of_image = sum(
            seconds * (stage.views.weak + stage.views.strong)
            for seconds, stage in zip(of_view, stages, strict=True)
        ) / len(stages)
        return cls(n * pace.reading + filling, wanted["steps"] * plan.batch_size * of_image)


def _of_view(whole: bool, cached: bool, pace: Pace) -> float:
    if whole:
        return WHOLE_NETWORK * pace.trunk
    return pace.tail if cached else pace.trunk + pace.tail


def measure(table: Table, backbone: Backbone, compute: Compute) -> Pace:
    """Read some images from all over the table, and send some through the network. No weight is changed."""
    rows = np.unique(np.linspace(0, len(table) - 1, READ).astype(int))
    started = time.monotonic()
    for _ in in_order(
        [str(path) for path in table.path[rows]], int(backbone.image_size / CROP_SHARE), None, False
    ):
        pass
    reading = (time.monotonic() - started) / len(rows)
    encoder = Encoder(backbone, compute)
    size, most = backbone.image_size, SENT.get(compute.device.type, SENT_ELSEWHERE)
    images = torch.zeros(most, 3, size, size, dtype=torch.uint8, device=compute.device)
    first = max(sum(_pass(encoder, images[:1])), 1e-6)  # slower than those behind it
    n = min(most, max(1, int(PATIENCE / first)))
    passes = [_pass(encoder, images[:n]) for _ in range(PASSES)]
    # the quickest: others may use the machine just now
    return Pace(reading, min(trunk for trunk, _ in passes) / n, min(tail for _, tail in passes) / n)


def _pass(encoder: Encoder, images: torch.Tensor) -> tuple[float, float]:
    """Seconds of the trunk, and of the tail with its gradients."""
    started = time.monotonic()
    prepared = encoder.inputs(images)
    prepared.sum().item()  # waits for the device
    between = time.monotonic()
    learning = [p for p in encoder.tail.parameters() if p.requires_grad]
    with torch.enable_grad(), encoder.compute.autocast():
        features = encoder.tail.finish(prepared)
    gradients = torch.autograd.grad(
        features.float().sum(), learning, allow_unused=True
    )  # leaves no .grad behind
    next(g for g in gradients if g is not None).sum().item()
    return between - started, time.monotonic() - between


def in_words(seconds: float) -> str:
    """About how long that is: 20 -> `under a minute`, 5000 -> `1.4 hours`."""
    if seconds < 50:
        return BRIEF
    if seconds < 90:
        return "a minute"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} minutes"
    if seconds < 36 * 3600:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 86400:.1f} days"
