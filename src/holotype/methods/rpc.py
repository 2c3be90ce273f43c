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

The paper leaves a dozen choices open (docs/methods.md lists them, docs/experiments.md how they were decided).
Preset `reading` is the text where it speaks, with the least that makes it trainable (a normalised L_new, a
ramp): SimGCD as baseline, pairs at random. It gains on novel classes and breaks the known ones. As we read
the curves: the heads know the labelled images better than their classes, so that unlabelled known images get
a low w_old; L_new draws what counts as novel away from the prototypes; that lowers w_old further.
Preset `default` differs in three keys (CUB, 200 epochs, cached views; All / Old / New):
  base = "debgcd"                  the debiased classifier keeps known classes together; set by the recipes, since its
                                   values must fit the data: where there are none it costs 6 points of All
                                   (embedded sample, 5 seeds), and the base is SimGCD;
  pairing.filter = "pseudo_match"  an anchor is grouped with images that the classifier puts in its class,
                                   instead of random ones, of which about 1 in 100 would match
                                   (both keys: 59.8 / 61.5 / 58.9 over 8 seeds, reading 50 / 42 / 55 on one);
  new.sharpen = 6                  w_new^6 in L_new: what may be known hardly counts
                                   (62.4 / 67.9 / 59.6 over 5 seeds; DebGCD 61.3 / 68.5 / 57.7; chosen among 23
                                   settings on two of these seeds).
L_new exactly as printed overflows (one pair weighs up to 1.6 million); it stays in
`losses.relational.printed_new`, and training normalises it (`new.norm`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.errors import InputError
from holotype.losses.consistency import behaviour_alignment, circular_fusion
from holotype.losses.masked import masked_mean
from holotype.losses.ova import known_score
from holotype.losses.precision import unit
from holotype.losses.relational import relational_consistency, signature
from holotype.methods.base import Batch, Now, Prediction, Stage, Task, Views
from holotype.methods.debgcd import OVA_HEADS, auxiliary_loss, detector_terms
from holotype.methods.pairing import chosen_anchor, draw_pairs, gather_rows
from holotype.methods.prototypes import class_means, soft_update
from holotype.methods.rpc_config import READING, RPCConfig
from holotype.methods.schedule import ramp
from holotype.methods.simgcd import SimGCD
from holotype.models.heads import CosineClassifier

RHO_RANGE = (0.05, 0.95)
RHO_HELD_EPOCHS = 10
"""Early one-vs-all scores say nothing: a maximum over many untrained heads is near 0.9 for any image."""
RHO_MOMENTUM = 0.99


class RPC(SimGCD):
    """SimGCD (or DebGCD) plus one-vs-all weights, behaviour alignment and relational consistency."""

    Config = RPCConfig
    config: RPCConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}, "reading": READING}
    prototypes: Tensor
    rho: Tensor
    w_table: Tensor

    def __init__(self, config: RPCConfig, task: Task) -> None:
        super().__init__(config, task)
        # in DebGCD's order, so that a seed gives both methods the same first weights and runs can be compared in pairs
        if config.base == "debgcd":
            self.debiased = CosineClassifier(task.dim, task.k)
        self.ova = OVA_HEADS[config.ova.arch](task.dim, task.n_known)
        prior = (task.n_images * task.n_known / task.k - task.n_labelled) / max(task.n_unlabelled, 1)
        start = min(max(prior, RHO_RANGE[0]), RHO_RANGE[1])
        if not isinstance(config.rho, str):
            start = float(config.rho)
            if not 0 < start <= 1:
                raise InputError(
                    f"rho is {config.rho}, but it is a share: choose a number above 0 and up to 1."
                )
        self.register_buffer("rho", torch.tensor(start))
        self.register_buffer("prototypes", torch.zeros(task.n_known, task.dim))
        if config.ova.mode == "static_table":
            self.register_buffer("w_table", torch.zeros(task.n_images))

    # -- the way through training -----------------------------------------------------------------

    def stages(self) -> list[Stage]:
        c = self.config
        main = Stage(views=Views(weak=2, strong=1, share=c.share))
        if c.ova.mode == "joint":
            return [main]
        learned = ("method.ova",) if c.ova.mode == "static_table" else ("tail", "method")
        heads = tuple(f"method.{name}" for name, _ in self.named_children() if name != "ova")
        return [
            Stage("ova", epochs=c.ova.pretrain_epochs, trains=learned),
            Stage(main.name, trains=("tail", *heads), views=main.views),
        ]

    def schedule(self, stage: Stage, epoch: int, epochs: int) -> dict[str, float]:
        return {
            **super().schedule(stage, epoch, epochs),
            "ramp": ramp(epoch, self.config.ramp_epochs, epochs),
            "rho_moves": float(epoch >= min(RHO_HELD_EPOCHS, epochs // 2)),
        }

    def draws(self, batch_size: int) -> dict[str, tuple[int, ...]]:
        return {"pairing": (batch_size, batch_size)}

    def before_epoch(self, stage: Stage, epoch: int, features: Callable[[], Tensor], label: Tensor) -> None:
        """Start the prototypes at the labelled class means; fill the table of w_old where it is fixed."""
        c = self.config
        fill_table = c.ova.mode == "static_table" and stage.name == "train" and epoch == 0
        if epoch > 0 and c.prototypes not in ("epoch_mean", "samples"):
            return
        f = features()
        if c.prototypes == "samples":
            first = (
                (label[None, :] == torch.arange(self.task.n_known, device=label.device)[:, None])
                .int()
                .argmax(1)
            )
            self.prototypes.copy_(unit(f)[first])
        else:
            self.prototypes.copy_(class_means(unit(f), label, label >= 0, self.task.n_known))
        if fill_table:
            self.w_table.copy_(self.score(self.ova(f).sigmoid(), self.classifier(f)))

    # -- the loss ---------------------------------------------------------------------------------

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        c = self.config
        f = batch.features[:2]
        q = self.classifier(f)
        p_in, l_sdl = detector_terms(self.ova, f, batch, c.ova.weight, c.ova.decouple_grad)
        if len(batch.features) == 2:  # the stage that only prepares the one-vs-all heads
            terms = {} if c.ova.mode == "static_table" else self.baseline(self.projector(f), q, batch, now)
            return {**terms, "sdl": l_sdl}
        w_old = self.known_weight(p_in, q, batch)
        self.update_rho(w_old, batch, now)
        self.update_prototypes(f, q, w_old, batch, now)
        partner, weight = self.groups(q, w_old, batch)
        batch = self.with_strong_views(batch)
        z = self.projector(batch.features)
        terms = self.base_terms(f, z[:2], q, p_in, batch, now)
        if c.fusion.scope == "all_losses":
            fused = self.fuse_batch(f, w_old, partner, weight, batch)
            again = self.base_terms(fused, self.projector(fused), self.classifier(fused), p_in, batch, now)
            terms = {name: (term + again[name]) / 2 for name, term in terms.items()}
        if c.ova.mode == "joint":
            terms["sdl"] = l_sdl
        terms["align"] = now["ramp"] * c.lambda_1 * self.align(batch, z, partner, weight)
        terms["new"] = now["ramp"] * c.lambda_2 * self.discover(f, q, w_old, batch)
        return terms

    def with_strong_views(self, batch: Batch) -> Batch:
        """The batch in which only the rows that `strong_for` names have a strong third view."""
        if self.config.strong_for == "all":
            return batch
        strong = batch.labelled if self.config.strong_for == "labelled" else ~batch.labelled
        third = torch.where(strong[:, None], batch.features[2], batch.features[1])
        return dataclasses.replace(batch, features=torch.cat([batch.features[:2], third[None]]))

    def base_terms(
        self, f: Tensor, z: Tensor, q: Tensor, p_in: Tensor, batch: Batch, now: Now
    ) -> dict[str, Tensor]:
        """L_baseline: SimGCD's terms, on the DebGCD base with the debiased classifier's."""
        c = self.config
        terms = self.baseline(z, q, batch, now)
        if c.base == "debgcd":
            terms["adl"] = auxiliary_loss(self.debiased(f), q, p_in, batch, c.debias, c.tau)
        return terms

    def align(self, batch: Batch, z: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
        """L_align (R4) over groups [l_i, u_i1, ..., u_iM] of the first weak view and the strong one."""
        c = self.config
        in_projection = c.fusion.space == "proj"
        pair = unit(z[0::2]) if in_projection else batch.features[0::2]
        group = torch.cat([pair[:, :, None], gather_rows(pair, partner)], dim=2)  # (2, B, 1 + M, D)
        alpha_w = F.pad(c.alpha * weight, (1, 0))  # labelled rows take nothing in
        fused = self.fuse_groups(group, alpha_w)
        anchor = pair
        if not in_projection:
            anchor, fused = (unit(self.projector(x)) for x in (anchor, fused))
        return behaviour_alignment(
            anchor[0] - anchor[1], fused[0, :, 1:] - fused[1, :, 1:], weight, batch.labelled
        )

    def fuse_groups(self, group: Tensor, alpha_w: Tensor) -> Tensor:
        """(R3) within each group. group: (2, B, 1 + M, D), alpha_w: (B, 1 + M)."""
        if self.config.fusion.topology == "star":
            source = group[:, :, :1].detach()
            return group + alpha_w[None, :, :, None] * (source - group)
        rows = group.movedim(0, 2).flatten(0, 1)  # (B (1 + M), 2, D), in the order of the paper's batch
        fused = circular_fusion(rows, alpha_w.flatten(), direction=-1)
        return fused.unflatten(0, alpha_w.shape).movedim(2, 0)

    def fuse_batch(self, f: Tensor, w_old: Tensor, partner: Tensor, weight: Tensor, batch: Batch) -> Tensor:
        """Every image that an anchor kept, moved towards one such anchor. f: (2, B, D)."""
        anchor, taken = chosen_anchor(batch.random["pairing"], partner, weight * batch.labelled[:, None])
        amount = self.config.alpha * w_old * taken
        return f + amount[None, :, None] * (f[:, anchor].detach() - f)

    def discover(self, f: Tensor, q: Tensor, w_old: Tensor, batch: Batch) -> Tensor:
        """L_new (R6) over the unlabelled rows of both weak views."""
        c = self.config
        rows = f.flatten(0, 1)
        return relational_consistency(
            signature(rows, self.reference()) if c.new.space == "signature" else unit(rows),
            rows,
            self.novel_weight(q, w_old).repeat(2),
            batch.image.repeat(2),
            ~batch.labelled.repeat(2),
            tau=c.new.tau,
            norm=c.new.norm,
            detach=c.new.detach,
        )

    # -- weights, groups, prototypes (all without gradient) ---------------------------------------

    def score(self, p_in: Tensor, q: Tensor) -> Tensor:
        """s_ID from p_in (..., C) and the classifier's cosines q (..., K)."""
        if self.config.ova.score == "noisy_or":
            return 1 - (1 - p_in).clamp_min(1e-6).log().sum(-1).exp()
        if self.config.ova.score == "at_classifier_argmax":
            best = q[..., : self.task.n_known].argmax(-1, keepdim=True)
            return p_in.gather(-1, best).squeeze(-1)
        return known_score(p_in)

    @torch.no_grad()
    def known_weight(self, p_in: Tensor, q: Tensor, batch: Batch) -> Tensor:
        """w_old (B,): the mean score of the two weak views; 1 for labelled images. (R1)"""
        fixed = self.config.ova.mode == "static_table"
        w = self.w_table[batch.image] if fixed else self.score(p_in, q).mean(0)
        return torch.where(batch.labelled, torch.ones_like(w), w)

    @torch.no_grad()
    def novel_weight(self, q: Tensor, w_old: Tensor) -> Tensor:
        """w_new (B,) as L_new counts it."""
        c, n_known = self.config, self.task.n_known
        w_new = (1 - w_old) ** c.new.sharpen
        if c.new.guard == "soft":
            return w_new * (q / c.tau).softmax(-1)[..., n_known:].sum(-1).mean(0)
        if c.new.guard == "hard":
            return w_new * (q.mean(0).argmax(-1) >= n_known)
        return w_new

    @torch.no_grad()
    def update_rho(self, w_old: Tensor, batch: Batch, now: Now) -> None:
        """rho_ID, the estimated share of known images: held at its prior first, then a moving mean of w_old."""
        if self.config.rho != "ova_ema":
            return
        moved = RHO_MOMENTUM * self.rho + (1 - RHO_MOMENTUM) * masked_mean(w_old, ~batch.labelled)
        moves = (now["rho_moves"] > 0) & (~batch.labelled).any()
        self.rho.copy_(torch.where(moves, moved.clamp(*RHO_RANGE), self.rho))

    @torch.no_grad()
    def update_prototypes(self, f: Tensor, q: Tensor, w_old: Tensor, batch: Batch, now: Now) -> None:
        c = self.config
        if c.prototypes not in ("soft_ema", "ema_mean"):
            return
        p_known = (q / c.tau).softmax(-1)[..., : self.task.n_known]
        p_known = p_known / p_known.sum(-1, keepdim=True).clamp_min(1e-12)
        soft = (now["ramp"] >= 1) if c.prototypes == "soft_ema" else torch.zeros_like(now["ramp"])
        membership = (w_old * ~batch.labelled)[None, :, None] * p_known * soft
        self.prototypes.copy_(
            soft_update(
                self.prototypes,
                unit(f).flatten(0, 1),
                batch.label.repeat(2),
                batch.labelled.repeat(2),
                membership.flatten(0, 1),
                c.prototype_momentum,
            )
        )

    def reference(self) -> Tensor:
        """The prototypes p_c that signatures are measured against (C, D), without gradient."""
        if self.config.prototypes == "classifier":
            return self.classifier.v[: self.task.n_known].detach()
        return self.prototypes

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
        if self.config.ova.mode == "static_table":  # its heads judge the frozen features, not these
            return placed
        score = self.score(self.ova(features).sigmoid(), self.classifier(features))
        return Prediction(placed.category, placed.probability, score)
