"""Where each image would lie if not in its own category: what the page offers first when somebody moves it."""

from __future__ import annotations

import numpy as np

from holotype.results.discovery import Discovery


def second_guess(discovery: Discovery, rows: np.ndarray, features: np.ndarray | None) -> list[int]:
    """(n,) for each image the category with the nearest centre other than its own; -1 = not known."""
    k = len(discovery.categories)
    if features is None or k < 2 or len(features) != len(discovery.images):
        return [-1] * len(rows)
    position = {category.id: i for i, category in enumerate(discovery.categories)}
    place = discovery.images["category_id"].map(position).fillna(-1).to_numpy(int)
    centre = np.zeros((k, features.shape[1]), np.float32)
    for start in range(0, len(place), 65_536):
        block = _unit(np.asarray(features[start : start + 65_536], np.float32))
        own = place[start : start + 65_536]
        np.add.at(centre, own[own >= 0], block[own >= 0])
    likeness = _unit(np.asarray(features[rows], np.float32)) @ _unit(centre).T
    own = place[rows]
    likeness[np.flatnonzero(own >= 0), own[own >= 0]] = -np.inf
    return [int(best) if o >= 0 else -1 for best, o in zip(likeness.argmax(axis=1), own, strict=True)]


def _unit(rows: np.ndarray) -> np.ndarray:
    rows = np.nan_to_num(rows)
    unit: np.ndarray = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit
