"""Folders of embeddings that no network has made, in any parts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holotype.embeddings.store import EMBEDDINGS_FORMAT
from holotype.utils.atomic import write_text
from holotype.utils.serialization import dump_json, write_parquet


def write_embeddings(
    folder: Path, path: Sequence[str], feature: np.ndarray, *, each: int = 50, problem=None, **facts: Any
) -> Path:
    """path: (N,) as seen from the root. feature: (N, D). problem: row to why it could not be read."""
    told = {"format": EMBEDDINGS_FORMAT, "backbone": "made", "backbone_digest": "d", "image_size": 8}
    told |= {"dim": feature.shape[1], "n": len(path), "root": str(folder.parent), **facts}
    write_text(folder / "manifest.json", dump_json(told))
    for number, first in enumerate(range(0, len(path), each)):
        rows = range(first, min(first + each, len(path)))
        values = pa.array(feature[rows.start : rows.stop].ravel())
        columns = {
            "digest": pa.array([f"{row:032x}" for row in rows], pa.string()),
            "path": pa.array([path[row] for row in rows], pa.string()),
            "stamp": pa.array([""] * len(rows), pa.string()),
            "feature": pa.FixedSizeListArray.from_arrays(values, feature.shape[1]),
            "problem": pa.array([(problem or {}).get(row, "") for row in rows], pa.string()),
            "note": pa.array([""] * len(rows), pa.string()),
        }
        write_parquet(folder / f"part-{number:06d}.parquet", pa.table(columns))
    return folder
