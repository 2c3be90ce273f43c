"""Constrained types of settings, written beside a field: `epochs: Count = 200`.

Whoever reads settings (config/parse.py) checks the rules; dataclasses themselves do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Constraint:
    """Stands in an `Annotated` type, such as Annotated[int, Constraint("even", lambda n: n % 2 == 0)]."""

    words: str
    """Completes the sentence `epochs must be ...`."""
    holds: Callable[[Any], bool]
    """Of a value of the right type."""


MAX_FLOAT = 1e30
"""Of a number that training reckons with: 32 bits hold no number above 3e38."""


def at_most(most: int) -> Constraint:
    """Return the rule that a number is no slip of the finger, which would train for years or fill memory."""
    return Constraint(f"at most {most:,}", lambda number: number <= most)


Count = Annotated[int, Constraint("at least 1", lambda number: number >= 1)]
"""A number of something."""
Natural = Annotated[int, Constraint("at least 0", lambda number: number >= 0)]
"""A number of something that there may be none of."""
Epochs = Annotated[Count, at_most(100_000)]
"""Passes over all images."""
Steps = Annotated[Count, at_most(1_000_000)]
"""Batches that are learnt from."""
Side = Annotated[Count, at_most(4_096)]
"""Of a picture, in pixels."""
Width = Annotated[Natural, at_most(100_000)]
"""Of a layer, in numbers; there may be none."""
LargeInt = Annotated[Count, at_most(100_000)]
"""A number of things that are held at once."""
RepeatCount = Annotated[Count, at_most(1_000)]
"""How often something is done anew, of which each time takes its time."""
SmallInt = Annotated[Count, at_most(100)]
"""A number of things that each take a good part of the whole."""
Port = Annotated[int, Constraint("from 1 to 65535", lambda number: 1 <= number <= 65_535)]
"""Of a computer, to listen on."""
UnitInterval = Annotated[float, Constraint("from 0 to 1", lambda part: 0 <= part <= 1)]
"""A part of something."""
Factor = Annotated[float, Constraint("above 0 and at most 100", lambda factor: 0 < factor <= 100)]
"""How many times something is taken."""
Positive = Annotated[float, Constraint("above 0 and at most 1e+30", lambda value: 0 < value <= MAX_FLOAT)]
"""A rate or a temperature."""
Weight = Annotated[float, Constraint("at least 0 and at most 1e+30", lambda value: 0 <= value <= MAX_FLOAT)]
"""How much something counts, or how long it lasts."""
Momentum = Annotated[float, Constraint("at least 0 and below 1", lambda part: 0 <= part < 1)]
"""What is kept of the past."""
Cosine = Annotated[float, Constraint("from -1 to 1", lambda value: -1 <= value <= 1)]
"""How alike two directions are."""
Gigabytes = Annotated[float, Constraint("above 0 GB and finite", lambda gb: gb > 0 and math.isfinite(gb))]
"""An amount of memory."""
Seed = Annotated[int, Constraint("at least 0 and below 2**63", lambda seed: 0 <= seed < 2**63)]
"""What torch takes as a seed, without the negative ones."""


def is_device_name(name: str) -> bool:
    """Return whether a device can be called so, on this machine or on another."""
    return re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name) is not None


def is_bursts(text: str) -> bool:
    """Return whether text is auto, no or a positive number of seconds."""
    try:
        return text.strip().lower() in ("auto", "no") or 0 < float(text) < math.inf
    except ValueError:
        return False


DEVICE_NAMES = "auto, cpu, mps, cuda, or cuda:1 for the second GPU"
DeviceName = Annotated[str, Constraint(DEVICE_NAMES, is_device_name)]
Bursts = Annotated[str, Constraint("auto, no or a number of seconds", is_bursts)]
Name = Annotated[str, Constraint("a name", bool)]
"""Of a file, a network or a method."""
Names = Annotated[str, Constraint("names, as in rpc,uno", lambda text: all(text.split(",")))]
"""With commas between them."""
