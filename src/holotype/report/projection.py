"""Project features to the plane for the report's map (t-SNE)."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np

from holotype.results.discovery import Discovery, read_features, write_features
from holotype.results.lda import unit_rows

FEW_IMAGES = 30
"""Below so many images t-SNE has no neighbourhoods to keep, and two principal components say as much."""
PCA_DIMENSIONS = 50
"""Principal components that t-SNE is given: what is left out is mostly noise, and it saves time."""
STEPS = 500
"""Of t-SNE, the first 250 of which pull groups apart; more of them change little in a map of thousands."""
THREADS = 1
"""Sums over several threads come out differently each time, and on a busy machine threads wait for each other."""


def project_tsne(
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
    rows = rows[draw_projection(group, limit, np.random.default_rng(seed))]
    if len(rows) == 0:
        return place
    x = np.asarray(features[rows], dtype=np.float32)
    x = principal(unit_rows(x), PCA_DIMENSIONS)
    flat = x[:, :2]
    # More places than neighbours are needed: many copies of a few images would give t-SNE distances of zero.
    if len(rows) >= FEW_IMAGES and len(np.unique(x.round(5), axis=0)) >= FEW_IMAGES:
        points = tsne(x, seed)
        flat = points if np.isfinite(points).all() else flat
    place[rows] = scale_to_frame(flat)
    return place


def draw_projection(group: np.ndarray, limit: int, random: np.random.Generator) -> np.ndarray:
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


def tsne(x: np.ndarray, seed: int) -> np.ndarray:
    """Return (n, 2) points. x: (n, d) principal components."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    perplexity = min(30.0, (len(x) - 1) / 3)
    with threadpool_limits(limits=THREADS, user_api="openmp"):
        model = TSNE(perplexity=perplexity, init="pca", max_iter=STEPS, random_state=seed)
        return np.asarray(model.fit_transform(x))


def scale_to_frame(points: np.ndarray) -> np.ndarray:
    """Centred on the middle of its extent and scaled into [-1, 1], both axes alike."""
    low, high = points.min(0), points.max(0)
    scale = float((high - low).max()) / 2
    if scale <= 1e-9:  # rounding alone tells them apart
        return np.zeros_like(points)
    return (points - (low + high) / 2) / scale


log = logging.getLogger(__name__)


def add_projection(folder: Path, *, device: str = "auto", progress: bool = False) -> Discovery:
    """The discovery in a run folder with x and y; where it had none, they are computed and saved there.

    Features come from features.npy, or else from running the model over the images, and are kept.
    """
    found = Discovery.load(folder)
    placed = found.images["category_id"].to_numpy() != ""
    if np.isfinite(found.images["x"].to_numpy(float)).any() or not placed.any():
        return found
    features = stored_features(folder, found, device, progress)
    if features is None:
        log.warning(f"No image of {folder} can be read any more, so there is no map.")
        return found
    number = {category.id: i for i, category in enumerate(found.categories)}
    category = np.array([number.get(id, -1) for id in found.images["category_id"]])
    point = project_tsne(features, category=category, seed=found.facts.seed)
    images = found.images.assign(x=point[:, 0], y=point[:, 1])
    found = dataclasses.replace(found, images=images)
    found.save(folder)
    return found


def stored_features(folder: Path, found: Discovery, device: str, progress: bool) -> np.ndarray | None:
    """Return (N, D) float16 from features.npy, which is made where it is missing; None where no image can be read."""
    features = read_features(folder, len(found.images))
    if features is None:
        computed = compute_features(folder, found, device, progress)
        if not np.isfinite(computed).any():
            return None
        write_features(folder, computed)
        features = computed.astype(np.float16)  # as they are stored: a command that goes on finds these
    return features


def compute_features(folder: Path, found: Discovery, device: str, progress: bool) -> np.ndarray:
    """(N, D) float32 from the trained model; NaN for images that cannot be read (any more)."""
    from holotype.runs.model_io import load_model

    trained = load_model(folder, device).alone()
    parts = [part.features for part in trained.stream([str(path) for path in found.images["path"]], progress)]
    return np.concatenate(parts) if parts else np.empty((0, trained.backbone.dim), np.float32)
