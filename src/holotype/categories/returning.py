"""Which categories come back in several trainings, in words for reports, tables and the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holotype.categories.found import Category, Discovery

HALF = 0.5
"""Share of the trainings in which a category must be found to be one that comes back."""
NAMED = 6
"""Categories that a sentence names."""
ONE = "One training, so there is no vote; --seeds changes it."


def told(category: Category, trainings: int) -> str:
    """Of one category; "" where there was one training, or edits have changed it since."""
    if trainings < 2 or not math.isfinite(category.together):
        return ""
    return (
        f"Comes back in {category.comes_back} of {trainings} trainings; {round(100 * category.together)} % of its "
        "unlabelled images stay together."
    )


def returns(category: Category, trainings: int) -> bool:
    """Is it found in more than half of the trainings?"""
    return category.comes_back > HALF * trainings


def methods_in_words(methods: Sequence[str]) -> str:
    """rpc and uno in turn; rpc."""
    return f"{', '.join(methods[:-1])} and {methods[-1]} in turn" if len(methods) > 1 else methods[0]


def votes_in_words(trainings: int) -> str:
    """How many trainings vote on where the images lie, and what changes that."""
    return f"{trainings} trainings vote; --seeds changes it." if trainings > 1 else ONE


def summary(found: Discovery) -> list[str]:
    """Sentences on the trainings of a discovery and on the categories that do not come back."""
    facts = found.facts
    n = len(facts.trainings)
    if n < 2:
        return [ONE] if facts.round else []
    novel = [c for c in found.categories if c.kind == "novel" and math.isfinite(c.together)]
    faint = sorted((c for c in novel if not returns(c, n)), key=lambda c: (c.comes_back, c.id))
    best = facts.agreement[facts.trainings.index(facts.seed)] if facts.seed in facts.trainings else math.nan
    turns = f"; {methods_in_words(facts.methods)}" if len(facts.methods) > 1 else ""
    which = f"{facts.method} with seed {facts.seed}" if turns else f"the one with seed {facts.seed}"
    lines = [
        votes_in_words(n),
        f"Images are placed where they agree (seeds {facts.trainings[0]} to {facts.trainings[-1]}{turns}). The model "
        f"of {which}, which agrees on {round(100 * best)} % of these, is kept for new images.",
    ]
    if not novel:
        return lines
    every = sum(c.comes_back == n for c in novel)
    lines.append(f"New categories that come back in every training: {every} of {len(novel)}.")
    if faint:
        named = ", ".join(f"{c.name} ({c.comes_back} of {n})" for c in faint[:NAMED])
        more = f" and {len(faint) - NAMED} more" if len(faint) > NAMED else ""
        lines.append(f"Not in more than half of them, so look twice: {named}{more}.")
    return lines
