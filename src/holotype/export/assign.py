"""Assign new images with a trained model and the corrections of its run, as a stream.

The model, with the second opinion of its run, places an image in one of its own categories. What was merged is one
category then, what was rejected is none, and names are those of today. A category that was split off by hand has no
place in the model: it has a centre, that of its images, and gets those images of the category it was taken from that
lie nearer to it. Where everything was moved out of a category, its images go to the nearest of those that took it in.

The result is one file, or a folder of parts (embeddings/shards.py) that any executor fills. The footer of a part keeps
a digest of the stamps of its images: where a file has changed since, the shard is placed anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from holotype.config.schema import vector_dim
from holotype.data.boxes import split_box
from holotype.data.detections import box_columns
from holotype.data.hashing import file_stamps, image_digests
from holotype.data.image_files import IMAGE_EXTENSIONS
from holotype.data.load import collection_name, stream_paths
from holotype.data.paths import Paths, is_address, is_pattern, split_member
from holotype.data.readers.vectors import read_vectors, vector_digests
from holotype.embeddings.shards import ShardRequest, absolute_source, part_file, read_shard_paths
from holotype.errors import InputError
from holotype.export.folders import TargetFile, check_replaceable, new_folder
from holotype.export.open_assign import open_categories
from holotype.methods.registry import allow_code
from holotype.results.calibration import interpolate
from holotype.results.discovery import DISCOVERY_FILE, Discovery, read_features, write_csv
from holotype.results.edits import CONFIRMED_NOTE, MOVED_NOTE, REJECTED_NOTE
from holotype.results.lda import Centroids, unit_rows
from holotype.runs.model_io import ModelConfig, ModelReader, TrainedModel, load_model
from holotype.runs.predict import predict
from holotype.utils.atomic import refuse_existing, refuse_links, write_output
from holotype.utils.serialization import TABLE_MARK, read_parquet_table, write_parquet

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

log = logging.getLogger(__name__)


class CategoryName(NamedTuple):
    """What a category is called now, after renaming and merging."""

    name: str
    kind: str
    """known or novel; "" for a category that somebody rejected."""


NO_CATEGORY = CategoryName("", "")
MANUAL_NOTES = (MOVED_NOTE, CONFIRMED_NOTE, REJECTED_NOTE)


@dataclass
class CorrectedModel:
    """A trained model, and how its categories stand now."""

    trained: TrainedModel
    end: dict[str, str]
    """Id of a category of the model to that of the one it is now; "" = rejected."""
    called: dict[str, CategoryName]
    """By id, those that were split off by hand included."""
    centres: Centroids | None = None
    """Of the categories in `called`; None where no image has changed its category."""
    asleep: frozenset[str] = frozenset()
    """Ids of the categories out of which every image was moved or rejected."""
    rivals: dict[str, set[str]] = field(default_factory=dict)
    """Id to those that may have its images: what was split off it, or what took it in."""
    curve: tuple[tuple[float, float], ...] = ()
    """From scores to probabilities; none where the run could not calibrate them."""

    @property
    def names(self) -> dict[str, CategoryName]:
        """What the model's own categories are called, by their ids."""
        return {id: self.called.get(end, NO_CATEGORY) for id, end in self.end.items()}

    @property
    def split_off(self) -> list[str]:
        """Names of the categories that the model knows nothing of."""
        return [called.name for id, called in self.called.items() if id not in self.trained.ids]

    def place(self, read: ModelReader) -> pd.DataFrame:
        """Return category_id, category, kind, probability, known_score, typicality and fits.

        They are "" and NaN for images that could not be read. An image in no category fits nothing.
        """
        frame = self.trained.place(read)
        ids = np.array([self.end.get(id, "") for id in frame["category_id"]], dtype=object)
        if self.centres is not None:
            self._choose(read.features, ids, frame)
        called = [self.called.get(id, NO_CATEGORY) for id in ids]
        frame["category_id"], frame["kind"] = ids, [one.kind for one in called]
        frame["fits"] &= ids != ""
        frame["probability"] = interpolate(frame["probability"].to_numpy(), self.curve)
        frame.insert(1, "category", [one.name for one in called])
        return frame

    def _choose(self, features: np.ndarray, ids: np.ndarray, frame: pd.DataFrame) -> None:
        """Let each image have the nearest of the categories in question, and judge by the centres of today."""
        assert self.centres is not None
        index, centre = {id: i for i, id in enumerate(self.called)}, unit_rows(self.centres.mean)
        said = ids.copy()  # by the model: what has followed already does not follow again
        for id in set(said) - {""}:
            rows = np.flatnonzero(said == id)
            able = [one for one in (id, *sorted(self.rivals.get(id, ()))) if self.centres.n[index[one]]]
            if able:
                near = unit_rows(features[rows]) @ centre[[index[one] for one in able]].T
                ids[rows] = np.array(able, dtype=object)[near.argmax(axis=1)]
            elif id in self.asleep:  # each of its images was rejected
                ids[rows] = ""
        rows = np.flatnonzero(ids != "")
        chosen = np.array([index[id] for id in ids[rows]], dtype=np.int64)
        category, typicality, fits = self.centres.judge(features[rows], chosen)
        ids[rows] = np.array(list(self.called), dtype=object)[category]
        frame["typicality"], frame["fits"] = np.float32(np.nan), False
        frame.loc[rows, "typicality"], frame.loc[rows, "fits"] = typicality, fits


def load_corrected(run: Path, trained: TrainedModel) -> CorrectedModel:
    """Return the model of a run folder with its categories as discovery.json has them, else as it was trained."""
    end = {id: id for id in trained.ids}
    called = {id: CategoryName(id, "known" if id in trained.known else "novel") for id in trained.ids}
    plain = CorrectedModel(trained, end, called)
    if not (run / DISCOVERY_FILE).is_file():
        return plain
    found = Discovery.load(run)
    if found.run_id != trained.run_id:
        log.warning(f"Model and report of {run} are of another round each; new images get the model's names.")
        return plain
    edits, now = found.facts.edits, {category.id: category for category in found.categories}
    for id in trained.ids:
        for _ in edits.merged:  # a category may be merged into one that is merged later
            end[id] = end[id] if end[id] in now else edits.merged.get(end[id], end[id])
        if end[id] not in now and end[id] in edits.rejected:
            end[id] = ""
    asleep = {id: CategoryName(told["name"], "novel") for id, told in edits.asleep.items()}
    gone = {id for id in trained.ids if end[id] != id}
    seen = {id: CategoryName(category.name, category.kind) for id, category in now.items()}
    plain.curve = found.facts.calibration_curve
    plain.asleep = frozenset(asleep)
    plain.called = {id: one for id, one in {**called, **asleep, **seen}.items() if id not in gone}
    return with_centroids(run, plain, found)


def with_centroids(run: Path, plain: CorrectedModel, found: Discovery) -> CorrectedModel:
    """Add the centres of the images that are in each category now, where edits have moved any."""
    edits, note = found.facts.edits, found.images["note"].fillna("")
    if not edits.applied or not (
        edits.merged or edits.rejected or edits.asleep or set(note) & set(MANUAL_NOTES)
    ):
        return plain
    features = read_features(run, len(found.images))
    if features is None:
        log.warning(
            f"What was split off gets no new images without features.npy; holotype cut {run} makes it."
        )
        return plain
    ids = tuple(plain.called)
    index = {id: i for i, id in enumerate(ids)}
    category = np.array([index.get(id, -1) for id in found.images["category_id"]])
    plain.centres = Centroids.measure(features, category, len(ids))
    rows = np.flatnonzero(note.isin((MOVED_NOTE, CONFIRMED_NOTE)).to_numpy(bool) & (category >= 0))
    rows = rows[np.isfinite(features[rows]).all(axis=1)]
    said, keys = predict(plain.trained.method, np.asarray(features[rows], np.float32)).category, found.keys
    for row, model in zip(rows, said, strict=True):
        # where the run had put it, and what the model says
        before = edits.came_from.get(keys[row], "")
        target = ids[category[row]]
        for source in {plain.end.get(before, ""), plain.end[plain.trained.ids[model]]} - {""}:
            if target not in plain.trained.ids or source in plain.asleep:
                plain.rivals.setdefault(source, set()).add(target)
    return plain


BOX_COLUMNS = ("file", "box")
"""Further columns, where some of the images are boxes: the picture, and x, y, w, h as shares of it."""
ASSIGN_COLUMNS = (
    *("path", "category", "category_id", "kind"),
    *("probability", "known_score", "typicality", "fits", "problem"),
)
"""Of the file of new images. category and category_id: as they stand now."""
ASSIGNED = "assigned"
"""Folder in a run for the tables that nobody has named."""
UNFIT_NOTE = "fits nothing"
"""Folder of the images that fit nothing."""


@dataclass
class AssignResult:
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
    waiting: int = 0
    """Images that opened a provisional category which has too few of them so far."""

    def add(self, other: AssignResult) -> None:
        self.n += other.n
        self.unfit += other.unfit
        self.unread += other.unread
        self.kinds.update(other.kinds)
        self.categories.update(other.categories)

    def count(self, frame: pd.DataFrame) -> None:
        read = frame["problem"] == ""
        self.n += len(frame)
        self.unread += int((~read).sum())
        self.unfit += int((read & ~frame["fits"] & (frame["kind"] != "open")).sum())
        self.kinds.update(frame.loc[read, "kind"])
        self.categories.update(frame.loc[read, "category"])


def assign_images(
    run: Path,
    images: Path | str,
    *,
    out: Path | None = None,
    copy_to: Path | None = None,
    overwrite: bool = False,
    open_new: bool = False,
    device: str = "auto",
    progress: bool = False,
    **source: Any,
) -> AssignResult:
    """Place images with the model of a run.

    Args:
        run: Folder of the run.
        images: Folder of images, table file, address, or one image file.
        out: .csv or .parquet; default: assigned/NAME.csv in the run folder, after the name of `images`.
        copy_to: New folder that gets a folder of links per category.
        overwrite: Replace `out`, and a folder `copy_to` that Holotype wrote.
        open_new: Let images that are in no category open provisional ones (export/open_assign.py).
        device: Where to compute.
        progress: Show a progress bar.
        source: boxes, box_confidence and skip_missing, as in load_table.

    Returns:
        Counts of what became of the images.
    """
    refuse_links(run := Path(run))
    out = Path(out or run / ASSIGNED / f"{source_stem(str(images))}.csv")
    refuse_existing(out, overwrite, (".csv", ".parquet"))
    if copy_to is not None:
        check_replaceable(copy_to, overwrite)
    model = load_corrected(run, load_model(run, device))
    paths, vectors = _new_rows(model, images, copy_to, **source)
    result, targets = AssignResult(out), list[TargetFile]()

    def frames() -> Iterator[pd.DataFrame]:
        stream = assign_stream(model, paths, progress, vectors)
        if open_new:
            stream = iter([_opened_frame(run, model, paths, progress, vectors, result)])
        for frame in stream:
            result.count(frame)
            if copy_to is not None:
                targets.extend(_targets(frame))
            yield frame

    def write(part: Path) -> None:
        if out.suffix.lower() == ".csv":
            _write_csv(part, frames())
        else:
            _write_parquet(part, frames(), boxed=any(split_box(path)[1] for path in paths))

    write_output(out, write, overwrite=overwrite)
    if copy_to is not None:
        with new_folder(copy_to, model.trained.run_id, overwrite=overwrite) as new:
            new.add(targets, progress=progress)
    return result


def _new_rows(
    model: CorrectedModel, images: Path | str, copy_to: Path | None, **source: Any
) -> tuple[list[str], np.ndarray | None]:
    """Return the paths of new images, and their vectors where the run was made of such."""
    dim = vector_dim(model.trained.backbone.name)
    if dim is None:
        return list(image_stream(images, **source).each), None
    table = read_vectors(Path(images), dim)
    paths = [str(path) for path in table.path]
    if copy_to is not None and not any(map(os.path.isfile, paths)):
        raise InputError(f"--copy-to is for images, and the rows of {images} have none; leave it out.")
    return paths, table.features


def _opened_frame(
    run: Path,
    model: CorrectedModel,
    paths: Sequence[str],
    progress: bool,
    vectors: np.ndarray | None,
    result: AssignResult,
) -> pd.DataFrame:
    """Return the rows of all images at once, with provisional categories."""
    import pandas as pd

    seen: list[np.ndarray] = []
    frame = pd.concat(list(assign_stream(model, paths, progress, vectors, seen)), ignore_index=True)
    stamps = file_stamps(paths)
    digests = (
        image_digests(paths, stamps, [None] * len(paths)) if vectors is None else vector_digests(vectors)
    )
    trained = model.trained
    frozen = trained.frozen is not None
    opened = open_categories(run, trained.run_id, frame, np.concatenate(seen), digests, frozen=frozen)
    result.waiting = int((~opened["fits"] & frame["fits"] & (opened["kind"] == frame["kind"])).sum())
    return opened


def source_stem(images: str) -> str:
    """Return what the table of a source is called after."""
    if is_address(images) or is_pattern(images):
        return collection_name(images)
    if inside := split_member(images):
        images = inside[1]
    full = Path(os.path.abspath(images))
    return (full.name if full.is_dir() else full.stem) or "images"


def assign_stream(
    model: CorrectedModel,
    paths: Sequence[str],
    progress: bool = False,
    vectors: np.ndarray | None = None,
    seen: list[np.ndarray] | None = None,
) -> Iterator[pd.DataFrame]:
    """Yield the rows (ASSIGN_COLUMNS) of a batch of images after the other. vectors: (n, D) in their place. seen: gets
    the features of each batch, of the frozen backbone where the model has it."""
    done, trained = 0, model.trained
    read = trained.stream(paths, progress) if vectors is None else iter([trained.read_vectors(vectors)])
    for part in read:
        batch = paths[done : done + len(part.problem)]
        if seen is not None:
            seen.append(part.features if part.frozen is None else part.frozen)
        frame = model.place(part).assign(path=list(batch), problem=list(part.problem))
        yield frame[list(ASSIGN_COLUMNS)].assign(**box_columns(batch))
        done += len(batch)


def _targets(frame: pd.DataFrame) -> Iterator[TargetFile]:
    """Images that could not be read, and those without a category, go nowhere."""
    columns = (frame[name] for name in ("path", "category", "kind", "fits", "problem"))
    for path, category, kind, fits, problem in zip(*columns, strict=True):
        if not problem and category:
            yield TargetFile(path, category if fits or kind == "open" else UNFIT_NOTE)


def image_stream(source: Path | str, *, boxes: Path | None = None, **how: Any) -> Paths:
    """Return the absolute paths of a source, with the boxes that are wanted of them. how: of load_table."""
    text = str(source)
    if not boxes and (inside := split_member(text)):  # one image of a Parquet file or a tar
        file = inside[1] if is_address(text) else os.path.abspath(inside[1])
        return Paths("", iter([f"{file}#{inside[2]}"]))
    if not boxes and text.lower().endswith(IMAGE_EXTENSIONS) and os.path.isfile(text):
        return Paths("", iter([os.path.abspath(text)]))
    return stream_paths(source, boxes=boxes, **how)


def _write_csv(file: Path, frames: Iterator[pd.DataFrame]) -> None:
    with file.open("w", encoding="utf-8-sig", newline="") as stream:
        for number, frame in enumerate(frames):
            texts = ("path", "category", "category_id", "problem", "file")
            write_csv(frame, texts, stream, header=number == 0)


def _write_parquet(file: Path, frames: Iterator[pd.DataFrame], *, boxed: bool) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = parquet_schema(boxed)
    with pq.ParquetWriter(file, schema) as writer:
        for frame in frames:
            writer.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))


def parquet_schema(boxed: bool) -> pa.Schema:
    """Return the schema of a Parquet file of new images. boxed: with the columns of boxes."""
    import pyarrow as pa

    kinds = dict.fromkeys(("probability", "known_score", "typicality"), pa.float32()) | {"fits": pa.bool_()}
    names = (*ASSIGN_COLUMNS, *BOX_COLUMNS) if boxed else ASSIGN_COLUMNS
    return pa.schema([(name, kinds.get(name, pa.string())) for name in names])


ASSIGN_FORMAT = "assigned, 1"


@dataclass(frozen=True)
class AssignShard:
    """Place the images of a shard, and write its part. Plain, and can be pickled."""

    run: str
    """Folder of the run, absolute, as is the next one."""
    folder: str
    digest: str
    """Of the model and of its categories as they stand now."""
    device: str
    run_id: str
    allows_code: bool = False
    """May the method be one that the run names as package.module:Class?"""
    boxed: bool = False
    """Are some of all the images boxes? Then every part has their columns."""

    def ready(self) -> None:
        read_shard_paths(self.folder, 0)
        if not Path(self.run).is_dir():
            raise InputError(f"{self.run} is not there; all machines that work on it must see it.")

    def __call__(self, number: int, advance: Callable[[int], None] = lambda more: None) -> AssignResult:
        paths = read_shard_paths(self.folder, number)
        file, stamp = part_file(Path(self.folder), number), _digest(file_stamps(paths))
        table = _finished_part(file, paths, stamp)
        if table is None:
            table = self._place(paths, stamp, advance)
            write_parquet(file, table)
        else:
            advance(len(paths))
        result = AssignResult(file)
        result.count(table.to_pandas())
        return result

    def _place(self, paths: list[str], stamp: str, advance: Callable[[int], None]) -> pa.Table:
        import pandas as pd
        import pyarrow as pa

        with allow_code(self.allows_code):
            model, digest = _load_once(self.run, self.device)
        if digest != self.digest:
            raise InputError(f"Model or corrections of {self.run} have changed since the command began.")
        frames: list[pd.DataFrame] = []
        for frame in assign_stream(model, paths):
            frames.append(frame)
            advance(len(frame))
        frame = pd.concat(frames, ignore_index=True)
        schema = parquet_schema(self.boxed).with_metadata({TABLE_MARK: json.dumps({"stamps": stamp})})
        if self.boxed:  # where a batch has no box, its pictures are whole
            frame = frame.reindex(columns=schema.names)
            frame = frame.assign(file=frame["file"].fillna(frame["path"]), box=frame["box"].fillna(""))
        return pa.Table.from_pandas(frame, schema=schema, preserve_index=False)


def _finished_part(file: Path, paths: Sequence[str], stamp: str) -> pa.Table | None:
    """Return the part on disk, where it is whole and of the same files."""
    try:
        table = read_parquet_table(file)
        before = json.loads((table.schema.metadata or {})[TABLE_MARK])["stamps"]
        same = before == stamp and table["path"].to_pylist() == list(paths)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning(f"{file} cannot be read ({error}), and is made again.")
        return None
    return table if same else None


def assign_job(run: Path, folder: Path, device: str, *, here: str | None = None) -> AssignShard:
    """Return the job, with the model loaded in this process. here: its device, where others do the shards."""
    refuse_links(run)
    _load_once.cache_clear()  # it may have been corrected since
    model, digest = _load_once(str(run.resolve()), here or device)
    if vector_dim(model.trained.backbone.name) is not None:
        raise InputError(f"{run} was made of vectors, which are placed at once; name one file with --out.")
    return AssignShard(str(run.resolve()), str(folder.resolve()), digest, device, model.trained.run_id)


@lru_cache(maxsize=1)
def _load_once(run: str, device: str) -> tuple[CorrectedModel, str]:
    """Return the model and its digest; a process loads it once."""
    model = load_corrected(Path(run), load_model(run, device))
    return model, model_digest(Path(run), model)


def assign_request(job: AssignShard, images: str, paths: Callable[[], Paths], each: int) -> ShardRequest:
    facts = {"format": ASSIGN_FORMAT, "run_id": job.run_id, "model": job.digest}
    return ShardRequest(facts, absolute_source(images), paths, each, {"run": job.run})


def model_digest(run: Path, model: CorrectedModel) -> str:
    """Return a digest of the weights and of everything by which people have changed where images go.

    Nothing in it was computed, so that it is the same on every machine.
    """
    state: dict[str, Any] = {
        "end": model.end,
        "called": {id: [one.name, one.kind] for id, one in model.called.items()},
        "asleep": sorted(model.asleep),
        "curve": [list(point) for point in model.curve],
    }
    if model.centres is not None:  # those of the images as they lie now
        images = Discovery.load(run).images
        state["images"] = [list(images["category_id"]), list(images["note"].fillna(""))]
    return _digest([state, ModelConfig.read(run).weights])


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
