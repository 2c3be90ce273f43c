"""The heads on top of a backbone's features: projectors, cosine classifiers, one-vs-all detectors, many at once.

Cosine classifiers keep the un-normalised direction `v` as their parameter. Its norm (about 0.58 at the
start) sets how fast the direction turns at a given learning rate, so it is never normalised in place.
This equals the reference's weight norm with the gain frozen at 1.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holotype.losses.ops import l2_normalize

OVA_TEMPERATURE = 0.1
HIDDEN = 2048
"""Width of the hidden layers of projectors and detectors, as published."""


def truncated_normal(weight: Tensor) -> None:
    """Fill a weight from a truncated normal distribution (std 0.02)."""
    if not weight.is_meta:  # of a trial build, for which torch 2.11 would import its compiler
        nn.init.trunc_normal_(weight, std=0.02)


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers of the given widths with GELU between; truncated normal (std 0.02), zero bias."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        linear = nn.Linear(before, after)
        truncated_normal(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.GELU()]
    return nn.Sequential(*layers[:-1])


class Projector(nn.Module):
    """The projector g: (..., dim) features -> (..., out), not normalised (the losses normalise).

    hidden: width of its layers; by default as published.
    """

    def __init__(self, dim: int, hidden: int | None = None, out: int = 256) -> None:
        super().__init__()
        hidden = hidden or HIDDEN
        self.mlp = mlp(dim, hidden, hidden, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(x)


class CosineClassifier(nn.Module):
    """Cosines of features (..., dim) with k prototypes -> (..., k) in [-1, 1]; losses set the temperature."""

    def __init__(self, dim: int, k: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(dim)
        self.v = nn.Parameter(torch.empty(k, dim).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(l2_normalize(x), l2_normalize(self.v))


class CompactOVA(nn.Module):
    """One-vs-all heads of RPC: features (..., dim) -> logits (..., n_known) of p_in, p_in = sigmoid(logits).

    An MLP dim-dim-dim-128, then the cosine with each known class over the temperature, plus a bias.
    The bias stays outside the temperature: inside, its gradient and its effect would both grow tenfold,
    and at the learning rates in use the heads saturate within a few epochs (seen on CUB).
    """

    def __init__(self, dim: int, n_known: int) -> None:
        super().__init__()
        self.mlp = mlp(dim, dim, dim, 128)
        self.classifier = CosineClassifier(128, n_known)
        self.bias = nn.Parameter(torch.zeros(n_known))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.mlp(x)) / OVA_TEMPERATURE + self.bias


class DetectorOVA(nn.Module):
    """DebGCD's detector: features (..., dim) -> logits (..., n_known) of p_in, p_in = sigmoid(logits).

    A five-layer MLP, then two cosines per known class: rows 0 .. C-1 of the classifier say "not this
    class", rows C .. 2C-1 "this class". A softmax over the two is the sigmoid of their difference.
    """

    def __init__(self, dim: int, n_known: int, hidden: int | None = None, bottleneck: int = 256) -> None:
        super().__init__()
        hidden = hidden or HIDDEN
        self.mlp = mlp(dim, hidden, hidden, hidden, hidden, bottleneck)
        self.classifier = CosineClassifier(bottleneck, 2 * n_known)

    def forward(self, x: Tensor) -> Tensor:
        not_in, in_class = self.classifier(self.mlp(x)).chunk(2, dim=-1)
        return (in_class - not_in) / OVA_TEMPERATURE


class GCDHead(nn.Module):
    """GCD's contrastive head: projector, then cosines with `out` directions. (..., dim) -> (..., out).

    out = None stops at the bottleneck, which is far cheaper and not what the paper trained.
    """

    def __init__(
        self, dim: int, hidden: int | None = None, bottleneck: int = 256, out: int | None = 65_536
    ) -> None:
        super().__init__()
        self.projector = Projector(dim, hidden, bottleneck)
        self.classifier = None if out is None else CosineClassifier(bottleneck, out)

    def forward(self, x: Tensor) -> Tensor:
        z = self.projector(x)
        return z if self.classifier is None else self.classifier(z)


class UnitPrototypes(nn.Module):
    """Inner products of normalised features (..., N, dim) with prototypes (..., k, dim) -> (..., N, k).

    As in SwAV and UNO the weight itself is put back to unit length after each step (`normalise`), where a
    CosineClassifier divides by its length in the product: the gradient here has a part along the prototype.
    """

    def __init__(self, *shape: int) -> None:
        """shape: (..., k, dim)."""
        super().__init__()
        bound = 1 / math.sqrt(shape[-1])
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.normalise()

    @torch.no_grad()
    def normalise(self) -> None:
        """Back to unit length; a zero row stays zero."""
        if not self.weight.is_meta:  # of a trial build, for which the norm would import torch's compiler
            self.weight.copy_(l2_normalize(self.weight))

    def forward(self, x: Tensor) -> Tensor:
        return l2_normalize(x) @ self.weight.mT


class MultiHead(nn.Module):
    """`heads` projectors dim-hidden-out (batch norm, ReLU) with k unit prototypes each, as a few large products.

    (V, B, dim) -> (V, heads, B, k) cosines. Batch norm sees one view at a time.
    """

    def __init__(self, heads: int, dim: int, k: int, hidden: int | None = None, out: int = 256) -> None:
        super().__init__()
        self.heads, hidden = heads, hidden or HIDDEN
        self.first = nn.Linear(dim, heads * hidden)
        self.norm = nn.BatchNorm1d(heads * hidden)
        bound = 1 / math.sqrt(hidden)
        self.second = nn.Parameter(torch.empty(heads, hidden, out).uniform_(-bound, bound))
        # one-dimensional like every bias, so that it does not decay
        self.bias = nn.Parameter(torch.empty(heads * out).uniform_(-bound, bound))
        self.prototypes = UnitPrototypes(heads, k, out)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.stack([self.norm(view).relu() for view in self.first(x)])
        per_head = hidden.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (V, heads, B, hidden)
        return self.prototypes(per_head @ self.second + self.bias.view(self.heads, 1, -1))
