"""Before a round is trained: its bursts, found or told, the labels that go with them, and a line about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from holotype.categories.bursts import in_words
from holotype.data.bursts import SECONDS, Spread, count_units, find_bursts, spread_labels, with_groups
from holotype.data.exif import Shot
from holotype.data.table import Table
from holotype.discovery.config import AUTO, NO
from holotype.discovery.difference import shown
from holotype.errors import InputError
from holotype.methods import Method, find_method

NOTE = "has the label of a frame of its burst"


def take_bursts(
    table: Table, setting: str, shots: Sequence[Shot], features: np.ndarray, out: np.ndarray
) -> tuple[Spread, list[str]]:
    """The table with its bursts and the labels that frames take from each other, and what to say of it.

    setting: of DiscoverConfig. shots: (N,) what the heads of the files say. features: (N, D) of the frozen backbone.
    out: (N,) bool, images that people have rejected.
    """
    group: Sequence[str] | np.ndarray
    if setting == NO:
        group, how = [""] * len(table), ""
    elif table.group is not None and any(table.group):
        group, how = table.group, "as the column group says"
    else:
        seconds = SECONDS if setting == AUTO else float(setting)
        group = find_bursts(table, shots, features, seconds)
        how = f"one camera, at most {seconds:g} seconds apart, alike"
    table = with_groups(table, group)
    spread = spread_labels(table, out)
    if table.group is None:
        return spread, []
    return spread, _lines(spread, how)


def check_enough(table: Table, k: int) -> None:
    """Raise InputError where there are fewer images than categories, each burst counted once."""
    if table.group is not None and count_units(table) < k:
        raise InputError(
            f"--k {k} is more than the {count_units(table)} images of {table.name}, each burst counted once; lower it, "
            "or count every image with --bursts no."
        )


def draws_itself(method: str) -> bool:
    """Does a method draw the images of its steps itself? Then every frame counts there."""
    return find_method(method).rows is not Method.rows


def _lines(spread: Spread, how: str) -> list[str]:
    group = spread.table.group
    assert group is not None
    used = group[spread.table.usable]
    largest = Counter(name for name in used if name).most_common(1)[0][1]
    lines = [
        f"{in_words(used)} of up to {largest:,} ({how}); a burst counts once. --bursts no counts each image."
    ]
    if n := len(spread.rows):
        which = "1 frame takes" if n == 1 else f"{n:,} frames take"
        lines.append(f"{which} the label of another frame of the same burst.")
    if spread.torn:
        lines.append(
            "Frames of one burst carry different labels, so that its other frames take none: "
            f"{shown(spread.torn)}."
        )
    return lines
