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


Count = Annotated[int, Rule("at least 1", lambda number: number >= 1)]
"""A number of something."""
Natural = Annotated[int, Rule("at least 0", lambda number: number >= 0)]
"""A number of something that there may be none of."""
Share = Annotated[float, Rule("from 0 to 1", lambda part: 0 <= part <= 1)]
"""A part of something."""
Times = Annotated[float, Rule("above 0 and finite", lambda factor: 0 < factor < math.inf)]
"""How many times something is taken."""
Positive = Annotated[float, Rule("above 0 and finite", lambda value: 0 < value < math.inf)]
"""A rate or a temperature."""
Weight = Annotated[float, Rule("at least 0 and finite", lambda value: 0 <= value < math.inf)]
"""How much something counts, or how long it lasts."""
Momentum = Annotated[float, Rule("at least 0 and below 1", lambda part: 0 <= part < 1)]
"""What is kept of the past."""
Cosine = Annotated[float, Rule("from -1 to 1", lambda value: -1 <= value <= 1)]
"""How alike two directions are."""
Gigabytes = Annotated[float, Rule("above 0 GB and finite", lambda gb: gb > 0 and math.isfinite(gb))]
"""An amount of memory."""
Seed = Annotated[int, Rule("at least 0 and below 2**63", lambda seed: 0 <= seed < 2**63)]
"""What torch takes as a seed, without the negative ones."""
