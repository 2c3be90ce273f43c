"""A quick stand-in for training: a classifier on the features of the frozen backbone, many seeds at once.

A linear layer and a cosine classifier learn by SimGCD's three classifier terms (labels, self-distillation, balance of
sizes) from four weak views of every image, which are embedded once. What it leaves out is the backbone's last block
and the contrastive losses. One seed takes a second or two, where a real training takes minutes; sizes of
differences are its own, and only what holds in real trainings too is claimed of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from holotype.data.store import ImageStore
from holotype.data.table import Table
from holotype.machine.device import Compute
from holotype.methods.simgcd import SHARE_MOMENTUM, SHARE_POWER, SimGCDConfig
from holotype.models.backbone import BackboneConfig, load_backbone
from holotype.models.cache import CacheViews
from holotype.training.cache_content import draw_view
from holotype.training.encode import Encoder

VIEWS = CacheViews(4, 2)
STEPS, BATCH, RATE, WARMUP = 500, 64, 0.1, 0.05
TEACHER = 0.3
"""Share of the steps in which the teacher's temperature falls."""


@torch.no_grad()
def embed_views(table: Table, kept: Path) -> np.ndarray:
    """(N, 5, D) features of the centre and of four weak views of every image; read where they are kept."""
    if kept.is_file():
        return np.load(kept)["f"]
    backbone = load_backbone(BackboneConfig("embedded"))
    encoder = Encoder(backbone, Compute.on("cpu"))
    store = ImageStore.decode([str(path) for path in table.path], backbone.image_size, progress=False)
    rows = torch.arange(len(table))
    found = torch.zeros(len(table), 1 + VIEWS.weak, backbone.dim)
    for place, view in enumerate((VIEWS.centre, *range(VIEWS.weak))):
        crops = draw_view(store, rows, VIEWS, view)
        for part in rows.split(BATCH):
            tokens = encoder.inputs(store.crop(part, crops.take(part)))
            found[part, place] = encoder.tail(tokens).float()
    kept.parent.mkdir(parents=True, exist_ok=True)
    np.savez(kept, f=found.numpy())
    return found.numpy()


def train_frozen(
    features: np.ndarray,
    target: np.ndarray,
    k: int,
    seeds: Sequence[int],
    long_tail: bool,
    steps: int = STEPS,
) -> tuple[np.ndarray, np.ndarray]:
    """(S, N, k) probabilities, and (S, D, D) the linear layers. features: of embed_views. target: (N,), -1: none."""
    x, label = torch.from_numpy(features), torch.from_numpy(target)
    draws = [torch.Generator().manual_seed(1000 + seed) for seed in seeds]
    dim, bound = x.shape[2], 1 / math.sqrt(x.shape[2])
    heads = torch.stack([torch.empty(k, dim).uniform_(-bound, bound, generator=g) for g in draws])
    layers = torch.eye(dim).repeat(len(seeds), 1, 1)
    learn = [heads.requires_grad_(), layers.requires_grad_()]
    optimiser = torch.optim.SGD(learn, lr=RATE, momentum=0.9, weight_decay=5e-5)
    share = torch.full((len(seeds), k), 1 / k)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate(step, steps)
        rows = torch.stack([torch.randint(len(x), (BATCH,), generator=g) for g in draws])
        view = torch.stack([torch.randint(1, x.shape[1], (2, BATCH), generator=g) for g in draws])
        seen = torch.cat([x[rows, view[:, 0]], x[rows, view[:, 1]]], dim=1)
        q = cosines(seen, layers, heads)
        loss, share = terms(q, label[rows], share, step / steps, long_tail)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        q = cosines(x[:, 0].expand(len(seeds), -1, -1), layers, heads)
        return (q / SimGCDConfig.tau).softmax(-1).numpy(), layers.detach().numpy()


def rate(step: int, steps: int) -> float:
    cosine = 1e-3 + (1 - 1e-3) * 0.5 * (1 + math.cos(math.pi * step / steps))
    return RATE * min(1, (step + 1) / (WARMUP * steps)) * cosine


def cosines(x: Tensor, layers: Tensor, heads: Tensor) -> Tensor:
    """(S, n, D) -> (S, n, k)."""
    return torch.bmm(unit(torch.bmm(x, layers)), unit(heads).transpose(1, 2))


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6)


def terms(q: Tensor, label: Tensor, share: Tensor, done: float, long_tail: bool) -> tuple[Tensor, Tensor]:
    """The loss, summed over seeds, and the running shares of the categories. q: (S, 2 B, k), label: (S, B)."""
    c, k = SimGCDConfig(), q.shape[-1]
    heat = c.teacher_temp_start + (c.teacher_temp - c.teacher_temp_start) * min(1, done / TEACHER)
    log_p = (q / c.tau).log_softmax(-1)
    with torch.no_grad():
        sharp = (q / heat).softmax(-1)
        teacher = torch.cat([sharp[:, BATCH:], sharp[:, :BATCH]], dim=1)
    distilled = -(teacher * log_p).sum(-1).mean(-1)
    mean = log_p.exp().mean(1)
    if long_tail:
        prior = share.clamp_min(1e-3 / k) ** SHARE_POWER
        prior = prior / prior.sum(-1, keepdim=True)
        balance = (mean * (mean.clamp_min(1e-30).log() - prior.log())).sum(-1)
        share = SHARE_MOMENTUM * share + (1 - SHARE_MOMENTUM) * sharp.mean(1)
    else:
        balance = (mean * mean.clamp_min(1e-30).log()).sum(-1) + math.log(k)
    labelled = (label >= 0).float().repeat(1, 2)
    own = -log_p.gather(-1, label.clamp_min(0).repeat(1, 2)[..., None])[..., 0]
    supervised = (own * labelled).sum(1) / labelled.sum(1).clamp_min(1)
    return ((1 - c.lam) * (distilled + c.memax_weight * balance) + c.lam * supervised).sum(), share
