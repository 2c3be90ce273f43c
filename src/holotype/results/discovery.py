"""Discovery: the result of a run, one row per image and one entry per category, on disk and in memory.

Scores are no part of it: they say what only the truth can say, and stand in scores.json alone.

On disk (docs/formats.md): `assignments.parquet` and `assignments.csv` hold the images, `discovery.json` the rest.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import logging
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeVar

import numpy as np

from holotype.data.csv import FORMULA
from holotype.data.paths import relative
from holotype.errors import InputError
from holotype.utils.atomic import atomic_write, write_bytes
from holotype.utils.serialization import FileSchema, SchemaError, read_parquet_table, to_dict, write_parquet
from holotype.utils.text import suggest_path

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass
class EditState:
    """What edits have done to a discovery; empty before the first."""

    applied: list[str] = field(default_factory=list)
    """Ids of the edits that it holds."""
    refused: list[str] = field(default_factory=list)
    """Ids of those that could not be applied."""
    merged: dict[str, str] = field(default_factory=dict)
    """Id of a category that is gone to the id of the one that it joined."""
    rejected: list[str] = field(default_factory=list)
    """Ids of the categories that were rejected."""
    asleep: dict[str, dict[str, str]] = field(default_factory=dict)
    """Id of a category that lost its images to its name and suggested name, should one come back."""
    confirmed: dict[str, str] = field(default_factory=dict)
    """Key of an image (Discovery.keys) to the id of the category, or to the label, that was confirmed."""
    came_from: dict[str, str] = field(default_factory=dict)
    """Key of an image that was moved or confirmed to the id of the category that the run had put it in, "" = none."""


@dataclass(frozen=True)
class RunFacts:
    """How a run was made. What does not apply is empty."""

    title: str = ""
    """Name of the collection."""
    root: str = ""
    """Folder of the images."""
    method: str = ""
    k: int = 0
    """Categories that were trained for, known and novel; some may have stayed empty."""
    in_use: int = 0
    """Those of them that hold an image, before any edit; 0 where nobody has counted."""
    seed: int = 0
    steps: int = 0
    """Training steps."""
    epochs: int = 0
    batch_size: int = 0
    mode: str = ""
    """exact, or cached 4+2."""
    trained_on: int = 0
    """Images that were trained on; the others were placed afterwards."""
    round: int = 0
    """Of a discovery, from 1; 0 for a run of holotype train."""
    earlier_runs: tuple[str, ...] = ()
    """Run ids of the rounds before."""
    confirmed_labels: int = 0
    """Labels that edits have given: of confirmed and moved images, and of the parts of merged categories."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By step."""
    calibration: str = ""
    """What the probabilities of the images were learned from, or why they are none, in a sentence; "" = they are the
    method's own scores."""
    calibration_curve: tuple[tuple[float, float], ...] = ()
    """The score of an image that comes later and the probability that goes with it, rising."""
    trainings: tuple[int, ...] = ()
    """Seeds of the trainings that have placed the images together; `seed` is that of the one whose model is kept. Empty
    where there was one training."""
    methods: tuple[str, ...] = ()
    """Methods that they took in turn; `method` is that of the one whose model is kept."""
    agreement: tuple[float, ...] = ()
    """Share of the images that each of them places where all together do."""
    blend: str = ""
    """How trainings and partitions by frozen features count where images are placed, and why, in a sentence."""
    choice_of_backbone: str = ""
    """Why this one, in a sentence."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """What provenance.json says: versions, hardware, backbone, table."""
    edits: EditState = field(default_factory=EditState)

    @property
    def training_size(self) -> str:
        """How many categories were trained for, and how many are in use where some stayed empty."""
        return f"trained with {self.k}" + (f", {self.in_use} in use" if 0 < self.in_use < self.k else "")

    @property
    def backbone(self) -> Mapping[str, Any]:
        """name, digest and caveat."""
        found = self.provenance.get("backbone", {})
        return found if isinstance(found, Mapping) else {}


DISCOVERY_SCHEMA = FileSchema(3, "restore it from a copy, or make the run again in another folder")
"""Its version is raised when a file of an older one can no longer be read."""
DISCOVERY_FILE = "discovery.json"
ASSIGNMENTS = "assignments.parquet"
IMAGE_TABLE_COLUMNS = (
    *("path", "label", "category", "kind", "probability", "known_score", "typicality", "doubtful", "x", "y"),
    *("category_id", "problem", "note"),
)
"""Of the table of images. category: the name as it stands; category_id: what it was when it was found. x and y are
NaN until a report is built."""
OPTIONAL = ("digest", "taken", "latitude", "longitude", "camera", "group", "file", "box", "weight", "text")
"""Columns that are there where something is known: the digest of the content (data/hashing.py; "" where that cannot be
read), what the heads of the files say (data/exif.py), the burst that an image is a frame of (data/bursts.py), the
picture and the part of it that the image is (data/boxes.py), how many images of a larger collection it stands for
(data/labels.py), and what is shown of a row that is no image."""
TEXTS = ("path", "label", "category", "category_id", "problem", "note", "camera", "group", "file", "text")
"""Those that hold whatever users called things."""


def safe_cell(text: str) -> str:
    """A cell of a CSV file that no spreadsheet takes for a formula: =, +, -, @ at its start get an apostrophe."""
    return f"'{text}" if text.startswith(FORMULA) else text


def write_csv(frame: pd.DataFrame, texts: Sequence[str], to: Path | TextIO, *, header: bool = True) -> None:
    """The frame as a CSV file, with safe cells in the columns `texts`, which hold whatever users called things; those
    that it lacks are passed over. A file begins with a byte order mark, by which spreadsheets know its accents."""
    there = [name for name in texts if name in frame.columns]
    safe = frame.assign(**{name: [safe_cell(cell) for cell in frame[name]] for name in there})
    # before Python 3.13 a lone carriage return was left bare, and what follows it would begin a row
    odd = any("\r" in cell for name in there for cell in safe[name])
    encoding = "utf-8-sig" if isinstance(to, Path) else None
    safe.to_csv(
        to,
        index=False,
        header=header,
        encoding=encoding,
        quoting=csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL,
    )


@dataclass
class Category:
    """A known class or a discovered category."""

    id: str
    """Never changes within a run: the name of the known class, or new-01."""
    name: str
    """What people call it; at first the id."""
    kind: Literal["known", "novel"]
    n: int
    """Images in it, labelled ones included."""
    exemplars: list[str] = field(default_factory=list)
    """Paths of the most typical images, best first."""
    borderline: list[str] = field(default_factory=list)
    """Paths of the images that fit another category almost as well."""
    cohesion: float = float("nan")
    """Mean cosine of its images with their centre."""
    separation: float = float("nan")
    """1 - cosine of its centre with the nearest other centre."""
    nearest: str = ""
    """Id of the category of that centre."""
    signature: list[float] = field(default_factory=list)
    """Mean cosine with the prototype of each known class, in the order of Discovery.known."""
    words: str = ""
    """The signature in words: closest to Sneaker 0.71 and Sandal 0.55; unlike Bag."""
    suggested: str = ""
    """A name until somebody finds a better one: near Sneaker, new 1."""
    purity: float = float("nan")
    """Estimated share of its images that are right (purity.py); NaN where nothing could be learned about that."""
    purity_low: float = float("nan")
    purity_high: float = float("nan")
    """Where the truth lies in four categories out of five."""
    comes_back: int = 0
    """Of several trainings (Facts.trainings), how many have this category too (ensemble.py)."""
    together: float = float("nan")
    """Share of its images without a label that stay together, in the mean over the trainings; NaN where there was one
    training, or edits have changed the category."""


@dataclass
class Discovery:
    """Everything that is known about a collection after a run."""

    run_id: str
    known: tuple[str, ...]
    images: pd.DataFrame
    """One row per image with the columns COLUMNS, and those of OPTIONAL of which something is known; category is "" for
    an image that could not be read."""
    categories: list[Category]
    count: dict[str, Any] | None = None
    """How many categories: CountEstimate as a dictionary, None where --k was given."""
    facts: RunFacts = field(default_factory=RunFacts)
    """How it was made, and what people have corrected since."""

    @property
    def digests(self) -> list[str]:
        """(N,) of the contents of the images, "" where that is not known."""
        known = "digest" in self.images
        return list(self.images["digest"].fillna("")) if known else [""] * len(self.images)

    @property
    def keys(self) -> list[str]:
        """(N,) what edits know each image by: its digest, which copies share, or else its path from the root."""
        paths = relative([str(path) for path in self.images["path"]], self.facts.root)
        return [digest or path for digest, path in zip(self.digests, paths, strict=True)]

    def category(self, id: str) -> Category:
        return next(category for category in self.categories if category.id == id)

    def called(self, names: Mapping[str, str]) -> Discovery:
        """The same with the names that people gave, by id. Should two categories claim one name, the first has it."""
        taken: set[str] = set()
        mine = {}
        for category in sorted(self.categories, key=lambda c: c.id not in names):
            wanted = (names.get(category.id, category.name), category.id)
            others = (f"{category.id} ({number})" for number in range(2, len(self.categories) + 3))
            mine[category.id] = next(name for name in (*wanted, *others) if name not in taken)
            taken.add(mine[category.id])
        categories = [dataclasses.replace(c, name=mine[c.id]) for c in self.categories]
        column = [mine.get(id, id) for id in self.images["category_id"]]
        return dataclasses.replace(self, categories=categories, images=self.images.assign(category=column))

    def save(self, folder: Path) -> None:
        """Write it; a kill at any moment leaves whole files."""
        import pyarrow as pa

        frame = self.images[
            [*IMAGE_TABLE_COLUMNS, *(name for name in OPTIONAL if name in self.images.columns)]
        ]
        # the parquet file, which is read again, comes second: where it is there, the one for people is as new
        atomic_write(folder / "assignments.csv", lambda beside: write_csv(frame, TEXTS, beside))
        write_parquet(folder / ASSIGNMENTS, pa.Table.from_pandas(frame, preserve_index=False))
        content = _DiscoveryFile(self.run_id, self.known, self.categories, self.count, self.facts)
        DISCOVERY_SCHEMA.write(folder / DISCOVERY_FILE, to_dict(content))

    @classmethod
    def load(cls, folder: Path) -> Discovery:
        """Read what `save` wrote."""
        content = _read_file(folder)
        try:
            images = read_parquet_table(folder / ASSIGNMENTS).to_pandas()
            if absent := [name for name in IMAGE_TABLE_COLUMNS if name not in images]:
                raise SchemaError(f"it has no column {absent[0]}")
        except (ValueError, OSError) as error:
            raise DISCOVERY_SCHEMA.broken(folder / ASSIGNMENTS, error) from error
        return cls(**vars(content), images=images)


def check_discovery(folder: Path) -> None:
    """Raise InputError where a folder holds no discovery that this version reads. The table of images is not read."""
    _read_file(folder)


def _read_file(folder: Path) -> _DiscoveryFile:
    path = folder / DISCOVERY_FILE
    if not path.is_file():
        raise InputError(_read_error(folder))
    return DISCOVERY_SCHEMA.make(path, _DiscoveryFile)


@dataclass(frozen=True)
class _DiscoveryFile:
    """The content of discovery.json, but for its version."""

    run_id: str
    known: tuple[str, ...]
    categories: list[Category]
    count: dict[str, Any] | None
    facts: RunFacts


def _read_error(folder: Path) -> str:
    if folder.is_file():
        return f"{folder} is a file; give the folder of a run."
    if not folder.is_dir():
        return f"There is no folder {folder}{suggest_path(folder)}; give the folder of a run."
    if (folder / "identity.json").is_file():
        return (
            f"The run in {folder} is not finished (no {DISCOVERY_FILE}); run its command again, "
            "with another --out if that does not help."
        )
    return f"{folder} holds no run (no {DISCOVERY_FILE}); make one with holotype discover or holotype train."


UNNAMED_PATTERN = re.compile(r"new-[0-9]+")
"""A new category that nobody has given a name."""


def category_name(index: int, known: tuple[str, ...], k: int, used: Iterable[str] = ()) -> str:
    """The name of a category before anybody has given it a better one; "" for an image that was not placed.

    k: number of categories, known and novel; it decides how many digits there are, so that names sort. used: what
    means something else, such as a category of an earlier round.
    """
    if index < 0:
        return ""
    if index < len(known):
        return known[index]
    # a known class may be called new-01 itself, after an earlier discovery
    taken = {int(found[1]) for name in (*known, *used) if (found := re.fullmatch(r"new-(\d+)", name))}
    highest = max(k, index + 1) - len(known) + len(taken)
    free = [number for number in range(1, highest + 1) if number not in taken]
    return f"new-{free[index - len(known)]:0{max(2, len(str(highest)))}d}"


def weighted_sizes(images: pd.DataFrame) -> dict[str, int]:
    """Images of the collection by the id of their category, an estimate; empty where the images are no sample.

    images: of a Discovery. Those in no category are left out.
    """
    if "weight" not in images.columns:
        return {}
    placed = images["category_id"].fillna("")
    total = images["weight"].groupby(placed).sum()
    return {str(id): round(float(n)) for id, n in total.items() if id}


FEATURES = "features.npy"
"""(N, D) float16 of every image after training; NaN for those that cannot be read."""
CHECKSUM_MARK = b"holotype"
"""Between the array and the checksum of both; NumPy reads no further than the array."""


def write_features(folder: Path, features: np.ndarray) -> None:
    """features: (N, D)."""
    content = io.BytesIO()
    np.save(content, features.astype(np.float16))
    write_bytes(folder / FEATURES, content.getvalue() + _checksum(content.getvalue()))


def _checksum(content: bytes | memoryview) -> bytes:
    return CHECKSUM_MARK + zlib.crc32(content).to_bytes(4, "little")


def read_features(folder: Path, n: int) -> np.ndarray | None:
    """(n, D) float16 of the n images of a run; None where they were not kept, are of something else, or were damaged,
    which is said."""
    features = checked_features(folder / FEATURES)
    return features if features is not None and features.ndim == 2 and len(features) == n else None


def checked_features(file: Path) -> np.ndarray | None:
    """What the file holds; None where there is none, or it was damaged, which is said."""
    if not file.is_file():
        return None
    content = memoryview(file.read_bytes())
    end = max(len(content) - len(CHECKSUM_MARK) - 4, 0)
    if content[end:] != _checksum(content[:end]):
        log.warning(
            f"{file} was damaged since it was written, and is not used; delete it, and holotype report makes it anew "
            "where it is needed."
        )
        return None
    features: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    return features


def read_frozen(run: Path, digests: list[str]) -> np.ndarray | None:
    """(N, D) features of the frozen backbone by the digests of images, NaN where there are none; None without a store.

    The store itself (embeddings/store.py) imports torch, which takes longer than all that is done here.
    """
    rows: dict[str, list[int]] = {}
    for row, digest in enumerate(digests):
        rows.setdefault(digest, []).append(row)
    found: np.ndarray | None = None
    for file in sorted((run / "embeddings").glob("part-*.parquet")):
        table = read_parquet_table(file)
        values = table["feature"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        values = values.reshape(table.num_rows, -1)
        if found is None:
            found = np.full((len(digests), values.shape[1]), np.nan, np.float32)
        names = zip(table["digest"].to_pylist(), table["problem"].to_pylist(), strict=True)
        for at, (digest, problem) in enumerate(names):
            if digest in rows and not problem:
                found[rows[digest]] = values[at]
    return found
