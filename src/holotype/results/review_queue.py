"""Review queue: the questions whose answers are worth most, in order.

First the surest image of each new category that nobody has said anything about: its answer names the whole category.
Then the least sure images, at most two of a category, none nearly like another one that is asked about: their answers
tell categories apart. What people have labelled, confirmed, moved or rejected is not asked again, nor are the other
frames of its burst: one answer serves a whole burst.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holotype.results.apply_edits import CONFIRMED_NOTE, MOVED_NOTE, REJECTED_NOTE
from holotype.results.discovery import Discovery, load, read_features, write_csv
from holotype.utils.atomic import atomic_write

QUEUE_FILE = "queue.csv"
QUEUE_LENGTH = 40
"""Questions of a queue, those about whole categories not counted."""
PER_CATEGORY = 2
"""Questions about doubtful images of one category, at most."""
SIMILAR = 0.95
"""Cosine from which two images are so alike that one answer serves both."""
SUREST_SHARE, MIN_GAIN = "surest of a new category", "least sure"
QUEUE_COLUMNS = ("number", "path", "category", "category_id", "probability", "why", "question")


@dataclass(frozen=True)
class Question:
    """What to ask of an image."""

    path: str
    category_id: str
    category: str
    """Its name as it stands."""
    probability: float
    why: str
    """SUREST or LEAST."""

    @property
    def words(self) -> str:
        if self.why == SUREST_SHARE:
            return f"What is this? {self.category} is made of images like it."
        return f"Is this {self.category}? If not, what is it?"


def questions(
    discovery: Discovery, features: np.ndarray | None = None, most: int = QUEUE_LENGTH
) -> list[Question]:
    """What to ask people about a discovery; the answers that help most come first.

    features: (N, D) of every image, to leave out what is nearly alike; None = not known.
    most: questions about doubtful images, beside one for each new category without an answer.
    """
    pool = _Pool(discovery)
    asked: dict[int, str] = {}
    for id in pool.unnamed():
        if (row := pool.surest(id, asked)) is not None:
            asked[row] = SUREST_SHARE
    first = len(asked)
    seen = [_unit(features, row) for row in asked]
    count: Counter[str] = Counter()
    for row in pool.least_sure():
        if len(asked) - first >= most:
            break
        if row in asked or count[pool.id[row]] >= PER_CATEGORY or pool.same_burst(row, asked):
            continue
        unit = _unit(features, row)
        if not any(float(unit @ other) >= SIMILAR for other in seen):
            asked[row] = MIN_GAIN
            seen.append(unit)
            count[pool.id[row]] += 1
    name = {category.id: category.name for category in discovery.categories}
    return [
        Question(pool.path[row], pool.id[row], name[pool.id[row]], float(pool.probability[row]), why)
        for row, why in asked.items()
    ]


def _unit(features: np.ndarray | None, row: int) -> np.ndarray:
    """The feature of an image at length 1; zero where it is not known."""
    if features is None:
        return np.zeros(1)
    feature = np.nan_to_num(np.asarray(features[row], dtype=np.float64))
    return np.asarray(feature / max(float(np.linalg.norm(feature)), 1e-12))


class _Pool:
    """The images that may be asked about: placed, and nobody has said what they show."""

    def __init__(self, discovery: Discovery) -> None:
        images = discovery.images
        self.path = [str(path) for path in images["path"]]
        self.id = images["category_id"].fillna("").to_numpy(object)
        self.probability = images["probability"].to_numpy(float)
        self.typicality = images["typicality"].fillna(0).to_numpy(float)
        note, label = images["note"].fillna(""), images["label"].fillna("")
        self.told = ((label != "") | note.isin((MOVED_NOTE, CONFIRMED_NOTE, REJECTED_NOTE))).to_numpy(bool)
        self.group = images["group"].fillna("").to_numpy(object) if "group" in images.columns else None
        if self.group is not None:
            answered = (label != "") | note.isin((MOVED_NOTE, CONFIRMED_NOTE))
            bursts = set(self.group[answered.to_numpy(bool)]) - {""}
            self.told = self.told | np.array([group in bursts for group in self.group], dtype=bool)
        there = [category.id for category in discovery.categories]
        placed = images["category_id"].isin(there).to_numpy(bool)
        self.free = placed & ~self.told & np.isfinite(self.probability)
        self.novel = [category.id for category in discovery.categories if category.kind == "novel"]

    def unnamed(self) -> list[str]:
        """New categories of which no image has an answer."""
        answered = set(self.id[self.told])
        return [id for id in self.novel if id not in answered]

    def same_burst(self, row: int, asked: Iterable[int]) -> bool:
        """Is it a frame of a burst that is asked about already?"""
        return self.group is not None and self.group[row] in {self.group[other] for other in asked} - {""}

    def surest(self, id: str, asked: Iterable[int]) -> int | None:
        """Row of the likeliest image of a category, of equal ones the most typical, and of no burst that is asked about
        already; None where there is none."""
        rows = np.flatnonzero(self.free & (self.id == id))
        order = rows[np.lexsort((-self.typicality[rows], -self.probability[rows]))]
        return next((int(row) for row in order if not self.same_burst(row, asked)), None)

    def least_sure(self) -> list[int]:
        """Rows, the least probable first."""
        rows = np.flatnonzero(self.free)
        return rows[np.argsort(self.probability[rows], kind="stable")].tolist()


def write_queue(folder: Path | str, discovery: Discovery | None = None) -> Path:
    """Write queue.csv into a run folder. discovery: what it holds, where that is at hand."""
    folder = Path(folder)
    found = load(folder) if discovery is None else discovery
    asked = questions(found, read_features(folder, len(found.images)))
    import pandas as pd  # takes half a second

    frame = pd.DataFrame(
        [
            (number, q.path, q.category, q.category_id, round(q.probability, 4), q.why, q.words)
            for number, q in enumerate(asked, start=1)
        ],
        columns=list(QUEUE_COLUMNS),
    )
    texts = ("path", "category", "category_id", "question")
    atomic_write(folder / QUEUE_FILE, lambda beside: write_csv(frame, texts, beside))
    return folder / QUEUE_FILE
