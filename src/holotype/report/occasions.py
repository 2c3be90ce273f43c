"""What the page knows of when, where and with which camera images were taken, and of bursts; nothing where that is not
known."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd


def occasions(frame: pd.DataFrame) -> dict[str, Any]:
    """Lists of the images that are shown; a key is there where its column is.

    taken: ISO 8601, "" = not known. camera: place in `cameras`, -1 = not known. place: [latitude, longitude] or null.
    group: number of the burst, -1 = the image is alone.
    """
    found: dict[str, Any] = {}
    if "taken" in frame.columns:
        found["taken"] = [str(taken) for taken in frame["taken"].fillna("")]
    if "camera" in frame.columns:
        camera = frame["camera"].fillna("").astype(str)
        found["cameras"] = sorted(set(camera) - {""})
        code = {name: number for number, name in enumerate(found["cameras"])}
        found["camera"] = [code.get(name, -1) for name in camera]
    if {"latitude", "longitude"} <= set(frame.columns):
        pairs = zip(frame["latitude"].astype(float), frame["longitude"].astype(float), strict=True)
        found["place"] = [[a, b] if math.isfinite(a) and math.isfinite(b) else None for a, b in pairs]
    if "group" in frame.columns:
        numbers: dict[str, int] = {}
        named = [str(group) for group in frame["group"].fillna("")]
        found["group"] = [numbers.setdefault(name, len(numbers)) if name else -1 for name in named]
    return found
