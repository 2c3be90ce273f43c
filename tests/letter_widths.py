"""How wide words really are, in DejaVu Sans: it is wider than the other fonts that browsers take for sans-serif."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from lettering import SUB, SUB_SIZE


@cache
def font(size: float, bold: bool):
    import matplotlib
    from PIL import ImageFont

    name = f"DejaVuSans{'-Bold' * bold}.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", name), size)


def measured(text: str, size: float, bold: bool = False) -> float:
    """Pixels, indices at their own size."""
    pieces = SUB.split(text)
    return sum(
        font(SUB_SIZE if number % 2 else size, bold).getlength(piece) for number, piece in enumerate(pieces)
    )
