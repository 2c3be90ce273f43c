"""How each method works, one drawing each: docs/methods/NAME.svg, on its card (python benchmarks/exhibits.py).

A drawing is an entry of drawn_by_centres.py or of drawn_by_classifier.py: its boxes, where they stand, the arrows. What
several have in common is in drawn_parts.py. That every loss of a method is in its drawing and no other, and that the
formula is that of its card, is tested.
"""

from __future__ import annotations

import drawn_by_centres
import drawn_by_classifier
from flow import Drawing
from flow_svg import draw, seen

from holotype.methods import METHODS

DRAWINGS = {**drawn_by_centres.DRAWINGS, **drawn_by_classifier.DRAWINGS}


def titled(name: str) -> Drawing:
    """The drawing of a method under the title of its card."""
    found, card = DRAWINGS[name], METHODS[name].card
    assert card is not None  # tests/methods/test_find_method.py
    return found._replace(head=f"{card.title}: {found.head}")


def picture(name: str) -> str:
    """As SVG."""
    return draw(titled(name))


def in_words(name: str) -> str:
    """What is seen on it."""
    return seen(titled(name))
