"""Files that were spoiled, links that strangers planted, run folders among the images: commands say which file it is or
make it anew, nothing is written elsewhere, nothing is taken in."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from tools.torture.crashes import commands
from tools.torture.harness import Campaign, Case
from tools.torture.inputs import flipped, worse, worse_json
from tools.torture.world import BY_NAME, World, baseline, differences, digest, snapshot, tried

ON_DISCOVERIES = "report edits zip assign folders labels coco camtrap discover round".split()  # noqa: SIM905
ON = {
    "run": ON_DISCOVERIES,
    "edited": ON_DISCOVERIES,
    "train": ("first-report", "train"),
    "embed": ("embed",),
}
ON |= {"stopped": ("train",), "cache": ("train", "discover")}
"""What reads each of the kept folders."""
ODD = ("a folder", "a link to itself", "nothing")  # what may lie where a file should


def files(world: World, kept: str) -> list[str]:
    """Those of a kept folder, as paths below it; pictures of the report are nobody's input."""
    base = world.kept / kept
    every = sorted(path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file())
    return [name for name in every if not name.endswith((".jpg", ".html", ".lock"))]


def place(world: World, kept: str, command: str) -> Path:
    """Copies of what the command needs, with the kept folder where it looks for it."""
    there = kept if kept in ("run", "cache") or command == "first-report" else "run"
    world.fresh(*({*BY_NAME[command].kept, kept} - ({there} - {kept})))
    if there != kept:
        (world.trial / kept).rename(world.trial / there)
    return world.trial / there


def _spoiled(world: World, seed: int) -> Iterator[Case]:
    """For ever: a kept folder, a file of it, a mutation, a command that reads it."""
    dice = random.Random(f"files {seed}")
    places = [(kept, name) for kept in ON for name in files(world, kept)]
    dice.shuffle(places)
    for number in count():
        kept, name = places[number % len(places)] if number < 4 * len(places) else dice.choice(places)
        yield Case(str(number), (kept, name, dice.choice(ON[kept]), dice.random()))


def _on_spoiled(world: World, case: Case) -> list[str]:
    kept, name, command, chance = case.what
    file, dice = place(world, kept, command) / name, random.Random(chance)
    how = dice.choice(ODD) if dice.random() < 0.2 else ""
    content = file.read_bytes()
    file.unlink()  # it may be a link to what is kept
    if how == "a folder":
        file.mkdir()
    elif how == "a link to itself":
        file.symlink_to(file.name)
    elif not how:
        as_json = file.suffix == ".json" and dice.random() < 0.6
        how, made = worse_json(dice, content) if as_json else worse(dice, content)
        file.write_bytes(made)
    ended = tried(world, BY_NAME[command])
    outside = (ended.value or {}).get("outside", [])
    return [f"{kept}/{name} ({how}), {command}: {problem}" for problem in [*ended.troubles(), *outside]]


DECIDES = (".safetensors", ".parquet", ".npy", ".tokens", ".csv")
NOTICED = ("cannot be read", "was damaged")  # what is said of a file that is not used, or made anew
WORDS = ("queue.csv", "assignments.csv", "per_class.csv", "changes.csv", "edits.csv")
"""Files for people: nothing is computed from them, or, as edits.csv, people write them too."""


def _bits(world: World, seed: int) -> Iterator[Case]:
    dice = random.Random(f"rot {seed}")
    places = [(kept, name) for kept in ON for name in files(world, kept) if name.endswith(DECIDES)]
    places = [(kept, name) for kept, name in places if name.rpartition("/")[2] not in WORDS]
    for number in count():
        kept, name = places[number % len(places)]
        size = (world.kept / kept / name).stat().st_size
        yield Case(str(number), (kept, name, dice.choice(ON[kept]), int(dice.random() * 8 * size)))


def _on_flipped(world: World, case: Case) -> list[str]:
    kept, name, command, bit = case.what
    key, problems = command, baseline(world, BY_NAME[command])
    if kept not in ("stopped", "cache"):  # what the command leaves on the kept folder as it is
        key = f"{kept} {command}"
        if key not in world.baselines:
            place(world, kept, command)
            problems += tried(world, BY_NAME[command]).troubles(0)
            world.baselines[key] = snapshot(world.trial)
    file = place(world, kept, command) / name
    content = flipped(file.read_bytes(), bit)
    file.unlink()
    file.write_bytes(content)
    wrong, ended = digest(file), tried(world, BY_NAME[command])
    told = f"{kept}/{name}, bit {bit}, {command}"
    problems += [f"{told}: {problem}" for problem in ended.troubles()]
    if ended.code == 0 and not noticed(ended.err, file):
        found, wanted = snapshot(world.trial), dict(world.baselines[key])
        there = file.relative_to(world.trial).as_posix()
        if found.get(there) == wrong:  # nobody has looked at it, so that nothing was computed from it
            found[there] = wanted.get(there, "")
        if kept == "cache":
            found, wanted = ({p: of[p] for p in of if not p.startswith("cache/")} for of in (found, wanted))
        problems += [f"{told}: unnoticed, {difference}" for difference in differences(wanted, found)]
    return problems


def noticed(said: str, file: Path) -> bool:
    """Whether a command has named the file as one that it does not believe; then it may go on without it."""
    return any(str(file) in line and any(word in line for word in NOTICED) for line in said.splitlines())


HIDDEN = (".lock", ".edits.csv.lock", "edits.csv", "heartbeat.json", "moving", "metrics.jsonl")
"""Files that come and go, or that are not there yet."""


def _plants(world: World, seed: int) -> Iterator[Case]:
    """A link at the name of everything that each command writes, and at the folders on the way."""
    for command in commands(world):
        baseline(world, command)
        base = "run" if "run" in command.kept or not command.kept else command.kept[0]
        names = [*world.baselines[command.name], *(f"{base}/{name}" for name in HIDDEN)]
        skipped = (".safetensors", ".jpg", ".png", os.sep)
        written = {n for n in names if not n.endswith(skipped) and not n.startswith(("cache", "tmp"))}
        folders = {str(parent) for name in written for parent in Path(name).parents} - {".", base, "out"}
        for spot in sorted(folders | written):
            kinds = ("file", "nothing", "folder")
            if world.short:
                kinds = ("folder",) if spot in folders else ("file",)
            for kind in kinds:
                # a folder that its owner has named may well mean the one that it leads to
                if kind != "folder" or str(world.trial / spot) not in command.words(world):
                    yield Case(f"{command.name} {spot} {kind}", (command.name, spot, kind))


def _planted(world: World, case: Case) -> list[str]:
    name, where, kind = case.what
    command = BY_NAME[name]
    world.fresh(*command.kept)
    precious = world.base / "precious"
    shutil.rmtree(precious, ignore_errors=True)
    (precious / "folder").mkdir(parents=True)
    (precious / "file").write_text("mine")
    (precious / "folder" / "00000.jpg").write_text("mine as well")
    before, spot = snapshot(precious), world.trial / where
    spot.parent.mkdir(parents=True, exist_ok=True)
    if spot.is_dir() and not spot.is_symlink():
        shutil.rmtree(spot)
    spot.unlink(missing_ok=True)
    spot.symlink_to(precious / kind)
    ended = tried(world, command)
    outside = (ended.value or {}).get("outside", [])
    problems = ended.troubles() + [one for one in outside if not one.startswith("os.mkdir")]  # would be seen
    return problems + [f"elsewhere, {told}" for told in differences(before, snapshot(precious))]


CAMPAIGNS = (
    Campaign("links", "links planted where commands write", _plants, _planted, "planted links", 10),
    Campaign("files", "spoiled files of run folders and caches", _spoiled, _on_spoiled, short=10, weight=3),
    Campaign("rot", "one bit turned over in numbers", _bits, _on_flipped, "flipped bits", weight=2),
)
