"""The method contract: Method, Task, Batch, Stage, and what each of them owes.

The loop (training/loop.py) knows no method by name, and a method knows no device, rank, optimiser,
file or logger. Four rules make capture, resume and several processes work together:

1. What changes with time reaches the step as 0-d tensors in `Now`, step by step.
2. All randomness is drawn before the step (`Method.draws`) and arrives in `Batch.random`;
   state that outlives a step is a buffer, so that it is in the checkpoint.
3. The loop gathers the features of all processes; every process computes the loss of the whole batch. `encode` sees
   the rows of one process alone, so that whatever learns in it belongs to the encoder.
4. Losses use masks, never boolean indexing, so that shapes stay static.

docs/researchers.md lists what a method may add: stages, rates, an encoder, its own images, clustering at the end.

The features of a stage's inputs are `tail(inputs)` on tokens and `tail(trunk(images))` on images (`build_encoder`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holotype.errors import InputError
from holotype.losses.ops import l2_normalize
from holotype.utils.source_digest import source_digest

Needs = Literal["tokens", "images"]
"""What a stage gives to the encoder: prepared tokens, or normalised images."""


@dataclass(frozen=True)
class Progress:
    """A step within a stage."""

    epoch: int
    epochs: int
    step: int = 0
    """Within the epoch."""
    steps: int = 1
    """Of the epoch."""

    @property
    def progress(self) -> float:
        """The share of the stage that lies behind, 0 to 1."""
        return (self.epoch + self.step / self.steps) / self.epochs


LRSchedule = Callable[[Progress], float]
"""The share of a learning rate that is in force at a moment; methods/schedules.py has some."""


@dataclass(frozen=True)
class ParamGroup:
    """A group of parameters that learns at a rate of its own."""

    prefix: str
    """Of parameter names ("tail", "method.head", ...); the longest one that matches wins."""
    lr: float | None = None
    """None: the stage's."""
    weight_decay: float | None = None
    """None: that of training. One-dimensional tensors never decay."""
    pace: LRSchedule | None = None
    """None: the loop's own, a cosine to a thousandth once an epoch, with the warm-up of training."""


Transform = Callable[[Tensor], Tensor]
"""Of one image; its random numbers are torch's."""


@dataclass(frozen=True)
class Views:
    """The views a stage asks the loop for, in this order in `Batch.features`."""

    weak: int = 2
    """Independent crop + flip views."""
    strong: int = 0
    """Crop + flip views with RandAugment and Cutout on top; they follow the weak ones."""
    share: Literal["batch", "group", "none"] = "batch"
    """Who shares the strong operations and their magnitudes: the whole batch, each group of rows, nobody."""
    groups: int = 8
    """Number of groups for `share = "group"`."""
    weak_transform: Transform | None = None
    """Applied to each weak view (3, S, S) uint8 after crop and flip, on the device: one of torchvision.transforms.v2.
    A stage with a transform of its own draws fresh views, never those of a token cache."""
    strong_transform: Transform | None = None
    """Applied to each strong view in place of RandAugment and Cutout."""

    @property
    def own(self) -> bool:
        """Whether views are made by transforms of the method's own."""
        return bool(self.weak_transform or self.strong_transform)


@dataclass(frozen=True)
class Stage:
    """One stretch of training with a schedule of its own."""

    name: str = "train"
    epochs: int | None = None
    """A fixed number; None: `share` of the epochs of training."""
    share: float = 1.0
    """Of the epochs of training, rounded, at least one epoch."""
    lr: float | None = None
    """None: the loop's setting."""
    trains: tuple[str, ...] = ("tail", "method")
    """Prefixes of the parameter names that learn; the rest is frozen during the stage."""
    fresh: tuple[str, ...] = ()
    """Prefixes of the parameters that go back to their initial values when the stage begins."""
    views: Views = field(default_factory=Views)
    sampler: Literal["balanced", "uniform", "labelled", "classes", "pk"] = "balanced"
    """balanced: half of the draws are labelled, with replacement. uniform: every image once an epoch. Of labelled
    images alone: labelled, each as often as the others; classes, each known class as often as the others; pk, in each
    step `per_class` images of each of P classes."""
    per_class: int = 4
    """K of pk: images of a class in a step."""
    batch_size: int | None = None
    """Images in a step; None: that of training."""
    by_term: bool = False
    """Whether each term has a backward pass of its own, whose gradients `Method.combine` joins."""
    needs: Needs = "tokens"
    """What `encode` and `embed` are given in this stage."""
    capturable: bool = True
    """Whether `encode`, `loss` and `after_step` can be replayed as a CUDA graph: they follow the four rules, read no
    value back to the host, and keep their shapes. A stage that cannot is run eagerly."""
    rates: tuple[ParamGroup, ...] = ()
    """Parameters with a rate of their own; the others take the stage's."""
    in_turns: bool = False
    """Whether its parts learn in turns, so that no single step reaches all that it trains."""

    @property
    def cacheable(self) -> bool:
        """Whether views may come from a token cache."""
        return self.needs == "tokens" and not self.views.own

    @property
    def paced(self) -> bool:
        """Whether all that learns follows a pace of the stage's own, so that the warm-up of training does nothing."""
        return any(rate.prefix == "" for rate in self.rates) and all(rate.pace for rate in self.rates)

    def length(self, epochs: int) -> int:
        """Epochs of this stage in a training of `epochs`."""
        return max(1, round(self.share * epochs)) if self.epochs is None else self.epochs


Now = dict[str, Tensor]
"""The clock of a step: 0-d tensors. Always `epoch` and `progress` (0 to 1 within the stage), and
whatever the method's `schedule` returns (`teacher_temp`, `ramp`, ...)."""

SECTION = re.compile(
    r"^(Title|Paper|Summary|Differs):(.*?)(?=^(?:Title|Paper|Summary|Differs):|\Z)", re.M | re.S
)
"""Of a docstring that holds a card."""


@dataclass(frozen=True)
class Card:
    """What a list of methods says of one, in plain words."""

    title: str
    paper: str
    """Authors, title and place of publication."""
    year: int
    line: str
    """What the method does, in a sentence or two; lists show the first."""
    differs: tuple[str, ...] = ()
    """Where ours differs from the paper or from its code, a sentence each."""

    @classmethod
    def parse(cls, docstring: str) -> Card | None:
        """Read the card of a method from the docstring of its class; None where that has no section `Paper:`.

        The sections are `Title:`, `Paper:` (the year last), `Summary:` and, with a line `- ...` each, `Differs:`.
        """
        sections = dict(SECTION.findall(inspect.cleandoc(docstring)))
        if "Paper" not in sections:
            return None
        title, paper, line = (" ".join(sections[name].split()) for name in ("Title", "Paper", "Summary"))
        points = re.split(r"^- ", sections.get("Differs", ""), flags=re.M)[1:]
        return cls(title, paper, int(paper[-4:]), line, tuple(" ".join(point.split()) for point in points))


@dataclass(frozen=True)
class Task:
    """The problem as a method may know it: counts, never a hidden class."""

    n_known: int
    """Number of known classes (C_L); their label indices are 0 .. n_known - 1."""
    k: int
    """Number of categories in the unlabelled images, known and novel."""
    dim: int
    """Width of the features that the tail returns."""
    n_images: int
    """Number of images in the table; `Batch.image` lies in 0 .. n_images - 1."""
    n_labelled: int
    """Number of images that carry a label."""
    epochs: int = 200
    """Epochs of a stage that does not set its own."""
    side: int = 0
    """Numbers in the vector that stands beside each image (`Batch.side`); 0 where there is none."""

    @property
    def n_unlabelled(self) -> int:
        return self.n_images - self.n_labelled


@dataclass
class Batch:
    """One step's data, the same on every process. B images, V views, D features."""

    features: Tensor
    """(V, B, D) the encoder's output, with gradient; (V, B, P, D) where `encode` returns P features of a view."""
    label: Tensor
    """(B,) class index; 0 where unlabelled, so that it is always a legal index: mask it."""
    labelled: Tensor
    """(B,) bool: does the image carry a label?"""
    image: Tensor
    """(B,) row of the image in the table; equal rows are the same image drawn twice."""
    random: dict[str, Tensor] = field(default_factory=dict)
    """Uniform numbers in [0, 1), one tensor per entry of `Method.draws`."""
    stage: str = "train"
    """Name of the stage that runs."""
    side: Tensor | None = None
    """(B, S) a vector that stands beside each image, such as that of its caption; None where there is none."""


@dataclass
class Images:
    """All images of the table that can be read, n of them."""

    row: Tensor
    """(n,) their rows in the table, ascending: values of `Batch.image`."""
    label: Tensor
    """(n,) class index, -1 = unlabelled."""
    n_rows: int
    """Rows of the whole table, with those that cannot be read."""
    generator: torch.Generator
    """On the CPU, the same in a resumed run."""
    encode: Callable[[], Tensor]
    """What `features` calls."""
    side: Tensor | None = None
    """(n, S) as in Batch."""

    @cached_property
    def _encoded(self) -> Tensor:
        return self.encode()

    def features(self) -> Tensor:
        """(n, D) of the centre crops through `Method.embed`; the first call costs a pass over all images."""
        return self._encoded

    def spread(self, values: Tensor, elsewhere: float = 0) -> Tensor:
        """(n, ...) values of the images -> (n_rows, ...) by row of the table, `elsewhere` for those not read."""
        whole = values.new_full((self.n_rows, *values.shape[1:]), elsewhere)
        return whole.index_copy_(0, self.row, values)


@dataclass
class Prediction:
    """What a method says of images."""

    category: Tensor
    """(N,) long: below n_known a known class, from there on a discovered category."""
    probability: Tensor
    """(N,) of the category."""
    known_score: Tensor
    """(N,) how far the image belongs to a known class, 0 to 1; NaN where the method has no such score."""


@dataclass
class NoConfig:
    """Settings of a method that has none."""


class Method(nn.Module):
    """Base of all methods. Subclasses set `Config`, build their heads, and write `loss` and `logits` (or `predict`)."""

    Config: ClassVar[type[Any]] = NoConfig
    revision: ClassVar[int] = 1
    """Raised whenever the method draws or computes otherwise than before with the same settings: results of different
    revisions are results of different methods, and are never taken for each other. A method outside this package
    needs none: its source counts (`code_digest`)."""
    code_digest: ClassVar[str] = ""
    """Digest of the source of a method outside this package, found when the class is made; a run of other code is
    another run."""
    scores_early: ClassVar[bool] = True
    """Whether `predict` means something before `finish`; False for a method that clusters at the end."""
    patches: ClassVar[bool] = False
    """Whether `build_encoder` is given a tail whose `tokens(inputs)` gives all tokens (n, N, D), those of the patches
    from `n_prefix` on; it computes the last blocks in full."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}
    """Named settings, as dotted keys of the config, or as `train.*`; `default` is always there."""
    recipes: ClassVar[dict[str, dict[str, Any]]] = {}
    """Dotted settings (`method.x`, `train.lr`, `backbone.train_blocks`) by data set, "*" for all of them. A method
    built on another one does not inherit them."""
    card: ClassVar[Card | None] = None
    """By default what the sections of the class's docstring say (Card.parse)."""
    parts: ClassVar[tuple[type[Method], ...]] = ()
    """Of a composition such as eagc+rpc: its wrappers, then the method (methods/registry.py)."""
    encoder: Any
    """What `build_encoder` returned, once the loop has bound it. No submodule: its parameters stand under `tail.`."""
    batch_size: int = 0
    """Images per step as the loop's own samplers draw them, once it is there."""
    steps: int = 0
    """Steps of an epoch, likewise."""

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__()
        self.config = config
        self.task = task

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        cls.code_digest = source_digest(cls)
        if "card" not in vars(cls) and (card := Card.parse(cls.__doc__ or "")):
            cls.card = card
        if not is_dataclass(cls.Config):
            raise InputError(f"Config of {cls.__name__} is no dataclass; write @dataclass above it.")
        if "default" not in cls.presets:
            cls.presets = {"default": {}, **cls.presets}

    def bind(self, encoder: nn.Module) -> None:
        """Called before training by whoever has built the encoder."""
        if "encoder" in self._modules:
            raise InputError(
                f"The method {type(self).__name__} sets `encoder` itself; let build_encoder return it instead."
            )
        vars(self)["encoder"] = encoder  # past nn.Module, which would register it

    def check(self) -> list[str]:
        """Raise InputError where the method cannot be trained here; returns sentences about settings that shrink.

        Called before anything is computed, and never where a trained model is loaded: what only training needs is
        looked for here, not in __init__.
        """
        return []

    def build_encoder(self, trunk: Any, tail: Any) -> nn.Module:
        """What is trained and saved under `tail.`; by default the tail itself.

        trunk: images -> tokens, frozen and shared by runs: call it, never register it. `tail(inputs)` in a stage on
        tokens and `tail(trunk(images))` in one on images are the features (n, D); the tail refuses any other shape.
        """
        encoder: nn.Module = tail
        return encoder

    def encode(self, stage: Stage, inputs: Tensor, now: Now) -> Tensor:
        """(V, b, ...) inputs of the rows of one process -> (V, b, D) or (V, b, P, D), with gradient.

        inputs: prepared tokens (V, b, M D), one row a view, or normalised images (V, b, 3, S, S), as `stage.needs`
        says.
        """
        features: Tensor = self.encoder(inputs.flatten(0, 1))
        return features.unflatten(0, inputs.shape[:2])

    def embed(self, stage: Stage, inputs: Tensor) -> Tensor:
        """(n, ...) inputs as in `encode` -> (n, D): how an image is seen when it is placed. After training, `stage`
        is the last one; its `needs` decides what the inputs of new images are."""
        features: Tensor = self.encoder(inputs)
        return features

    def stages(self) -> list[Stage]:
        """The stretches of training, in order; empty for a method that only clusters."""
        return [Stage()]

    def schedule(self, stage: Stage, at: Progress) -> dict[str, float]:
        """Values that depend on time alone, for `Now`; asked for every step ahead of it, always with the same keys."""
        return {}

    def draws(self, stage: Stage, batch_size: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the uniform random tensors that each step needs. batch_size: images in a step."""
        return {}

    def rows(self, stage: Stage, epoch: int, draw: torch.Generator) -> Tensor | None:
        """(steps, B) rows of the table that the epoch's steps see; None: those of the stage's sampler.

        Called after `before_epoch`. It may read what that wrote into buffers and nothing that a step changes, so that
        an epoch that is gone on with draws the same. B is the same in all epochs of a stage.
        """
        return None

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        """Called at the start of each epoch, in evaluation mode and without gradient."""

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        """The named terms, weighted: the loop minimises their sum."""
        raise InputError(f"{type(self).__name__} has no loss; write one, or return [] from stages.")

    def combine(self, gradients: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
        """The gradient of each parameter from those of each term, in a stage `by_term`; by default their sum.

        gradients: of each term by name, of each parameter that it reaches by name (`tail.`, `method.`); of the whole
        batch already.
        """
        names = dict.fromkeys(name for term in gradients.values() for name in term)
        found = {name: [term[name] for term in gradients.values() if name in term] for name in names}
        return {name: torch.stack(parts).sum(0) for name, parts in found.items()}

    def after_step(self) -> None:
        """Called after each optimiser step (moving averages, queues), without gradient."""

    def diagnostics(self) -> dict[str, Tensor]:
        """0-d tensors worth a line in the log each epoch; they are not minimised."""
        return {}

    def finish(self, images: Images) -> None:
        """Called once after training. A method that clusters stores its centres in buffers here."""

    def logits(self, features: Tensor) -> Tensor:
        """(N, D) -> (N, K), whose softmax is the probability of each category; any temperature is in it already."""
        raise NotImplementedError(f"{type(self).__name__} has no logits")

    def predict(self, features: Tensor) -> Prediction:
        """Place images, from parameters and buffers alone. features: (N, D).

        By default the likeliest category; how known an image is = the probability mass on known classes.
        """
        logits = self.logits(features)
        if logits.shape != (len(features), self.task.k):
            kind, shape, wanted = type(self).__name__, tuple(logits.shape), (len(features), self.task.k)
            raise InputError(
                f"The logits of {kind} have the shape {shape}; images and categories make it {wanted}."
            )
        p = logits.softmax(dim=-1)
        probability, category = p.max(dim=-1)
        return Prediction(category, probability, p[:, : self.task.n_known].sum(dim=-1))


class Wrapper(Method):
    """Base of what stands in front of a method, as eagc does in eagc+rpc (methods/registry.py).

    A wrapper stands before the method in the order of resolution and acts through the functions of the contract, each
    of which goes on with `super()`: in `loss` it may hand on other features, scale their gradient with
    `Tensor.register_hook`, and add terms to what comes back; in `stages` it may add stages, which it then keeps from
    the method. Its settings stand under its own name: those of `EAGC` are `self.config.eagc`, as in method.eagc.pull.
    Its modules and buffers bear that name too, so that they never meet the method's. `__init__` calls super() first:
    a seed then gives the method the same first weights with and without the wrapper.
    """

    @classmethod
    def unfit(cls, method: type[Method]) -> str:
        """Why the wrapper makes no sense in front of a method, as the end of a sentence; "" where it does.

        By default it needs a method that learns from the tail's features of the loop's own images.
        """
        own = ("encode", "embed", "build_encoder", "rows")
        if method.loss is Method.loss or any(
            getattr(method, name) is not getattr(Method, name) for name in own
        ):
            return "the method does not learn from the tail's features of images that the loop draws"
        return ""


SOFTNESS = 0.1
"""Temperature that turns squared distances into probabilities; the same as the classifiers' on cosines."""


class NearestCentreMethod(Method):
    """Nearest of `centres` on L2-normalised features; a subclass fills them in `finish`."""

    scores_early = False
    centres: Tensor

    def __init__(self, config: object, task: Task) -> None:
        super().__init__(config, task)
        self.register_buffer("centres", torch.zeros(task.k, task.dim))

    def logits(self, features: Tensor) -> Tensor:
        """-||x - c||^2 / 0.1 with the square multiplied out: a product for all pairs, which ONNX has as well."""
        x = F.normalize(features, dim=-1)
        squares = x.square().sum(-1, keepdim=True) + self.centres.square().sum(-1)
        return (2 * x @ self.centres.T - squares) / SOFTNESS


class EpochMeans(nn.Module):
    """Named means of an epoch, in buffers: a step reads no value back, and a resumed epoch goes on counting."""

    total: Tensor
    count: Tensor

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        self.register_buffer("total", torch.zeros(len(names)))
        self.register_buffer("count", torch.zeros(len(names)))

    def reset(self) -> None:
        """A new epoch begins."""
        self.total.zero_()
        self.count.zero_()

    @torch.no_grad()
    def add(self, name: str, values: Tensor, counted: Tensor | None = None) -> None:
        """Take in the `values` (any shape) where `counted` holds; it is broadcast to them, None = everywhere."""
        at = self.names.index(name)
        counted = torch.ones_like(values) if counted is None else counted.expand(values.shape)
        self.total[at] += torch.where(counted > 0, values, 0).sum()
        self.count[at] += counted.sum()

    def means(self) -> dict[str, Tensor]:
        """Name -> mean, without the names of which nothing was counted. Looks at values: not for use in a step."""
        every = zip(self.names, self.total, self.count, strict=True)
        return {name: total / count for name, total, count in every if float(count) > 0}


def warn_reduced(setting: str, asked: int, there: int, of: str) -> list[str]:
    """The sentence about a setting of which only as much is taken as there is; none where there is enough.

    setting: its dotted key. of: what there are too few of, as in `images`.
    """
    if asked <= there:
        return []
    return [f"{setting} asks for {asked:,} and there are only {there:,} {of}, so {there:,} are taken."]


AT_ONCE = 1 << 26
"""Images times classes whose membership is written out at a time: a fourth of a gigabyte. Sums of fewer come from one
product, so that their last bits are those of always."""


def class_means(f: Tensor, label: Tensor, labelled: Tensor, n_known: int) -> Tensor:
    """(N, D) normalised features, (N,) labels, (N,) mask -> (C, D) unit-length means of the labelled rows."""
    sums = []
    for classes in torch.arange(n_known, device=label.device).split(max(1, AT_ONCE // max(1, len(f)))):
        member = ((label[:, None] == classes) & labelled[:, None]).to(f.dtype)
        sums.append(member.T @ f)
    return l2_normalize(torch.cat(sums))
