"""How far the one-vs-all scores can be trusted, judged by what a method may see.

Some labelled images are held out of the heads' training. Their scores show what the heads say of known images that
they have not learnt, f_k; the unlabelled images are a mixture, f_u = rho f_k + (1 - rho) f_n. Both are kept as moving
histograms of the score's logit. From them:
    P(known | s) = rho f_k(s) / f_u(s),                                        how far an image is known
    AUROC = (P(s_k > s_u) - rho / 2) / (1 - rho),                              how well scores part known from novel
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BINS = 32
LARGEST_LOGIT = 8.0
MOMENTUM = 0.99
SMOOTHING = 0.02
"""Share of a uniform histogram in each, so that none is empty anywhere."""


def held_out(image: Tensor, share: float) -> Tensor:
    """(B,) rows of images -> (B,) bool, the same for an image in every step: a fixed hash of the row."""
    return ((image * 2654435761) & 0xFFFFFFFF) < int(share * 2**32)


def bin_of(score: Tensor) -> Tensor:
    """Scores in 0..1, any shape -> the number of their bin."""
    logit = torch.logit(score.clamp(1e-6, 1 - 1e-6))
    place = (logit / LARGEST_LOGIT + 1) / 2 * BINS
    return place.long().clamp(0, BINS - 1)


class Evidence(nn.Module):
    """Moving histograms of the scores of held-out labelled images (row 0) and of unlabelled ones (row 1)."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.full((2, BINS), 1 / BINS))

    @torch.no_grad()
    def update(self, score: Tensor, known: Tensor, unlabelled: Tensor) -> None:
        """score: (B,); known, unlabelled: (B,) bool masks."""
        one_hot = F.one_hot(bin_of(score), BINS).to(self.seen.dtype)
        count = torch.stack([known, unlabelled]).to(one_hot.dtype) @ one_hot
        n = count.sum(-1, keepdim=True)
        fresh = torch.where(n > 0, count / n.clamp_min(1), self.seen)
        share = (1 - MOMENTUM) * (n / (n + 8))  # few images move it little
        self.seen.copy_(torch.lerp(self.seen, fresh, share))

    def smooth(self) -> Tensor:
        """(2, BINS) densities, smoothed over neighbouring bins."""
        padded = F.pad(self.seen[:, None], (1, 1), mode="replicate")[:, 0]
        smooth = padded[:, :-2] / 4 + padded[:, 1:-1] / 2 + padded[:, 2:] / 4
        smooth = smooth / smooth.sum(-1, keepdim=True)
        return (1 - SMOOTHING) * smooth + SMOOTHING / BINS

    def posterior(self, score: Tensor, rho: Tensor) -> Tensor:
        """P(known | score), never falling with the score. score: (N,) -> (N,)."""
        f_k, f_u = self.smooth()
        ratio = (rho * f_k / f_u).clamp(0, 1).cummax(0).values
        return ratio[bin_of(score)]

    def auroc(self, rho: Tensor) -> Tensor:
        f_k, f_u = self.seen
        below = f_u.cumsum(0) - f_u / 2
        return (((f_k * below).sum() - rho / 2) / (1 - rho)).clamp(0, 1)
