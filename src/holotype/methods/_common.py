"""What several methods share: nearest centres, class prototypes, pairs of images, means for the log."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holotype.losses.ops import l2_normalize
from holotype.methods.base import Method, Task

SOFTNESS = 0.1
"""Temperature that turns squared distances into probabilities; the same as the classifiers' on cosines."""
AT_ONCE = 1 << 26
"""Images times classes whose membership is written out at a time: a fourth of a gigabyte. Sums of fewer come from one
product, so that their last bits are those of always."""


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


def class_means(f: Tensor, label: Tensor, labelled: Tensor, n_known: int) -> Tensor:
    """(N, D) normalised features, (N,) labels, (N,) mask -> (C, D) unit-length means of the labelled rows."""
    sums = []
    for classes in torch.arange(n_known, device=label.device).split(max(1, AT_ONCE // max(1, len(f)))):
        member = ((label[:, None] == classes) & labelled[:, None]).to(f.dtype)
        sums.append(member.T @ f)
    return l2_normalize(torch.cat(sums))


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
