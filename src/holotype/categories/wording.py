"""How a category stands to the known classes, in words, and a name for it until somebody finds a better one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from holotype.categories.found import Category, Discovery

MODEL_SAYS, BURST_IS_IN = "the model would say ", "most frames of its burst are in "
"""What tells of a category at the end of a note."""


def all_words(categories: Sequence[Category], known: Sequence[str], called: Sequence[str]) -> list[str]:
    """`in_words` for each category, compared with what is usual among the others. called: names of the known ones."""
    place = {name: i for i, name in enumerate(known)}
    table = np.array([c.signature for c in categories]).reshape(len(categories), len(known))
    for row, c in enumerate(categories):
        if c.id in place:
            table[row, place[c.id]] = np.nan  # a class is like itself: that says nothing, and is not usual
    words = []
    for row in range(len(categories)):
        others = np.delete(table, row, axis=0)
        seen = np.isfinite(others).any(0)
        usual = np.full(len(known), np.nan)
        usual[seen] = np.nanmedian(others[:, seen], axis=0)
        words.append(in_words(table[row], called, usual=usual))
    return words


def in_words(
    signature: Sequence[float] | np.ndarray,
    known: Sequence[str],
    *,
    most: int = 2,
    usual: np.ndarray | None = None,
) -> str:
    """A signature as a sentence: closest to Sneaker 0.71 and Sandal 0.55; unlike Bag.

    signature: (C,) cosines, NaN = leave this class out. usual: (C,) what other categories have, as no cosine is high
    or low by itself. A further class is named as close while it is nearer to the first than to the middle of the
    signature. The last one is named as unlike where it lies lower in this signature than in the usual one.
    """
    values = np.asarray(signature, dtype=float)
    ordinary = np.zeros(len(values)) if usual is None else np.asarray(usual, dtype=float)
    order = [int(i) for i in np.argsort(-values, kind="stable") if np.isfinite(values[i])]
    if not order:
        return ""
    first, last = order[0], order[-1]
    # rounded, so that nobody reads of a closeness of -0.00
    values = np.round(values, 2) + 0.0
    if values[first] <= max(ordinary[first], 0):
        close = [first]
        text = f"like no known class in particular; nearest {known[first]} {values[first]:.2f}"
    else:
        half_way = (values[first] + np.median(values[order])) / 2
        close = [i for i in order[:most] if i == first or values[i] > half_way]
        text = "closest to " + " and ".join(f"{known[i]} {values[i]:.2f}" for i in close)
    lower = values[last] - values[order].mean() < ordinary[last] - ordinary[order].mean()
    if len(order) > 2 and last not in close and lower:
        text += f"; unlike {known[last]}"
    return text


def call_anew(categories: Sequence[Category], before: Sequence[Category]) -> None:
    """After edits: words and suggested names name known classes as these are called now. before: the categories with
    the names of then."""
    now = {category.id: category.name for category in categories}
    then = {category.id: category.name for category in before if category.kind == "known"}
    names = {name: now[id] for id, name in then.items() if now[id] != name}
    for category in categories:
        category.words = renamed_words(category.words, names)
        if category.kind == "known":
            category.suggested = category.name if category.suggested else ""
        else:
            category.suggested = renamed_suggestion(category.suggested, names)


def named_since(found: Discovery, names: Mapping[str, str]) -> Discovery:
    """What a round found, with the names that people gave since, by id, in words and notes too."""
    now = found.called(names)
    call_anew(now.categories, found.categories)
    called = {then.name: one.name for then, one in zip(found.categories, now.categories, strict=True)}
    note = [renamed_note(str(note), called) for note in now.images["note"].fillna("")]
    return replace(now, images=now.images.assign(note=note))


def renamed_words(words: str, names: Mapping[str, str]) -> str:
    """What `in_words` said, with known classes as they are called now. names: by those of before."""
    if not names:
        return words
    before = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    place = rf"(closest to |nearest | and |; unlike )({before})(?= -?\d\.\d\d|$| \(before )"
    return re.sub(place, lambda found: found[1] + names[found[2]], words)


def renamed_suggestion(suggested: str, names: Mapping[str, str]) -> str:
    """What `suggest_names` gave a new category, likewise."""
    found = re.fullmatch(r"near (.+), new (\d+)", suggested, re.DOTALL)
    return f"near {names[found[1]]}, new {found[2]}" if found and found[1] in names else suggested


def renamed_note(note: str, names: Mapping[str, str]) -> str:
    """The note of an image, with the category that it ends with as that is called now."""
    for words in (MODEL_SAYS, BURST_IS_IN):
        own, _, name = note.rpartition(words)
        if note.endswith(words + name) and name in names:
            return own + words + names[name]
    return note


def suggest_names(categories: Sequence[Category], known: Sequence[str]) -> list[str]:
    """A name for each: its own for a known class, else `near Sneaker, new 1`, numbered per known class."""
    count: dict[str, int] = {}
    names = []
    for category in categories:
        if category.kind == "known":
            names.append(category.name)
            continue
        values = np.nan_to_num(np.array(category.signature), nan=-np.inf)
        near = known[int(values.argmax())] if np.isfinite(values).any() else ""
        count[near] = count.get(near, 0) + 1
        names.append(f"near {near}, new {count[near]}" if near else f"new {count[near]}")
    return names
