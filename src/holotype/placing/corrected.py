"""New images in the categories as people have corrected them, without training.

The model, with the second opinion of its run, places an image in one of its own categories. What was merged is one
category then, what was rejected is none, and names are those of today. A category that was split off by hand has no
place in the model: it has a centre, that of its images, and gets those images of the category it was taken from that
lie nearer to it. Where everything was moved out of a category, its images go to the nearest of those that took it in.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holotype.results.apply_edits import CONFIRMED_NOTE, MOVED_NOTE, REJECTED_NOTE
from holotype.results.calibration import interpolate
from holotype.results.centroids import Centroids, unit_rows
from holotype.results.discovery import DISCOVERY_FILE as DISCOVERY
from holotype.results.discovery import Discovery
from holotype.results.features import read_features
from holotype.runs.model_io import ModelReader, TrainedModel
from holotype.runs.predict import predict

if TYPE_CHECKING:  # pandas takes half a second to import
    import pandas as pd

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Called:
    """What a category is called now, after renaming and merging."""

    name: str
    kind: str
    """known or novel; "" for a category that somebody rejected."""


NOBODY = Called("", "")
NOTES = (MOVED_NOTE, CONFIRMED_NOTE, REJECTED_NOTE)


@dataclass
class Corrected:
    """A trained model, and how its categories stand now."""

    trained: TrainedModel
    end: dict[str, str]
    """Id of a category of the model to that of the one it is now; "" = rejected."""
    called: dict[str, Called]
    """By id, those that were split off by hand included."""
    ids: tuple[str, ...] = ()
    """Of the centres; none where no image has changed its category."""
    centres: Centroids | None = None
    asleep: frozenset[str] = frozenset()
    """Ids of the categories out of which every image was moved or rejected."""
    rivals: dict[str, set[str]] = field(default_factory=dict)
    """Id to those that may have its images: what was split off it, or what took it in."""
    curve: tuple[tuple[float, float], ...] = ()
    """From scores to probabilities; none where the run could not calibrate them."""

    @property
    def names(self) -> dict[str, Called]:
        """What the model's own categories are called, by their ids."""
        return {id: self.called.get(end, NOBODY) for id, end in self.end.items()}

    @property
    def split_off(self) -> list[str]:
        """Names of the categories that the model knows nothing of."""
        return [called.name for id, called in self.called.items() if id not in self.trained.ids]

    def place(self, read: ModelReader) -> pd.DataFrame:
        """category_id, category, kind, probability, known_score, typicality, fits; "" and NaN for images that could not
        be read. An image in no category fits nothing."""
        frame = self.trained.place(read)
        ids = np.array([self.end.get(id, "") for id in frame["category_id"]], dtype=object)
        if self.centres is not None:
            self._choose(read.features, ids, frame)
        called = [self.called.get(id, NOBODY) for id in ids]
        frame["category_id"], frame["kind"] = ids, [one.kind for one in called]
        frame["fits"] &= ids != ""
        frame["probability"] = interpolate(frame["probability"].to_numpy(), self.curve)
        frame.insert(1, "category", [one.name for one in called])
        return frame

    def _choose(self, features: np.ndarray, ids: np.ndarray, frame: pd.DataFrame) -> None:
        """Let each image have the nearest of the categories in question, and judge by the centres of today."""
        assert self.centres is not None
        index, centre = {id: i for i, id in enumerate(self.ids)}, unit_rows(self.centres.mean)
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
        ids[rows] = np.array(self.ids, dtype=object)[category]
        for column, values, nothing in (("typicality", typicality, np.nan), ("fits", fits, False)):
            spread = np.full(len(ids), nothing, dtype=values.dtype)
            spread[rows] = values
            frame[column] = spread


def corrected(run: Path, trained: TrainedModel) -> Corrected:
    """The model of a run folder with what discovery.json there says of its categories, else as it was trained."""
    end = {id: id for id in trained.ids}
    called = {id: Called(id, "known" if id in trained.known else "novel") for id in trained.ids}
    plain = Corrected(trained, end, called)
    if not (run / DISCOVERY).is_file():
        return plain
    found = Discovery.load(run)
    if found.run_id != trained.run_id:
        log.warning(
            f"The model in {run} is of another round than its report; new images get the names of the model."
        )
        return plain
    edits, now = found.facts.edits, {category.id: category for category in found.categories}
    for id in trained.ids:
        for _ in edits.merged:  # a category may be merged into one that is merged later
            end[id] = end[id] if end[id] in now else edits.merged.get(end[id], end[id])
        if end[id] not in now and end[id] in edits.rejected:
            end[id] = ""
    asleep = {id: Called(told["name"], "novel") for id, told in edits.asleep.items()}
    gone = {id for id in trained.ids if end[id] != id}
    seen = {id: Called(category.name, category.kind) for id, category in now.items()}
    plain.curve = found.facts.calibration_curve
    plain.asleep = frozenset(asleep)
    plain.called = {id: one for id, one in {**called, **asleep, **seen}.items() if id not in gone}
    return with_centres(run, plain, found)


def with_centres(run: Path, plain: Corrected, found: Discovery) -> Corrected:
    """With centres of the images that are in each category now, where edits have moved any."""
    edits, note = found.facts.edits, found.images["note"].fillna("")
    if not edits.applied or not (edits.merged or edits.rejected or edits.asleep or set(note) & set(NOTES)):
        return plain
    features = read_features(run, len(found.images))
    if features is None:
        log.warning(
            f"There is no features.npy in {run}, so categories which were split off by hand get no new images; "
            f"holotype cut {run} makes it."
        )
        return plain
    ids = tuple(plain.called)
    index = {id: i for i, id in enumerate(ids)}
    category = np.array([index.get(id, -1) for id in found.images["category_id"]])
    plain.ids, plain.centres = ids, Centroids.measure(features, category, len(ids))
    rows = np.flatnonzero(note.isin((MOVED_NOTE, CONFIRMED_NOTE)).to_numpy(bool) & (category >= 0))
    rows = rows[np.isfinite(features[rows]).all(axis=1)]
    said = predict(plain.trained.method, np.asarray(features[rows], np.float32)).category
    for row, model in zip(rows, said, strict=True):
        # where the run had put it, and what the model says: an older version has not written down the former
        before = edits.came_from.get(str(found.images["path"].iat[row]), "")
        target = ids[category[row]]
        for source in {plain.end.get(before, ""), plain.end[plain.trained.ids[model]]} - {""}:
            if target not in plain.trained.ids or source in plain.asleep:
                plain.rivals.setdefault(source, set()).add(target)
    return plain
