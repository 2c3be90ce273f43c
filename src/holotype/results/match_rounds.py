"""Match the categories of two rounds by the images they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable

SAME_SHARE = 0.5
"""Images that two categories of successive rounds must share (of those in either) to be called the same."""

Earlier = TypeVar("Earlier", bound="Hashable")
Later = TypeVar("Later", bound="Hashable")


def match_categories(
    earlier: Mapping[Earlier, set[str]], later: Mapping[Later, set[str]]
) -> dict[Later, Earlier]:
    """The categories that stayed, by their later key. Both: key to the paths of its images.

    Of all pairings the one with the largest overlap in sum is taken (Hungarian method); a pair counts where it shares
    more than half of its images.
    """
    old, new = list(earlier), list(later)
    if not old or not new:
        return {}
    overlap = np.array([[_shared(earlier[a], later[b]) for b in new] for a in old])
    from scipy.optimize import linear_sum_assignment

    pairs = zip(*linear_sum_assignment(overlap, maximize=True), strict=True)
    return {new[j]: old[i] for i, j in pairs if overlap[i, j] > SAME_SHARE}


def _shared(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(len(one | other), 1)
