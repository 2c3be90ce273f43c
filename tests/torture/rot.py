"""One bit of a file turned over: whatever decides numbers is noticed, or made anew, or comes to the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tests.torture.child import in_child
from tests.torture.commands import BY_NAME, baseline
from tests.torture.compare import differences, digest, snapshot
from tests.torture.mutate import flipped
from tests.torture.runfiles import ON, files, place, rewrite, watched
from tests.torture.tally import Campaign, Case
from tests.torture.world import World

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


def _check(world: World, case: Case) -> list[str]:
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
    "rot", "one bit turned over in what decides numbers", _bits, _check, kind="flipped bits", weight=2
)
