"""Links that strangers planted, and run folders among the images: nothing is written elsewhere, nothing is taken in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tools.torture.commands import BY_NAME, COMMANDS, baseline, tried
from tools.torture.compare import differences, snapshot
from tools.torture.harness import Campaign, Case, survive
from tools.torture.world import World

QUICK = ("edits",)
HIDDEN = (".lock", ".edits.csv.lock", "edits.csv", "heartbeat.json", "moving", "metrics.jsonl")
"""Files that come and go, or that are not there yet."""


def _plants(world: World, seed: int) -> Iterator[Case]:
    """A link at the name of everything that each command writes, and at the folders on the way."""
    for command in [BY_NAME[name] for name in QUICK] if world.short else COMMANDS:
        baseline(world, command)
        base = "run" if "run" in command.kept or not command.kept else command.kept[0]
        names = [*world.baselines[command.name], *(f"{base}/{name}" for name in HIDDEN)]
        written = [
            n
            for n in names
            if not n.endswith((".safetensors", os.sep)) and not n.startswith(("cache", "tmp"))
        ]
        folders = {str(parent) for name in written for parent in Path(name).parents} - {".", base, "out"}
        places = [*sorted(folders), *sorted({*written} - _pictures(written))]
        words = (word for word in command.words(world) if isinstance(word, Path))
        named = {
            word.relative_to(world.trial).as_posix() for word in words if word.is_relative_to(world.trial)
        }
        for place in places:
            for kind in (
                ("file", "nothing", "folder")
                if not world.short
                else ("file", "folder")[place in folders :][:1]
            ):
                if kind == "folder" and place in folders & named:
                    continue  # its owner has named it, and may well mean the folder that it leads to
                yield Case(f"{command.name} {place} {kind}", (command.name, place, kind))


def _pictures(names: list[str]) -> set[str]:
    """Of many files of one folder the first is enough."""
    seen: dict[str, int] = {}
    many = set()
    for name in names:
        key = str(Path(name).parent) + Path(name).suffix
        seen[key] = seen.get(key, 0) + 1
        if seen[key] > 8:
            many.add(name)
    return many


def _planted(world: World, case: Case) -> list[str]:
    name, place, kind = case.what
    command = BY_NAME[name]
    world.fresh(*command.kept)
    precious = world.base / "precious"
    shutil.rmtree(precious, ignore_errors=True)
    (precious / "folder").mkdir(parents=True)
    (precious / "file").write_text("mine")
    (precious / "folder" / "00000.jpg").write_text("mine as well")
    before = snapshot(precious)
    spot = world.trial / place
    spot.parent.mkdir(parents=True, exist_ok=True)
    if spot.is_dir() and not spot.is_symlink():
        shutil.rmtree(spot)
    spot.unlink(missing_ok=True)
    spot.symlink_to(precious / kind)
    ended = tried(world, command)
    tried_to = (ended.value or {}).get("outside", [])
    problems = ended.troubles() + [
        one for one in tried_to if not one.startswith("os.mkdir")
    ]  # these would be seen
    return problems + [f"elsewhere, {told}" for told in differences(before, snapshot(precious))]


LINKS = Campaign(
    "links", "links planted where commands write", _plants, _planted, kind="planted links", short=14, weight=1
)


# -- among the images -------------------------------------------------------------------------------------

AMONG = ("run", "runs/mine", "unlabelled/run", "red")


def _places(world: World, seed: int) -> Iterator[Case]:
    for place in AMONG:
        yield Case(place, place)


def _inside(world: World, case: Case) -> list[str]:
    """A run folder, and what is made from it, in the folder of the images: only the images are images."""
    images = world.fresh("run") / "images"
    shutil.copytree(world.images, images)
    before = sorted(path.relative_to(images).as_posix() for path in images.rglob("*.png"))
    there = images / case.what
    if there.exists():  # into a folder that has images of its own
        there = there / "run"
    shutil.copytree(world.trial / "run", there)

    def check() -> list[str]:
        from holotype.data.readers.folder import read_folder
        from holotype.export.folders import write_folders

        write_folders(there, images / "sorted")
        found = read_folder(images)
        names = sorted(os.path.relpath(path, images).replace(os.sep, "/") for path in found.path)
        return (
            []
            if names == before
            else [
                f"{len(names)} images instead of {len(before)}, for example {set(names) ^ set(before)!s:.200}"
            ]
        )

    return survive([(f"a run folder at {case.what}", check)], watched=str(world.trial))


INSIDE = Campaign(
    "inside", "a run folder among the images", _places, _inside, kind="planted links", short=-1, weight=0.1
)
