"""Boxes: parts of pictures that are images of their own.

A box is written behind the path of its picture, photo.jpg#xywh=percent:12.5,40,30,22, so that everything that knows an
image by its path knows the box as well. The numbers are left, top, width and height in percent of the upright picture.
An image is what lies in the box and a little around it, as square as the picture allows: its middle is what networks
look at, and a fox is longer than it is high.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

BOX_MARK = "#xywh=percent:"
BOX_SUFFIX = re.compile(re.escape(BOX_MARK) + r"([0-9.]+),([0-9.]+),([0-9.]+),([0-9.]+)$")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?nan|[-+]?inf", re.IGNORECASE)
DIGITS = 5
"""Behind the point, of a share: a tenth of a pixel of the largest pictures."""
MARGIN = 0.05
"""Around a box on each side, as a share of its longer side."""
TOLERANCE = 0.01
"""Of the picture's side by which a box may lie outside; detectors round, and what is outside is cut off."""

Rectangle = tuple[int, int, int, int]
"""left, top, right, bottom in whole pixels."""


class BadBox(ValueError):
    """What is wrong with a box: the middle of a sentence."""


@dataclass(frozen=True)
class Box:
    """As shares of the width and the height of the upright picture, from 0 to 1."""

    x: float
    y: float
    w: float
    h: float

    @property
    def text(self) -> str:
        """`0.125,0.4,0.3,0.22`, as a column `box` holds it."""
        return ",".join(_format_number(value) for value in (self.x, self.y, self.w, self.h))

    @property
    def ending(self) -> str:
        """Return what stands behind the path of the picture."""
        values = (self.x, self.y, self.w, self.h)
        return BOX_MARK + ",".join(_format_number(100 * value, DIGITS - 2) for value in values)

    def pixels(self, size: tuple[int, int]) -> tuple[float, float, float, float]:
        """x, y, w, h in pixels of a picture of this width and height."""
        width, height = size
        return self.x * width, self.y * height, self.w * width, self.h * height

    def cut(self, size: tuple[int, int]) -> Rectangle:
        """The part of a picture of this width and height that the image is."""
        x, y, w, h = self.pixels(size)
        side = max(w, h) + 2 * (MARGIN * max(w, h))
        left, right = _with_margin(x, w, side, size[0])
        top, bottom = _with_margin(y, h, side, size[1])
        return left, top, right, bottom


def _format_number(value: float, digits: int = DIGITS) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") or "0"


def _with_margin(start: float, length: float, side: float, most: int) -> tuple[int, int]:
    """From `side` pixels around the middle of a stretch, as far as there are so many; at least one pixel."""
    side = min(side, most)
    first = min(max(start + length / 2 - side / 2, 0.0), most - side)
    low = min(math.floor(first + 1e-6), most - 1)
    return low, min(max(math.ceil(first + side - 1e-6), low + 1), most)


def split_box(path: str) -> tuple[str, Box | None]:
    """The path of the picture, and the box; None where the image is a whole picture."""
    found = BOX_SUFFIX.search(path) if BOX_MARK in path else None
    if found is None:
        return path, None
    try:
        x, y, w, h = (float(number) / 100 for number in found.groups())
    except ValueError:
        return path, None
    return path[: found.start()], Box(x, y, w, h)


def with_box(path: str, box: Box) -> str:
    return path + box.ending


def overlap(one: Box, other: Box) -> float:
    """What two boxes share, as a share of what both cover."""
    width = min(one.x + one.w, other.x + other.w) - max(one.x, other.x)
    height = min(one.y + one.h, other.y + other.h) - max(one.y, other.y)
    both = max(width, 0.0) * max(height, 0.0)
    return both / (one.w * one.h + other.w * other.h - both)


def parse_numbers(text: str) -> tuple[float, float, float, float]:
    """Four numbers, parted by commas, semicolons or blanks, in brackets or not. Raises BadBox."""
    found = [float(number) for number in NUMBER.findall(text)]
    if len(found) != 4 or re.search(r"[A-Za-z]", NUMBER.sub("", text)):
        raise BadBox(f"{text.strip()!r} is not four numbers x, y, w, h")
    x, y, w, h = found
    return x, y, w, h


def make_box(values: Iterable[float], size: tuple[int, int] | None) -> Box:
    """The box of x, y, w, h; cut off at the edges. Raises BadBox.

    size: width and height of the picture whose pixels they are; None: they are shares.
    """
    x, y, w, h = values
    told = ", ".join(f"{value:g}" for value in (x, y, w, h))
    if not all(map(math.isfinite, (x, y, w, h))):
        raise BadBox(f"{told} holds something that is no number")
    if w <= 0 or h <= 0:
        raise BadBox(f"{told} has no area")
    width, height = size or (1, 1)
    over = (-x / width, -y / height, (x + w) / width - 1, (y + h) / height - 1)
    if max(over) > TOLERANCE:
        of = f"the picture of {width} x {height} pixels" if size else "the picture, whose sides are 1"
        raise BadBox(f"{told} lies outside {of}")
    left, top = max(x / width, 0.0), max(y / height, 0.0)
    right, bottom = min((x + w) / width, 1.0), min((y + h) / height, 1.0)
    box = Box(*(round(value, DIGITS) for value in (left, top, right - left, bottom - top)))
    if box.w <= 0 or box.h <= 0:
        raise BadBox(f"{told} has no area")
    return box
