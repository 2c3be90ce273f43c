"""Learn at once: place the images anew by the answers so far, without training: `python -m holotype.studio.learn RUN`.

A shrinkage LDA (results/lda.py) on the features before and after training learns the categories as the edits have left
them, each answer and label counting as much as LABEL images, and then from its own places. The first time, the other
images of a category that has an answer or label count as much as one of these together: answers may contradict where
they lie. Images that somebody has answered for stay; all others may move. The outcome is placement.json in the run
folder, which the page shows at once, and which counts wherever the edits are applied.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from holotype.errors import InputError
from holotype.results.edits import LearnedPlacement, apply_edits, can_move, in_effect, read_log
from holotype.results.lda import CHUNK, TEMPERATURES, TRAIN_ROWS, LDAStats, own_class_share
from holotype.results.review_queue import QUEUE_LENGTH, doubtful_images, question_features
from holotype.studio import run_as_child
from holotype.studio.page import read_rounds

LABEL = 5.0
"""Images that an answer, or a label, counts as much as (experiments/labelling.py)."""
TIMES = 3
"""How often it learns, the later times from its own places."""


def learn_placement(run: Path) -> LearnedPlacement:
    """Place the images of the last round of a discovery anew. Raises InputError where that cannot be done."""
    found, _, own = read_rounds(run)
    edits = [edit for edit in in_effect(read_log(run)) if edit.run_id == found.run_id]
    now = apply_edits(found, edits).discovery
    x = question_features(run, own, now.digests)
    if x is None:
        raise InputError(f"{run} has no features to learn from; train another round.")
    index = {category.id: number for number, category in enumerate(now.categories)}
    before = np.array([index.get(id, -1) for id in now.images["category_id"]])
    usable = (before >= 0) & np.isfinite(x).all(axis=1)
    free = np.array(can_move(now)) & usable
    probability = now.images["probability"].to_numpy(float)
    after, probability = place(x, np.where(usable, before, -1), free, len(index), probability)
    moved = np.flatnonzero(free & (after != before))
    thousandths = [round(1000 * p) if np.isfinite(p) else None for p in probability]
    ids = np.array([*index])[after[moved]].tolist()
    learned = replace(now, images=now.images.assign(probability=probability))
    queue = doubtful_images(learned, x, QUEUE_LENGTH)
    return LearnedPlacement(found.run_id, len(edits), moved.tolist(), ids, thousandths, *queue)


def place(
    x: np.ndarray, category: np.ndarray, free: np.ndarray, k: int, probability: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the category of each image and the probability that it is right.

    Args:
        x: (N, D) float32 features.
        category: (N,) as it stands, -1 = it plays no part.
        free: (N,) bool, the images that may move.
        k: number of categories.
        probability: (N,) as it stands; the new ones of free images have the same mean.
    """
    rows = np.random.default_rng(0).permutation(np.flatnonzero(free))[:TRAIN_ROWS]
    taught = np.sort(np.append(rows, np.flatnonzero((category >= 0) & ~free)))
    moving, category = np.flatnonzero(free), category.copy()
    u, loose = x[taught], free[taught]
    for time in range(TIMES):
        own, w = category[taught], np.where(loose, 1.0, LABEL).astype(np.float32)
        if not time:
            count, said = (np.bincount(own[rows], minlength=k) for rows in (loose, ~loose))
            w[loose] = np.where(said > 0, np.minimum(1, LABEL / np.maximum(count, 1)), 1)[own[loose]]
        member = np.zeros((len(taught), k), np.float32)
        member[np.arange(len(taught)), own] = w
        n, square = member.sum(axis=0), ((u * w[:, None]).T @ u).astype(np.float64)
        judge = LDAStats(n, member.T @ u, square, len(taught)).judge()
        slope = np.asarray(judge.slope.T, np.float32)
        # categories of any size are as likely: few answers must be able to split a large one
        offset = np.where(n > 0, judge.offset - np.log(np.maximum(n, 1e-9)), -np.inf)
        parts = [moving[first : first + CHUNK] for first in range(0, len(moving), CHUNK)]
        logits = np.concatenate([x[part] @ slope + offset for part in parts]) if parts else np.zeros((0, k))
        category[moving] = logits.argmax(axis=1)
    return category, _matched(logits, category, moving, probability)


def _matched(logits: np.ndarray, category: np.ndarray, moving: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the shares of the categories at the temperature at which their mean is that of what was known."""
    probability = known.copy()
    wanted = np.nanmean(known[moving]) if len(moving) else np.nan
    if not np.isfinite(wanted):
        return probability
    some = np.random.default_rng(1).permutation(len(moving))[:2_000]
    low, high = np.log(TEMPERATURES)
    for _ in range(20):
        middle = (low + high) / 2
        sure = own_class_share(logits[some] / np.exp(middle), category[moving[some]]).mean() > wanted
        low, high = (middle, high) if sure else (low, middle)
    for first in range(0, len(moving), CHUNK):
        part = slice(first, first + CHUNK)
        probability[moving[part]] = own_class_share(logits[part] / np.exp(low), category[moving[part]])
    return probability


if __name__ == "__main__":
    run_as_child(lambda run: learn_placement(Path(run)).save(Path(run)))
