"""Numbers printed in the RPC paper, the law that scores must obey, and how far a method is on the way to SimGCD.

With one assignment over all images, All = r Old + (1 - r) New, where r is the share of known-class images
among the unlabelled ones. Three numbers rounded to one decimal can miss it by 0.1 at most; published
numbers that miss it by more are marked wherever they are shown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROUNDING = 0.1
"""All carries up to 0.05, and the weighted mean of Old and New up to 0.05 more."""


@dataclass(frozen=True)
class Published:
    """One cell triple of a printed table, in per cent."""

    all: float
    old: float
    new: float
    share_old: float
    """r of the data set."""

    @property
    def implied(self) -> float:
        """What All must be, given Old and New."""
        return self.share_old * self.old + (1 - self.share_old) * self.new

    @property
    def lawful(self) -> bool:
        return abs(self.all - self.implied) <= ROUNDING + 1e-9


@cache
def read_published() -> dict[str, Any]:
    """The content of published.json."""
    content: dict[str, Any] = json.loads(
        Path(__file__).with_name("published.json").read_text(encoding="utf-8")
    )
    return content


def share_old(dataset: str) -> float:
    """r: the share of known-class images among the unlabelled training images of a benchmark."""
    counts = read_published()["share_old"][dataset]
    return float(counts["old"] / counts["unlabelled"])


def find_published(method: str, dataset: str, table: str = "main") -> Published | None:
    """The printed scores of a method (or of an ablation's row), None where nothing is printed."""
    cells = read_published()[table]["cells"].get(dataset, {}).get(method)
    if cells is None:
        return None
    printed_all, old, new = cells
    return Published(printed_all, old, new, share_old(dataset))


FLOOR, MARK = "kmeans", "simgcd"
"""The two methods between which progress is measured."""


def progress(value: float, floor: float, mark: float) -> float | None:
    """p = (All - k-means) / (SimGCD - k-means): 0 at k-means, 1 at SimGCD; None where SimGCD is not above k-means.

    It compares methods across backbones, where per cent cannot be compared.
    """
    return (value - floor) / (mark - floor) if mark > floor else None


@dataclass(frozen=True)
class PublishedProgress:
    """p of printed numbers."""

    p: float
    lawful: bool
    """Whether all three rows that it is made of obey the law."""


def published_progress(method: str, dataset: str) -> PublishedProgress | None:
    """p of the printed All; None where one of the three is not printed."""
    rows = [find_published(name, dataset) for name in (method, FLOOR, MARK)]
    found = [row for row in rows if row is not None]
    if len(found) < len(rows):
        return None
    p = progress(*(row.all for row in found))
    return None if p is None else PublishedProgress(p, all(row.lawful for row in found))
