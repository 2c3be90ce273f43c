"""`assign --open`: new images that are in no category open provisional ones, which the next round proposes.

RUN/open.parquet keeps the images of provisional categories with their features, so that those of a later call join
them; it belongs to one round. Once the images are in the collection and another round was trained, a new category that
has more than half of them is proposed to be that one.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holotype.errors import InputError
from holotype.results.discovery import UNNAMED_PATTERN, Discovery, read_features
from holotype.results.open_set import ClassModel, OpenCategories
from holotype.utils.serialization import TABLE_MARK, read_parquet_table, write_parquet

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

OPEN_FILE = "open.parquet"
KIND = "open"
MIN_OPEN = 3
"""Images from which on a provisional category is shown; fewer wait."""
SAME_SHARE = 0.5
"""Share of its images that a category of the next round must have more than, to be proposed."""


@dataclass
class OpenImages:
    """The images of provisional categories so far."""

    digest: list[str]
    number: np.ndarray
    """(n,)"""
    feature: np.ndarray
    """(n, D)"""

    @classmethod
    def load(cls, run: Path, run_id: str, dim: int) -> OpenImages:
        """Read those of this round; none where there are none."""
        table = _read(run)
        if table is None or _run_of(table) != run_id:
            return cls([], np.empty(0, np.int64), np.empty((0, dim)))
        values = table["feature"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        numbers = np.array(table["number"].to_pylist(), dtype=np.int64)
        return cls(table["digest"].to_pylist(), numbers, values.reshape(table.num_rows, -1))

    def without(self, digests: set[str]) -> OpenImages:
        """Return those with another content."""
        rows = [row for row, one in enumerate(self.digest) if one not in digests]
        return OpenImages([self.digest[row] for row in rows], self.number[rows], self.feature[rows])

    def save(self, run: Path, run_id: str) -> None:
        import pyarrow as pa

        dim = self.feature.shape[1]
        flat = pa.array(self.feature.astype(np.float32).ravel())
        columns = {"digest": pa.array(self.digest, pa.string()), "number": pa.array(self.number)}
        table = pa.table({**columns, "feature": pa.FixedSizeListArray.from_arrays(flat, dim)})
        meta = {TABLE_MARK: json.dumps({"run_id": run_id}).encode()}
        write_parquet(run / OPEN_FILE, table.replace_schema_metadata(meta))


def _read(run: Path):  # type: ignore[no-untyped-def]
    file = run / OPEN_FILE
    if not file.is_file():
        return None
    try:
        return read_parquet_table(file)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file} cannot be read ({error}); delete it, and assign the images again."
        ) from error


def _run_of(table) -> str:  # type: ignore[no-untyped-def]
    return str(json.loads((table.schema.metadata or {}).get(TABLE_MARK, b"{}")).get("run_id", ""))


def open_name(number: int) -> str:
    """Return what a provisional category is called."""
    return f"open-{number + 1:02d}"


def open_categories(
    run: Path, run_id: str, frame: pd.DataFrame, features: np.ndarray, digests: list[str], *, frozen: bool
) -> pd.DataFrame:
    """Return the table of new images with those that open categories, or join provisional ones, in these.

    Args:
        run: Folder of the run.
        run_id: Of its model.
        frame: Of `assign`, a row per image.
        features: (n, D) of the images, NaN where one could not be read.
        digests: (n,) of their contents.
        frozen: Whether these features are of the frozen backbone, and not of the trained one.
    """
    found = Discovery.load(run)
    known = _collection_features(run, found, frozen=frozen)
    index = {category.id: number for number, category in enumerate(found.categories)}
    category = np.array([index.get(id, -1) for id in found.images["category_id"].fillna("")])
    labelled = (found.images["label"].fillna("") != "").to_numpy(bool)
    classes = ClassModel.fit(known, category, labelled, len(index))
    here = np.isfinite(features).all(axis=1)
    before = OpenImages.load(run, run_id, features.shape[1]).without(set(digests))
    open_now = OpenCategories.of(classes.coordinates(before.feature), before.number, features.shape[1])
    number = np.full(len(frame), -1)
    number[here] = open_now.place(classes, classes.coordinates(features[here]))
    rows = np.flatnonzero(number >= 0)
    OpenImages(
        [*before.digest, *(digests[row] for row in rows)],
        np.concatenate([before.number, number[rows]]),
        np.concatenate([before.feature, features[rows]]),
    ).save(run, run_id)
    shown = np.array([row for row in rows if open_now.n[number[row]] >= MIN_OPEN], dtype=np.int64)
    frame = frame.reset_index(drop=True)
    frame.loc[rows, "fits"] = False
    names = [open_name(int(number[row])) for row in shown]
    frame.loc[shown, "category"] = frame.loc[shown, "category_id"] = names
    frame.loc[shown, "kind"], frame.loc[shown, "probability"] = KIND, np.nan
    return frame


def _collection_features(run: Path, found: Discovery, *, frozen: bool) -> np.ndarray:
    """(N, D) of the images of a run, as new ones are seen."""
    if not frozen:
        trained = read_features(run, len(found.images))
        if trained is None:
            raise InputError(
                f"{run} has no features.npy, by which --open tells what is new; train another round."
            )
        return np.asarray(trained, np.float32)
    from holotype.embeddings.store import EmbeddingParts  # brings torch, which a studio does without

    rows: dict[str, list[int]] = {}
    for row, digest in enumerate(found.digests):
        rows.setdefault(digest, []).append(row)
    known: np.ndarray | None = None
    for part in EmbeddingParts(run / "embeddings"):
        known = (
            np.full((len(found.images), part.features.shape[1]), np.nan, np.float32)
            if known is None
            else known
        )
        for at in np.flatnonzero(part.usable):
            known[rows.get(part.digest[at], [])] = part.features[at]
    if known is None or not np.isfinite(known).any():
        raise InputError(
            f"{run / 'embeddings'} has no features of its images; name the run that discover wrote."
        )
    return known


def with_proposals(run: Path, found: Discovery) -> tuple[Discovery, list[str]]:
    """Return a round with proposals on its new categories by what an earlier one had opened, and a line on each."""
    table = _read(run)
    if table is None or _run_of(table) not in found.facts.earlier_runs:
        return found, []
    lies: dict[str, str] = dict(zip(found.digests, found.images["category_id"].fillna(""), strict=True))
    where: dict[int, Counter[str]] = {}
    for digest, number in zip(table["digest"].to_pylist(), table["number"].to_pylist(), strict=True):
        if digest in lies:
            where.setdefault(number, Counter())[lies[digest]] += 1
    called = {category.id: category.name for category in found.categories}
    proposed: dict[str, str] = {}
    lines = []
    for number, counts in sorted(where.items(), key=lambda item: -item[1].total()):
        (id, n), total = counts.most_common(1)[0], counts.total()
        if total < MIN_OPEN or n <= SAME_SHARE * total or not UNNAMED_PATTERN.fullmatch(id) or id in proposed:
            continue
        proposed[id] = open_name(number)
        lines.append(
            f"{open_name(number)}, which assign had opened, may be {called.get(id, id)} now ({n} of its {total} "
            "images)."
        )
    categories = [
        replace(one, suggested=proposed[one.id]) if one.id in proposed and one.name == one.id else one
        for one in found.categories
    ]
    return replace(found, categories=categories), lines
