"""The same command again and again in one process: no file stays open, no thread stays, memory does not grow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tools.torture.child import holotype, in_child
from tools.torture.commands import BY_NAME
from tools.torture.harness import Campaign, Case
from tools.torture.world import World

NAMES = ("report", "edits", "assign", "labels", "coco", "folders", "embed", "train", "discover")
AGAIN = 6
MOST_BYTES = 4 << 20
"""That a repetition may leave on average, after the first two."""


def _each(world: World, seed: int) -> Iterator[Case]:
    for name in NAMES:
        yield Case(name, name, AGAIN)


def _check(world: World, case: Case) -> list[str]:
    command = BY_NAME[case.what]
    world.fresh(*command.kept)
    words = command.words(world)

    def again() -> list[str]:
        world.settle()
        work, seen = holotype(*words), []
        for _ in range(AGAIN):
            if work() != 0:
                return ["did not end with 0"]
            seen.append(_held())
        files, threads, memory = zip(*seen, strict=True)
        told = []
        if files[-1] > files[1]:
            told.append(f"leaves files open: {files}")
        if threads[-1] > threads[1] + 1:
            told.append(f"leaves threads: {threads}")
        if (memory[-1] - memory[1]) / (AGAIN - 2) > MOST_BYTES:
            told.append(f"memory grows: {[f'{size >> 20} MiB' for size in memory]}")
        return told + [f"{path.name} was left in the folder of temporary files" for path in _temporary(world)]

    ended = in_child(again, patience=300)
    return [f"{case.what}: {problem}" for problem in ended.troubles() + (ended.value or [])]


def _held() -> tuple[int, int, int]:
    """Open files, threads, bytes in memory."""
    import gc

    gc.collect()
    status = Path("/proc/self/status").read_text()
    facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return len(os.listdir("/proc/self/fd")), int(facts["Threads"]), int(facts["VmRSS"].split()[0]) * 1024


def _temporary(world: World) -> list[Path]:
    return sorted((world.trial / "tmp").iterdir())


LEAKS = Campaign("leaks", "the same command again and again", _each, _check, kind="repetitions", weight=0.5)
