"""Bursts: frames that a camera took one after the other of the same scene. Each burst counts once.

A burst is told by a column `group`, or found: frames of one camera, at most some seconds after each other, that look
alike. Frames that people have labelled differently are never frames of one burst that is found.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from holotype.data.exif import ExifData
from holotype.data.paths import relative
from holotype.data.readers.folder import UNLABELLED_FOLDERS
from holotype.data.table import Table, burst_units, first_frames
from holotype.utils.text import nfc

SECONDS = 10.0
"""Between two frames of a burst, unless told: traps take some frames a second or two apart, then wait."""
LONGEST = 6
"""Times those seconds that a burst lasts at most: a camera that never rests is no single burst."""
SIMILAR = 0.75
"""Least cosine of two frames, their features less the mean of the collection. With the two networks that come with the
project, a copy that is shifted by a tenth and brighter by a tenth has 0.79 and more in 19 of 20 cases, and two images
of different kinds have less than 0.55."""
IDENTICAL = 0.97
"""Least cosine of the features as they are, which does as well: where nearly all images show one scene, little is left
of them without the mean. Of two images of different kinds, fewer than one in a thousand pairs have 0.95."""
WINDOW = 64
"""Frames before a frame that it is compared with, at most: a picture may have many boxes."""


def one_per_burst(table: Table) -> np.ndarray:
    """Return (N,) bool: images that count, one of each burst; all where there are none."""
    unit = burst_units(table)
    found = np.full(len(table), unit is None)
    if unit is not None:
        found[first_frames(unit, np.flatnonzero(table.usable))] = True
    return found


def count_units(table: Table) -> int:
    """Return the number of usable images, each burst counted once."""
    return len(first_frames(burst_units(table), np.flatnonzero(table.usable)))


def with_groups(table: Table, group: Sequence[str] | np.ndarray) -> Table:
    """Return the table with its bursts; without the column where no two usable images share one."""
    named = [name for name, usable in zip(group, table.usable, strict=True) if name and usable]
    alone = len(set(named)) == len(named)
    return dataclasses.replace(table, group=None if alone else np.array(list(group), dtype=object))


@dataclass(frozen=True)
class SpreadLabels:
    """What the labels of frames mean to the other frames of their bursts."""

    table: Table
    rows: np.ndarray
    """Those that took the label of a frame of their burst."""
    torn: list[str]
    """Groups whose frames carry different labels; there nobody takes one."""


def spread_labels(table: Table, out: np.ndarray) -> SpreadLabels:
    """Give frames without a label that of the labelled frames of their burst. out: (N,) bool, images that neither give
    nor take one."""
    if table.group is None:
        return SpreadLabels(table, np.empty(0, dtype=np.int64), [])
    able = table.usable & ~out & (table.group != "")
    said: dict[str, set[str]] = {}
    for group, label in zip(table.group[able], table.label[able], strict=True):
        said.setdefault(group, set()).update({label} - {""})
    label = table.label.copy()
    rows = [row for row in np.flatnonzero(able & ~table.labelled) if len(said[table.group[row]]) == 1]
    for row in rows:
        (label[row],) = said[table.group[row]]
    torn = sorted(group for group, labels in said.items() if len(labels) > 1)
    return SpreadLabels(dataclasses.replace(table, label=label), np.array(rows, dtype=np.int64), torn)


def find_bursts(
    table: Table,
    shots: Sequence[ExifData],
    features: np.ndarray,
    seconds: float = SECONDS,
    words: Set[str] = frozenset(),
) -> list[str]:
    """Return (N,) the burst that each image is a frame of, named after its first frame; "" for those that are alone.

    shots: (N,) of the images. features: (N, D) of the frozen backbone. words: labels that the table does not know as
    such, since they mean other classes or edits have taken them away.
    """
    names = relative([str(path) for path in table.path], table.root)
    labels = {*table.known, *words}
    dated = [row for row in np.flatnonzero(table.usable).tolist() if shots[row].taken]
    frames = sorted(
        (_camera(names[row], labels, shots[row]), _clock(shots[row]), names[row], row) for row in dated
    )
    mean = features[table.usable].mean(axis=0) if table.usable.any() else 0.0
    chain: dict[int, list[int]] = {}
    """Row to all rows of its chain, in the order of time."""
    time_of = {row: time for _, time, _, row in frames}
    for place, (camera, time, _, row) in enumerate(frames):
        chain[row] = [row]
        for before, then, _, other in reversed(frames[max(0, place - WINDOW) : place]):
            if before != camera or time - then > seconds:
                break
            if chain[other] is not chain[row] and _look_alike(features[row], features[other], mean):
                whole = sorted((*chain[other], *chain[row]), key=lambda one: (time_of[one], one))
                known = {table.label[one] for one in whole} - {""}
                if len(known) < 2 and time_of[whole[-1]] - time_of[whole[0]] <= LONGEST * seconds:
                    chain.update(dict.fromkeys(whole, whole))
    burst = {row: names[whole[0]] for row, whole in chain.items() if len(whole) > 1}
    return [burst.get(row, "") for row in range(len(table))]


def _clock(shot: ExifData) -> float:
    """Return seconds by the camera's own clock: an offset from UTC that it tells for some frames alone changes
    nothing."""
    return (datetime.fromisoformat(shot.taken[:19]) - datetime(1970, 1, 1)).total_seconds()


def _camera(path: str, labels: Set[str], shot: ExifData) -> str:
    """Return what frames of one burst share: a camera that is known by its number, or else the folder and the model.

    Folders that only say what people know (fox/, unlabelled/) part no burst.
    """
    if shot.serial:
        return shot.camera
    first, *rest = os.path.dirname(path).split("/")
    if nfc(first) in labels or first.lower() in UNLABELLED_FOLDERS:
        first = ""
    return "\0".join((shot.camera, "/".join((first, *rest))))


def _look_alike(a: np.ndarray, b: np.ndarray, mean: np.ndarray | float) -> bool:
    return _cosine(a - mean, b - mean) >= SIMILAR or _cosine(a, b) >= IDENTICAL


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b) / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12)
