"""The picture of the methods: what all of them share, which builds on which, and what each adds.

It is docs/family.svg (python benchmarks/exhibits.py). Titles and years are those of the methods' cards.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from holotype.methods import METHODS
from holotype.methods.clustered import Clustered

HEAD = "What the trained methods share, and what each makes of it"
SHARED = ("image", "two or more views", "frozen blocks", "last block learns", "feature")
"""What every method is given, in its order."""


class Place(NamedTuple):
    """A box: where it stands, what it builds on, and what it does, in two lines."""

    column: int
    row: int
    on: str
    does: tuple[str, str]


PLACES = {
    "kmeans": Place(0, 0, "", ("clusters features as they are;", "no label and no training")),
    "rs": Place(1, 0, "", ("pairs by the strongest features;", "a linear head learns from them")),
    "uno": Place(2, 0, "", ("one softmax over all classes;", "balanced targets, other view")),
    "gcd": Place(0, 1, "", ("draws views and classes together;", "then k-means that heeds labels")),
    "promptcal": Place(1, 1, "gcd", ("adds learnt tokens, a teacher, and", "a graph of shared neighbours")),
    "dccl": Place(1, 2, "gcd", ("adds communities of neighbours,", "found anew as it learns")),
    "simgcd": Place(0, 3, "", ("a prototype for each category;", "learns from its own sharp guesses")),
    "sptnet": Place(1, 3, "simgcd", ("adds pixels to every image, learnt", "in turns with the network")),
    "protogcd": Place(1, 4, "simgcd", ("takes pseudo-labels, soft to hard,", "and drives prototypes apart")),
    "debgcd": Place(1, 5, "simgcd", ("adds a second classifier, and a", "detector of what is known")),
    "rpc": Place(2, 5, "debgcd", ("adds: known ones behave alike,", "novel ones stand alike to these")),
}
COLOURS = {True: "#d55e00", False: "#0072b2"}
"""By whether k-means places the images, or a classifier."""
LEFT, WIDE, HIGH, ACROSS, DOWN, TOP = 24, 222, 62, 245, 78, 132
HEIGHT = TOP + 6 * DOWN + 8


def draw() -> str:
    """The picture as SVG."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {HEIGHT}" width="760" height="{HEIGHT}" role="img"'
        ' aria-labelledby="title desc" font-family="sans-serif" font-size="12" fill="#2b2f36">',
        '<title id="title">The methods, and which builds on which</title>',
        f'<desc id="desc">{escape(describe())}</desc>',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
        ' markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8Z" fill="#6b7280"/></marker></defs>',
        f'<rect x=".5" y=".5" width="759" height="{HEIGHT - 1}" rx="14" fill="#fcfcfa" stroke="#d9dce1"/>',
        f'<text x="24" y="32" font-size="15" font-weight="bold">{HEAD}</text>',
        *(shared(number, words) for number, words in enumerate(SHARED)),
        *(arrow(place) for place in PLACES.values() if place.on),
        *(box(name, place) for name, place in PLACES.items()),
        *key(),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def describe() -> str:
    """The same in words, for those who cannot see it."""
    told = [f"{', '.join(SHARED)}: then a method."]
    for name, place in PLACES.items():
        card = METHODS[name].card
        base = f" builds on {METHODS[place.on].card.title} and" if place.on else ""
        told.append(f"{card.title} ({card.year}){base} {' '.join(place.does)}.")
    return " ".join(told)


def by_kmeans(name: str) -> bool:
    """Does k-means place the images at the end, or a classifier?"""
    return issubclass(METHODS[name], Clustered)


def corner(place: Place) -> tuple[int, int]:
    return LEFT + ACROSS * place.column, TOP + DOWN * place.row


def shared(number: int, words: str) -> str:
    x, wide = LEFT + 143 * number, 124
    line = (
        f'<path d="M{x + wide} 75h15" stroke="#6b7280" marker-end="url(#end)"/>'
        if number + 1 < len(SHARED)
        else f'<path d="M{x + wide / 2} 91v24" stroke="#6b7280" marker-end="url(#end)"/>'
    )
    return (
        f'<g><rect x="{x}" y="59" width="{wide}" height="32" rx="7" fill="#fff" stroke="#8a8f98"/>'
        f'<text x="{x + wide / 2}" y="79" text-anchor="middle">{words}</text>{line}</g>'
    )


def box(name: str, place: Place) -> str:
    (x, y), card, colour = corner(place), METHODS[name].card, COLOURS[by_kmeans(name)]
    first, second = map(escape, place.does)
    return (
        f'<g><rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="7" fill="#fff" stroke="{colour}" '
        f'stroke-width="1.6"/><text x="{x + 10}" y="{y + 19}" font-weight="bold" font-size="13">{card.title}</text>'
        f'<text x="{x + WIDE - 10}" y="{y + 19}" text-anchor="end">{card.year}</text>'
        f'<text x="{x + 10}" y="{y + 37}">{first}</text><text x="{x + 10}" y="{y + 53}">{second}</text></g>'
    )


def arrow(place: Place) -> str:
    """From the box that is built on to the one that builds."""
    (x, y), (to, down) = corner(PLACES[place.on]), corner(place)
    x, y, down = x + WIDE, y + HIGH // 2, down + HIGH // 2
    middle = (x + to) / 2
    return (
        f'<path d="M{x} {y}H{middle}V{down}H{to - 1}" fill="none" stroke="#6b7280" marker-end="url(#end)"/>'
    )


def key() -> list[str]:
    x, y = LEFT + 2 * ACROSS, TOP + DOWN + 20
    lines = []
    for number, (kmeans, words) in enumerate(
        ((True, "k-means places the images"), (False, "a classifier places them"))
    ):
        lines.append(
            f'<rect x="{x}" y="{y + 24 * number - 11}" width="22" height="14" rx="3" fill="#fff" '
            f'stroke="{COLOURS[kmeans]}" stroke-width="1.6"/><text x="{x + 32}" y="{y + 24 * number}">{words}</text>'
        )
    lines.append(
        f'<path d="M{x} {y + 44}h21" stroke="#6b7280" marker-end="url(#end)"/>'
        f'<text x="{x + 32}" y="{y + 48}">is built on by</text>'
    )
    return lines
