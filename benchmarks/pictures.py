"""The pictures of boxes and arrows that documents show: drawn from the code, by python benchmarks/exhibits.py.

Figures of measurements are no part of it: they are made of the records of their studies (benchmarks/figures.py).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from functools import partial

import architecture
import family
import method_drawings

SHOWN = re.compile(r"!\[[^\]]*\]\(([^)\s]+\.svg)\)")
DRAWN: dict[str, Callable[[], str]] = {
    "docs/architecture.svg": lambda: architecture.draw(architecture.imports()),
    "docs/family.svg": family.draw,
    **{
        f"docs/methods/{name}.svg": partial(method_drawings.picture, name)
        for name in method_drawings.DRAWINGS
    },
}
"""Path from the top -> what draws it."""


def shown_in(text: str, where: str) -> list[str]:
    """Paths of the pictures that a document shows and that are drawn here. where: the path of the document."""
    folder = posixpath.dirname(where)
    targets = [posixpath.normpath(posixpath.join(folder, target)) for target in SHOWN.findall(text)]
    return [path for path in targets if path in DRAWN]
