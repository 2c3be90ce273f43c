"""JSON from files that anybody may have written."""

from __future__ import annotations

import json
from typing import Any


def parsed(text: bytes | str) -> Any:
    """As json.loads, with ValueError for all that is no JSON: brackets in brackets without end are none either."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("brackets stand in brackets too often") from error
