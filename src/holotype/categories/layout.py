"""A map of the images: features to points of the plane, for the report."""

from __future__ import annotations

import numpy as np

FEW = 30
"""Below so many images t-SNE has no neighbourhoods to keep, and two principal components say as much."""
DIMENSIONS = 50
"""Principal components that t-SNE is given: what is left out is mostly noise, and it saves time."""
STEPS = 500
"""Of t-SNE, the first 250 of which pull groups apart; more of them change little in a map of thousands."""
THREADS = 1
"""Sums over several threads come out differently each time, and on a busy machine threads wait for each other."""


def layout(
    features: np.ndarray, *, category: np.ndarray | None = None, limit: int = 5000, seed: int = 0
) -> np.ndarray:
    """(N, 2) places within [-1, 1], NaN for images that are not shown: unread ones, and those beyond `limit`.

    features: (N, D), unread = a row with NaN. category: (N,) numbers of which each keeps its share (at least one
    image) when there are more than `limit` images; -1 = do not show. The same input and seed give the same map.
    """
    place = np.full((len(features), 2), np.nan)
    shown = np.isfinite(np.asarray(features).sum(-1, dtype=np.float32))
    if category is not None:
        shown &= np.asarray(category) >= 0
    rows = np.flatnonzero(shown)
    group = np.zeros(len(rows), dtype=int) if category is None else np.asarray(category)[rows]
    rows = rows[draw(group, limit, np.random.default_rng(seed))]
    if len(rows) == 0:
        return place
    x = np.asarray(features[rows], dtype=np.float32)
    x = principal(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12), DIMENSIONS)
    flat = x[:, :2]
    # More places than neighbours are needed: many copies of a few images would give t-SNE distances of zero.
    if len(rows) >= FEW and len(np.unique(x.round(5), axis=0)) >= FEW:
        points = neighbours_kept(x, seed)
        flat = points if np.isfinite(points).all() else flat
    place[rows] = framed(flat)
    return place


def draw(group: np.ndarray, limit: int, random: np.random.Generator) -> np.ndarray:
    """Sorted indices of at most `limit` rows (one per group where there are more groups), in proportion to groups."""
    if len(group) <= limit:
        return np.arange(len(group))
    chosen = []
    for k in np.unique(group):
        rows = np.flatnonzero(group == k)
        chosen.append(random.permutation(rows)[: max(1, len(rows) * limit // len(group))])
    return np.sort(np.concatenate(chosen))


def principal(x: np.ndarray, dimensions: int) -> np.ndarray:
    """(n, dimensions) principal components; the largest weight of each is positive, so that maps do not flip."""
    x = x - x.mean(0)
    _, _, axes = np.linalg.svd(x, full_matrices=False)
    axes = axes[:dimensions]
    axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])[:, None]
    components = x @ axes.T
    return np.pad(components, ((0, 0), (0, max(0, 2 - components.shape[1]))))


def neighbours_kept(x: np.ndarray, seed: int) -> np.ndarray:
    """(n, 2) by t-SNE. x: (n, d) principal components."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    perplexity = min(30.0, (len(x) - 1) / 3)
    with threadpool_limits(limits=THREADS, user_api="openmp"):
        tsne = TSNE(perplexity=perplexity, init="pca", max_iter=STEPS, random_state=seed)
        return np.asarray(tsne.fit_transform(x))


def framed(points: np.ndarray) -> np.ndarray:
    """Centred on the middle of its extent and scaled into [-1, 1], both axes alike."""
    low, high = points.min(0), points.max(0)
    scale = float((high - low).max()) / 2
    if scale <= 1e-9:  # rounding alone tells them apart
        return np.zeros_like(points)
    return (points - (low + high) / 2) / scale
