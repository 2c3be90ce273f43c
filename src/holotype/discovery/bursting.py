"""Before a round is trained: its bursts, found or told, the labels that go with them, and a line about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set

import numpy as np

from holotype.config.schema import AUTO, NO
from holotype.data.bursts import SECONDS, SpreadLabels, count_units, find_bursts, spread_labels, with_groups
from holotype.data.exif import ExifData
from holotype.data.table import Table
from holotype.discovery.difference import shown
from holotype.errors import InputError
from holotype.results.describe import burst_text


def take_bursts(
    table: Table,
    setting: str,
    shots: Sequence[ExifData],
    features: np.ndarray,
    out: np.ndarray,
    words: Set[str] = frozenset(),
) -> tuple[SpreadLabels, list[str]]:
    """The table with its bursts and the labels that frames take from each other, and what to say of it.

    setting: of DiscoverConfig. shots: (N,) what the heads of the files say. features: (N, D) of the frozen backbone.
    out: (N,) bool, images that people have rejected. words: as in find_bursts.
    """
    group, how = groups_of(table, setting, shots, features, ", alike", words)
    table = with_groups(table, group)
    spread = spread_labels(table, out)
    if table.group is None:
        return spread, []
    return spread, _lines(spread, how)


def groups_of(
    table: Table,
    setting: str,
    shots: Sequence[ExifData],
    features: np.ndarray,
    found: str,
    words: Set[str] = frozenset(),
) -> tuple[Sequence[str] | np.ndarray, str]:
    """(N,) the burst of each image, "" where it is alone, and how they are known. found: ends that, where they are not
    told but found. words: as in find_bursts."""
    if setting == NO:
        return [""] * len(table), ""
    if table.group is not None and any(table.group):
        return table.group, "as the column group says"
    seconds = SECONDS if setting == AUTO else float(setting)
    how = f"one camera, at most {seconds:g} seconds apart{found}"
    return find_bursts(table, shots, features, seconds, words), how


def counted(used: np.ndarray) -> str:
    """How many frames there are of how many bursts, and the largest. used: (n,) groups, of which some are bursts."""
    largest = Counter(name for name in used if name).most_common(1)[0][1]
    return f"{burst_text(used)} of up to {largest:,}"


def check_enough(table: Table, k: int) -> None:
    """Raise InputError where there are fewer images than categories, each burst counted once."""
    if table.group is not None and count_units(table) < k:
        raise InputError(
            f"--k {k} is more than the {count_units(table)} images of {table.name}, each burst counted once; lower it, "
            "or count every image with --bursts no."
        )


def draws_itself(method: str) -> bool:
    """Does a method draw the images of its steps itself? Then every frame counts there."""
    from holotype.methods import Method, find_method  # torch takes seconds, and a first look does without

    return find_method(method).rows is not Method.rows


def _lines(spread: SpreadLabels, how: str) -> list[str]:
    group = spread.table.group
    assert group is not None
    told = counted(group[spread.table.usable])
    lines = [f"{told} ({how}); a burst counts once. --bursts no counts each image."]
    if n := len(spread.rows):
        which = "1 frame takes" if n == 1 else f"{n:,} frames take"
        lines.append(f"{which} the label of another frame of the same burst.")
    if spread.torn:
        lines.append(
            "Frames of one burst carry different labels, so its other frames take none: "
            f"{shown(spread.torn)}."
        )
    return lines
