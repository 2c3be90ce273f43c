"""`features.npy`: the trained features of every image of a run, where they are kept. A checksum follows the array."""

from __future__ import annotations

import io
import logging
import zlib
from pathlib import Path

import numpy as np

from holotype.utils.atomic import write_bytes

FEATURES = "features.npy"
"""(N, D) float16 of every image after training; NaN for those that cannot be read."""
CHECKSUM_MARK = b"holotype"
"""Between the array and the checksum of both; NumPy reads no further than the array."""

log = logging.getLogger(__name__)


def write_features(folder: Path, features: np.ndarray) -> None:
    """features: (N, D)."""
    content = io.BytesIO()
    np.save(content, features.astype(np.float16))
    own = content.getvalue()
    write_bytes(folder / FEATURES, own + CHECKSUM_MARK + zlib.crc32(own).to_bytes(4, "little"))


def read_features(folder: Path, n: int) -> np.ndarray | None:
    """(n, D) float16 of the n images of a run; None where they were not kept, are of something else, or were damaged,
    which is said."""
    features = checked_features(folder / FEATURES)
    return features if features is not None and features.ndim == 2 and len(features) == n else None


def checked_features(file: Path) -> np.ndarray | None:
    """What the file holds; None where there is none, or it was damaged, which is said."""
    try:
        features: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
        whole = _is_complete_file(file, features)
    except FileNotFoundError:
        return None
    except Exception:  # NumPy takes the header for Python: damage ends in errors of many kinds
        whole = False
    if not whole:
        log.warning(
            f"{file} was damaged since it was written, and is not used; delete it, and holotype report makes it anew "
            "where it is needed."
        )
    return features if whole else None


def _is_complete_file(file: Path, features: np.ndarray) -> bool:
    with file.open("rb") as stream:
        content = memoryview(stream.read())
    start = getattr(features, "offset", 0)
    own, tail = content[: start + features.nbytes], bytes(content[start + features.nbytes :])
    return tail == CHECKSUM_MARK + zlib.crc32(own).to_bytes(4, "little")
