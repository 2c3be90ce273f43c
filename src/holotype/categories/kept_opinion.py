"""The second opinion (opinion.py) as it is kept with a model, for images that come later.

Of |(u - m_c) W|^2 only the part that differs between categories matters, and it is linear in u:

    p(c | x) = softmax_c (A_c u + b_c),    A_c = m_c W W^T / T,    b_c = (log n_c - |m_c W|^2 / 2) / T.

Such an image lies in the category c for which

    q_c = (v_c + p_c) / 2

is largest, v_c being what the model says, in the place of votes (weighing.py). A model knows the images that it was
trained on better than others, and the frozen features know them all alike. docs/place-new-images.md has the figures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class KeptOpinion:
    """Of K categories, by the features of the frozen backbone in D dimensions."""

    middle: np.ndarray
    """(D,) float32: the mean of the features, which is taken away before they are brought to length 1."""
    slope: np.ndarray
    """(K, D) float32: A."""
    offset: np.ndarray
    """(K,) float32: b; -inf for a category of which nothing was seen."""

    def shares(self, embedded: np.ndarray) -> np.ndarray:
        """(n, K) p(c | x) of images by their features (n, D) of the frozen backbone."""
        return shares(centred(embedded, self.middle) @ self.slope.T + self.offset)


def centred(embedded: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """(n, D) float64: features less their mean, at length 1."""
    x = np.asarray(embedded, np.float64) - middle
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))


def shares(logits: np.ndarray) -> np.ndarray:
    """(n, K) softmax of logits (n, K); 0 for a category of which nothing is known, whose logit is -inf."""
    top = logits.max(axis=1, keepdims=True)
    rise = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
    return np.asarray(rise / np.maximum(rise.sum(axis=1, keepdims=True), 1e-300))
