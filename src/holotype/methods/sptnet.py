"""SPTNet: spatial prompt tuning on top of SimGCD (Wang, Vaze & Han, ICLR 2024).

    P(x) = x + frame + [border of every patch] * prompt,        L = L_SimGCD

First SimGCD to its end. Then its loss on images, in turns of 20 steps: the prompt learns from (P(x_1), P(x_2)) while
the network stands still, and the network from (x_1, sg P(x_1)), the same crop with and without the prompt, while the
prompt stands still. Whoever stands still is called with detached parameters: it gets no gradient, and its momentum
rests too. Images are placed by their prompted features.

A step of the network is one for which floor((i + 1) / 20) is odd, i counted over the stage. The second stage is 5 times
as long as the first, as published (`short`: once as long). The frame is 30 pixels wide at 224.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from holotype.config.parse import Count, Factor, Positive, Weight
from holotype.errors import InputError
from holotype.methods.base import Batch, Images, Now, ParamGroup, Progress, Stage, Task
from holotype.methods.schedules import linear_warmup
from holotype.methods.simgcd import RECIPES, Recipes, SimGCD, SimGCDConfig, concat_views
from holotype.models.prompts import PixelPrompt, PromptedTrunk, call_frozen, frame_width, patch_size

SIMGCD = "simgcd"
"""The first stage."""
PROMPT_WARMUP, WARMUP_AT_MOST = 1000, 0.1
"""Steps in which the prompt's rate rises, and the share of the stage that they are at most."""
TEACHER_WARMUP = 10 / 1000
"""Share of the second stage in which the teacher's temperature falls again."""
MODEL_DECAY, MODEL_FLOOR = 5e-4, 0.1
"""Weight decay of the network in the second stage, and the share of its rate at the end."""


@dataclass
class SPTNetConfig(SimGCDConfig):
    """Settings of SPTNet; the two rates differ between data sets (see the recipes)."""

    prompt: Literal["all", "patch"] = "all"
    """What is added to an image: a frame and the borders of its patches, or the borders alone."""
    prompt_lr: Positive = 1.0
    """Learning rate of the prompt; 0.5 to 25 in the published runs."""
    model_lr: Positive = 0.05
    """Learning rate of the network in the second stage; train.lr is that of the first."""
    prompt_memax_weight: Weight | None = None
    """Weight of the mean-entropy term in the second stage; by default that of the first."""
    prompt_epochs: Factor = 5.0
    """Length of the second stage, in times train.epochs."""
    turn: Count = 20
    """Steps after which prompt and network change places."""
    count: Literal["stage", "epoch"] = "stage"
    """Over what the steps of a turn are counted; by epoch, the network never learns if an epoch has fewer of them."""


def _values(prompt_lr: float, model_lr: float, **more: Any) -> dict[str, Any]:
    return {
        f"method.{key}": value for key, value in dict(prompt_lr=prompt_lr, model_lr=model_lr, **more).items()
    }


CIFAR100 = _values(5.0, 0.003, prompt="patch", prompt_memax_weight=1.0)


class SPTNet(SimGCD):
    """SimGCD, and a prompt of pixels in front of the network.

    Title: SPTNet
    Paper: Hongjun Wang, Sagar Vaze, Kai Han: SPTNet: An Efficient Alternative Framework for Generalized Category
        Discovery with Spatial Prompt Tuning. ICLR 2024
    Summary: SimGCD first; then two things are trained in turns of 20 steps: pixels added to every image, and the
        network.
    Differs:
    - Turns of 20 steps are counted over the whole stage, not in each epoch (preset as_run), where a small data set
      never trains the network.
    - SimGCD's checkpoint is the first stage of the run; the last epoch is used.
    - The rate of that stage rises over the first twentieth of the epochs; --train.warmup 0 takes that back.
    - The prompt warms up for 1000 steps, at most a tenth of the stage; the frame follows the image's size.
    - On data of your own the rates are those of FGVC-Aircraft.
    """

    Config = SPTNetConfig
    config: SPTNetConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "as_run": {"count": "epoch"},
        "short": {"prompt_epochs": 1.0},
    }
    recipes: ClassVar[Recipes] = concat_views(
        RECIPES,
        {
            "cub": _values(25.0, 0.05),
            "scars": _values(10.0, 0.05),
            "aircraft": _values(1.0, 0.05),
            "herbarium19": _values(0.5, 0.01),
            "cifar10": _values(1.0, 0.003, prompt="patch"),
            "cifar100": CIFAR100,
            "imagenet100": _values(5.0, 0.003),
        },
    )
    model_steps: Tensor

    def __init__(self, config: SPTNetConfig, task: Task) -> None:
        super().__init__(config, task)
        if config.prompt_memax_weight and not config.memax_weight:
            raise InputError(
                "method.prompt_memax_weight needs a method.memax_weight above 0: set both, or neither."
            )
        self.register_buffer("model_steps", torch.zeros(()))

    def build_encoder(self, trunk: Any, tail: Any) -> nn.Module:
        size = int(trunk.patch_embed.img_size[0])
        frame = frame_width(size) if self.config.prompt == "all" else 0
        return PromptedTrunk(trunk, tail, PixelPrompt(size, patch_size(trunk), frame=frame))

    def stages(self) -> list[Stage]:
        c = self.config
        prompt = ParamGroup("tail.prompt", c.prompt_lr, 0.0, prompt_schedule)
        tail, heads = (ParamGroup(who, None, MODEL_DECAY, model_schedule) for who in ("tail.tail", "method"))
        return [
            Stage(SIMGCD, trains=("tail.tail", "method")),
            Stage(
                "prompts",
                share=c.prompt_epochs,
                lr=c.model_lr,
                needs="images",
                capturable=False,
                rates=(prompt, tail, heads),
                in_turns=True,
            ),
        ]

    def schedule(self, stage: Stage, at: Progress) -> dict[str, float]:
        c = self.config
        if stage.needs == "tokens":
            return {**super().schedule(stage, at), "model_turn": 1.0, "me_share": 1.0}
        warmup = max(1, round(TEACHER_WARMUP * at.epochs))
        weight = c.memax_weight if c.prompt_memax_weight is None else c.prompt_memax_weight
        return {
            "teacher_temp": linear_warmup(c.teacher_temp_start, c.teacher_temp, warmup, at.epoch, at.epochs),
            "model_turn": float(self.is_model_turn(at)),
            "me_share": weight / c.memax_weight if c.memax_weight else 0.0,
        }

    def is_model_turn(self, at: Progress) -> bool:
        """Prompt first: the step that ends a turn belongs to the next one already, as released."""
        before = at.epoch * at.steps if self.config.count == "stage" else 0
        return (before + at.step + 1) // self.config.turn % 2 == 1

    def encode(self, stage: Stage, inputs: Tensor, now: Now) -> Tensor:
        """(2, b, ...) -> (2, b, D). On images, the turn decides which two views there are and who learns."""
        if stage.needs == "tokens":
            return self.embed(stage, inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])
        learns_model = bool(
            now["model_turn"]
        )  # the host must know: one side is not to have a gradient at all
        encoder = self.encoder
        features = encoder.of_model(inputs[0]) if learns_model else encoder.of_prompt(inputs.flatten(0, 1))
        return features.unflatten(0, (2, -1))

    def embed(self, stage: Stage, inputs: Tensor) -> Tensor:
        features: Tensor = (self.encoder.tail if stage.needs == "tokens" else self.encoder)(inputs)
        return features

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        self.model_steps += now["model_turn"]
        if batch.stage == SIMGCD or bool(now["model_turn"]):
            return super().loss(batch, now)
        f = batch.features[:2]
        return self.baseline(call_frozen(self.projector, f), call_frozen(self.classifier, f), batch, now)

    def balance(self, q: Tensor, batch: Batch, now: Now) -> Tensor:
        return now["me_share"] * super().balance(q, batch, now)

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        self.model_steps.zero_()

    def diagnostics(self) -> dict[str, Tensor]:
        """Steps of the epoch in which the network learnt, and how large the prompt is, in units of the noise it was."""
        return {"model_steps": self.model_steps, "prompt_size": self.encoder.prompt.size()}


def prompt_schedule(at: Progress) -> float:
    """Step by step: a linear rise, then a cosine to 0."""
    total, done = at.epochs * at.steps, at.epoch * at.steps + at.step
    warmup = min(PROMPT_WARMUP, int(WARMUP_AT_MOST * total))
    if done < warmup:
        return (done + 1) / warmup
    return (1 + math.cos(math.pi * (done - warmup) / (total - warmup))) / 2


def model_schedule(at: Progress) -> float:
    """Once an epoch: a cosine to a tenth."""
    return MODEL_FLOOR + (1 - MODEL_FLOOR) * (1 + math.cos(math.pi * at.epoch / at.epochs)) / 2
