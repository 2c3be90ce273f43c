"""What the tables of speed.py are made of: rows of Markdown, names, and numbers that are short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holotype.methods import METHODS

Record = dict[str, Any]
NAMES = {name: found.card.title for name, found in METHODS.items() if found.card is not None}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; the first two columns are words, the others numbers."""
    rule = ["---" if i < 2 else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def pipeline(row: Record) -> str:
    """`reference style, fp16, 8 workers`, or `cached 16+8, bf16, captured`."""
    words = [row["pipeline"], row["arithmetic"]]
    if "workers" in row:
        words.append(f"{row['workers']} workers")
    if row.get("captured"):
        words.append("captured")
    return ", ".join(words)


def method(row: Record) -> str:
    name = str(row["method"])
    return NAMES.get(name, name)


def short(value: float) -> str:
    """Three figures that mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(n: int) -> str:
    return f"{n / 1e9:.2f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"
