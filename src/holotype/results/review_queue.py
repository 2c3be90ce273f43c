"""Review queue: the questions whose answers are worth most, in order.

First the surest image of each new category that nobody has said anything about: its answer names the whole category.
Then the least sure images, at most two of a category, none nearly like another one that is asked about: their answers
tell categories apart. What people have labelled, confirmed, moved or rejected is not asked again, nor are the other
frames of its burst: one answer serves a whole burst.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holotype.results.discovery import Discovery, read_features, write_csv
from holotype.results.edits import CONFIRMED_NOTE, MOVED_NOTE, REJECTED_NOTE
from holotype.results.lda import unit_rows
from holotype.utils.atomic import atomic_write

QUEUE_FILE = "queue.csv"
QUEUE_LENGTH = 40
"""Questions of a queue, those about whole categories not counted."""
PER_CATEGORY = 2
"""Questions about doubtful images of one category, at most."""
SIMILAR = 0.95
"""Cosine from which two images are so alike that one answer serves both."""
SUREST, LEAST_SURE = "surest of a new category", "least sure"
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
        if self.why == SUREST:
            return f"What is this? {self.category} is made of images like it."
        return f"Is this {self.category}? If not, what is it?"


def questions(
    discovery: Discovery, features: np.ndarray | None = None, most: int = QUEUE_LENGTH
) -> list[Question]:
    """What to ask people about a discovery; the answers that help most come first.

    features: (N, D) of every image, to leave out what is nearly alike; None = not known.
    most: questions about doubtful images, beside one for each new category without an answer.
    """
    images, asked = discovery.images, dict[int, str]()
    id, probability = (images[name].to_numpy() for name in ("category_id", "probability"))
    note, label = images["note"].fillna(""), images["label"].fillna("")
    bursts = images["group"].fillna("") if "group" in images else [""] * len(images)
    group = np.array(bursts, dtype=object)
    answered = ((label != "") | note.isin((MOVED_NOTE, CONFIRMED_NOTE))).to_numpy(bool)
    of_answered = (group != "") & np.isin(group, group[answered])
    known = answered | (note == REJECTED_NOTE).to_numpy(bool) | of_answered
    name = {category.id: category.name for category in discovery.categories}
    free = np.isin(id, list(name)) & ~known & np.isfinite(probability.astype(float))

    def in_asked_burst(row: int) -> bool:
        return group[row] in {group[other] for other in asked} - {""}

    typicality = images["typicality"].fillna(0).to_numpy(float)
    for category in discovery.categories:
        if category.kind != "novel" or category.id in id[known]:
            continue
        rows = np.flatnonzero(free & (id == category.id))
        order = rows[np.lexsort((-typicality[rows], -probability[rows]))]
        if (row := next((int(row) for row in order if not in_asked_burst(row)), None)) is not None:
            asked[row] = SUREST
    first, seen = len(asked), [_unit(features, row) for row in asked]
    count: Counter[str] = Counter()
    rows = np.flatnonzero(free)
    for row in rows[np.argsort(probability[rows], kind="stable")].tolist():
        if len(asked) - first >= most:
            break
        if row in asked or count[id[row]] >= PER_CATEGORY or in_asked_burst(row):
            continue
        unit = _unit(features, row)
        if not any(float(unit @ other) >= SIMILAR for other in seen):
            asked[row] = LEAST_SURE
            seen.append(unit)
            count[id[row]] += 1
    return [
        Question(str(images["path"].iat[row]), id[row], name[id[row]], float(probability[row]), why)
        for row, why in asked.items()
    ]


def _unit(features: np.ndarray | None, row: int) -> np.ndarray:
    """The feature of an image at length 1; zero where it is not known."""
    if features is None:
        return np.zeros(1)
    return unit_rows(np.nan_to_num(np.asarray(features[row], dtype=np.float64)))


def write_queue(folder: Path | str, discovery: Discovery | None = None) -> Path:
    """Write queue.csv into a run folder. discovery: what it holds, where that is at hand."""
    folder = Path(folder)
    found = Discovery.load(Path(folder)) if discovery is None else discovery
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
