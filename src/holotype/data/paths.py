"""Paths of images as seen from the root of their collection, so that a folder that was moved holds the same images."""

from __future__ import annotations

import os
from collections.abc import Iterable


def relative(paths: Iterable[str], root: str) -> list[str]:
    """Paths as seen from the root, with slashes, as Table.fingerprint sees them; as they are where there is no root."""
    return [os.path.relpath(path, root).replace(os.sep, "/") if root else path for path in paths]
