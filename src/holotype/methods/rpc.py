"""RPC: Relational Pattern Consistency.

    L = L_baseline + lambda_1 * L_align + lambda_2 * L_new                                           (R7)

w_old(x) = s_ID(x), w_new = 1 - w_old: one-vs-all heads say how far an unlabelled image is known.   (R1)
Known ones inherit the labelled images' behaviour under augmentation: every labelled anchor is grouped
with unlabelled images of high w_old (R2), their embeddings are fused along the group,
    z'_i = (1 - alpha w_i) z_i + alpha w_i z_{i-1},                                                   (R3)
and their weak-minus-strong differences Delta are pulled to the anchor's,
    L_align = mean_i || Delta(l_i) - sum_j w_ij Delta'(u_ij) / sum_j w_ij ||^2.                       (R4)
Novel ones are grouped by how they stand to the known classes' prototypes:
    r(x) = [cos(f(x), p_1), ..., cos(f(x), p_C)],                                                     (R5)
    L_new = sum_ij w_new(i) w_new(j) s_ij || r_i - r_j ||^2.                                          (R6)

The paper leaves a dozen choices open (docs/methods.md). Preset `reading` follows the text with the least that makes it
trainable, and loses the known classes (docs/studies/rpc-parts.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.config.parse import LargeInt, Natural, Positive, UnitInterval, Weight
from holotype.losses.ops import l2_normalize, masked_mean
from holotype.losses.ova import known_score
from holotype.losses.relational import behaviour_alignment, circular_fusion, relational_consistency, signature
from holotype.methods.base import Batch, Images, Now, Prediction, Progress, Stage, Task, Views, class_means
from holotype.methods.debgcd import auxiliary_loss, confidence_of_lead, detector_terms, scale_gradient
from holotype.methods.schedules import ramp
from holotype.methods.simgcd import AS_RUN, Recipes, SimGCD, SimGCDConfig
from holotype.models.heads import CompactOVA, CosineClassifier


@dataclass
class OVAConfig:
    """The one-vs-all heads behind w_old."""

    weight: Weight = 0.005
    """Weight beta of the gradient that the heads send into the backbone; they themselves learn at full weight."""
    reads: Literal["features", "projections"] = field(default="features", metadata={"before": "features"})
    """What the heads see of an image: its feature f(x), or the projection g(f(x)) as printed."""


@dataclass
class DebiasConfig:
    """The debiased classifier of the DebGCD base."""

    threshold: UnitInterval | None = None
    """Smallest classifier probability for which a pseudo-label counts; by default that of a lead of 0.6 in cosine over
    all other categories, which depends on their number: 0.98 for 10, 0.80 for 100, 0.67 for 200."""
    adl: Weight | None = None
    """Weight of the debiased loss; by default a fiftieth of the number of categories, so that each of them is pulled as
    hard in a step, whatever their number: 0.2 for 10, 2 for 100, 4 for 200."""
    pseudo_share: UnitInterval = 0.5
    """Share of the debiased loss that comes from pseudo-labels."""
    waits: bool = field(default=True, metadata={"before": False})
    """Whether the debiased loss rises with the ramp of L_align and L_new; early pseudo-labels are poor, and on few
    images what they teach stays."""


@dataclass
class PairingConfig:
    """Which unlabelled images are grouped with a labelled anchor."""

    mu: LargeInt = 7
    """Unlabelled images of the batch that each anchor draws; it keeps the floor(mu * rho) most known ones."""
    filter: Literal["none", "pseudo_match"] = "pseudo_match"
    """none: any unlabelled image. pseudo_match: only those that the classifier puts in the anchor's class."""


@dataclass
class NewConfig:
    """The relational consistency loss L_new."""

    tau: Positive = 0.07
    """Temperature of the similarities."""
    sharpen: Weight = 6.0
    """Power of w_new; an image that may be known counts little, so that L_new cannot pull it off its class. 1 as
    printed."""


@dataclass
class RPCConfig(SimGCDConfig):
    """Settings of RPC."""

    base: Literal["simgcd", "debgcd"] = "debgcd"
    """L_baseline: SimGCD's losses, or those plus DebGCD's debiased classifier."""
    lambda_1: Weight = 0.5
    """Weight of the behaviour alignment L_align."""
    align_over: Literal["paired", "labelled"] = field(default="paired", metadata={"before": "paired"})
    """What L_align is a mean over: the labelled images that have a partner in the step, or all of them as printed;
    the latter is a fifth of the former on CUB, where few have one."""
    lambda_2: Weight = 0.3
    """Weight of the relational consistency L_new."""
    alpha: Weight = 0.3
    """Strength of the embedding fusion."""
    ramp_epochs: Natural = 30
    """Epochs over which lambda_1 and lambda_2 rise from 0 to their values; 0 for at once."""
    prototype_momentum: UnitInterval = 0.99
    """Momentum of the moving class means that signatures are measured against."""
    ova: OVAConfig = field(default_factory=OVAConfig)
    """The one-vs-all heads."""
    debias: DebiasConfig = field(default_factory=DebiasConfig)
    """The debiased classifier of the DebGCD base."""
    pairing: PairingConfig = field(default_factory=PairingConfig)
    """The groups around labelled anchors."""
    new: NewConfig = field(default_factory=NewConfig)
    """The relational consistency loss."""


LITERAL_READING: dict[str, Any] = {
    "base": "simgcd",
    "lambda_1": 0.5,
    "lambda_2": 0.3,
    "alpha": 0.3,
    "ramp_epochs": 30,
    "prototype_momentum": 0.99,
    "pairing.mu": 7,
    "pairing.filter": "none",
    "new.tau": 0.07,
    "new.sharpen": 1.0,
}
"""The paper's text, read as literally as can be trained."""


LEAD = 0.6
"""How far a pseudo-label must lie before the other categories, in cosine."""
PULL_WEIGHT = 1 / 50
"""Weight of the debiased loss for each category: a batch holds the fewer images of one, the more there are."""
PROJECTED = 256
"""Width of the projector's output."""
RHO_RANGE = (0.05, 0.95)
RHO_HELD_EPOCHS = 10
"""Early one-vs-all scores say nothing: a maximum over many untrained heads is near 0.9 for any image."""
RHO_MOMENTUM = 0.99


class RPC(SimGCD):
    """SimGCD (or DebGCD) plus one-vs-all weights, behaviour alignment and relational consistency.

    Title: RPC
    Paper: Yulin Xu, Chunqi Guo, Yuanzhen Shuai, Jianyuan Ni: Relational Retrieval: Leveraging Known-Novel
        Interactions for Generalized Category Discovery. ICMR 2026
    Summary: Unlabelled images that look known inherit how labelled ones change under augmentation; the others are
        grouped by how they relate to the known classes.
    Differs:
    - It builds on DebGCD's losses instead of SimGCD's. The part of pseudo-labels enters with RPC's own parts; one
      counts by its lead over all other categories, and their loss weighs K / 50 for K categories. One set of values
      serves all data sets.
    - The rate rises over the first twentieth of the epochs; the preset as_run takes that back.
    - A labelled image is grouped with images that the classifier puts in its class, not with random ones.
    - L_align is a mean over the labelled images that have a partner, and the one-vs-all heads read f(x); the settings
      align_over and ova.reads take these two back.
    - Partners come from the batch itself, and not mu more for each anchor; views share strong operations and no crops.
      Differences are of vectors of length 1, without gradient through anchor and neighbour.
    - Self-distillation is sharpened from 0.07 to 0.04 and goes both ways, and the entropy term weighs (1 - lam) times
      as much, as in SimGCD's code; printed are one direction and one temperature.
    - Prototypes move only for classes with a labelled image in the batch; rho is a prior for ten epochs, then it moves.
    - In the loss of new categories an image that may be known hardly counts: its weight is taken to the power of six.
      The preset reading takes these three back.
    """

    Config = RPCConfig
    revision = 2  # 1 drew its first weights in an order of its own
    config: RPCConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {**AS_RUN, "reading": LITERAL_READING}
    recipes: ClassVar[Recipes] = {}  # one set of values for all data
    ova_head: ClassVar[type[torch.nn.Module]] = CompactOVA
    """The small head that the paper's parameter count implies, and not DebGCD's five layers."""
    prototypes: Tensor
    rho: Tensor

    def __init__(self, config: RPCConfig, task: Task) -> None:
        super().__init__(config, task)
        # in DebGCD's order, so that a seed gives both methods the same first weights and runs can be compared in pairs
        if config.base == "debgcd":
            self.debiased = CosineClassifier(task.dim, task.k)
        self.ova = self.ova_head(PROJECTED if config.ova.reads == "projections" else task.dim, task.n_known)
        prior = (task.n_images * task.n_known / task.k - task.n_labelled) / max(task.n_unlabelled, 1)
        self.debiasing = debiasing(config, task.k)
        self.register_buffer("rho", torch.tensor(min(max(prior, RHO_RANGE[0]), RHO_RANGE[1])))
        self.register_buffer("prototypes", torch.zeros(task.n_known, task.dim))

    def stages(self) -> list[Stage]:
        return [Stage(views=Views(weak=2, strong=1, share="batch"))]

    def schedule(self, stage: Stage, at: Progress) -> dict[str, float]:
        return {
            **super().schedule(stage, at),
            "ramp": ramp(at.epoch, self.config.ramp_epochs, at.epochs),
            "rho_moves": float(at.epoch >= min(RHO_HELD_EPOCHS, at.epochs // 2)),
        }

    def draws(self, stage: Stage, batch_size: int) -> dict[str, tuple[int, ...]]:
        return {"pairing": (batch_size, batch_size)}

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        """Start the prototypes at the labelled class means."""
        if epoch == 0:
            # over all rows of the table, images that cannot be read as zeros: sums keep their order
            f, label = images.spread(images.features()), images.spread(images.label, -1)
            self.prototypes.copy_(class_means(l2_normalize(f), label, label >= 0, self.task.n_known))

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        c = self.config
        f = batch.features[:2]
        q = self.classifier(f)
        z = self.projector(batch.features)
        p_in, l_sdl = self.detect(z[:2] if c.ova.reads == "projections" else f, batch)
        w_old = self.known_weight(p_in, batch)
        self.update_rho(w_old, batch, now)
        self.update_prototypes(f, q, w_old, batch, now)
        partner, weight = self.groups(q, w_old, batch)
        terms = self.baseline(z[:2], q, batch, now)
        if c.base == "debgcd":
            entered = now["ramp"] if c.debias.waits else 1.0
            terms["adl"] = entered * auxiliary_loss(self.debiased(f), q, p_in, batch, self.debiasing, c.tau)
        terms["sdl"] = l_sdl
        terms["align"] = now["ramp"] * c.lambda_1 * self.align(l2_normalize(z[0::2]), partner, weight, batch)
        terms["new"] = now["ramp"] * c.lambda_2 * self.discover(f, w_old, batch)
        return terms

    def detect(self, f: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """p_in (2, B, C) and L_sdl: the heads learn at full weight, what enters the features is scaled.

        So a throttled backbone does not mean untrained heads.
        """
        return detector_terms(self.ova, scale_gradient(f, self.config.ova.weight), batch)

    def align(self, z: Tensor, partner: Tensor, weight: Tensor, batch: Batch) -> Tensor:
        """L_align (R4) over groups [l_i, u_i1, ..., u_iM] fused by (R3). z: (2, B, D), weak and strong view."""
        group = torch.cat([z[:, :, None], select_rows(z, partner)], dim=2)  # (2, B, 1 + M, D)
        alpha_w = F.pad(self.config.alpha * weight, (1, 0))  # labelled rows take nothing in
        rows = group.movedim(0, 2).flatten(0, 1)  # (B (1 + M), 2, D), in the order of the paper's batch
        fused = circular_fusion(rows, alpha_w.flatten()).unflatten(0, alpha_w.shape)
        change = fused[:, 1:, 0] - fused[:, 1:, 1]
        over_all = self.config.align_over == "labelled"
        return behaviour_alignment(z[0] - z[1], change, weight, batch.labelled, over_all)

    def discover(self, f: Tensor, w_old: Tensor, batch: Batch) -> Tensor:
        """L_new (R6) over the unlabelled rows of both weak views, with w_new^sharpen for w_new."""
        rows, w_new = f.flatten(0, 1), self.novel_weight(w_old).repeat(2)
        image, unlabelled = batch.image.repeat(2), ~batch.labelled.repeat(2)
        r, tau = signature(rows, self.prototypes), self.config.new.tau
        return relational_consistency(r, rows, w_new, image, unlabelled, tau=tau)

    @torch.no_grad()
    def known_weight(self, p_in: Tensor, batch: Batch) -> Tensor:
        """w_old (B,): the mean score of the two weak views; 1 for labelled images. (R1)"""
        w = known_score(p_in).mean(0)
        return torch.where(batch.labelled, torch.ones_like(w), w)

    def novel_weight(self, w_old: Tensor) -> Tensor:
        """w_new as L_new counts it. (..., N) -> (..., N)"""
        return (1 - w_old) ** self.config.new.sharpen

    @torch.no_grad()
    def update_rho(self, w_old: Tensor, batch: Batch, now: Now) -> None:
        """rho_ID, the estimated share of known images: held at its prior first, then a moving mean of w_old."""
        moved = RHO_MOMENTUM * self.rho + (1 - RHO_MOMENTUM) * masked_mean(w_old, ~batch.labelled)
        moves = (now["rho_moves"] > 0) & (~batch.labelled).any()
        self.rho.copy_(torch.where(moves, moved.clamp(*RHO_RANGE), self.rho))

    @torch.no_grad()
    def update_prototypes(self, f: Tensor, q: Tensor, w_old: Tensor, batch: Batch, now: Now) -> None:
        p_known = (q / self.config.tau).softmax(-1)[..., : self.task.n_known]
        p_known = p_known / p_known.sum(-1, keepdim=True).clamp_min(1e-12)
        membership = (w_old * ~batch.labelled)[None, :, None] * p_known * (now["ramp"] >= 1)
        rows, member = l2_normalize(f).flatten(0, 1), membership.flatten(0, 1)
        m = self.config.prototype_momentum
        label, labelled = batch.label.repeat(2), batch.labelled.repeat(2)
        self.prototypes.copy_(soft_update(self.prototypes, rows, label, labelled, member, m))

    @torch.no_grad()
    def groups(self, q: Tensor, w_old: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """(R2) partner (B, M) and weight (B, M) of each anchor; mu_ID = max(1, floor(mu rho_ID))."""
        c = self.config.pairing
        candidate = (~batch.labelled)[None, :].expand(len(w_old), -1)
        if c.filter == "pseudo_match":
            pseudo = q.mean(0).argmax(-1)
            candidate = candidate & (pseudo[None, :] == batch.label[:, None])
        mu_id = (c.mu * self.rho).floor().clamp_min(1)
        return draw_pairs(batch.random["pairing"], w_old, candidate, c.mu, mu_id)

    def diagnostics(self) -> dict[str, Tensor]:
        return {"rho": self.rho}

    def predict(self, features: Tensor) -> Prediction:
        placed = super().predict(features)
        seen = self.projector(features) if self.config.ova.reads == "projections" else features
        return Prediction(placed.category, placed.probability, known_score(self.ova(seen).sigmoid()))


@dataclass(frozen=True)
class RPCDebiasing:
    """The settings of the debiased loss, once the number of categories is known."""

    adl: float
    threshold: float
    pseudo_share: float


def debiasing(config: RPCConfig, k: int) -> RPCDebiasing:
    """What is not given follows from the number k of categories."""
    c = config.debias
    return RPCDebiasing(
        adl=PULL_WEIGHT * k if c.adl is None else c.adl,
        threshold=confidence_of_lead(LEAD, k, config.tau) if c.threshold is None else c.threshold,
        pseudo_share=c.pseudo_share,
    )


def soft_update(
    prototypes: Tensor, f: Tensor, label: Tensor, labelled: Tensor, membership: Tensor, momentum: float
) -> Tensor:
    """p_c <- normalize(m p_c + (1 - m) mean_c) for the classes that have a labelled row in the batch.

    f: (N, D) normalised features; membership: (N, C) weight of each unlabelled row in each class (0 on
    labelled rows). The unlabelled mass of a class is capped at its labelled mass, so that what is known
    for certain always carries at least half of a prototype.
    """
    n_known = len(prototypes)
    certain = F.one_hot(label, n_known).to(f.dtype) * labelled.to(f.dtype)[:, None]
    certain_mass, soft_mass = certain.sum(0), membership.sum(0)
    cap = torch.clamp(certain_mass / soft_mass.clamp_min(1e-12), max=1.0)
    total = certain_mass + cap * soft_mass
    mean = (certain.T @ f + cap[:, None] * (membership.T @ f)) / total.clamp_min(1e-12)[:, None]
    moved = l2_normalize(momentum * prototypes + (1 - momentum) * mean)
    return torch.where((certain_mass > 0)[:, None], moved, prototypes)


def draw_pairs(
    key: Tensor, w_old: Tensor, candidate: Tensor, mu: int, mu_id: Tensor | int
) -> tuple[Tensor, Tensor]:
    """Each anchor draws `mu` distinct candidates at random and keeps the `mu_id` with the largest w_old.

    key: (B, B) uniform random numbers, row = anchor. w_old: (B,). candidate: (B, B) bool, may anchor i
    draw row j? -> partner (B, M) row indices, best first, and weight (B, M), their w_old where kept and 0
    elsewhere; M = min(mu, B). Shapes do not depend on the data.
    """
    drawn_key, drawn = torch.where(candidate, key, -1.0).topk(min(mu, key.shape[1]), dim=1)
    is_drawn = drawn_key >= 0
    w = torch.where(is_drawn, w_old[drawn], -1.0)
    w, order = w.sort(dim=1, descending=True, stable=True)
    position = torch.arange(w.shape[1], device=w.device)
    keep = (w >= 0) & (position < mu_id)
    return drawn.gather(1, order), torch.where(keep, w, torch.zeros_like(w))


def select_rows(x: Tensor, row: Tensor) -> Tensor:
    """x[:, row] as a product with a one-hot matrix. x: (V, B, D), row: (B, M) indices -> (V, B, M, D).

    Exact, but for the ten bits of TF32 where train.matmul allows it on a GPU. Its gradient is a product too: that of an
    index sorts the rows first, in a dozen kernels.
    """
    one_hot = (row.flatten()[:, None] == torch.arange(x.shape[1], device=x.device)).to(x.dtype)
    return (one_hot @ x).unflatten(1, row.shape)
