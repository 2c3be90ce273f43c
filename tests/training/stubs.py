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

    def schedule(self, stage, at):
        return {"first": float(stage.name == "represent")}

    def loss(self, batch, now):
        con = info_nce(self.project(batch.features[:2]))
        cls = supervised_cross_entropy(self.classifier(batch.features[:2]), batch.label, batch.labelled)
        return {"con": now["first"] * con, "cls": cls}

    def after_step(self):
        self.steps_seen += 1

    def logits(self, features):
        return self.classifier(features) / 0.1


class OwnEncoder(Method):
    """Takes images and makes an encoder of them that has nothing to do with the backbone."""

    Config = Empty

    def __init__(self, config, task):
        super().__init__(config, task)
        self.classifier = CosineClassifier(task.dim, task.k)

    def build_encoder(self, trunk, tail):
        return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, self.task.dim))

    def stages(self):
        return [Stage(needs="images")]

    def loss(self, batch, now):
        cls = supervised_cross_entropy(self.classifier(batch.features), batch.label, batch.labelled)
        return {"cls": cls, "con": info_nce(batch.features)}

    def logits(self, features):
        return self.classifier(features) / 0.1


class ClustersAtTheEnd(Method):
    """Trains a representation, then clusters once; its centres are buffers. Draws its own randomness."""

    Config = Empty
    scores_early = False

    def __init__(self, config, task):
        super().__init__(config, task)
        self.register_buffer("centres", torch.zeros(task.k, task.dim))
        self.epochs_seen = []

    def draws(self, stage, batch_size):
        return {"noise": (batch_size, self.task.dim)}

    def before_epoch(self, stage, epoch, images):
        assert torch.equal(images.row.diff().clamp_max(1), torch.ones_like(images.row[1:]))  # ascending
        seen = tuple(images.features().shape), int((images.label >= 0).sum())
        self.epochs_seen.append((epoch, *seen))

    def loss(self, batch, now):
        return {"con": info_nce(batch.features + 0.01 * batch.random["noise"])}

    def finish(self, images):
        directions = F.normalize(images.features(), dim=-1)
        found = kmeans(directions, self.task.k, n_init=2, max_iter=20, generator=images.generator)
        self.centres.copy_(found.centres)

    def predict(self, features):
        near, c = torch.cdist(F.normalize(features, dim=-1), self.centres).min(-1)
        return Prediction(c, torch.exp(-near), torch.full_like(near, float("nan")))


STUBS = {"two stages": TwoStages, "images": OwnEncoder, "clusters": ClustersAtTheEnd}
