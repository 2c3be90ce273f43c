"""A method whose loss explodes on demand, for the guard."""

from dataclasses import dataclass

import torch
from torch import nn

from holotype.losses.classification import supervised_cross_entropy
from holotype.losses.contrastive import info_nce
from holotype.methods import Method, Prediction, Stage
from holotype.models.heads import CosineClassifier


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

    def schedule(self, stage, at):
        return {"armed": float(stage.name != "first" and at.epoch >= self.config.at)}

    def before_epoch(self, stage, epoch, images):
        self.rate.zero_()  # the first step of an epoch has nothing to measure by

    def loss(self, batch, now):
        cls = supervised_cross_entropy(self.classifier(batch.features), batch.label, batch.labelled)
        burning = (self.rate > self.config.limit) & (now["armed"] > 0)
        factor = torch.where(burning, self.config.factor, 1.0)
        probe = self.probe - self.probe.detach()
        return {"cls": cls * factor, "con": info_nce(batch.features), "probe": probe}

    def after_step(self):
        self.rate.copy_((self.probe - self.before).abs())
        self.before.copy_(self.probe)

    def predict(self, features):
        p, c = (self.classifier(features) / 0.1).softmax(-1).max(-1)
        return Prediction(c, p, torch.full_like(p, float("nan")))
