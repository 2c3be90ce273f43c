"""Sizes of categories in the collection that a sample was drawn from: sums of its weights (data/labels.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pandas takes half a second to import
    import pandas as pd


def whole_sizes(images: pd.DataFrame) -> dict[str, int]:
    """Images of the collection by the id of their category, an estimate; empty where the images are no sample.

    images: of a Discovery. Those in no category are left out.
    """
    if "weight" not in images.columns:
        return {}
    placed = images["category_id"].fillna("")
    total = images["weight"].groupby(placed).sum()
    return {str(id): round(float(n)) for id, n in total.items() if id}
