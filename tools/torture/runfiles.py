"""Files of run folders and caches that were spoiled: commands say which one it is, or make it anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tools.torture.child import holotype, in_child
from tools.torture.commands import BY_NAME, baseline
from tools.torture.compare import differences, digest, snapshot
from tools.torture.harness import Campaign, Case
from tools.torture.hooks import Watch
from tools.torture.mutate import flipped, worse, worse_json
from tools.torture.world import World

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


def _all(world: World, seed: int) -> Iterator[Case]:
    """For ever: a kept folder, a file of it, a mutation, a command that reads it."""
    dice, number = random.Random(f"files {seed}"), 0
    places = [(kept, name) for kept in ON for name in files(world, kept)]
    dice.shuffle(places)
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


FILES = Campaign(
    "files",
    "spoiled files of run folders and caches",
    _all,
    _check,
    kind="mutated inputs",
    short=20,
    weight=3,
)


# -- one bit turned over: whatever decides numbers is noticed, or made anew, or comes to the same ----------

DECIDES = (".safetensors", ".parquet", ".npy", ".tokens", ".csv")
NOTICED = ("cannot be read", "was damaged")
"""What is said of a file that is not used, or made anew."""
WORDS = (
    "queue.csv",
    "assignments.csv",
    "per_class.csv",
    "changes.csv",
    "edits.csv",
)
"""Files for people: nothing is computed from them, or, as edits.csv, people write them too."""


def _bits(world: World, seed: int) -> Iterator[Case]:
    dice = random.Random(f"rot {seed}")
    places = [
        (kept, name)
        for kept in ON
        for name in files(world, kept)
        if name.endswith(DECIDES) and name.rpartition("/")[2] not in WORDS
    ]
    for number in range(1_000_000):
        kept, name = places[number % len(places)]
        size = (world.kept / kept / name).stat().st_size
        yield Case(str(number), (kept, name, dice.choice(ON[kept]), int(dice.random() * 8 * size)))


def _check_rot(world: World, case: Case) -> list[str]:
    kept, name, command, bit = case.what
    problems = baseline(world, BY_NAME[command])
    base = place(world, kept, command)
    if kept not in ("stopped", "cache"):
        problems += _undisturbed(world, kept, command)
        base = place(world, kept, command)
    rewrite(base / name, flipped((base / name).read_bytes(), bit))
    wrong = digest(base / name)
    ended = in_child(lambda: watched(world, command))
    told = f"{kept}/{name}, bit {bit}, {command}"
    value = ended.value if isinstance(ended.value, dict) else {"code": None}
    ended.code = value["code"] if ended.code == 0 else ended.code
    problems += [f"{told}: {problem}" for problem in ended.troubles()]
    if ended.code == 0 and not noticed(ended.err, base / name):
        found = snapshot(world.trial)
        wanted = world.baselines[command if kept in ("stopped", "cache") else f"{kept} {command}"]
        there = (base / name).relative_to(world.trial).as_posix()
        if found.get(there) == wrong:  # nobody has looked at it, so that nothing was computed from it
            found[there] = wanted.get(there, "")
        if kept == "cache":
            found = {path: content for path, content in found.items() if not path.startswith("cache/")}
            wanted = {path: content for path, content in wanted.items() if not path.startswith("cache/")}
        problems += [f"{told}: unnoticed, {difference}" for difference in differences(wanted, found)]
    return problems


def noticed(said: str, file: Path) -> bool:
    """Whether a command has named the file as one that it does not believe; then it may go on without it."""
    return any(str(file) in line and any(word in line for word in NOTICED) for line in said.splitlines())


def _undisturbed(world: World, kept: str, command: str) -> list[str]:
    """What the command leaves on the kept folder as it is."""
    key = f"{kept} {command}"
    if key in world.baselines:
        return []
    ended = in_child(lambda: watched(world, command))
    world.baselines[key] = snapshot(world.trial)
    return ended.troubles(0)


ROT = Campaign(
    "rot", "one bit turned over in what decides numbers", _bits, _check_rot, kind="flipped bits", weight=2
)
