"""What a setting may be beyond its type, written beside it: `epochs: Count = 200`.

Whoever reads settings (runs/casting.py) checks the rules; dataclasses themselves do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Rule:
    """Stands in an `Annotated` type, such as Annotated[int, Rule("even", lambda n: n % 2 == 0)]."""

    words: str
    """Completes the sentence `epochs must be ...`."""
    holds: Callable[[Any], bool]
    """Of a value of the right type."""


MOST_EPOCHS, MOST_STEPS, LARGEST_SIDE, MOST_MANY, MOST_TIMES, MOST_FEW = (
    100_000,
    1_000_000,
    4_096,
    100_000,
    1_000,
    100,
)
"""Far more than anybody needs. Beyond them stands a slip of the finger, which would train for years or fill memory."""


LARGEST = 1e30
"""Of a number that training reckons with: 32 bits hold no number above 3e38."""


def at_most(most: int) -> Rule:
    return Rule(f"at most {most:,}", lambda number: number <= most)


Count = Annotated[int, Rule("at least 1", lambda number: number >= 1)]
"""A number of something."""
Natural = Annotated[int, Rule("at least 0", lambda number: number >= 0)]
"""A number of something that there may be none of."""
Epochs = Annotated[Count, at_most(MOST_EPOCHS)]
"""Passes over all images."""
Steps = Annotated[Count, at_most(MOST_STEPS)]
"""Batches that are learnt from."""
Side = Annotated[Count, at_most(LARGEST_SIDE)]
"""Of a picture, in pixels."""
Width = Annotated[Natural, at_most(MOST_MANY)]
"""Of a layer, in numbers; there may be none."""
Many = Annotated[Count, at_most(MOST_MANY)]
"""A number of things that are held at once."""
Repeats = Annotated[Count, at_most(MOST_TIMES)]
"""How often something is done anew, of which each time takes its time."""
Few = Annotated[Count, at_most(MOST_FEW)]
"""A number of things that each take a good part of the whole."""
Share = Annotated[float, Rule("from 0 to 1", lambda part: 0 <= part <= 1)]
"""A part of something."""
Times = Annotated[float, Rule(f"above 0 and at most {MOST_FEW}", lambda factor: 0 < factor <= MOST_FEW)]
"""How many times something is taken."""
Positive = Annotated[float, Rule(f"above 0 and at most {LARGEST:g}", lambda value: 0 < value <= LARGEST)]
"""A rate or a temperature."""
Weight = Annotated[float, Rule(f"at least 0 and at most {LARGEST:g}", lambda value: 0 <= value <= LARGEST)]
"""How much something counts, or how long it lasts."""
Momentum = Annotated[float, Rule("at least 0 and below 1", lambda part: 0 <= part < 1)]
"""What is kept of the past."""
Cosine = Annotated[float, Rule("from -1 to 1", lambda value: -1 <= value <= 1)]
"""How alike two directions are."""
Gigabytes = Annotated[float, Rule("above 0 GB and finite", lambda gb: gb > 0 and math.isfinite(gb))]
"""An amount of memory."""
Seed = Annotated[int, Rule("at least 0 and below 2**63", lambda seed: 0 <= seed < 2**63)]
"""What torch takes as a seed, without the negative ones."""
