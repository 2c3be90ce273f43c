"""Review queue: the questions whose answers are worth most, in order.

First the surest image of each new category that nobody has said anything about: its answer names the whole category.
Then the images whose answers take away most doubt (`rank_by_gain`). What people have labelled, confirmed, moved or
rejected is not asked again, nor are the other frames of its burst: one answer serves a whole burst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holotype.data.table import first_frames
from holotype.results.discovery import Discovery, read_features, read_frozen, write_csv
from holotype.results.edits import CONFIRMED_NOTE, MOVED_NOTE, REJECTED_NOTE
from holotype.results.lda import unit_rows
from holotype.utils.atomic import atomic_write

QUEUE_FILE = "queue.csv"
QUEUE_LENGTH = 40
"""Questions of a queue, those about whole categories not counted."""
WIDTH, NEIGHBOUR = 0.5, 5
"""An answer tells of images nearer than this share of the squared distance to the fifth neighbour
(experiments/labelling.py)."""
CANDIDATES = 2_000
"""Images among which questions are chosen, at most: of more, as many are drawn."""
SUREST, DOUBTFUL = "surest of a new category", "most doubt"
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
    """SUREST or DOUBTFUL."""

    @property
    def words(self) -> str:
        if self.why == SUREST:
            return f"What is this? {self.category} is made of images like it."
        return f"Is this {self.category}? If not, what is it?"


def questions(
    discovery: Discovery, features: np.ndarray | None = None, most: int = QUEUE_LENGTH
) -> list[Question]:
    """What to ask people about a discovery; the answers that help most come first.

    features: (N, D) of every image; None = not known, so that an answer tells of its own image alone.
    most: questions about doubtful images, beside one for each new category without an answer.
    """
    images, surest = discovery.images, list[int]()
    id, probability = (images[name].to_numpy() for name in ("category_id", "probability"))
    typicality, unit = images["typicality"].fillna(0).to_numpy(float), _bursts(discovery)
    name, free = {category.id: category.name for category in discovery.categories}, _unanswered(discovery)
    answered = set(id[_answered(discovery)])
    for category in discovery.categories:
        if category.kind != "novel" or category.id in answered:
            continue
        rows = np.flatnonzero(free & (id == category.id) & ~np.isin(unit, unit[surest]))
        if len(rows):
            surest.append(int(rows[np.lexsort((-typicality[rows], -probability[rows]))[0]]))
    doubtful, _ = doubtful_images(discovery, features, most, surest)
    return [
        Question(str(images["path"].iat[row]), id[row], name[id[row]], float(probability[row]), why)
        for rows, why in ((surest, SUREST), (doubtful, DOUBTFUL))
        for row in rows
    ]


def doubtful_images(
    discovery: Discovery, features: np.ndarray | None, most: int, asked: Sequence[int] = ()
) -> tuple[list[int], list[float]]:
    """Return rows of images to ask about and what each answer gains, one of a burst. asked: rows that are anyway."""
    unit, people = _bursts(discovery), discovery.images["note"].isin((MOVED_NOTE, CONFIRMED_NOTE))
    answered = np.union1d(np.flatnonzero(people), np.array(asked, dtype=int))
    rows = np.flatnonzero(_unanswered(discovery) & ~np.isin(unit, unit[answered]))
    doubt = 1 - discovery.images["probability"].to_numpy(float)
    return rank_by_gain(features, doubt, first_frames(unit, rows), answered, most)


def _bursts(discovery: Discovery) -> np.ndarray:
    """(N,) equal for the frames of one burst."""
    images = discovery.images
    if "group" not in images:
        return np.arange(len(images))
    group = images["group"].fillna("").to_numpy(str)
    burst = np.unique(group, return_inverse=True)[1]
    return np.where(group == "", len(images) + np.arange(len(images)), burst)


def _answered(discovery: Discovery) -> np.ndarray:
    """(N,) bool: labelled or answered for, with the other frames of the burst; or rejected."""
    note, unit = discovery.images["note"].fillna(""), _bursts(discovery)
    labelled = discovery.images["label"].fillna("") != ""
    answered = (labelled | note.isin((MOVED_NOTE, CONFIRMED_NOTE))).to_numpy(bool)
    return np.isin(unit, unit[answered]) | (note == REJECTED_NOTE).to_numpy(bool)


def _unanswered(discovery: Discovery) -> np.ndarray:
    """(N,) bool: in a category with some probability, and not answered."""
    images = discovery.images
    placed = np.isin(images["category_id"].to_numpy(), [category.id for category in discovery.categories])
    return placed & ~_answered(discovery) & np.isfinite(images["probability"].to_numpy(float))


def rank_by_gain(
    features: np.ndarray | None, doubt: np.ndarray, rows: np.ndarray, answered: np.ndarray, most: int
) -> tuple[list[int], list[float]]:
    """Pick images one after the other, each time the one whose answer takes away most doubt: its own, and that of
    images like it.

        gain_i = sum_j S_ij d_j,   S_ij = exp(-|x_i - x_j|^2 / w),   d_j <- d_j (1 - S_ij) after the answer about i

    Args:
        features: (N, D), NaN where there are none; None = an answer tells of its own image alone.
        doubt: (N,) probability that the image is in a wrong place.
        rows: (n,) that may be asked about.
        answered: (m,) rows that people have said something of, whose likes need no answer.

    Returns:
        Rows, at most `most`, and their gains, which fall.
    """
    if features is not None:
        rows, answered = (some[np.isfinite(features[some]).all(axis=1)] for some in (rows, answered))
    rng = np.random.default_rng(0)
    rows, answered = (
        np.sort(rng.permutation(some)[:CANDIDATES]) if len(some) > CANDIDATES else some
        for some in (rows, answered)
    )
    likeness, left = np.eye(len(rows), dtype=np.float32), doubt[rows].astype(np.float32)
    if features is not None and len(rows) > 1:
        middle = features[rows].astype(np.float32).mean(axis=0)
        x, y = (unit_rows(features[some].astype(np.float32) - middle) for some in (rows, answered))
        far = 2 - 2 * x @ x.T
        near = min(NEIGHBOUR, len(rows) - 1)
        width = max(WIDTH * float(np.median(np.partition(far, near, axis=1)[:, near])), 1e-6)
        likeness = np.exp(-np.maximum(far, 0) / width)
        left *= (1 - np.exp(-np.maximum(2 - 2 * x @ y.T, 0) / width)).prod(axis=1)
    picked, gains, open = list[int](), list[float](), np.ones(len(rows), dtype=bool)
    for _ in range(min(most, len(rows))):
        gain = np.where(open, likeness @ left, -np.inf)
        best = int(gain.argmax())
        picked.append(int(rows[best]))
        gains.append(float(gain[best]))
        open[best], left = False, left * (1 - likeness[best])
    return picked, gains


def joined_features(parts: Sequence[np.ndarray]) -> np.ndarray:
    """(N, D) float32: features of several kinds, each centred, at length 1, beside each other; NaN rows stay so."""
    each = (np.asarray(part, np.float32) for part in parts)
    return np.hstack([unit_rows(x - np.nanmean(x, axis=0)) for x in each]) / np.float32(np.sqrt(len(parts)))


def question_features(folder: Path, own: Path, digests: Sequence[str]) -> np.ndarray | None:
    """(N, D) features after training and before it; None where there are neither. own: folder of the last round."""
    known = (read_features(own, len(digests)), read_frozen(folder, list(digests)))
    parts = [features for features in known if features is not None and np.isfinite(features).any()]
    return joined_features(parts) if parts else None


def write_queue(folder: Path | str, discovery: Discovery | None = None) -> Path:
    """Write queue.csv into a run folder. discovery: what it holds, where that is at hand."""
    folder = Path(folder)
    found = Discovery.load(Path(folder)) if discovery is None else discovery
    asked = questions(found, question_features(folder, folder, found.digests))
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
