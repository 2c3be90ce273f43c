"""Files of run folders and caches that were spoiled: commands say which one it is, or make it anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from holotype.errors import InputError
from tests.torture.batches import expect, survive
from tests.torture.child import holotype, in_child
from tests.torture.commands import BY_NAME
from tests.torture.hooks import Watch
from tests.torture.mutate import worse, worse_json
from tests.torture.readers import reader
from tests.torture.tally import Campaign, Case
from tests.torture.world import World

EACH = 10
"""Mutations of a file in the short form."""
ON_DISCOVERIES = (
    *("report", "edits", "zip", "assign", "folders", "labels", "coco", "camtrap", "discover", "round"),
)
ON = {
    "run": ON_DISCOVERIES,
    "edited": ON_DISCOVERIES,
    "train": ("first-report", "train"),
    "embed": ("embed",),
    "stopped": ("train",),
    "cache": ("train", "discover"),
}
"""What reads each of the kept folders."""
RENAMED = {
    ("train", "train"): "run",
    ("stopped", "train"): "run",
    ("embed", "embed"): "run",
    **{("edited", command): "run" for command in ON_DISCOVERIES},
}
"""Where a kept folder has to lie for a command to find it, if not under its own name."""
ODD = ("a folder", "a link to itself", "nothing")
"""What may lie where a file should."""


def files(world: World, kept: str) -> list[str]:
    """Those of a kept folder, as paths below it; pictures of the report are nobody's input."""
    base = world.kept / kept
    every = sorted(path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file())
    return [name for name in every if not name.endswith((".jpg", ".html", ".lock"))]


def spoiled(dice: random.Random, path: Path) -> tuple[str, bytes]:
    content = path.read_bytes()
    if path.suffix == ".json" and dice.random() < 0.6:
        return worse_json(dice, content)
    return worse(dice, content)


# -- the short form: what reads a file, without the rest of the command ---------------------------------------


def _quick(world: World, seed: int) -> Iterator[Case]:
    for name in files(world, "run"):
        yield Case(name, (seed, name), EACH)


def _check_quick(world: World, case: Case) -> list[str]:
    seed, name = case.what
    dice = random.Random(f"{seed} {name}")
    run = world.fresh("run") / "run"
    content = (run / name).read_bytes()
    made = [spoiled(dice, run / name) for _ in range(EACH)]

    def try_it(spoilt: bytes) -> list[str]:
        rewrite(run / name, spoilt)
        try:
            expect((InputError,), reader(world, run, name))
        finally:
            (run / name).unlink(missing_ok=True)
            (run / name).write_bytes(content)
        return []

    tries = [
        (f"{name} ({how}, {i})", lambda spoilt=spoilt: try_it(spoilt)) for i, (how, spoilt) in enumerate(made)
    ]
    return survive(tries, watched=str(world.trial))


# -- the long form: whole commands --------------------------------------------------------------------------


def _all(world: World, seed: int) -> Iterator[Case]:
    """For ever: a kept folder, a file of it, a mutation, a command that reads it."""
    dice, number = random.Random(f"files {seed}"), 0
    places = [(kept, name) for kept in ON for name in files(world, kept)]
    while True:
        kept, name = places[number % len(places)] if number < 4 * len(places) else dice.choice(places)
        yield Case(str(number), (kept, name, dice.choice(ON[kept]), dice.random()))
        number += 1


def place(world: World, kept: str, command: str) -> Path:
    """Copies of what the command needs, with the kept folder where it looks for it."""
    other = RENAMED.get((kept, command))
    world.fresh(*({*BY_NAME[command].kept, kept} - {other}))
    if other and other != kept:
        (world.trial / kept).rename(world.trial / other)
    return world.trial / (other or kept)


def _check(world: World, case: Case) -> list[str]:
    kept, name, command, chance = case.what
    base = place(world, kept, command)
    dice = random.Random(chance)
    how = dice.choice(ODD) if dice.random() < 0.2 else ""
    if how:
        replace(base / name, how)
    else:
        how, made = spoiled(dice, base / name)
        rewrite(base / name, made)
    ended = in_child(lambda: watched(world, command))
    told = f"{kept}/{name} ({how}), {command}"
    value = ended.value if isinstance(ended.value, dict) else {"code": None, "outside": []}
    ended.code = value["code"] if ended.code == 0 else ended.code
    return [f"{told}: {problem}" for problem in [*ended.troubles(), *value["outside"]]]


def watched(world: World, command: str) -> dict[str, object]:
    """In a child."""
    world.settle()
    watch = Watch().install_in(str(world.trial))
    return {"code": holotype(*BY_NAME[command].words(world))(), "outside": watch.outside}


def rewrite(path: Path, content: bytes) -> None:
    """A new file: the old one may be a link to what is kept."""
    path.unlink()
    path.write_bytes(content)


def replace(path: Path, what: str) -> None:
    """What is no file, in the place of one."""
    path.unlink()
    if what == "a folder":
        path.mkdir()
    elif what != "nothing":
        path.symlink_to(path.name)


READ = Campaign(
    "read", "spoiled files of a run folder, read", _quick, _check_quick, kind="mutated inputs", short=-1
)
FILES = Campaign(
    "files", "spoiled files of run folders and caches", _all, _check, kind="mutated inputs", weight=3
)
