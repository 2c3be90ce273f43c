"""What speaks for a category after edits: its exemplars, borderline images, signature and words."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from holotype.categories.found import Category

MOST_EXEMPLARS = 12
"""How many of the most typical images a corrected category keeps to show itself."""


def join(target: Category, source: Category) -> None:
    """Let `target` speak for both: exemplars in turn, the signature weighted by the numbers of images."""
    pairs = [path for pair in zip(target.exemplars, source.exemplars, strict=False) for path in pair]
    rest = [*target.exemplars, *source.exemplars]
    target.exemplars = list(dict.fromkeys([*pairs, *rest]))[:MOST_EXEMPLARS]
    target.borderline = list(dict.fromkeys([*target.borderline, *source.borderline]))
    if source.n and target.kind == "novel" and len(target.signature) == len(source.signature):
        weight = np.array([target.n, source.n], dtype=float)
        both = np.array([target.signature, source.signature], dtype=float)
        target.signature = [float(v) for v in (weight @ both) / weight.sum()]
        target.words = f"{target.words} (before {source.name} was merged into it)" if target.words else ""
    unmeasured(target)
    target.n += source.n


def unmeasured(category: Category) -> None:
    """What was measured on other images than it has now is not known of it any more."""
    category.cohesion = category.separation = category.together = float("nan")
    category.comes_back = 0


def refresh(category: Category, members: set[str], typicality: Mapping[str, float]) -> None:
    """Images that left a category do not speak for it any more; where none is left to do so, the most typical do."""
    category.borderline = [path for path in category.borderline if path in members]
    stayed = [path for path in category.exemplars if path in members]
    category.exemplars = (
        stayed or sorted(members, key=lambda path: (-typicality[path], path))[:MOST_EXEMPLARS]
    )
