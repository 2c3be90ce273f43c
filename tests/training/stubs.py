"""A tiny method of each kind that the loop must carry: two stages, images, and clustering at the end."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from holotype.cluster.kmeans import kmeans
from holotype.losses.classification import supervised_cross_entropy
from holotype.losses.contrastive import info_nce
from holotype.methods import Method, Prediction, Stage, Views
from holotype.models.heads import CosineClassifier


@dataclass
class Empty:
    """No settings."""


class TwoStages(Method):
    """First the tail learns without labels, then a fresh classifier alone; like PromptCAL's two stages."""

    Config = Empty

    def __init__(self, config, task):
        super().__init__(config, task)
        self.project = nn.Linear(task.dim, 8)
        self.classifier = CosineClassifier(task.dim, task.k)
        self.register_buffer("steps_seen", torch.zeros(()))

    def stages(self):
        return [
            Stage("represent", epochs=2, trains=("tail", "method.project", "method.classifier")),
            Stage(
                "classify",
                epochs=1,
                lr=0.01,
                trains=("method.classifier",),
                fresh=("method.classifier",),
                views=Views(weak=2, strong=1, share="group", groups=2),
                sampler="uniform",
            ),
        ]

    def schedule(self, stage, epoch, epochs):
        return {"first": float(stage.name == "represent")}

    def loss(self, batch, now):
        con = info_nce(self.project(batch.features[:2]))
        cls = supervised_cross_entropy(self.classifier(batch.features[:2]), batch.label, batch.labelled)
        return {"con": now["first"] * con, "cls": cls}

    def after_step(self):
        self.steps_seen += 1

    def predict(self, features):
        p, c = (self.classifier(features) / 0.1).softmax(-1).max(-1)
        return Prediction(c, p, torch.full_like(p, float("nan")))


class OwnEncoder(Method):
    """Takes images and owns a differentiable encoder, as prompt methods do."""

    Config = Empty
    needs = "images"

    def __init__(self, config, task):
        super().__init__(config, task)
        self.encoder = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, task.dim))
        self.classifier = CosineClassifier(task.dim, task.k)

    def stages(self):
        return [Stage(trains=("method",))]

    def encode(self, images):
        return self.encoder(images)

    def loss(self, batch, now):
        cls = supervised_cross_entropy(self.classifier(batch.features), batch.label, batch.labelled)
        return {"cls": cls, "con": info_nce(batch.features)}

    def predict(self, features):
        p, c = (self.classifier(features) / 0.1).softmax(-1).max(-1)
        return Prediction(c, p, torch.full_like(p, float("nan")))


class ClustersAtTheEnd(Method):
    """Trains a representation, then clusters once; its centres are buffers. Draws its own randomness."""

    Config = Empty
    scores_early = False

    def __init__(self, config, task):
        super().__init__(config, task)
        self.register_buffer("centres", torch.zeros(task.k, task.dim))
        self.epochs_seen = []

    def draws(self, batch_size):
        return {"noise": (batch_size, self.task.dim)}

    def before_epoch(self, stage, epoch, features, label):
        self.epochs_seen.append((epoch, tuple(features().shape), int((label >= 0).sum())))

    def loss(self, batch, now):
        return {"con": info_nce(batch.features + 0.01 * batch.random["noise"])}

    def finish(self, features, label, generator):
        found = kmeans(F.normalize(features, dim=-1), self.task.k, n_init=2, max_iter=20, generator=generator)
        self.centres.copy_(found.centres)

    def predict(self, features):
        near, c = torch.cdist(F.normalize(features, dim=-1), self.centres).min(-1)
        return Prediction(c, torch.exp(-near), torch.full_like(near, float("nan")))


STUBS = {"two stages": TwoStages, "images": OwnEncoder, "clusters": ClustersAtTheEnd}


@dataclass
class Fuse:
    """What sets off `Explodes`."""

    limit: float = 0.0
    """It never explodes while the learning rate is at most this; momentum must be 0."""
    at: int = 0
    """Nor before this epoch of its last stage."""
    factor: float = float("nan")
    """What the loss is multiplied with then."""
    stages: int = 1


class Explodes(Method):
    """Its loss explodes where the rate is above a limit, which it measures by how far a weight moves."""

    Config = Fuse

    def __init__(self, config, task):
        super().__init__(config, task)
        self.classifier = CosineClassifier(task.dim, task.k)
        self.probe = nn.Parameter(torch.zeros(()))
        self.register_buffer("before", torch.zeros(()))
        self.register_buffer("rate", torch.zeros(()))

    def stages(self):
        return [Stage("train")] if self.config.stages == 1 else [Stage("first", epochs=1), Stage("second")]

    def schedule(self, stage, epoch, epochs):
        return {"armed": float(stage.name != "first" and epoch >= self.config.at)}

    def before_epoch(self, stage, epoch, *_):
        self.rate.zero_()  # the first step of an epoch has nothing to measure by

    def loss(self, batch, now):
        cls = supervised_cross_entropy(self.classifier(batch.features), batch.label, batch.labelled)
        burning = (self.rate > self.config.limit) & (now["armed"] > 0)
        factor = torch.where(burning, self.config.factor, 1.0)
        return {
            "cls": cls * factor,
            "con": info_nce(batch.features),
            "probe": self.probe - self.probe.detach(),
        }

    def after_step(self):
        self.rate.copy_((self.probe - self.before).abs())
        self.before.copy_(self.probe)

    def predict(self, features):
        p, c = (self.classifier(features) / 0.1).softmax(-1).max(-1)
        return Prediction(c, p, torch.full_like(p, float("nan")))
