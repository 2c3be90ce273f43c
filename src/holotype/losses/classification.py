"""Losses of a classifier on cosine logits: labels, self-distillation, balance (SimGCD), debiasing (DebGCD)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.losses.ops import at_least_float32, masked_mean


def supervised_cross_entropy(logits: Tensor, label: Tensor, labelled: Tensor, tau: float = 0.1) -> Tensor:
    """L_cls_s = mean over labelled rows of all views of CE(y, softmax(q / tau)); 0 where none is labelled.

    logits: (V, B, K) cosines q. label: (B,) class, a legal index in every row. labelled: (B,) bool.
    """
    views = len(logits)
    cross_entropy = F.cross_entropy(
        at_least_float32(logits).flatten(0, 1) / tau, label.repeat(views), reduction="none"
    )
    return masked_mean(cross_entropy, labelled.repeat(views))


def self_distillation(logits: Tensor, teacher_temp: Tensor | float, tau: float = 0.1) -> Tensor:
    """L_cls_u = 1/2 mean_i [ CE(sg P(q_i^a; tau_t), P(q_i^b; tau)) + CE(sg P(q_i^b; tau_t), P(q_i^a; tau)) ].

    Each view is taught by the sharpened, detached prediction of the other; labelled images take part.
    logits: (2, B, K) cosines q. teacher_temp: tau_t, a number or a 0-d tensor.
    """
    logits = at_least_float32(logits)
    teacher = (logits.detach() / teacher_temp).softmax(-1).flip(0)
    return -(teacher * (logits / tau).log_softmax(-1)).sum(-1).mean()


def mean_prediction(logits: Tensor, tau: Tensor | float = 0.1, weight: Tensor | None = None) -> Tensor:
    """pbar = mean over views and rows of softmax(q / tau), rows weighed by `weight`. -> (K,)

    logits: (V, B, K) cosines q. weight: (B,) sums to 1; None: all rows alike.
    """
    p = (at_least_float32(logits) / tau).softmax(-1)
    if weight is None:
        return p.flatten(0, 1).mean(0)
    return (at_least_float32(weight)[:, None] * p.mean(0)).sum(0)


def mean_entropy_deficit(logits: Tensor, tau: float = 0.1, weight: Tensor | None = None) -> Tensor:
    """L_me = log K - H(pbar) = log K + sum_k pbar_k log pbar_k, pbar = mean over rows of softmax(q / tau).

    0 for a balanced mean prediction, log K when everything falls into one class.
    logits: (V, B, K) cosines q. weight: (B,) of the rows, as in `mean_prediction`.
    """
    mean_p = mean_prediction(logits, tau, weight)
    # Clamped inside the logarithm only: at p = 0 value and gradient stay finite (xlogy's gradient does not).
    log_p = mean_p.clamp_min(torch.finfo(mean_p.dtype).tiny).log()
    return (mean_p * log_p).sum() + math.log(logits.shape[-1])


def debiased_loss(
    debiased: Tensor,
    classifier: Tensor,
    certainty: Tensor,
    label: Tensor,
    labelled: Tensor,
    threshold: Tensor | float,
    pseudo_share: float = 0.5,
    tau: float = 0.1,
) -> Tensor:
    """L_adl = (1 - pl) mean_l CE(y, P(q'; tau)) + pl mean_u[ 1(max p >= thr) d CE(argmax p, P(q'; tau)) ].

    q' are the debiased classifier's logits; p = sg P(q; tau) is the main classifier's prediction on the same
    view. The second mean divides by all unlabelled rows of all views, kept or not: masking also scales.
    debiased, classifier: (V, B, K) cosine logits q', q. certainty: (V, B) d, detached here.
    label: (B,) class. labelled: (B,) bool. threshold: thr. pseudo_share: pl.
    """
    confidence, pseudo = (at_least_float32(classifier).detach() / tau).softmax(-1).max(-1)
    weight = (confidence >= threshold) * certainty.detach()
    cross_entropy = F.cross_entropy(
        at_least_float32(debiased).flatten(0, 1) / tau, pseudo.flatten(), reduction="none"
    ).view_as(pseudo)
    supervised = supervised_cross_entropy(debiased, label, labelled, tau)
    return (1 - pseudo_share) * supervised + pseudo_share * masked_mean(weight * cross_entropy, ~labelled)
