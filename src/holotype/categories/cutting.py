"""A discovery cut at another number of categories: the steps of its tree (tree.py) as edits, applied.

They are edits like those of people: names stay, a known class keeps its id, and `holotype report RUN --edits` takes
them over for good. Until then the run itself is as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holotype.categories.corrections import apply_edits
from holotype.categories.edits import Edit
from holotype.categories.found import Discovery
from holotype.categories.standing import MOVED
from holotype.categories.tree import Merge, Split, Tree
from holotype.errors import InputError

PARTED = "parted by the tree"
"""Note of an image that left its category in a cut."""
SHOWN = 3
"""Steps to either side that a report foresees."""


@dataclass(frozen=True)
class Cut:
    """What a cut comes to."""

    discovery: Discovery
    """Under an id of its own: what people correct in it does not speak of the run."""
    edits: list[Edit]
    """Those that bring the run there."""
    lines: list[str]
    """What became of the categories, a sentence each."""


def cut(found: Discovery, tree: Tree, k: int, at: str) -> Cut:
    """The discovery with k categories. at: time of the edits, ISO 8601."""
    merges, splits = steps_to(tree, k)
    names = {category.id: category.name for category in found.categories}
    edits = [Edit(found.run_id, at, "merge", "", merge.source, merge.target) for merge in merges]
    edits += moves(found, splits, at)
    applied = apply_edits(found, edits)
    discovery = applied.discovery
    if splits:
        left = {row for split in splits for row in split.rows}
        note = [
            PARTED if row in left and note == MOVED else note
            for row, note in enumerate(discovery.images["note"].fillna(""))
        ]
        discovery = dataclasses.replace(discovery, images=discovery.images.assign(note=note))
    steps: list[Merge | Split] = [*merges, *splits]
    title = f"{found.facts.title}, cut at {k}".lstrip(", ")
    facts = dataclasses.replace(discovery.facts, k=k, in_use=k, title=title)
    own = dataclasses.replace(discovery, run_id=f"{found.run_id}-at-{k}", facts=facts)
    return Cut(own, edits, [in_words(step, names) for step in steps])


def reach(tree: Tree) -> str:
    """What can be done with the categories of a tree."""
    if tree.lowest == tree.highest:  # a new one could join another
        return "are all known classes, and can be cut at no other number"
    return f"can be cut at {tree.lowest} to {tree.highest}"


def steps_to(tree: Tree, k: int) -> tuple[Sequence[Merge], Sequence[Split]]:
    """What happens on the way to k categories; raises InputError where the tree does not reach so far."""
    if k < tree.lowest:
        raise InputError(
            f"The {tree.k} categories of this run {reach(tree)}; there cannot be fewer, because known classes stay."
        )
    if k > tree.highest:
        raise InputError(
            f"The {tree.k} categories of this run {reach(tree)}; for {k} of them run holotype discover again with "
            f"--k {k}."
        )
    return tree.merges[: max(0, tree.k - k)], tree.splits[: max(0, k - tree.k)]


def moves(found: Discovery, splits: Sequence[Split], at: str) -> list[Edit]:
    """Every image that leaves, straight to where it ends."""
    end = {row: split.part for split in splits for row in split.rows}
    path, id = found.images["path"], found.images["category_id"]
    return [
        Edit(found.run_id, at, "move", str(path.iloc[row]), str(id.iloc[row]), part)
        for row, part in sorted(end.items())
    ]


def in_words(step: Merge | Split, names: Mapping[str, str]) -> str:
    """A step as a sentence. names: of categories, by id; parts have none but their id."""

    def name(id: str) -> str:
        return names.get(id, id)

    if isinstance(step, Merge):
        return f"{name(step.source)} joins {name(step.target)}."
    return f"{len(step.rows):,} images of {name(step.source)} become {step.part}."


def foresee(tree: Tree, names: Mapping[str, str], shown: int = SHOWN) -> list[tuple[int, str]]:
    """(number of categories, what happens on the way there from the number before), from low to high."""
    fewer = [(tree.k - i - 1, in_words(step, names)) for i, step in enumerate(tree.merges[:shown])]
    more = [(tree.k + i + 1, in_words(step, names)) for i, step in enumerate(tree.splits[:shown])]
    return [*reversed(fewer), *more]
