"""Drawings of boxes and arrows: how images become features, heads, losses and in the end categories.

A drawing has three columns: the way to the feature f, what is made of it, and what is learnt from that. Rows keep what
belongs together side by side. Where a box stands follows from its row; where an arrow runs, from its two ends. What the
drawings of the methods hold is in benchmarks/method_drawings.py, how they look in benchmarks/flow_svg.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, NamedTuple

from lettering import width, wrapped

Kind = Literal["images", "frozen", "learns", "computed", "kept"]
Sees = Literal["labelled", "unlabelled", "all", "none"]


class Box(NamedTuple):
    """A title, what is to be said of it, and what becomes of it in training."""

    title: str
    words: str = ""
    kind: Kind = "computed"


class Loss(NamedTuple):
    """Losses in one box, and what they ask for."""

    symbols: tuple[str, ...]
    words: str
    sees: tuple[Sees, ...]
    """The images that each of them sees."""
    terms: tuple[str, ...]
    """Their names in `Method.loss`; the first are those of the symbols."""


Part = Box | Loss
Parts = Mapping[str, Part]


class Drawing(NamedTuple):
    """All that is to be seen, each part under the name that arrows call it by."""

    head: str
    network: Parts
    """From the images to the part that gives f, top down; a `teacher` of it may follow."""
    made: Parts
    """What is made of f, and what is learnt from it."""
    rows: str
    """Where these stand: `a | b c / d | e` is a beside b and c, and below them d beside e."""
    arrows: str
    """`a>b`, `a~b` where no gradient flows, `a=b` both ways; `f` is the feature. Those of the network and of the end go
    unsaid."""
    total: tuple[str, ...]
    """What is minimised, in the letters of the method's docstring."""
    end: tuple[Box, Box, Box]
    """What is done after training: with what, how, and what comes of it."""

    @property
    def parts(self) -> dict[str, Part]:
        """All but the end."""
        return {**self.network, **self.made}

    @property
    def losses(self) -> list[Loss]:
        return [part for part in self.parts.values() if isinstance(part, Loss)]

    @property
    def links(self) -> list[Link]:
        """The network's own arrows, then those that are said."""
        way = [name for name in self.network if name != "teacher"]
        found = [Link(one, other) for one, other in pairwise([*way, "f"])]
        if "teacher" in self.network:
            found.append(Link(way[-1], "teacher", "~"))
        said = [re.split(r"([>~=])", word) for word in self.arrows.split()]
        return [*found, *(Link(start, end, sign) for start, sign, end in said)]


class Link(NamedTuple):
    """From the name of a part to that of another; sign: as in `Drawing.arrows`."""

    start: str
    end: str
    sign: str = ">"


class Place(NamedTuple):
    """Where a box stands."""

    column: int
    x: float
    y: float
    wide: float
    high: float

    @property
    def middle(self) -> float:
        return self.y + self.high / 2

    @property
    def right(self) -> float:
        return self.x + self.wide

    @property
    def bottom(self) -> float:
        return self.y + self.high


Places = Mapping[str, Place]
Corners = tuple[tuple[float, float], ...]


class Arrow(NamedTuple):
    """A link as a line."""

    link: Link
    corners: Corners


TOP, GAP, LINE, PAD = 56, 20, 16, 10
COLUMNS = ((24, 172), (252, 208), (508, 308))
"""Left edge and width."""
F_AT = 224
"""The x of f, between the first two columns."""
TILES_HIGH, PILL_HIGH = 98, 22
DOOR = 12
"""Between two arrows at the edge of a box."""


# -- boxes --------------------------------------------------------------------------------------------


def lines_of(part: Part, column: int) -> list[str]:
    """The words of a part as they fit beside its pill, or below its title or pills."""
    room = COLUMNS[column][1] - 2 * PAD
    if isinstance(part, Loss) and len(part.symbols) == 1:
        room -= pill_width(part.symbols[0]) + PAD
    return [line for words in part.words.splitlines() for line in wrapped(words, room)]


def pill_width(symbol: str) -> float:
    return 16 + width(symbol, 13)


def height(part: Part, column: int) -> float:
    if isinstance(part, Box) and part.kind == "images":
        return TILES_HIGH
    words = LINE * len(lines_of(part, column))
    if isinstance(part, Box):
        return LINE + words + 14
    return PILL_HIGH + words + 22 if len(part.symbols) > 1 else max(words, 2 * LINE) + 14


def stacked(parts: Parts, column: int, y: float) -> dict[str, Place]:
    """One below the other, from y on."""
    found, (x, wide) = {}, COLUMNS[column]
    for name, part in parts.items():
        found[name] = Place(column, x, y, wide, height(part, column))
        y = found[name].bottom + GAP
    return found


def laid_out(drawing: Drawing) -> dict[str, Place]:
    """The place of each part, and of f, which has no room of its own."""
    network, rows, y = stacked(drawing.network, 0, TOP), {}, float(TOP)
    for row in drawing.rows.split("/"):
        columns = [{name: drawing.made[name] for name in side.split()} for side in row.split("|")]
        stacks = [stacked(parts, column, y) for column, parts in enumerate(columns, start=1)]
        low = max(map(lowest, stacks))
        for stack in stacks:
            rows |= moved(stack, (low - lowest(stack)) / 2)
        y = low + GAP
    rows = moved(rows, max(lowest(network) - lowest(rows), 0) / 2)
    gives = next(link.start for link in drawing.links if link.end == "f")
    return {**network, **rows, "f": Place(0, F_AT, network[gives].middle, 0, 0)}


def lowest(places: Places) -> float:
    return max(place.bottom for place in places.values())


def moved(places: Places, down: float) -> dict[str, Place]:
    return {name: place._replace(y=place.y + down) for name, place in places.items()}


# -- arrows -------------------------------------------------------------------------------------------


def routes(drawing: Drawing, places: Places) -> list[Arrow]:
    """Straight within a column; else across, with the turn in the gutter, where each part has a lane of its own."""
    across = [
        link
        for link in drawing.links
        if link.start == "f" or places[link.start].column != places[link.end].column
    ]
    return [
        Arrow(link, crossing(link, across, places) if link in across else upright(link, places))
        for link in drawing.links
    ]


def upright(link: Link, places: Places) -> Corners:
    a, b = places[link.start], places[link.end]
    if link.end == "f":
        return (a.right, a.middle), (F_AT - 13, a.middle)
    x = a.x + a.wide / 2
    return ((x, a.bottom), (x, b.y - 1)) if a.y < b.y else ((x, a.y), (x, b.bottom + 1))


def crossing(link: Link, across: list[Link], places: Places) -> Corners:
    """Links with and without gradient leave a part at heights of their own, and every one comes in at its own."""
    a, b = places[link.start], places[link.end]
    signs = sorted({one.sign for one in across if one.start == link.start}, key=">=~".index)
    coming = sorted((one for one in across if one.end == link.end), key=lambda one: places[one.start].middle)
    out = a.middle + DOOR * (signs.index(link.sign) - (len(signs) - 1) / 2) * (link.start != "f")
    into = b.middle + DOOR * (coming.index(link) - (len(coming) - 1) / 2)
    if abs(out - into) <= DOOR and a.y + 8 < into < a.bottom - 8:
        out = into  # rather straight than with a small step
    turn = lane(link.start, across, places)
    return (a.right, out), (turn, out), (turn, into), (b.x - 1, into)


def lane(start: str, across: list[Link], places: Places) -> float:
    """The x at which links of a part turn."""
    if start == "f":
        return F_AT
    column = places[start].column
    inside = {link.start for link in across if places[link.start].column == column} - {"f"}
    sources = sorted(inside, key=lambda name: places[name].middle)
    left, right = sum(COLUMNS[column]) + 6, COLUMNS[column + 1][0] - 12
    if column == 0:
        left = right  # beside f and its line
    return left + (right - left) * (sources.index(start) + 0.5) / len(sources)
