"""New images, placed by a trained model: no training, in a stream, into a CSV or Parquet file and folders of links."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.categories.found import write_csv
from holotype.data.addresses import is_address, split_inside
from holotype.data.boxed import columns
from holotype.data.boxes import split_box
from holotype.data.detections import CONFIDENCE
from holotype.data.paths import Paths
from holotype.data.sources import IMAGE_EXTENSIONS, load_table, stream_paths
from holotype.errors import InputError
from holotype.machine.files import refuse_links
from holotype.placing.answers import own_answer
from holotype.placing.folders import Folders
from holotype.placing.ours import check_own, write_own

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from holotype.placing.corrected import Corrected
    from holotype.runs.trained import Read

BOXES = ("file", "box")
"""Further columns, where some of the images are boxes: the picture, and x, y, w, h as shares of it."""
COLUMNS = (
    *("path", "category", "category_id", "kind"),
    *("probability", "known_score", "typicality", "fits", "problem"),
)
"""Of the file of new images. category and category_id: as they stand now."""
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
    device: str = "auto",
    progress: bool = False,
    boxes: Path | None = None,
    box_confidence: float = CONFIDENCE,
    skip_missing: bool = False,
) -> Assigned:
    """Place the images of a folder, a table file or one image file with the model in the folder `run`.

    out: .csv or .parquet, by default run/assigned/NAME.csv (answers.py); a file of somebody else is not replaced
    (ours.py). copy_to: folder that gets a folder of links per category. boxes, box_confidence, skip_missing: as in
    load_table.
    """
    from holotype.placing.corrected import corrected
    from holotype.runs.trained import load_trained

    refuse_links(Path(run))
    if out is not None:
        check_own(Path(run), Path(out))
    trained = load_trained(run, device)
    paths = image_paths(images, boxes=boxes, box_confidence=box_confidence, skip_missing=skip_missing)
    named, out = out is not None, Path(out) if out else own_answer(Path(run), str(images))
    sink = _sink(out, boxed=any(split_box(path)[1] for path in paths))
    _check_apart(Path(images), copy_to)
    model = corrected(Path(run), trained)
    folders = Folders(copy_to) if copy_to else None
    assigned = Assigned(out)

    def rows() -> Iterator[pd.DataFrame]:
        first = 0
        for part in trained.stream(paths, progress):
            frame = placed(model, paths[first : first + len(part.problem)], part)
            first += len(part.problem)
            assigned.count(frame)
            if folders:
                link(folders, frame)
            yield frame

    # that of the run itself is brought up to date, whatever became of it (answers.py)
    write_own(Path(run), out, lambda beside: sink(beside, rows()), changed=not named)
    return assigned


def placed(model: Corrected, paths: Sequence[str], part: Read) -> pd.DataFrame:
    """The rows (COLUMNS) of some images."""
    frame = model.place(part)
    frame["path"], frame["problem"] = list(paths), list(part.problem)
    return frame[list(COLUMNS)].assign(**columns(paths))


def link(folders: Folders, frame: pd.DataFrame) -> None:
    """Images that could not be read, and those without a category, go nowhere."""
    for path, category, fits, problem in zip(
        frame["path"], frame["category"], frame["fits"], frame["problem"], strict=True
    ):
        if not problem and category:
            folders.add(path, category if fits else UNFIT)


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
    if inside := split_inside(text):  # of a Parquet file or a tar
        file = inside[1] if is_address(text) else os.path.abspath(inside[1])
        return f"{file}#{inside[2]}"
    return os.path.abspath(text) if text.lower().endswith(IMAGE_EXTENSIONS) and os.path.isfile(text) else None


def _check_apart(images: Path, copy_to: Path | None) -> None:
    if copy_to is None or not images.is_dir():
        return
    if Path(os.path.realpath(copy_to)).is_relative_to(os.path.realpath(images)):
        raise InputError(
            f"--copy-to {copy_to} lies inside {images}, so its links would be placed as images next time; "
            "choose a folder elsewhere."
        )


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
