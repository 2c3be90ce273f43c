"""Words in drawings: how much room they take, where lines break, and indices below the line."""

from __future__ import annotations

import re
from html import escape

SUB = re.compile(r"_\{([^}]*)\}")
SUB_SIZE = 10
ROOM = {
    "ijl": 0.29,
    " .,:;'|": 0.34,
    "ft()[]-I": 0.4,
    "rs": 0.5,
    "mM": 0.96,
    "wW": 0.86,
    "ABCDGHKNOPQRSUV": 0.74,
}
"""Of letters, in units of the size of a font that is rather wide: in others they have room to spare."""
EM = {letter: room for letters, room in ROOM.items() for letter in letters}
SIGNS = {"lambda": "λ", "lam": "λ", "eps": "ε", "gamma": "γ", "sum": "Σ", "'": "′", " * ": " ", " - ": " − "}
SIGNS |= {"InfoNCE": "L_con_u", "SupCon": "L_con_s"}
"""Of the letters that docstrings have for them, the first first."""


def width(text: str, size: float = 12) -> float:
    """About the room that the text takes; size: in pixels."""
    return sum(
        (SUB_SIZE if number % 2 else size) * sum(EM.get(letter, 0.63) for letter in piece)
        for number, piece in enumerate(SUB.split(text))
    )


def wrapped(text: str, room: float) -> list[str]:
    """As few lines as fit into so many pixels, and these about equally long."""
    lines = filled(text, room)
    while len(narrower := filled(text, room - 4)) == len(lines) and max(map(width, narrower)) <= room - 4:
        lines, room = narrower, room - 4
    return lines


def filled(text: str, room: float) -> list[str]:
    """Lines with as many words as fit; one word at least."""
    first, *rest = text.split(" ")
    lines = [first]
    for word in rest:
        if width(f"{lines[-1]} {word}") <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def marked(text: str) -> str:
    """As SVG: `L_{con_u}` with its index below the line."""
    found = ""
    for number, piece in enumerate(SUB.split(text)):
        if number % 2:
            found += f'<tspan font-size="{SUB_SIZE}" dy="3">{escape(piece)}</tspan>'
        elif piece:
            found += f'<tspan dy="-3">{escape(piece)}</tspan>' if number else escape(piece)
    return found


def plain(text: str) -> str:
    """Without marks: `L_{con_u}` is L_con_u."""
    return SUB.sub(r"_\1", text)


def formula(text: str) -> str:
    """The letters of a docstring as a formula: lam is λ, and L_me gets an index."""
    for letters, sign in SIGNS.items():
        text = text.replace(letters, sign)
    return re.sub(r"\b([Llqzλ]′?|Σ)_(\w+)", r"\1_{\2}", text)
