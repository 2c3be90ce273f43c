"""The Table: one row per image, the only thing that crosses module borders as a whole.

A row holds the image's path, the label a method may see ("" = unlabelled), what went wrong with the image ("" =
nothing), the burst that it is a frame of and, for benchmarks, the true class, which only evaluate.py reads.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holotype.data.csv import is_utf8, read_columns
from holotype.data.paths import relative
from holotype.errors import InputError
from holotype.utils.atomic import atomic_write, write_text

if TYPE_CHECKING:  # pandas takes half a second to import, and most commands never need a frame
    import pandas as pd

COLUMNS = ("path", "label", "problem", "truth", "group", "weight")
META_KEY = b"holotype"
"""Key of the Parquet schema's metadata under which known, name and root are stored."""


@dataclass(frozen=True, eq=False)
class Table:
    """N images. All columns are (N,) object arrays of str and cannot be written to."""

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
    """How many images of a larger collection each stands for, as text; None where it is no sample (weighed.py)."""
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
        object.__setattr__(self, "known", tuple(str(c) for c in self.known))
        self._check_known()
        self._check_paths()
        self._check_weights()

    def _check_known(self) -> None:
        if "" in self.known or len(set(self.known)) < len(self.known):
            raise InputError(
                "The names of the known classes must be different from each other and not empty."
            )
        unknown = set(self.label) - set(self.known) - {""}
        if unknown:
            raise InputError(
                f"The label {min(unknown)!r} is not among the {len(self.known)} known classes"
                f" ({len(unknown)} such labels); add it to the known classes or correct it."
            )

    def _check_paths(self) -> None:
        if len(set(self.path)) < len(self.path):
            values, counts = np.unique(self.path.astype(str), return_counts=True)
            raise InputError(
                f"The path {str(values[counts > 1][0])!r} is listed {counts[counts > 1][0]} times"
                f" ({(counts > 1).sum()} paths are listed more than once); keep one row per image."
            )

    def _check_weights(self) -> None:
        for row, text in enumerate(() if self.weight is None else self.weight):
            try:
                fits = 0 < float(text) < math.inf
            except ValueError:
                fits = False
            if not fits:
                raise InputError(
                    f"The weight {text!r} of {self.path[row]} is not a number above 0; make the sample again."
                )

    def __len__(self) -> int:
        return len(self.path)

    @property
    def labelled(self) -> np.ndarray:
        """(N,) bool: does the image carry a label?"""
        return np.array([label != "" for label in self.label], dtype=bool)

    @property
    def target(self) -> np.ndarray:
        """(N,) int64 index into `known`; -1 = unlabelled."""
        index = {name: i for i, name in enumerate(self.known)}
        return np.array([index.get(label, -1) for label in self.label], dtype=np.int64)

    @property
    def usable(self) -> np.ndarray:
        """(N,) bool: can the image be used?"""
        return np.array([problem == "" for problem in self.problem], dtype=bool)

    @property
    def weights(self) -> np.ndarray:
        """(N,) float64: how many images each stands for; 1 where the table is no sample."""
        return np.ones(len(self)) if self.weight is None else self.weight.astype(np.float64)

    def take(self, rows: np.ndarray | Sequence[int], path: np.ndarray | None = None) -> Table:
        """The given rows (indices, or a bool mask) in the given order; the known classes stay. path: what the rows are
        called then, where several are made of one."""
        rows = np.asarray(rows)
        if rows.size == 0:
            rows = rows.astype(np.int64)
        some = {name: values[rows] for name, values in self._columns().items()}
        return replace(self, **(some if path is None else some | {"path": path}))

    def with_problems(self, problem: np.ndarray | Sequence[str]) -> Table:
        """The same images with another `problem` column (N,)."""
        return replace(self, problem=_text_column("problem", problem, len(self)))

    def fingerprint(self) -> str:
        """SHA-256 over what a method sees: paths, labels, known classes and bursts, not truth and problem."""
        path = relative(self.path, self.root)
        bursts = [] if self.group is None else [list(self.group)]
        seen = json.dumps([path, list(self.label), list(self.known), *bursts])
        return hashlib.sha256(seen.encode("ascii")).hexdigest()

    def to_frame(self) -> pd.DataFrame:
        """Columns path, label, problem, and truth, group and weight where there are such."""
        import pandas as pd

        return pd.DataFrame(self._columns(), dtype=object)

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, *, known: Sequence[str] | None = None, name: str = "", root: str = ""
    ) -> Table:
        """The inverse of to_frame; without `known` the classes are the sorted labels."""
        columns = {str(c): frame[c].to_numpy(dtype=object) for c in frame.columns}
        return cls.from_columns(columns, known=known, name=name, root=root)

    def save(self, file: Path | str) -> None:
        """Write .parquet, or .csv with the known classes, name and root beside it in FILE.csv.json."""
        file = Path(file)
        meta = json.dumps({"known": self.known, "name": self.name, "root": self.root})
        if file.suffix == ".parquet":
            atomic_write(file, lambda beside: self._write_parquet(beside, meta))
        elif file.suffix == ".csv":
            write_text(_sidecar(file), meta)
            atomic_write(file, self._write_csv)
        else:
            raise InputError(f"A table is saved as .parquet or .csv, not as {file.name!r}.")

    def _write_parquet(self, file: Path, meta: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: pa.array(values, pa.string()) for name, values in self._columns().items()}
        pq.write_table(pa.table(columns).replace_schema_metadata({META_KEY: meta}), file)

    def _write_csv(self, file: Path) -> None:
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
            writer.writerow(self._columns())
            writer.writerows(zip(*self._columns().values(), strict=True))

    @classmethod
    def load(cls, file: Path | str) -> Table:
        """Read what save wrote. A CSV without its FILE.csv.json takes the sorted labels as classes."""
        file = Path(file)
        columns = read_columns(file, exact=True)
        if not {"path", "label"} <= set(columns):
            raise InputError(f"{file} is not a saved table: it has the columns {', '.join(columns)}.")
        return cls.from_columns(columns, **_read_meta(file))

    def _columns(self) -> dict[str, np.ndarray]:
        columns = {name: getattr(self, name) for name in COLUMNS}
        return {name: values for name, values in columns.items() if values is not None}

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, Any], *, known: Sequence[str] | None = None, name: str = "", root: str = ""
    ) -> Table:
        """Make a table of columns by name, None where there is none; the classes are the sorted labels unless given."""
        classes = sorted(set(columns["label"]) - {""}) if known is None else known
        used = {key: columns[key] for key in COLUMNS if columns.get(key) is not None}
        return cls(**used, known=tuple(classes), name=name, root=root)


def _text_column(name: str, values: Iterable[object], n: int) -> np.ndarray:
    """(n,) read-only object array of str that can be written as UTF-8."""
    values = list(values)
    if len(values) != n:
        raise InputError(f"The column {name} has {len(values)} rows where path has {n}; make them equal.")
    column = np.empty(n, dtype=object)
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(f"Row {i} of the column {name} is {value!r}, not text; turn it into text first.")
        column[i] = str(value)
    try:
        "".join(column).encode("utf-8")
    except UnicodeEncodeError as error:
        bad = next(v for v in column if not is_utf8(v))
        raise InputError(f"{bad!r} in the column {name} is not valid UTF-8; rename it.") from error
    column.flags.writeable = False
    return column


def _sidecar(file: Path) -> Path:
    return file.with_name(file.name + ".json")


def _read_meta(file: Path) -> dict[str, Any]:
    """known, name and root as Table.save stored them; {} for a table that somebody else wrote."""
    if file.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq

        stored = (pq.read_schema(file).metadata or {}).get(META_KEY)
    else:
        stored = _sidecar(file).read_bytes() if _sidecar(file).is_file() else None
    if stored is None:
        return {}
    try:
        meta = json.loads(stored)
        return {key: meta[key] for key in ("known", "name", "root")}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"What {file} says of its classes cannot be read; save it again.") from error
