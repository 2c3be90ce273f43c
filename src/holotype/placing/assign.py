"""New images, placed by a trained model: no training, in a stream, into a CSV or Parquet file and folders of links."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.data.boxes import split_box
from holotype.data.detections import CONFIDENCE, box_columns
from holotype.data.formats import IMAGE_EXTENSIONS
from holotype.data.load import load_table, stream_paths
from holotype.data.paths import Paths
from holotype.data.readers.registry import source_name
from holotype.data.storage import is_address, is_pattern, split_member
from holotype.errors import InputError
from holotype.placing.folders import Wanted, check_replaceable, numbered, sort_images
from holotype.results.discovery import write_csv
from holotype.utils.atomic import refuse_existing, refuse_links, write_output

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from holotype.placing.corrected import Corrected
    from holotype.runs.model_io import ModelReader

BOXES = ("file", "box")
"""Further columns, where some of the images are boxes: the picture, and x, y, w, h as shares of it."""
COLUMNS = (
    *("path", "category", "category_id", "kind"),
    *("probability", "known_score", "typicality", "fits", "problem"),
)
"""Of the file of new images. category and category_id: as they stand now."""
ASSIGNED = "assigned"
"""Folder in a run for the tables that nobody has named."""
UNFIT = "fits nothing"
"""Folder of the images that fit nothing."""


@dataclass
class Assigned:
    """What became of new images."""

    out: Path
    n: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Images per kind: known and novel; "" for those without a category."""
    categories: Counter[str] = field(default_factory=Counter)
    """Images per category, by name."""
    unfit: int = 0
    """Images that fit nothing; they are counted in a category too."""
    unread: int = 0

    def add(self, other: Assigned) -> None:
        self.n, self.unfit, self.unread = (
            self.n + other.n,
            self.unfit + other.unfit,
            self.unread + other.unread,
        )
        self.kinds.update(other.kinds)
        self.categories.update(other.categories)

    def count(self, frame: pd.DataFrame) -> None:
        read = frame["problem"] == ""
        self.n += len(frame)
        self.unread += int((~read).sum())
        self.unfit += int((read & ~frame["fits"]).sum())
        self.kinds.update(frame.loc[read, "kind"])
        self.categories.update(frame.loc[read, "category"])


def assign_images(
    run: Path,
    images: Path | str,
    *,
    out: Path | None = None,
    copy_to: Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    progress: bool = False,
    boxes: Path | None = None,
    box_confidence: float = CONFIDENCE,
    skip_missing: bool = False,
) -> Assigned:
    """Place the images of a folder, a table file or one image file with the model in the folder `run`.

    out: .csv or .parquet, by default that of default_output. copy_to: folder that gets a folder of links per category.
    overwrite: replace `out`, and a folder `copy_to` that Holotype wrote. boxes, box_confidence, skip_missing: as in
    load_table.
    """
    from holotype.placing.corrected import corrected
    from holotype.runs.model_io import load_model

    refuse_links(Path(run))
    if out is not None:
        refuse_existing(Path(out), overwrite)
    if copy_to is not None:
        check_replaceable(copy_to, overwrite)
    trained = load_model(run, device)
    paths = image_paths(images, boxes=boxes, box_confidence=box_confidence, skip_missing=skip_missing)
    named, out = out is not None, Path(out) if out else default_output(Path(run), str(images), paths)
    sink = _sink(out, boxed=any(split_box(path)[1] for path in paths))
    model = corrected(Path(run), trained)
    assigned = Assigned(out)
    wanted: list[Wanted] = []

    def rows() -> Iterator[pd.DataFrame]:
        first = 0
        for part in trained.stream(paths, progress):
            frame = placed(model, paths[first : first + len(part.problem)], part)
            first += len(part.problem)
            assigned.count(frame)
            if copy_to is not None:
                wanted.extend(_wanted(frame))
            yield frame

    write_output(out, lambda part: sink(part, rows()), overwrite=overwrite or not named)
    if copy_to is not None:
        sort_images(copy_to, trained.run_id, wanted, overwrite=overwrite, progress=progress)
    return assigned


def default_output(run: Path, images: str, paths: Sequence[str]) -> Path:
    """RUN/assigned/NAME.csv after the source of the images: the table of an earlier call, which is replaced, or a new
    one. Another source of that name gets NAME (2).csv: its table holds none of these images."""
    known = {*paths}
    files = (run / ASSIGNED / numbered(source_stem(images), ".csv", number) for number in count(1))
    return next(file for file in files if not os.path.lexists(file) or _lists_any(file, known))


def source_stem(images: str) -> str:
    """What the table of a source is called after."""
    if is_address(images) or is_pattern(images):
        return source_name(images)
    if inside := split_member(images):
        images = inside[1]
    full = Path(os.path.abspath(images))
    return (full.name if full.is_dir() else full.stem) or "images"


def _lists_any(file: Path, paths: set[str]) -> bool:
    """Does a table that lies there hold any of these images?"""
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            return any(row.get("path") in paths for row in csv.DictReader(stream))
    except (OSError, ValueError, csv.Error):
        return False


def placed(model: Corrected, paths: Sequence[str], part: ModelReader) -> pd.DataFrame:
    """The rows (COLUMNS) of some images."""
    frame = model.place(part)
    frame["path"], frame["problem"] = list(paths), list(part.problem)
    return frame[list(COLUMNS)].assign(**box_columns(paths))


def _wanted(frame: pd.DataFrame) -> Iterator[Wanted]:
    """Images that could not be read, and those without a category, go nowhere."""
    columns = (frame[name] for name in ("path", "category", "fits", "problem"))
    for path, category, fits, problem in zip(*columns, strict=True):
        if not problem and category:
            yield Wanted(path, category if fits else UNFIT)


def image_paths(source: Path | str, *, boxes: Path | None = None, **how: Any) -> list[str]:
    """Absolute paths of what the user points at, with the boxes that are wanted of them. how: of load_table."""
    one = None if boxes else _one_image(str(source))
    return [one] if one else [str(path) for path in load_table(source, boxes=boxes, **how).path]


def image_stream(source: Path | str, *, boxes: Path | None = None, **how: Any) -> Paths:
    """The same in a stream."""
    one = None if boxes else _one_image(str(source))
    return Paths("", iter([one])) if one else stream_paths(source, boxes=boxes, **how)


def _one_image(text: str) -> str | None:
    """The path of the image that is named by itself; None for a source of many."""
    if inside := split_member(text):  # of a Parquet file or a tar
        file = inside[1] if is_address(text) else os.path.abspath(inside[1])
        return f"{file}#{inside[2]}"
    return os.path.abspath(text) if text.lower().endswith(IMAGE_EXTENSIONS) and os.path.isfile(text) else None


# -- files --------------------------------------------------------------------------------------------

Sink = Callable[[Path, Iterator["pd.DataFrame"]], None]


def _sink(out: Path, *, boxed: bool = False) -> Sink:
    """How frames are written to a file of this name, one after the other."""

    def write_parquet(file: Path, frames: Iterator[pd.DataFrame]) -> None:
        _write_parquet(file, frames, (*COLUMNS, *BOXES) if boxed else COLUMNS)

    sinks: dict[str, Sink] = {".csv": _write_csv, ".parquet": write_parquet}
    if out.suffix.lower() not in sinks:
        raise InputError(f"--out must end in .csv or .parquet, not as {out.name!r} does.")
    return sinks[out.suffix.lower()]


def _write_csv(file: Path, frames: Iterator[pd.DataFrame]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        for number, frame in enumerate(frames):
            texts = ("path", "category", "category_id", "problem", "file")
            write_csv(frame, texts, stream, header=number == 0)


def schema_of(names: Sequence[str]) -> pa.Schema:
    """Of a Parquet file with these columns."""
    import pyarrow as pa

    text, number = pa.string(), pa.float32()
    kinds = {"probability": number, "known_score": number, "typicality": number, "fits": pa.bool_()}
    return pa.schema([(name, kinds.get(name, text)) for name in names])


def _write_parquet(file: Path, frames: Iterator[pd.DataFrame], names: Sequence[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = schema_of(names)
    with pq.ParquetWriter(file, schema) as writer:
        for frame in frames:
            writer.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))
