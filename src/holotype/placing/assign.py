"""New images, placed by a trained model: no training, in a stream, into a CSV or Parquet file and folders of links."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.categories.found import FILE as DISCOVERY
from holotype.categories.found import Discovery, safe_texts
from holotype.data.sources import IMAGE_EXTENSIONS, load_table
from holotype.errors import InputError
from holotype.machine.files import write_beside
from holotype.placing.folders import Folders

if TYPE_CHECKING:
    import pandas as pd

    from holotype.runs.trained import Read, Trained

COLUMNS = (
    *("path", "category", "category_id", "kind"),
    *("probability", "known_score", "typicality", "fits", "problem"),
)
"""Of the file of new images. category: the name as it stands now; category_id: what it was when it was found."""
UNFIT = "fits nothing"
"""Folder of the images that fit nothing."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Called:
    """What a category is called now, after renaming and merging."""

    name: str
    kind: str
    """known or novel; "" for a category that somebody rejected."""


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

    def count(self, frame: pd.DataFrame) -> None:
        read = frame["problem"] == ""
        self.n += len(frame)
        self.unread += int((~read).sum())
        self.unfit += int((read & ~frame["fits"]).sum())
        self.kinds.update(frame.loc[read, "kind"])
        self.categories.update(frame.loc[read, "category"])


def assign_images(
    run: Path,
    images: Path,
    *,
    out: Path | None = None,
    copy_to: Path | None = None,
    device: str = "auto",
    progress: bool = False,
) -> Assigned:
    """Place the images of a folder, a table file or one image file with the model in the folder `run`.

    out: .csv or .parquet, by default run/assigned/NAME.csv. copy_to: folder that gets a folder of links per category.
    """
    from holotype.runs.trained import load_trained

    images, out = Path(images), Path(out or Path(run) / "assigned" / f"{_stem(Path(images))}.csv")
    sink = _sink(out)
    trained = load_trained(run, device)
    paths = image_paths(images)
    _check_apart(images, copy_to)
    names = current_names(Path(run), trained)
    folders = Folders(copy_to) if copy_to else None
    assigned = Assigned(out)

    def rows() -> Iterator[pd.DataFrame]:
        first = 0
        for part in trained.stream(paths, progress):
            frame = placed(trained, paths[first : first + len(part.problem)], part, names)
            first += len(part.problem)
            assigned.count(frame)
            if folders:
                link(folders, frame)
            yield frame

    write_beside(out, lambda beside: sink(beside, rows()))
    return assigned


def placed(trained: Trained, paths: Sequence[str], part: Read, names: dict[str, Called]) -> pd.DataFrame:
    """The rows (COLUMNS) of some images."""
    frame = trained.place(part.features)
    nobody = Called("", "")
    found = [names.get(id, nobody) for id in frame["category_id"]]
    frame["path"], frame["problem"] = list(paths), list(part.problem)
    frame["category"], frame["kind"] = [c.name for c in found], [c.kind for c in found]
    return frame[list(COLUMNS)]


def link(folders: Folders, frame: pd.DataFrame) -> None:
    """Images that could not be read, and those without a category, go nowhere."""
    for path, category, fits, problem in zip(
        frame["path"], frame["category"], frame["fits"], frame["problem"], strict=True
    ):
        if not problem and category:
            folders.add(path, category if fits else UNFIT)


def image_paths(source: Path) -> list[str]:
    """Absolute paths of what the user points at."""
    if source.is_file() and source.suffix.lower() in IMAGE_EXTENSIONS:
        return [os.path.abspath(source)]
    return [str(path) for path in load_table(source).path]


def _stem(images: Path) -> str:
    """What the answer is called after."""
    full = Path(os.path.abspath(images))
    return (full.name if full.is_dir() else full.stem) or "images"


def _check_apart(images: Path, copy_to: Path | None) -> None:
    if copy_to is None or not images.is_dir():
        return
    if Path(os.path.realpath(copy_to)).is_relative_to(os.path.realpath(images)):
        raise InputError(
            f"--copy-to {copy_to} lies inside {images}, so that its links would be placed as images next time; "
            "choose a folder elsewhere."
        )


# -- names --------------------------------------------------------------------------------------------


def current_names(run: Path, trained: Trained) -> dict[str, Called]:
    """What the model's categories are called now: as discovery.json in `run` says, after its edits, else their ids."""
    called = {id: Called(id, "known" if id in trained.known else "novel") for id in trained.ids}
    if not (run / DISCOVERY).is_file():
        return called
    discovery = Discovery.load(run)
    if discovery.run_id != trained.run_id:
        log.warning(
            f"The model in {run} is of another round than its report; new images get the names of the model."
        )
        return called
    now = {category.id: category for category in discovery.categories}
    merged, rejected = discovery.facts.edits.merged, discovery.facts.edits.rejected
    for id in trained.ids:
        end = id
        for _ in merged:  # a category may be merged into one that is merged later
            end = end if end in now else merged.get(end, end)
        if end in now:
            called[id] = Called(now[end].name, now[end].kind)
        elif end in rejected:
            called[id] = Called("", "")
    return called


# -- files --------------------------------------------------------------------------------------------

Sink = Callable[[Path, Iterator["pd.DataFrame"]], None]


def _sink(out: Path) -> Sink:
    """How frames are written to a file of this name, one after the other."""
    sinks: dict[str, Sink] = {".csv": _write_csv, ".parquet": _write_parquet}
    if out.suffix.lower() not in sinks:
        raise InputError(f"--out must end in .csv or .parquet, not as {out.name!r} does.")
    return sinks[out.suffix.lower()]


def _write_csv(file: Path, frames: Iterator[pd.DataFrame]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        for number, frame in enumerate(frames):
            safe = safe_texts(frame, ("path", "category", "category_id", "problem"))
            safe.to_csv(stream, index=False, header=number == 0)


def _write_parquet(file: Path, frames: Iterator[pd.DataFrame]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text, number = pa.string(), pa.float32()
    kinds = {"probability": number, "known_score": number, "typicality": number, "fits": pa.bool_()}
    schema = pa.schema([(name, kinds.get(name, text)) for name in COLUMNS])
    with pq.ParquetWriter(file, schema) as writer:
        for frame in frames:
            writer.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))
