"""Settings as trees of dictionaries, and what one does with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}, so that a difference can be named."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def plain(value: Any) -> Any:
    """As JSON would give it back: tuples are lists."""
    return json.loads(json.dumps(value))
