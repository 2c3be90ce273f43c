"""The picture of the code: boxes are the folders of src/holotype, arrows are imports.

docs/architecture.svg (python benchmarks/exhibits.py). The order of the boxes is that of tests/test_imports.py; the
arrows are read from the code.
"""

from __future__ import annotations

import ast
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PACKAGE = TOP / "src" / "holotype"
WORDS = {
    "cli": "the commands",
    "discovery": "a folder of photos to categories",
    "placing": "new images, ONNX, folders, COCO",
    "report": "the page to look at and to correct",
    "runs": "settings, runs, records, tables",
    "categories": "what was found: relations, corrections",
    "training": "the one loop",
    "methods": "one file a paper",
    "cluster": "k-means, how many, scores",
    "models": "backbones, heads, the token cache",
    "losses": "equations",
    "data": "tables, images, views, benchmarks",
    "machine": "files, memory, devices, processes",
    "errors": "what speaks to users",
}
"""Folders from the top down, and what lies in each."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#8a5a9e", "#6b7280")
LEFT, BOX, HIGH, STEP = 24, 352, 34, 52


def imports() -> set[tuple[str, str]]:
    """(folder, folder that it imports from), for every import between two folders."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        here = file.relative_to(PACKAGE).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                head, _, rest = name.partition(".")
                to = rest.partition(".")[0]
                if head == "holotype" and here in WORDS and to in WORDS and to != here:
                    found.add((here, to))
    return found


def draw(edges: set[tuple[str, str]]) -> str:
    """The picture as SVG: the higher box imports from the lower one."""
    rooms = list(WORDS)
    height = 60 + STEP * len(rooms)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" width="760" height="{height}" role="img"'
        ' aria-labelledby="title desc" font-family="sans-serif" font-size="13" fill="#2b2f36">',
        '<title id="title">The folders of src/holotype and their imports</title>',
        f'<desc id="desc">{describe(edges)}</desc>',
        "<defs>",
        *(marker(number, colour) for number, colour in enumerate(COLOURS)),
        "</defs>",
        f'<rect x=".5" y=".5" width="759" height="{height - 1}" rx="14" fill="#fcfcfa" stroke="#d9dce1"/>',
        '<text x="24" y="32" font-size="15" font-weight="bold">Imports go down only</text>',
        *(arrow(rooms, *edge) for edge in sorted(edges)),
        *(box(number, name) for number, name in enumerate(rooms)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def describe(edges: set[tuple[str, str]]) -> str:
    """The same in words, for those who cannot see it."""
    below = {name: [to for to in WORDS if (name, to) in edges] for name in WORDS}
    return " ".join(
        f"{name} imports from {', '.join(to) if to else 'nothing'}." for name, to in below.items()
    )


def top_of(number: int) -> int:
    return 48 + STEP * number


def box(number: int, name: str) -> str:
    y = top_of(number)
    return (
        f'<g><rect x="{LEFT}" y="{y}" width="{BOX}" height="{HIGH}" rx="7" fill="#fff" stroke="#8a8f98"/>'
        f'<text x="{LEFT + 12}" y="{y + 22}" font-weight="bold">{name}</text>'
        f'<text x="{LEFT + 104}" y="{y + 22}" font-size="12">{WORDS[name]}</text></g>'
    )


def arrow(rooms: list[str], one: str, other: str) -> str:
    """From the lower half of the box that imports, in a bow, to the upper half of the one that is imported."""
    start, end = rooms.index(one), rooms.index(other)
    bow = LEFT + BOX + 26 + 32 * abs(end - start)
    y, to = top_of(start) + HIGH - 8, top_of(end) + 4 + 24 * (start + 1) // (len(rooms) + 1)
    colour = start % len(COLOURS)
    return (
        f'<path d="M{LEFT + BOX} {y}C{bow} {y} {bow} {to} {LEFT + BOX + 2} {to}" fill="none"'
        f' stroke="{COLOURS[colour]}" stroke-opacity=".55" marker-end="url(#end{colour})"/>'
    )


def marker(number: int, colour: str) -> str:
    return (
        f'<marker id="end{number}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        f' markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8Z" fill="{colour}"/></marker>'
    )
