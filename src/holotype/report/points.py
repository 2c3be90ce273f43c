"""Places of the images on the map, computed when a report first needs them: t-SNE takes long, and no training waits
for it."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np

from holotype.categories.layout import layout
from holotype.results.discovery import Discovery
from holotype.results.features import read_features, write_features

log = logging.getLogger(__name__)


def with_map(folder: Path, *, device: str = "auto", progress: bool = False) -> Discovery:
    """The discovery in a run folder with x and y; where it had none, they are computed and saved there.

    Features come from features.npy, or else from running the model over the images, and are kept.
    """
    found = Discovery.load(folder)
    placed = found.images["category_id"].to_numpy() != ""
    if np.isfinite(found.images["x"].to_numpy(float)).any() or not placed.any():
        return found
    features = kept_features(folder, found, device, progress)
    if features is None:
        log.warning(f"No image of {folder} can be read any more, so there is no map.")
        return found
    number = {category.id: i for i, category in enumerate(found.categories)}
    category = np.array([number.get(id, -1) for id in found.images["category_id"]])
    point = layout(features, category=category, seed=found.facts.seed)
    images = found.images.assign(x=point[:, 0], y=point[:, 1])
    found = dataclasses.replace(found, images=images)
    found.save(folder)
    return found


def kept_features(folder: Path, found: Discovery, device: str, progress: bool) -> np.ndarray | None:
    """(N, D) float16 from features.npy; where it is not there it is made. None where no image can be read any more."""
    features = read_features(folder, len(found.images))
    if features is not None:
        return features
    features = compute_features(folder, found, device, progress)
    if not np.isfinite(features).any():
        return None
    write_features(folder, features)
    return features.astype(np.float16)  # as they are kept: a command that goes on finds these


def compute_features(folder: Path, found: Discovery, device: str, progress: bool) -> np.ndarray:
    """(N, D) float32 from the trained model; NaN for images that cannot be read (any more)."""
    from holotype.runs.model_io import load_model

    trained = load_model(folder, device).alone()
    parts = [part.features for part in trained.stream([str(path) for path in found.images["path"]], progress)]
    return np.concatenate(parts) if parts else np.empty((0, trained.backbone.dim), np.float32)
