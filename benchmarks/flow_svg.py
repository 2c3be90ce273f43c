"""A drawing of boxes and arrows (benchmarks/flow.py) as SVG and in words."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from flow import (
    COLUMNS,
    F_AT,
    LINE,
    PAD,
    PILL_HIGH,
    Arrow,
    Box,
    Drawing,
    Link,
    Loss,
    Part,
    Place,
    height,
    laid_out,
    lines_of,
    lowest,
    pill_width,
    routes,
)
from lettering import formula, marked, plain, width

WIDE = 840
FORMULA = 20
"""From one formula to the next."""
LOOKS = {
    "images": ("#fff", "#c3c8cf", 1.0),
    "frozen": ("#e4e7eb", "#9aa1ab", 1.0),
    "learns": ("#fff", "#2b2f36", 2.0),
    "computed": ("#fff", "#9aa1ab", 1.0),
    "kept": ("#f4eef8", "#8a5a9e", 1.2),
}
"""Inside, edge and its thickness, by kind."""
INKS = {
    "labelled": ("#0072b2", "#eaf3f9"),
    "unlabelled": ("#c65700", "#fdf1e8"),
    "all": ("#4a5058", "#f3f4f2"),
    "none": ("#007a5a", "#eaf5f1"),
}
"""Of the pill and of its box, by the images that a loss sees."""
KEY = {
    "learns": "learns",
    "frozen": "stands still",
    "computed": "computed",
    "kept": "remembered",
    "~": "no gradient",
    **{
        sees: f"loss: {words}"
        for sees, words in zip(INKS, ("labelled", "unlabelled", "all", "no image"), strict=True)
    },
}
"""What signs mean; only those that a drawing has are told."""
DEFS = (
    '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
    ' markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0 8 4 0 8Z" fill="#6b7280"/></marker>'
    '<rect id="tile" x="-11" y="-11" width="22" height="22" rx="4"/><circle id="round" r="5"/>'
    '<path id="tri" d="M0-6 6 4.7H-6Z"/><path id="square" d="M-4.7-4.7H4.7V4.7H-4.7Z"/>'
    '<path id="star" d="M0-7 1.9-2.4 6.6-2.2 3.1 1 4.1 5.7 0 3.1-4.1 5.7-3.1 1-6.6-2.2-1.9-2.4Z"/>'
    '<path id="plus" d="M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z"/></defs>'
)
TILES = (
    ("labelled", "#0072b2", ("round tri square",)),
    ("unlabelled", "#8a8f98", ("tri star round", "plus square star")),
)
"""Images, row by row; a star and a plus are of no known class."""


def draw(drawing: Drawing) -> str:
    """The picture as SVG."""
    places = laid_out(drawing)
    arrows = sorted(routes(drawing, places), key=lambda arrow: arrow.link.sign != "~")
    total_at = lowest(places) + 34
    end_at = total_at + FORMULA * len(drawing.total) + 6
    tallest = max(height(part, column) for column, part in enumerate(drawing.end))
    tall = round(end_at + tallest + 90)
    f = places["f"].y
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {tall}" width="{WIDE}" height="{tall}" role="img"'
        ' aria-labelledby="title desc" font-family="sans-serif" font-size="12" fill="#2b2f36">',
        f'<title id="title">{escape(plain(drawing.head))}</title>',
        f'<desc id="desc">{escape(told(drawing))}</desc>',
        DEFS,
        f'<rect x=".5" y=".5" width="{WIDE - 1}" height="{tall - 1}" rx="14" fill="#fcfcfa" stroke="#d9dce1"/>',
        written(drawing.head, 24, 34, 'font-size="16" font-weight="bold"'),
        *map(line, arrows),
        *(shown(part, places[name]) for name, part in drawing.parts.items()),
        f'<circle cx="{F_AT}" cy="{f:g}" r="12" fill="#fff" stroke="#6b7280" stroke-width="1.5"/>',
        written("f", F_AT, f + 5, 'text-anchor="middle" font-size="14" font-style="italic"'),
        *(
            written(formula(words), 24, total_at + FORMULA * row, 'font-size="13"')
            for row, words in enumerate(drawing.total)
        ),
        *ending(drawing.end, end_at, tallest),
        *key(drawing, tall - 16),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def written(text: str, x: float, y: float, look: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"{" " * bool(look)}{look}>{marked(text)}</text>'


def line(arrow: Arrow) -> str:
    (x, y), *rest = arrow.corners
    path = f"M{x:g} {y:g}"
    for to in rest:
        path += (f"H{to[0]:g}" if to[0] != x else "") + (f"V{to[1]:g}" if to[1] != y else "")
        x, y = to
    more = {">": "", "~": ' stroke-dasharray="4 3"', "=": ' marker-start="url(#end)"'}[arrow.link.sign]
    return f'<path d="{path}" fill="none" stroke="#6b7280" stroke-width="1.5"{more} marker-end="url(#end)"/>'


def panel(at: Place, fill: str, edge: str, thick: float, rx: int = 7) -> str:
    return (
        f'<rect x="{at.x:g}" y="{at.y:g}" width="{at.wide:g}" height="{at.high:g}" rx="{rx}" fill="{fill}" '
        f'stroke="{edge}" stroke-width="{thick:g}"/>'
    )


def shown(part: Part, at: Place) -> str:
    if isinstance(part, Loss):
        ink, paper = INKS[part.sees[0] if len(set(part.sees)) == 1 else "all"]
        inside = panel(at, paper, ink, 1) + loss(part, at)
    else:
        inside = panel(at, *LOOKS[part.kind]) + (tiles(at) if part.kind == "images" else box(part, at))
    return f"<g>{inside}</g>"


def column_of(lines: list[str], x: float, y: float) -> str:
    return "".join(written(text, x, y + LINE * row) for row, text in enumerate(lines))


def box(part: Box, at: Place) -> str:
    title = written(part.title, at.x + PAD, at.y + 19, 'font-weight="bold"')
    return title + column_of(lines_of(part, at.column), at.x + PAD, at.y + 19 + LINE)


def tiles(at: Place) -> str:
    """Labelled images in the first row, unlabelled ones below."""
    found, y = "", at.y + 20
    for words, colour, rows in TILES:
        found += written(words, at.x + 92, y + 4 + 14 * (len(rows) - 1))
        for row in rows:
            for number, shape in enumerate(row.split()):
                spot = f'x="{at.x + 20 + 26 * number:g}" y="{y:g}"'
                found += (
                    f'<use href="#tile" {spot} fill="{colour}"/><use href="#{shape}" {spot} fill="#fff"/>'
                )
            y += 28
    return found


def loss(part: Loss, at: Place) -> str:
    """One pill with its words beside it, or several above them."""
    several, lines = len(part.symbols) > 1, lines_of(part, at.column)
    x, y, found = at.x + PAD, at.y + PAD if several else at.middle - PILL_HIGH / 2, ""
    for symbol, sees in zip(part.symbols, part.sees, strict=True):
        wide, ink = pill_width(symbol), INKS[sees][0]
        found += f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{PILL_HIGH}" rx="11" fill="{ink}"/>'
        found += written(symbol, x + wide / 2, y + 15, 'text-anchor="middle" font-weight="bold" fill="#fff"')
        x += wide + 4
    if several:
        return found + column_of(lines, at.x + PAD, y + PILL_HIGH + LINE)
    return found + column_of(lines, x + PAD - 4, at.middle + 4 - LINE * (len(lines) - 1) / 2)


def ending(parts: tuple[Box, Box, Box], y: float, tallest: float) -> Iterator[str]:
    """What is done after training, from left to right."""
    yield f'<rect x="12" y="{y:g}" width="{WIDE - 24}" height="{tallest + 46:g}" rx="9" fill="#eef2f0"/>'
    yield written("At the end", 24, y + 21, 'font-size="13" font-weight="bold"')
    places = []
    for column, (part, (x, wide)) in enumerate(zip(parts, COLUMNS, strict=True)):
        high = height(part, column)
        places.append(Place(column, x, y + 34 + (tallest - high) / 2, wide, high))
    for a, b in pairwise(places):
        yield line(Arrow(Link("", ""), ((a.right, a.middle), (b.x - 1, b.middle))))
    yield from (shown(part, at) for part, at in zip(parts, places, strict=True))


def key(drawing: Drawing, y: float) -> Iterator[str]:
    """The signs that this drawing has."""
    there = {link.sign for link in drawing.links} | {sees for one in drawing.losses for sees in one.sees}
    there |= {part.kind for part in [*drawing.parts.values(), *drawing.end] if isinstance(part, Box)}
    x = 24.0
    for sign, words in KEY.items():
        if sign not in there:
            continue
        if sign in LOOKS:
            yield panel(Place(0, x, y - 11, 20, 14), *LOOKS[sign], rx=3)
        elif sign in INKS:
            yield f'<rect x="{x:g}" y="{y - 10:g}" width="20" height="12" rx="6" fill="{INKS[sign][0]}"/>'
        else:
            yield line(Arrow(Link("", "", sign), ((x, y - 4), (x + 21, y - 4))))
        yield written(words, x + 26, y, 'font-size="11"')
        x += 26 + width(words, 11) + 14


# -- in words -----------------------------------------------------------------------------------------


def name_of(part: Part) -> str:
    return plain(part.title if isinstance(part, Box) else ", ".join(part.symbols))


def seen(drawing: Drawing) -> str:
    """What is seen, in a few sentences, for those who cannot see it: the names of all parts."""
    way = ", ".join(name_of(part) for part in drawing.network.values())
    made = ", ".join(name_of(part) for part in drawing.made.values() if isinstance(part, Box))
    losses = ", ".join(map(name_of, drawing.losses))
    learnt = f"the losses {losses}" if losses else "no loss"
    return (
        f"{plain(drawing.head)}. Arrows lead through boxes: {way}, the feature f; then {made}; {learnt}. "
        f"At the end: {', '.join(map(name_of, drawing.end))}."
    )


def told(drawing: Drawing) -> str:
    """All that stands in it, and where every arrow leads."""
    parts = {**drawing.parts, "f": Box("f")}
    boxes = [f"{name_of(part)}: {said(part)}." for part in drawing.parts.values() if part.words]
    arrows = [f"{name_of(parts[link.start])} to {name_of(parts[link.end])}" for link in drawing.links]
    end = [f"{name_of(part)}: {said(part)}." for part in drawing.end]
    return f"{' '.join(boxes)} Arrows: {'; '.join(arrows)}. At the end: {' '.join(end)}"


def said(part: Part) -> str:
    return plain(part.words.replace("\n", "; "))
