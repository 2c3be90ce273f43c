"""Sequences of edits that nobody would make: whatever they say, what is found stays whole."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tools.torture.harness import Campaign, Case, numbered, survive
from tools.torture.mutate import TEXTS
from tools.torture.world import World

if TYPE_CHECKING:
    from holotype.results.discovery import Discovery
    from holotype.results.edits import Edit

AT_ONCE = 40
RUN = "aaaaaaaaaaaa-1"
GROUPS = {"a": [0, 1, 2], "b": [3, 4], "new-01": [5, 6, 7], "new-02": [8, 9], "new-03": [10, 11]}
KNOWN = ("a", "b")


def _check(world: World, case: Case) -> list[str]:
    seed, number = case.what
    world.fresh()
    tries: list[tuple[str, Callable[[], list[str]]]] = []
    for i in range(AT_ONCE):
        name = f"{seed} {number} {i}"
        tries.append((f"sequence {i}", lambda name=name: list(invariants(name, world))))
    return survive(tries, watched=str(world.trial))


def sequence(dice: random.Random, paths: list[str]) -> list[Edit]:
    """Edits of every kind, of things that are there, are gone, never were, or are words that break things."""
    from holotype.results.edits import ACTIONS, Edit

    made: list[Edit] = []
    words = [*GROUPS, *GROUPS, "x", "new-01 ", "y", "", *dice.sample(TEXTS, 3)]
    words = [word for word in words if _writable(word)]
    for i in range(dice.randrange(1, 25)):
        image = dice.choice((*paths, *paths, "", "gone.png"))
        run = RUN if dice.random() < 0.95 else "bbbbbbbbbbbb-7"
        edit = Edit(
            run,
            f"2026-01-01T00:00:{i:02d}Z",
            dice.choice(ACTIONS),
            image,
            dice.choice(words),
            dice.choice(words),
            dice.choice(("", "", f"d{dice.randrange(10)}")),
        )
        made.append(dice.choice(made) if made and dice.random() < 0.05 else edit)
        words += [edit.value] if edit.action in ("rename", "move") else []
    return made


def _writable(word: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


@cache
def given() -> Discovery:
    """A discovery of twelve images, of which some are copies of others."""
    from tests.discovery.made_round import made_discovery

    found = made_discovery(RUN, GROUPS, KNOWN)
    found.images["digest"] = [f"d{i % 8}" if i != 1 else "" for i in range(len(found.images))]
    return found


def invariants(name: str, world: World) -> Iterator[str]:
    """Make a sequence, apply it, and say what is no longer so."""
    from holotype.results.apply_edits import apply_edits

    dice, found = random.Random(name), given()
    edits = sequence(dice, [str(path) for path in found.images["path"]])
    before = told(found)
    outcome = apply_edits(found, edits)
    if told(found) != before:
        yield "the given discovery was changed"
    yield from whole(outcome.discovery)
    own = {edit.id for edit in edits if edit.run_id == RUN}
    kept = outcome.discovery.facts.edits
    if own != {*kept.applied, *kept.refused}:
        yield "edits were forgotten"
    again = apply_edits(outcome.discovery, edits)
    if again.count or told(again.discovery) != told(outcome.discovery):
        yield "the same edits, once more, change something"
    cut = dice.randrange(len(edits) + 1)
    steps = apply_edits(apply_edits(found, edits[:cut]).discovery, edits)
    if told(steps.discovery) != told(outcome.discovery):
        yield f"in two parts, cut at {cut}, they come to something else"
    if dice.random() < 0.2:
        yield from on_disk(edits, outcome.discovery, world.trial)


def on_disk(edits: list[Edit], found: Discovery, folder: Path) -> Iterator[str]:
    """Edits and discovery are the same after they were written and read."""
    from holotype.results.discovery import Discovery
    from holotype.results.edits import edits_csv, read_edits

    file = folder / "edits.csv"
    file.write_text(edits_csv(edits), encoding="utf-8", newline="")
    if read_edits(file) != edits:
        yield "the file does not hold what was written to it"
    found.save(folder / "saved")
    if told(Discovery.load(folder / "saved")) != told(found):
        yield "what is loaded is not what was saved"


def whole(found: Discovery) -> Iterator[str]:
    """What must hold for every discovery."""
    ids = [category.id for category in found.categories]
    names = [category.name for category in found.categories]
    sizes = Counter(found.images["category_id"])
    if len(set(ids)) < len(ids) or len(set(names)) < len(names):
        yield f"two categories are called the same: {names}"
    if not set(KNOWN) <= set(ids):
        yield f"a known class is gone: {ids}"
    if set(sizes) - {""} - set(ids):
        yield f"images are in categories that are not there: {set(sizes) - set(ids)}"
    for category in found.categories:
        if category.n != sizes[category.id]:
            yield f"{category.id} says {category.n} images and has {sizes[category.id]}"
        if category.kind == "novel" and not category.n:
            yield f"{category.id} is empty and is shown"
        if category.nearest and category.nearest not in ids:
            yield f"the nearest of {category.id} is gone"
        members = set(found.images["path"][found.images["category_id"] == category.id])
        if not {*category.exemplars, *category.borderline} <= members:
            yield f"{category.id} shows images that it does not have"
    called = dict(zip(ids, names, strict=True)) | {"": ""}
    if [called.get(id) for id in found.images["category_id"]] != list(found.images["category"]):
        yield "ids and names of the images do not agree"
    if (found.images["category_id"][found.images["note"] == "rejected"] != "").any():
        yield "a rejected image has a category"


def told(found: Discovery) -> tuple[object, ...]:
    """All but the order of the categories: one that was empty for a while comes back as the last."""
    columns = [
        list(found.images[name]) for name in ("path", "category_id", "category", "kind", "note", "doubtful")
    ]
    return sorted((c.id, c.name, c.n) for c in found.categories), found.facts.edits, columns


EDITS = Campaign(
    "edits", "sequences of edits", numbered(AT_ONCE), _check, kind="mutated inputs", short=5, weight=0.5
)
