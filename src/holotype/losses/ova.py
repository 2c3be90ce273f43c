"""One-vs-all losses and scores: does an image belong to any known class? (OpenMatch, DebGCD)

p_in(x, c) is the probability that x belongs to known class c, p_out = 1 - p_in. Where the logits are at
hand, pass p_out = sigmoid(-logits) as well: 1 - p_in in float32 knows nothing below 6e-8, so that a head
that is surely wrong (logit above 17) would get a capped loss and no gradient.
"""

import torch
from torch import Tensor

from holotype.losses.ops import at_least_float32, masked_mean

EPS = 1e-8  # inside the logarithms, as in OpenMatch


def ova_hard_negative(p_in: Tensor, label: Tensor, labelled: Tensor, p_out: Tensor | None = None) -> Tensor:
    """L_ova = mean_i[-log p_in(x_i, y_i)] + mean_i[max_{c != y_i} -log p_out(x_i, c)].

    Means over the labelled rows of all views; 0 where none is labelled. With a single known class the
    second part is 0. p_in, p_out: (V, B, C). label: (B,) class. labelled: (B,) bool.
    """
    p_in = at_least_float32(p_in)
    p_out = 1 - p_in if p_out is None else at_least_float32(p_out)
    own = label[:, None] == torch.arange(p_in.shape[-1], device=p_in.device)
    positive = -(p_in.masked_fill(~own, 0).sum(-1) + EPS).log()
    hardest = (-(p_out + EPS).log()).masked_fill(own, 0).max(-1).values
    return masked_mean(positive + hardest, labelled)


def ova_entropy(p_in: Tensor, unlabelled: Tensor, p_out: Tensor | None = None) -> Tensor:
    """L_ent = mean over unlabelled rows and classes of -p_in log p_in - p_out log p_out.

    p_in, p_out: (V, B, C). unlabelled: (B,) bool.
    """
    p_in = at_least_float32(p_in)
    p = torch.stack([p_in, 1 - p_in if p_out is None else at_least_float32(p_out)])
    return masked_mean(-(p * (p + EPS).log()).sum(0).mean(-1), unlabelled)


def ova_consistency(p_in: Tensor, unlabelled: Tensor) -> Tensor:
    """L_soc = mean_i sum_c sum_{k in {in, out}} (p_k^a(x_i, c) - p_k^b(x_i, c))^2, over unlabelled images.

    p_in: (2, B, C), views a and b. unlabelled: (B,) bool.
    """
    a, b = at_least_float32(p_in).unbind(0)
    # p_out = 1 - p_in moves as far as p_in: the sum over k is twice its share.
    return masked_mean(2 * (a - b).square().sum(-1), unlabelled)


def detector_loss(p_in: Tensor, label: Tensor, labelled: Tensor, p_out: Tensor | None = None) -> Tensor:
    """L_sdl = L_ova + 0.1 L_ent + L_soc (DebGCD, semantic distribution learning).

    p_in, p_out: (2, B, C). label: (B,) class. labelled: (B,) bool; the others are the unlabelled rows.
    """
    unlabelled = ~labelled
    entropy, consistency = ova_entropy(p_in, unlabelled, p_out), ova_consistency(p_in, unlabelled)
    return ova_hard_negative(p_in, label, labelled, p_out) + 0.1 * entropy + consistency


def known_score(p_in: Tensor) -> Tensor:
    """s_ID(x) = max_c p_in(x, c): how far x belongs to some known class. (..., C) -> (...)."""
    return p_in.amax(-1)


def certainty(score: Tensor) -> Tensor:
    """d(x) = |2 u(x) - 1|, u = 1 - s_ID: 1 where the score is decided, 0 at s_ID = 1/2. Any shape."""
    return (2 * (1 - score) - 1).abs()
