"""The Table: one row per image, the only thing that crosses module borders as a whole.

A row holds the image's path, the label a method may see ("" = unlabelled), what went wrong with the image ("" =
nothing), the burst that it is a frame of and, for benchmarks, the true class, which only metrics read.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from holotype.data.csv import is_utf8
from holotype.data.paths import relative
from holotype.errors import InputError

if TYPE_CHECKING:  # pandas takes half a second to import, and most commands never need a frame
    import pandas as pd

COLUMNS = ("path", "label", "problem", "truth", "group", "weight", "text")
MATRICES = ("features", "side")
"""Columns of vectors."""


@dataclass(frozen=True, eq=False)
class Table:
    """N images. All columns but `features` are (N,) object arrays of str; none can be written to."""

    path: np.ndarray
    """File of the image, or "file#index" for an image inside a container."""
    label: np.ndarray
    """Class name that a method may see; "" = unlabelled."""
    known: tuple[str, ...]
    """Names of the known classes; the position is the label index."""
    truth: np.ndarray | None = None
    """True class of every image, for scoring only; None where nobody knows it."""
    problem: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=object))
    """Why the image cannot be used; "" = it can. Given empty: every image is fine."""
    group: np.ndarray | None = None
    """The burst that each image is a frame of, "" = it is alone; None where there are no bursts (bursts.py)."""
    weight: np.ndarray | None = None
    """How many images of a larger collection each stands for, as text; None where it is no sample."""
    text: np.ndarray | None = None
    """What a report shows of each row that is no image; None where all are images."""
    features: np.ndarray | None = None
    """(N, D) float32 vectors that stand for the images, which nobody looks at then; None where a network looks."""
    side: np.ndarray | None = None
    """(N, S) float32 vectors beside the images, for methods that read them in training; None where there are none."""
    name: str = ""
    """Name of the data set, for records."""
    root: str = ""
    """Folder the fingerprint takes paths relative to, so that it is the same on every machine."""

    def __post_init__(self) -> None:
        n = len(self.path)
        if not len(self.problem):
            object.__setattr__(self, "problem", [""] * n)
        for name, values in self._columns().items():
            object.__setattr__(self, name, _text_column(name, values, n))
        for name in MATRICES:
            if (matrix := getattr(self, name)) is not None:
                matrix = np.array(matrix, dtype=np.float32)
                matrix.flags.writeable = False
                object.__setattr__(self, name, matrix)
        object.__setattr__(self, "known", tuple(str(c) for c in self.known))
        self._check()

    def _check(self) -> None:
        for name in MATRICES:
            matrix = getattr(self, name)
            if matrix is not None and (matrix.ndim != 2 or len(matrix) != len(self.path)):
                raise InputError(
                    f"The column {name} has the shape {matrix.shape} where path has {len(self.path)} rows; give one "
                    "vector per row."
                )
        if "" in self.known or len(set(self.known)) < len(self.known):
            raise InputError("The names of the known classes must differ from each other and not be empty.")
        if unknown := set(self.label) - set(self.known) - {""}:
            classes = f"the {len(self.known)} known classes"
            raise InputError(f"The label {min(unknown)!r} is not among {classes}; add or correct it.")
        if len(set(self.path)) < len(self.path):
            path, times = Counter(self.path).most_common(1)[0]
            raise InputError(f"The path {path!r} is listed {times} times; keep one row per image.")
        try:
            sound = bool(((self.weights > 0) & np.isfinite(self.weights)).all())
        except ValueError:
            sound = False
        if not sound:
            raise InputError("A weight of the sample is not a number above 0; make the sample again.")

    def __len__(self) -> int:
        return len(self.path)

    @property
    def labelled(self) -> np.ndarray:
        """Return (N,) bool: does the image carry a label?"""
        return np.array([label != "" for label in self.label], dtype=bool)

    @property
    def target(self) -> np.ndarray:
        """Return (N,) int64 index into `known`; -1 = unlabelled."""
        index = {name: i for i, name in enumerate(self.known)}
        return np.array([index.get(label, -1) for label in self.label], dtype=np.int64)

    @property
    def classes(self) -> np.ndarray:
        """Return (N,) the class of every image as far as anybody knows it, for splits and never for training."""
        return self.label if self.truth is None else np.where(self.truth != "", self.truth, self.label)

    @property
    def usable(self) -> np.ndarray:
        """Return (N,) bool: can the image be used?"""
        return np.array([problem == "" for problem in self.problem], dtype=bool)

    @property
    def weights(self) -> np.ndarray:
        """Return (N,) float64: how many images each stands for; 1 where the table is no sample."""
        return np.ones(len(self)) if self.weight is None else self.weight.astype(np.float64)

    def take(self, rows: np.ndarray | Sequence[int], path: np.ndarray | None = None) -> Table:
        """Return the rows (indices, or a bool mask) in the given order; the known classes stay.

        path: what the rows are called then, where several are made of one.
        """
        rows = np.asarray(rows)
        if rows.size == 0:
            rows = rows.astype(np.int64)
        some = {name: values[rows] for name, values in self._columns().items()}
        some |= {name: getattr(self, name)[rows] for name in MATRICES if getattr(self, name) is not None}
        return replace(self, **(some if path is None else some | {"path": path}))

    def with_problems(self, problem: np.ndarray | Sequence[str]) -> Table:
        """Return the same images with another `problem` column (N,)."""
        return replace(self, problem=np.array(problem, dtype=object))

    def fingerprint(self) -> str:
        """Return SHA-256 over what a method sees: paths, labels, known classes and bursts, not truth and problem."""
        path = relative(self.path, self.root)
        bursts = [] if self.group is None else [list(self.group)]
        beside = [] if self.side is None else [hashlib.sha256(self.side.tobytes()).hexdigest()]
        seen = json.dumps([path, list(self.label), list(self.known), *bursts, *beside])
        return hashlib.sha256(seen.encode("ascii")).hexdigest()

    def to_frame(self) -> pd.DataFrame:
        """Return a frame of path, label, problem, and of truth, group, weight and text where there are such."""
        import pandas as pd

        return pd.DataFrame(self._columns(), dtype=object)

    def _columns(self) -> dict[str, np.ndarray]:
        columns = {name: getattr(self, name) for name in COLUMNS}
        return {name: values for name, values in columns.items() if values is not None}

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, Any], *, known: Sequence[str] | None = None, **facts: Any
    ) -> Table:
        """Make a table of columns by name, None where there is none; the classes are the sorted labels unless given.
        facts: name, root and features."""
        classes = sorted(set(columns["label"]) - {""}) if known is None else known
        used = {key: columns[key] for key in COLUMNS if columns.get(key) is not None}
        return cls(**used, known=tuple(classes), **facts)


def _text_column(name: str, values: Iterable[object], n: int) -> np.ndarray:
    """Return an (n,) read-only object array of str that can be written as UTF-8."""
    values = list(values)
    if len(values) != n:
        raise InputError(f"The column {name} has {len(values)} rows where path has {n}; make them equal.")
    column = np.empty(n, dtype=object)
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(f"Row {i} of the column {name} is {value!r}, not text; turn it into text first.")
        column[i] = str(value)
    if not is_utf8("".join(column)):
        bad = next(value for value in column if not is_utf8(value))
        raise InputError(f"{bad!r} in the column {name} is not valid UTF-8; rename it.")
    column.flags.writeable = False
    return column


def burst_units(table: Table) -> np.ndarray | None:
    """Return (N,) int: equal for the frames of one burst; None where there are no bursts.

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
    """Return the rows that are the first of their unit, in their order; all where there are no bursts."""
    if unit is None:
        return rows
    _, first = np.unique(unit[rows], return_index=True)
    return np.asarray(rows[np.sort(first)])
