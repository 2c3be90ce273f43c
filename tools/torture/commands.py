"""The commands that are stopped, starved and repeated: what each is given, and what it leaves when nothing happens."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.torture.child import Ended, Strike, holotype, in_child
from tools.torture.compare import differences, snapshot
from tools.torture.hooks import Watch
from tools.torture.world import World


@dataclass(frozen=True)
class Command:
    """A command, and the runs that must be there before it."""

    name: str
    words: Callable[[World], list[object]]
    kept: tuple[str, ...] = ()
    ends: tuple[int, ...] = (0, 2)
    """Exit codes that are an answer to a failing disk."""


def _report(world: World) -> list[object]:
    return ["report", world.trial / "run", *world.flags]


def _edits(world: World) -> list[object]:
    return [*_report(world), "--edits", edits_file(world)]


def _round(world: World) -> list[object]:
    return [*world.discover(world.trial / "run"), "--edits", edits_file(world)]


def _write(form: str, place: str, *more: str) -> Callable[[World], list[object]]:
    return lambda world: [
        "write",
        world.trial / "run",
        form,
        world.trial / "out" / place,
        *more,
        *("--overwrite", "--no-progress"),
    ]


COMMANDS = (
    Command("report", _report, ("run",)),
    Command("edits", _edits, ("run",)),
    Command("first-report", lambda w: ["report", w.trial / "train", *w.flags], ("train",)),
    Command("zip", lambda w: [*_report(w), "--overwrite", "--zip", w.trial / "out" / "mail.zip"], ("run",)),
    Command(
        "assign",
        lambda w: [
            *("assign", w.trial / "run", w.images, "--out", w.trial / "out" / "new.csv"),
            *("--overwrite", "--copy-to", w.trial / "out" / "sorted", *w.flags),
        ],
        ("run",),
    ),
    Command("folders", _write("--folders", "folders"), ("run",)),
    Command("copies", _write("--folders", "folders", "--copy"), ("run",)),
    Command("labels", _write("--labels", "labels.csv", "--all"), ("run",)),
    Command("coco", _write("--coco", "coco.json"), ("run",)),
    Command("camtrap", _write("--camtrap-dp", "package", "--copy"), ("run",)),
    Command(
        "embed",
        lambda w: ["embed", w.images, "--backbone", w.backbone, "--out", w.trial / "run", *w.flags],
        ends=(0, 2, 3),  # 3: slices failed, and are listed
    ),
    Command(
        "estimate-k",
        lambda w: ["estimate-k", w.images, "--backbone", w.backbone, "--out", w.trial / "run", *w.flags],
    ),
    Command("train", lambda w: list(w.train(w.trial / "run"))),
    Command("discover", lambda w: list(w.discover(w.trial / "run"))),
    Command("round", _round, ("run",)),
    Command("bench", lambda w: _bench(w)),
)
BY_NAME = {command.name: command for command in COMMANDS}


def _bench(world: World) -> list[object]:
    small = {
        "k": 4,
        "train.epochs": 1,
        "train.batch_size": 16,
        "backbone.name": world.backbone,
        "device": "cpu",
    }
    words = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    out = ["--out", world.trial / "run", "--results", world.trial / "out", "--no-progress"]
    return ["bench", "--datasets", world.listed, "--methods", "kmeans,simgcd", "--seeds", "0", *out, *words]


def edits_file(world: World) -> Path:
    """Corrections of every kind, made in the report of the kept discovery."""
    path = world.base / "edits.csv"
    if not path.is_file():
        path.write_text(_edits_text(world.kept / "run"), encoding="utf-8")
    return path


def _edits_text(run: Path) -> str:
    from holotype.results.discovery import Discovery
    from holotype.results.edits import Edit, edits_csv

    def work() -> str:
        found = Discovery.load(run)
        novel = [category.id for category in found.categories if category.kind == "novel"]
        paths = [str(path) for path in found.images["path"] if "blue" in path or "yellow" in path]
        rows = [("confirm", path, "", "sea") for path in paths[:3]]
        rows += [("move", paths[4], "", "green"), ("reject", paths[5], "", "")]
        rows += [("rename", "", id, f"called {id}") for id in novel[:1]]
        return edits_csv(Edit(found.run_id, f"2026-01-01T00:00:{i:02d}Z", *row) for i, row in enumerate(rows))

    return str(in_child(work).value)


def baseline(world: World, command: Command) -> list[str]:
    """Run it once without any trouble and remember what it leaves; a sentence for everything wrong with that."""
    if command.name in world.baselines:
        return world.broken.get(command.name, [])
    world.fresh(*command.kept)
    started = time.time() - 0.1
    ended = tried(world, command)
    world.sizes[command.name] = _sizes(world, started)
    problems = ended.troubles(0) + (ended.value or {}).get("outside", [])
    world.baselines[command.name] = snapshot(world.trial)
    world.events[command.name] = (ended.value or {}).get("seen", [])
    world.seconds[command.name] = ended.seconds
    if problems:
        world.broken[command.name] = [
            f"without any trouble, {command.name} {problem}" for problem in problems
        ]
    return world.broken.get(command.name, [])


def _sizes(world: World, since: float) -> list[int]:
    """Of the files that were written; copies bear the time of what they are copies of."""
    files = [os.stat(os.path.join(where, name)) for where, _, names in os.walk(world.trial) for name in names]
    return sorted({file.st_size for file in files if file.st_mtime >= since and file.st_size})


def tried(world: World, command: Command, watch: Watch | None = None, strike: Strike | None = None) -> Ended:
    """The command in a child under watch, in the place of trials as it stands."""
    words = command.words(world)
    work = holotype(*words)

    def watched() -> dict[str, object]:
        world.settle()
        seen = watch or Watch()
        if strike and strike.signal != signal.SIGKILL:
            seen.held_back = strike.signal
        seen.install_in(str(world.trial))
        code = work()
        return {"code": code, "seen": seen.seen, "outside": seen.outside, "refused": seen.refused}

    if strike and strike.signal != signal.SIGKILL:
        signal.pthread_sigmask(signal.SIG_BLOCK, {strike.signal})
    ended = in_child(watched, strike=strike)
    if strike and strike.signal != signal.SIGKILL:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {strike.signal})
    if ended.code == 0 and isinstance(ended.value, dict):
        ended.code = ended.value["code"]
    return ended


def goes_on(world: World, command: Command) -> list[str]:
    """After trouble: the same command ends with 0 and leaves what an uninterrupted one does."""
    again = tried(world, command)
    problems = [f"afterwards {problem}" for problem in again.troubles(0)]
    problems += [f"{change} is outside" for change in (again.value or {}).get("outside", [])]
    return problems + differences(world.baselines[command.name], snapshot(world.trial))
