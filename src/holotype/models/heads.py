"""The heads on top of a backbone's features: projector, cosine classifiers and one-vs-all detectors.

Cosine classifiers keep the un-normalised direction `v` as their parameter. Its norm (about 0.58 at the
start) sets how fast the direction turns at a given learning rate, so it is never normalised in place.
This equals the reference's weight norm with the gain frozen at 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holotype.errors import InputError
from holotype.losses.precision import unit

OVA_TEMPERATURE = 0.1


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers of the given widths with GELU between; truncated normal (std 0.02), zero bias."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        linear = nn.Linear(before, after)
        nn.init.trunc_normal_(linear.weight, std=0.02)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.GELU()]
    return nn.Sequential(*layers[:-1])


class Projector(nn.Module):
    """The projector g: (..., dim) features -> (..., out), not normalised (the losses normalise)."""

    def __init__(self, dim: int, hidden: int = 2048, out: int = 256) -> None:
        super().__init__()
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
        return F.linear(unit(x), unit(self.v))


class CompactOVA(nn.Module):
    """One-vs-all heads of RPC: features (..., dim) -> logits (..., n_known) of p_in, p_in = sigmoid(logits).

    An MLP dim-dim-dim-128, then the cosine with each known class over the temperature, plus a bias.
    The bias stays outside the temperature: inside, its gradient and its effect would both grow tenfold,
    and at the learning rates in use the heads saturate within a few epochs (seen on CUB).
    """

    def __init__(self, dim: int, n_known: int, bias_init: float = 0.0) -> None:
        super().__init__()
        self.mlp = mlp(dim, dim, dim, 128)
        self.classifier = CosineClassifier(128, n_known)
        self.bias = nn.Parameter(torch.full((n_known,), float(bias_init)))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.mlp(x)) / OVA_TEMPERATURE + self.bias


class DetectorOVA(nn.Module):
    """DebGCD's detector: features (..., dim) -> logits (..., n_known) of p_in, p_in = sigmoid(logits).

    A five-layer MLP, then two cosines per known class: rows 0 .. C-1 of the classifier say "not this
    class", rows C .. 2C-1 "this class". A softmax over the two is the sigmoid of their difference.
    """

    def __init__(self, dim: int, n_known: int, hidden: int = 2048, bottleneck: int = 256) -> None:
        super().__init__()
        self.mlp = mlp(dim, hidden, hidden, hidden, hidden, bottleneck)
        self.classifier = CosineClassifier(bottleneck, 2 * n_known)

    def forward(self, x: Tensor) -> Tensor:
        not_in, in_class = self.classifier(self.mlp(x)).chunk(2, dim=-1)
        return (in_class - not_in) / OVA_TEMPERATURE


class GCDHead(nn.Module):
    """GCD's contrastive head: projector, then cosines with `out` directions. (..., dim) -> (..., out).

    out = None stops at the bottleneck, which is far cheaper and not what the paper trained.
    """

    def __init__(self, dim: int, hidden: int = 2048, bottleneck: int = 256, out: int | None = 65_536) -> None:
        super().__init__()
        self.projector = Projector(dim, hidden, bottleneck)
        self.classifier = None if out is None else CosineClassifier(bottleneck, out)

    def forward(self, x: Tensor) -> Tensor:
        z = self.projector(x)
        return z if self.classifier is None else self.classifier(z)


def load_reference_head(state: Mapping[str, Tensor]) -> tuple[Projector, CosineClassifier]:
    """The head of a SimGCD or GCD checkpoint as ours, with any prefix before `mlp.` and `last_layer.`.

    For SimGCD the classifier acts on the features, for GCD on the projector's output (as in GCDHead).
    Both spellings of weight norm are read: `weight_g`/`weight_v` and
    `parametrizations.weight.original0`/`original1`.
    """
    plain = {_plain_name(name): value for name, value in state.items() if "blocks." not in name}
    needed = {f"mlp.{i}.{part}" for i in (0, 2, 4) for part in ("weight", "bias")} | {"last_layer.v"}
    if missing := sorted(needed - plain.keys()):
        raise InputError(f"The reference head lacks {', '.join(missing)}: give the state dict of a DINOHead.")
    gain = plain.get("last_layer.g")
    if gain is not None and not torch.allclose(gain.float(), torch.ones(()), atol=1e-6):
        raise InputError(
            "The reference head's last layer has gains other than 1, which a cosine classifier cannot hold: "
            "use a checkpoint trained with the gain frozen at 1 (norm_last_layer)."
        )
    hidden, dim = plain["mlp.0.weight"].shape
    projector = Projector(dim, hidden, len(plain["mlp.4.weight"]))
    projector.load_state_dict({name: plain[name] for name in needed if name.startswith("mlp.")})
    v = plain["last_layer.v"]
    classifier = CosineClassifier(v.shape[1], v.shape[0])
    classifier.load_state_dict({"v": v})
    return projector.to(v.dtype), classifier.to(v.dtype)


def _plain_name(name: str) -> str:
    """`1.last_layer.parametrizations.weight.original1` -> `last_layer.v`."""
    for layer in ("last_layer.", "mlp."):
        if layer in name:
            name = name[name.index(layer) :]
    ours = {"weight_g": "g", "weight_v": "v", "original0": "g", "original1": "v"}
    last = name.rsplit(".", 1)[-1]
    return f"last_layer.{ours[last]}" if name.startswith("last_layer.") and last in ours else name
