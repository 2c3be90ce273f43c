"""DebGCD's auxiliary debiased learning: a second classifier on labels and weighted hard pseudo-labels."""

import torch.nn.functional as F
from torch import Tensor

from holotype.losses.classification import supervised_cross_entropy
from holotype.losses.ops import at_least_float32, masked_mean


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
