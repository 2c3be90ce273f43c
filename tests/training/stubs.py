"""A tiny method of each kind that the loop must carry: stages, images, clustering at the end, a teacher, a clock per
step, rows of its own, and tokens first and images then."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from holotype.clustering.kmeans import kmeans
from holotype.losses.classification import supervised_cross_entropy
from holotype.losses.contrastive import info_nce
from holotype.methods import METHODS, Method, ParamGroup, Prediction, Stage, Views
from holotype.methods.schedules import cosine
from holotype.models.ema import Teacher
from holotype.models.heads import CosineClassifier
from holotype.runs.experiment import default_experiment, stages_of


@dataclass
class Empty:
    """No settings."""


class Classifies(Method):
    """A cosine classifier, for the stubs below."""

    Config = Empty

    def __init__(self, config, task):
        super().__init__(config, task)
        self.classifier = CosineClassifier(task.dim, task.k)

    def cross_entropy(self, batch, features):
        return supervised_cross_entropy(self.classifier(features), batch.label, batch.labelled)

    def logits(self, features):
        return self.classifier(features) / 0.1


class TwoStages(Classifies):
    """First the tail learns without labels, then a fresh classifier alone; like PromptCAL's two stages."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.project = nn.Linear(task.dim, 8)
        self.register_buffer("steps_seen", torch.zeros(()))

    def stages(self):
        first = Stage("represent", epochs=2, trains=("tail", "method.project", "method.classifier"))
        own = {"trains": ("method.classifier",), "fresh": ("method.classifier",), "sampler": "uniform"}
        views = Views(weak=2, strong=1, share="group", groups=2)
        return [first, Stage("classify", epochs=1, lr=0.01, views=views, **own)]

    def schedule(self, stage, at):
        return {"first": float(stage.name == "represent")}

    def loss(self, batch, now):
        con = info_nce(self.project(batch.features[:2]))
        cls = self.cross_entropy(batch, batch.features[:2])
        return {"con": now["first"] * con, "cls": cls}

    def after_step(self):
        self.steps_seen += 1


class OwnEncoder(Classifies):
    """Takes images and makes an encoder of them that has nothing to do with the backbone."""

    def build_encoder(self, trunk, tail):
        return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, self.task.dim))

    def stages(self):
        return [Stage(needs="images")]

    def loss(self, batch, now):
        return {"cls": self.cross_entropy(batch, batch.features), "con": info_nce(batch.features)}


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


class FollowsATeacher(Classifies):
    """Distils a moving average of the tail: encode returns two features a view, the student's and the teacher's."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.register_buffer("momentum", torch.zeros(()))

    def build_encoder(self, trunk, tail):
        self.teacher = Teacher(tail)
        return tail

    def schedule(self, stage, at):
        return {"momentum": 0.5 + 0.4 * at.progress}

    def encode(self, stage, inputs, now):
        tokens = inputs.flatten(0, 1)
        return torch.stack([self.encoder(tokens), self.teacher(tokens)], dim=1).unflatten(0, inputs.shape[:2])

    def loss(self, batch, now):
        self.momentum.copy_(now["momentum"])
        student, teacher = batch.features.unbind(2)  # each (V, B, D)
        cls = self.cross_entropy(batch, student)
        return {"cls": cls, "distil": (student - teacher.flip(0)).square().mean()}

    def after_step(self):
        self.teacher.update(self.momentum)


class TellsTheTime(Classifies):
    """A loss weight and a rate that change with every step, and a buffer that counts the steps by the clock."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.project = nn.Linear(task.dim, 8)
        self.register_buffer("ticks", torch.zeros(64))

    def stages(self):
        own = ParamGroup("method.classifier", lr=0.02, weight_decay=0.0, pace=cosine(0.1, warmup=1))
        return [Stage(rates=(own,))]

    def schedule(self, stage, at):
        return {"tick": at.epoch * at.steps + at.step, "share": at.progress}

    def loss(self, batch, now):
        assert batch.stage == "train"
        with torch.no_grad():
            here = torch.arange(64, device=self.ticks.device) == now["tick"]
            self.ticks.copy_(torch.where(here, now["progress"] + 1, self.ticks))
        con = now["share"] * info_nce(self.project(batch.features))
        return {"cls": self.cross_entropy(batch, batch.features), "con": con}


class DrawsItsRows(Classifies):
    """Chooses at the start of each epoch which images it sees, by their features, in batches of a size of its own."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.register_buffer("chosen", torch.zeros(24, dtype=torch.long))
        self.register_buffer("rows_seen", torch.zeros(task.n_images))

    def before_epoch(self, stage, epoch, images):
        noise = torch.rand(len(images.row), generator=images.generator).to(images.row.device)
        order = (images.features().mean(-1) + noise).argsort()
        self.chosen.copy_(images.row[order[:24]])

    def rows(self, stage, epoch, draw):
        return self.chosen.cpu()[torch.randperm(24, generator=draw)].view(2, 12)

    def draws(self, stage, batch_size):
        return {"noise": (batch_size, self.task.dim)}

    def loss(self, batch, now):
        assert batch.features.shape[1] == 12
        with torch.no_grad():
            self.rows_seen.index_add_(0, batch.image, torch.ones(12).to(self.rows_seen))
        f = batch.features + 0.01 * batch.random["noise"]
        cls = self.cross_entropy(batch, f)
        return {"cls": cls, "con": info_nce(f)}


class Prompted(nn.Module):
    """The whole network behind a colour that is added to every pixel and learns."""

    def __init__(self, trunk, tail):
        super().__init__()
        self.trunk, self.tail = trunk, tail
        self.prompt = nn.Parameter(0.1 * torch.randn(3, 1, 1))

    def forward(self, x):
        return self.tail(self.trunk(x + self.prompt) if x.ndim == 4 else x)


class TokensThenImages(Classifies):
    """Trains the tail on tokens, then a prompt in front of the frozen trunk on images."""

    def build_encoder(self, trunk, tail):
        return Prompted(trunk, tail)

    def stages(self):
        tokens = Stage("tokens", trains=("tail.tail", "method"))
        return [tokens, Stage("prompt", share=0.5, lr=0.01, trains=("tail.prompt", "method"), needs="images")]

    def loss(self, batch, now):
        cls = self.cross_entropy(batch, batch.features)
        return {"cls": cls, f"con_{batch.stage}": info_nce(batch.features)}


class SamplesOfItsOwn(Classifies):
    """Trains on labelled images in batches of a size of its own, by each sampler of labels, then on all."""

    def stages(self):
        sizes = {"labelled": 6, "classes": 8, "pk": 4}
        own = [Stage(name, epochs=1, sampler=name, batch_size=n, per_class=2) for name, n in sizes.items()]
        return [*own, Stage("all", epochs=1)]

    def loss(self, batch, now):
        size = {"labelled": 6, "classes": 8, "pk": 4, "all": 16}[batch.stage]
        assert batch.features.shape[1] == size == self.batch_size
        if batch.stage != "all":
            assert batch.labelled.all()
        if batch.stage == "pk":
            assert batch.label.bincount().tolist() == [2, 2]
        return {"cls": self.cross_entropy(batch, batch.features), "con": info_nce(batch.features[:2])}


class ViewsOfItsOwn(Classifies):
    """Noise and colours of torchvision for weak views, another picture for strong ones; tokens all the same."""

    def stages(self):
        from holotype.models.zoo import patch_torchvision

        patch_torchvision()
        from torchvision.transforms import v2

        weak = v2.Compose([v2.ColorJitter(0.4, 0.4), v2.RandomGrayscale(0.5)])
        views = Views(weak=2, strong=1, weak_transform=weak, strong_transform=v2.RandomSolarize(128, p=0.5))
        return [Stage("own", views=views), Stage("usual", epochs=1)]

    def loss(self, batch, now):
        con = info_nce(batch.features[:2])
        return {"cls": self.cross_entropy(batch, batch.features), "con": con}


class TermByTerm(Classifies):
    """The gradient of the second term loses its part along that of the first, as PCGrad has it."""

    def stages(self):
        return [Stage(by_term=True)]

    def loss(self, batch, now):
        return {"cls": self.cross_entropy(batch, batch.features), "con": info_nce(batch.features)}

    def combine(self, gradients):
        first, second = gradients["cls"], gradients["con"]
        shared = [name for name in first if name in second]
        dot = sum((first[name] * second[name]).sum() for name in shared)
        share = dot / sum(first[name].square().sum() for name in shared).clamp_min(1e-12)
        share = share.clamp_max(0.0)
        second = {n: g - share * first[n] if n in first else g for n, g in second.items()}
        return super().combine({"cls": first, "con": second})


class ReadsBeside(Classifies):
    """Predicts the vector beside an image, where there is one."""

    def __init__(self, config, task):
        super().__init__(config, task)
        self.reader = nn.Linear(task.dim, task.side) if task.side else None

    def before_epoch(self, stage, epoch, images):
        assert images.side is None or images.side.shape == (len(images.row), self.task.side)

    def loss(self, batch, now):
        terms = {"cls": self.cross_entropy(batch, batch.features), "con": info_nce(batch.features)}
        if batch.side is not None:
            terms["side"] = (self.reader(batch.features) - batch.side).square().mean()
        return terms


class ReadsPatches(Classifies):
    """Pulls the patches of two views together, each to its nearest one, beside the classifier of CLS."""

    patches = True

    def encode(self, stage, inputs, now):
        return self.encoder.tokens(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])  # (V, b, N, D)

    def loss(self, batch, now):
        cls = batch.features[:, :, 0]
        parts = F.normalize(batch.features[:, :, self.encoder.n_prefix :], dim=-1)
        nearest = (parts[0] @ parts[1].mT).amax(-1)
        terms = {"cls": self.cross_entropy(batch, cls), "con": info_nce(cls)}
        return {**terms, "parts": (1 - nearest).mean()}


STUBS = {
    "two stages": TwoStages,
    "images": OwnEncoder,
    "clusters": ClustersAtTheEnd,
    "teacher": FollowsATeacher,
    "clock": TellsTheTime,
    "own rows": DrawsItsRows,
    "tokens then images": TokensThenImages,
    "samplers": SamplesOfItsOwn,
    "own views": ViewsOfItsOwn,
    "by term": TermByTerm,
    "beside": ReadsBeside,
    "patches": ReadsPatches,
}
LEARNING = [name for name in METHODS if stages_of(default_experiment(name, "images"))]
"""Methods of the package that train; the others only cluster."""
COMPOSED = ("eagc+rpc", "eagc+selex", "bia+simgcd", "hyp+rpc")
TRAINED = {**{name: name for name in (*LEARNING, *COMPOSED)}, **STUBS}
