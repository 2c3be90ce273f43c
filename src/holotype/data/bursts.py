"""Bursts: frames that a camera took one after the other of the same scene. Each burst counts once.

A burst is told by a column `group`, or found: frames of one camera, at most some seconds after each other, that look
alike. Frames that people have labelled differently are never frames of one burst that is found.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from holotype.data.exif import ExifData
from holotype.data.label_hygiene import nfc
from holotype.data.paths import relative
from holotype.data.readers.folder import UNLABELLED_FOLDERS
from holotype.data.table import Table

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


# -- what counts once -----------------------------------------------------------------------------------


def burst_units(table: Table) -> np.ndarray | None:
    """(N,) int: equal for the frames of one burst; None where there are no bursts.

    Frames of one group that carry different labels are different units.
    """
    if table.group is None:
        return None
    number: dict[tuple[str, str], int] = {}
    found = np.empty(len(table), dtype=np.int64)
    for row, (group, label) in enumerate(zip(table.group, table.label, strict=True)):
        own = (group, label) if group else (f"\0{row}", "")
        found[row] = number.setdefault(own, len(number))
    return found


def first_frames(unit: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
    """Those of the rows that are the first of their unit, in their order; all where there are no bursts."""
    if unit is None:
        return rows
    _, first = np.unique(unit[rows], return_index=True)
    return np.asarray(rows[np.sort(first)])


def one_per_burst(table: Table) -> np.ndarray:
    """(N,) bool: images that count, one of each burst; all where there are none."""
    unit = burst_units(table)
    found = np.full(len(table), unit is None)
    if unit is not None:
        found[first_frames(unit, np.flatnonzero(table.usable))] = True
    return found


def count_units(table: Table) -> int:
    """Usable images, each burst counted once."""
    return len(first_frames(burst_units(table), np.flatnonzero(table.usable)))


def with_groups(table: Table, group: Sequence[str] | np.ndarray) -> Table:
    """The table with its bursts; without the column where no two usable images share one."""
    named = [name for name, usable in zip(group, table.usable, strict=True) if name and usable]
    alone = len(set(named)) == len(named)
    return dataclasses.replace(table, group=None if alone else np.array(list(group), dtype=object))


# -- labels ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpreadLabels:
    """What the labels of frames mean to the other frames of their bursts."""

    table: Table
    rows: np.ndarray
    """Those that took the label of a frame of their burst."""
    torn: list[str]
    """Groups whose frames carry different labels; there nobody takes one."""


def spread_labels(table: Table, out: np.ndarray) -> SpreadLabels:
    """Frames without a label take that of the labelled frames of their burst. out: (N,) bool, images that neither give
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


# -- finding them ---------------------------------------------------------------------------------------


def find_bursts(
    table: Table,
    shots: Sequence[ExifData],
    features: np.ndarray,
    seconds: float = SECONDS,
    words: Set[str] = frozenset(),
) -> list[str]:
    """(N,) the burst that each image is a frame of, named after its first frame; "" for those that are alone.

    shots: (N,) of the images. features: (N, D) of the frozen backbone. words: labels that the table does not know as
    such, since they mean other classes or edits have taken them away.
    """
    frames = list(_frames(table, shots, words))
    alike = _Likeness(features, table.usable)
    chains = _Chains(table, seconds)
    for place, (key, time, row) in enumerate(frames):
        chains.begin(row, time)
        for before, then, other in reversed(frames[max(0, place - WINDOW) : place]):
            if before != key or time - then > seconds:
                break
            if alike(row, other):
                chains.join(other, row)
    names = relative([str(path) for path in table.path], table.root)
    group = [""] * len(table)
    for rows in chains.several():
        for row in rows:
            group[row] = names[rows[0]]
    return group


def _frames(table: Table, shots: Sequence[ExifData], words: Set[str]) -> Iterator[tuple[str, float, int]]:
    """Camera, time in seconds and row of the usable images whose time is known, in their order."""
    names = relative([str(path) for path in table.path], table.root)
    labels = {*table.known, *words}
    found = []
    for row in np.flatnonzero(table.usable).tolist():
        if shots[row].taken:
            found.append((_camera(names[row], labels, shots[row]), _clock(shots[row]), names[row], row))
    for key, time, _, row in sorted(found):
        yield key, time, row


def _clock(shot: ExifData) -> float:
    """By the camera's own clock: an offset from UTC that it tells for some frames alone changes nothing."""
    return (datetime.fromisoformat(shot.taken[:19]) - datetime(1970, 1, 1)).total_seconds()


def _camera(path: str, labels: Set[str], shot: ExifData) -> str:
    """What frames of one burst share: a camera that is known by its number, or else the folder and the model.

    Folders that only say what people know (fox/, unlabelled/) part no burst.
    """
    if shot.serial:
        return shot.camera
    first, *rest = os.path.dirname(path).split("/")
    if nfc(first) in labels or first.lower() in UNLABELLED_FOLDERS:
        first = ""
    return "\0".join((shot.camera, "/".join((first, *rest))))


class _Likeness:
    """Do two images look alike?"""

    def __init__(self, features: np.ndarray, usable: np.ndarray) -> None:
        self.features = features
        self.middle = features[usable].mean(axis=0) if usable.any() else np.zeros(features.shape[1])

    def __call__(self, one: int, other: int) -> bool:
        a, b = self.features[one], self.features[other]
        return _cosine(a - self.middle, b - self.middle) >= SIMILAR or _cosine(a, b) >= IDENTICAL


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b) / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12)


class _Chains:
    """Frames that belong together, as far as it is known."""

    def __init__(self, table: Table, seconds: float) -> None:
        self.label, self.longest = table.label, LONGEST * seconds
        self.of: dict[int, list[int]] = {}
        """Row to all rows of its chain, in the order of time."""
        self.time: dict[int, float] = {}

    def begin(self, row: int, time: float) -> None:
        self.of[row], self.time[row] = [row], time

    def join(self, one: int, other: int) -> None:
        """Unless the two carry different labels, or would last too long."""
        mine, theirs = self.of[one], self.of[other]
        if mine is theirs:
            return
        whole = sorted((*mine, *theirs), key=lambda row: (self.time[row], row))
        labels = {self.label[row] for row in whole} - {""}
        if len(labels) > 1 or self.time[whole[-1]] - self.time[whole[0]] > self.longest:
            return
        for row in whole:
            self.of[row] = whole

    def several(self) -> list[list[int]]:
        """Chains of two frames or more."""
        every = {id(rows): rows for rows in self.of.values() if len(rows) > 1}
        return list(every.values())
