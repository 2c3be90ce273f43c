"""The window of an image with more than 8 bits: which grey value is shown black and which white.

A file may state it: TIFF as the display range that ImageJ and Fiji write, or as its tags for the smallest and the
largest sample; PNG as a text `window` such as 120,4095; DICOM as its window. Where a 16-bit file states none, it is
taken for one of 12 bits if no value is larger than 4,095, else for one of 16. Values of 32 bits need a stated one.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from PIL import Image

Window = tuple[float, float]
"""The values that become 0 and 255."""
WIDE_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I", "F")
"""Pillow's modes of more than 8 bits."""
DESCRIPTION, SAMPLE_TAGS = 270, ((340, 341), (280, 281))
TOP_12, TOP_16 = 4095, 65535


def stated_window(image: Image.Image) -> Window | None:
    """Return the window that an open file states, None where it states none that can be used."""
    found: tuple[Any, Any] | None = None
    if image.format == "TIFF":
        tags = getattr(image, "tag_v2", {})
        text = str(tags.get(DESCRIPTION, ""))
        ends = [re.search(rf"^{name}=([-+.\deE]+)\s*$", text, re.MULTILINE) for name in ("min", "max")]
        if ends[0] and ends[1]:
            found = ends[0][1], ends[1][1]
        else:
            pairs = [(tags[low], tags[high]) for low, high in SAMPLE_TAGS if low in tags and high in tags]
            found = pairs[0] if pairs else None
    elif image.format == "PNG" and isinstance(stated := image.info.get("window"), str):
        low, _, high = stated.partition(",")
        found = low, high
    return None if found is None else _checked(*found)


def _checked(low: Any, high: Any) -> Window | None:
    try:
        window = tuple(float(one[0] if isinstance(one, tuple) else one) for one in (low, high))
    except (TypeError, ValueError, IndexError):
        return None
    return window if all(map(math.isfinite, window)) and window[0] < window[1] else None  # type: ignore[return-value]


def usual_window(image: Image.Image) -> Window:
    """Return the window of a decoded 16-bit image that states none."""
    top = np.asarray(image).max(initial=0)
    return 0.0, float(TOP_12 if top <= TOP_12 else TOP_16)


def window_note(window: Window) -> str:
    """Return what a person should know of the values that were shown."""
    return f"grey values from {window[0]:,g} to {window[1]:,g} shown"


def apply_window(values: np.ndarray, window: Window) -> np.ndarray:
    """(H, W) grey values of any type -> (H, W) uint8; NaN becomes black."""
    low, high = window
    scaled = (values.astype(np.float32) - np.float32(low)) * np.float32(255 / (high - low))
    return np.rint(np.clip(np.nan_to_num(scaled), 0, 255)).astype(np.uint8)
