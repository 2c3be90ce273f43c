"""UNO+: one softmax over known and novel classes (Fini et al., ICCV 2021, as adapted to GCD by Vaze et al., 2022).

    L = 1/H sum_h [ swap(l_h, q_h) + swap(l'_h, q'_h) ] / 2,    swap = sum_{v != v'} -q^v log softmax(l^{v'} / 0.1)

l_h joins the cosines with C_L prototypes of known classes, on the feature, and with C_N of novel ones, on an MLP of it;
l'_h has f C_N novel ones (over-clustering). There are H such heads. q is the class of a labelled image. For unlabelled
images it is a balanced assignment over *all* columns (Sinkhorn, losses/sinkhorn.py), which comes from the other view.
Prototypes have unit length after every step. The head with the least loss in the last epoch places images.

Differs: the adaptation was never released. Values are those of the authors' script as far as it is known; its rate
and decay are known for ImageNet-100 only. Sinkhorn spreads its targets too thin where rows are fewer than classes,
and gives known classes too much, of which a part is labelled and so not among the rows. Three things here are ours: a
queue of the last unlabelled logits (10 K rows), shares of equally large classes less what is labelled, and known
prototypes that begin at class means. `as_run` has none of them and takes head 0, as that script did in effect. Views
are two crops with flips, the warm-up's 10 of 200 epochs are a share of any training, nothing is pre-trained, the last
epoch is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.config.parse import Natural, Positive, RepeatCount, SmallInt
from holotype.errors import InputError
from holotype.losses.ops import l2_normalize
from holotype.losses.sinkhorn import sinkhorn, swapped_prediction
from holotype.methods.base import (
    Batch,
    EpochMeans,
    Images,
    Method,
    Now,
    ParamGroup,
    Stage,
    Task,
    class_means,
    warn_reduced,
)
from holotype.methods.schedules import cosine
from holotype.models.heads import MultiHead, UnitPrototypes
from holotype.models.memory_bank import RingMemory


@dataclass
class UNOConfig:
    """Settings of UNO+."""

    heads: SmallInt = 5
    """Number of heads H that learn side by side."""
    over: SmallInt = 3
    """Over-clustering: prototypes for each novel class (f)."""
    tau: Positive = 0.1
    """Temperature of the predictions."""
    eps: Positive = 0.05
    """Temperature of the assignment: the smaller, the harder."""
    rounds: RepeatCount = 3
    """Rounds of Sinkhorn."""
    queue: Natural = 10
    """Unlabelled rows kept beside the batch for the assignment, as a multiple of K; 0 for none, and never more than
    there are unlabelled images."""
    prior: Literal["unlabelled", "uniform"] = "unlabelled"
    """Shares of the classes among unlabelled images: equal class sizes less the labelled images, or equal shares."""
    start: Literal["means", "random"] = "means"
    """Where the prototypes of known classes begin: at the means of their labelled images, or anywhere."""
    head: Literal["best", "first"] = "best"
    """Which head places images: the one with the least loss in the last epoch, or the first."""


LEAST_SHARE = 0.25
WARMUP, FLOOR = 10 / 200, 0.01
"""Of training, and of the learning rate: 1e-3 at the published 0.1."""


def unlabelled_shares(task: Task, over: int = 1) -> Tensor:
    """pi (C_L + over C_N,): how unlabelled images spread over the columns if all classes are equally large. Sums to 1.

    A class has N / K images, of which n_labelled / C_L of a known one are labelled and so not here: on the benchmarks,
    with half of each known class labelled, half a share is left. A known class keeps a quarter of one at least: where
    more than N / K are labelled, classes are not equally large.
    """
    known = max(1 - task.n_labelled * task.k / max(task.n_known * task.n_images, 1), LEAST_SHARE)
    novel = (task.k - task.n_known) * over
    # on the meta device of a trial build, a quotient would import torch's compiler
    shares = torch.tensor([known] * task.n_known + [1 / over] * novel, device="cpu")
    return shares / shares.sum()


class UNO(Method):
    """Prototypes of the known classes, and heads for the novel ones and for over-clustering.

    Title: UNO+
    Paper: Enrico Fini, Enver Sangineto, Stéphane Lathuilière, Zhun Zhong, Moin Nabi, Elisa Ricci: A Unified Objective
        for Novel Class Discovery. ICCV 2021
    Summary: One softmax over known and novel classes; unlabelled images learn a balanced assignment from the other
        view. It needs at least one novel category.
    Differs:
    - The adaptation to this task (Vaze et al., CVPR 2022) was not released; this one is ours, without several crops
      and without supervised pre-training.
    - A queue beside the batch, class shares that allow for the labelled images, and a start at class means are ours;
      the preset as_run does without, as the published numbers were probably made.
    - Views are crops and flips, and the last epoch is used.
    - The rate follows a cosine from the first step on, times the warm-up; the released one begins its cosine after the
      warm-up, and changes once an epoch.
    - The warm-up is a share of any training.
    """

    Config = UNOConfig
    config: UNOConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "as_run": {"queue": 0, "prior": "uniform", "start": "random", "head": "first"}
    }
    recipes: ClassVar[dict[str, dict[str, Any]]] = {"*": {"train.weight_decay": 1e-4}}
    head_loss: Tensor
    prior: Tensor | None
    prior_over: Tensor | None

    def __init__(self, config: UNOConfig, task: Task) -> None:
        super().__init__(config, task)
        novel = task.k - task.n_known
        if novel < 1:
            raise InputError(
                f"UNO+ needs a novel category: k = {task.k} has none beside the {task.n_known} known classes; "
                "give a larger k, or use another method."
            )
        self.known = UnitPrototypes(task.n_known, task.dim)
        self.novel = MultiHead(config.heads, task.dim, novel)
        self.over = MultiHead(config.heads, task.dim, config.over * novel)
        columns = task.k + task.n_known + config.over * novel  # of both kinds of logits, side by side
        # no image needs to stand in it more than once
        rows = min(config.queue * task.k, max(1, task.n_unlabelled))
        self.queue = RingMemory(rows, config.heads, columns) if config.queue else None
        for name, over in (("prior", 1), ("prior_over", config.over)):
            shares = unlabelled_shares(task, over) if config.prior == "unlabelled" else None
            self.register_buffer(name, shares, persistent=False)
        self.register_buffer("head_loss", torch.zeros(config.heads))
        self.tally = EpochMeans("target_peak", "target_known", "labelled_right")

    def check(self) -> list[str]:
        asked, there = self.config.queue * self.task.k, max(1, self.task.n_unlabelled)
        return warn_reduced("method.queue", asked, there, "unlabelled images")

    def stages(self) -> list[Stage]:
        return [Stage(rates=(ParamGroup("", pace=cosine(FLOOR, WARMUP * self.task.epochs)),))]

    @torch.no_grad()
    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        if self.batch_size == 1:  # known once there is a loop
            raise InputError(
                "UNO+ needs two images in a step at least, whose mean its heads take; raise --train.batch-size."
            )
        self.tally.reset()
        self.head_loss.zero_()
        if epoch == 0 and self.config.start == "means":
            features, label = l2_normalize(images.features()), images.label
            self.known.weight.copy_(class_means(features, label, label >= 0, self.task.n_known))

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        f = batch.features[:2]
        logits, over = self.joined(f, self.novel), self.joined(f, self.over)
        return self.terms(logits, over, batch)

    def joined(self, f: Tensor, head: MultiHead) -> Tensor:
        """(V, B, D) -> (V, H, B, C_L + novel columns) cosines with known and novel prototypes."""
        novel = head(f)
        known = self.known(f)[:, None].expand(-1, novel.shape[1], -1, -1)
        return torch.cat([known, novel], dim=-1)

    def terms(self, logits: Tensor, over: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The two weighted terms. logits: (2, H, B, K), over: (2, H, B, C_L + f C_N)."""
        tau = self.config.tau
        targets, targets_over = self.targets(logits.detach(), over.detach(), batch)
        each = swapped_prediction(logits, targets, tau)
        self.head_loss += each.detach()
        self.count(logits.detach(), targets, batch)
        return {"cluster": each.mean() / 2, "over": swapped_prediction(over, targets_over, tau).mean() / 2}

    @torch.no_grad()
    def targets(self, logits: Tensor, over: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Labels for labelled rows, assignments for the others, of both kinds of logits; the queue moves on."""
        rows, valid = torch.cat([logits, over], dim=-1), ~batch.labelled
        if self.queue is not None:
            new, keep = rows.transpose(1, 2).flatten(0, 1), valid.repeat(len(rows))
            # (H, Q, columns), the same beside every view
            queued = self.queue.rows.to(rows.dtype).transpose(0, 1)
            rows = torch.cat([rows, queued.expand(len(rows), -1, -1, -1)], dim=2)
            valid = torch.cat([valid, self.queue.valid])
            self.queue.push(new, keep)
        columns = rows.split([logits.shape[-1], over.shape[-1]], dim=-1)
        return (
            self.assigned(columns[0], valid, self.prior, batch),
            self.assigned(columns[1], valid, self.prior_over, batch),
        )

    def assigned(self, rows: Tensor, valid: Tensor, prior: Tensor | None, batch: Batch) -> Tensor:
        """(V, H, B + queue, C) logits -> (V, H, B, C) targets; `valid` (B + queue,) are the rows to balance."""
        q = sinkhorn(rows, valid, prior, self.config.eps, self.config.rounds)[:, :, : len(batch.label)]
        label = F.one_hot(batch.label, q.shape[-1]).to(q.dtype)
        return torch.where(batch.labelled[:, None], label, q)

    @torch.no_grad()
    def count(self, logits: Tensor, targets: Tensor, batch: Batch) -> None:
        """How hard targets are, how much of them falls to known classes, and how often labelled images are right."""
        peak, known = targets.amax(-1), targets[..., : self.task.n_known].sum(-1)
        self.tally.add("target_peak", peak, ~batch.labelled)
        self.tally.add("target_known", known, ~batch.labelled)
        right = (logits.argmax(-1) == batch.label).to(peak.dtype)
        self.tally.add("labelled_right", right, batch.labelled)

    def after_step(self) -> None:
        for prototypes in (self.known, self.novel.prototypes, self.over.prototypes):
            prototypes.normalise()

    def diagnostics(self) -> dict[str, Tensor]:
        return {**self.tally.means(), "head": self.chosen()[0].float()}

    def chosen(self) -> Tensor:
        """(1,) the head that places images."""
        best = self.head_loss.argmin(dim=0, keepdim=True)
        return best if self.config.head == "best" else torch.zeros_like(best)

    def logits(self, features: Tensor) -> Tensor:
        every = self.joined(features[None], self.novel)[0]
        return every.index_select(0, self.chosen())[0] / self.config.tau
