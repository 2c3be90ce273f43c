"""Two processes at once: two who write edits, two commands in one folder, a run whose parent is killed."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.torture.child import Ended, Strike, holotype, in_child, survivors
from tools.torture.commands import BY_NAME, baseline
from tools.torture.compare import differences, snapshot
from tools.torture.harness import Campaign, Case
from tools.torture.world import World

WRITERS, EACH = 2, 12
"""Who write edits at once, and how often each does."""
PAIRED = ("report", "edits", "train", "discover", "labels", "folders", "assign", "embed")


def _writers(world: World, seed: int) -> Iterator[Case]:
    for number in range(1_000_000):
        yield Case(str(number), (seed, number))


def _write_edits(world: World, case: Case) -> list[str]:
    """Each adds edits of its own to one log; none may be lost, none may stand there twice."""
    run = world.fresh("run") / "run"

    def both() -> list[str]:
        from holotype.results.edits import read_log

        waiting = [_start(lambda n=n: _add(run, n)) for n in range(WRITERS)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in waiting]
        log = read_log(run)
        told = [f"a writer ended with {code}" for code in codes if code]
        wanted = {(f"writer {n}", f"name {i}") for n in range(WRITERS) for i in range(EACH)}
        found = [(edit.category, edit.value) for edit in log]
        told += [f"{len(wanted - set(found))} edits were lost"] if wanted - set(found) else []
        return told + (
            [f"{len(found)} edits in the log instead of {len(wanted)}"] if len(found) != len(wanted) else []
        )

    ended = in_child(both)
    left = [path.name for path in run.iterdir() if path.name.endswith(".part")]
    return ended.troubles() + (ended.value or []) + [f"{name} was left behind" for name in left]


def _start(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def _add(run: Path, writer: int) -> None:
    from holotype.results.edits import Edit, append_edits, run_ids

    own = run_ids(run)[0]
    for i in range(EACH):
        append_edits(
            run, [Edit(own, f"2026-01-01T00:00:{i:02d}Z", "rename", "", f"writer {writer}", f"name {i}")]
        )


WRITE = Campaign("writers", "two who write edits", _writers, _write_edits, kind="pairs", short=2, weight=0.3)


# -- two commands in one folder -----------------------------------------------------------------------------


def _two(world: World, seed: int) -> Iterator[Case]:
    dice = random.Random(f"pairs {seed}")
    for number in range(1_000_000):
        name = PAIRED[number % len(PAIRED)]
        yield Case(str(number), (name, dice.random() if number % 2 else 0.0))


def _race(world: World, case: Case) -> list[str]:
    """One of the two runs, or one after the other; what is there at the end is what one alone would leave."""
    name, late = case.what
    command = BY_NAME[name]
    if problems := baseline(world, command):
        return problems
    world.fresh(*command.kept)
    words = command.words(world)

    def both() -> list[int]:
        world.settle()
        waiting = [_start_command(words, late * world.seconds[name] * n) for n in range(2)]
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in waiting]

    ended = in_child(both)
    codes = ended.value if isinstance(ended.value, list) else []
    problems += ended.troubles()
    if sorted(codes) not in ([0, 0], [0, 2]):
        problems.append(f"the two ended with {codes}: {' '.join(ended.err.split())[-300:]}")
    if sorted(codes) == [0, 0] and name in ("train", "discover") and late < 0.5:
        problems.append("both of them ran")
    return problems + differences(world.baselines[name], snapshot(world.trial))


def _start_command(words: list[object], after: float) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        time.sleep(after)
        code = holotype(*words)()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


PAIRS = Campaign("pairs", "two commands in one folder at once", _two, _race, kind="pairs", weight=1)


# -- several processes that share a run ---------------------------------------------------------------------


def _moments(world: World, seed: int) -> Iterator[Case]:
    dice = random.Random(f"parents {seed}")
    for number in range(1_000_000):
        yield Case(str(number), (number % 6 + dice.random()) / 6)


def _orphans(world: World, case: Case) -> list[str]:
    """The parent of `--devices 2` is killed: its children follow within 30 s, and the same command goes on."""
    words = [*world.train(world.trial / "run"), "--devices", "2"]

    def alone(strike: Strike | None = None) -> Ended:
        """The first process is forked like all others here; the second is an interpreter of its own, as ever."""
        return world.run(words, patience=240, strike=strike)

    if "devices" not in world.baselines:
        world.fresh()
        ended = alone()
        if ended.code != 0:
            return ended.troubles(0)
        world.baselines["devices"], world.seconds["devices"] = snapshot(world.trial), ended.seconds
    world.fresh()
    ended = alone(Strike(0.1 + case.what * world.seconds["devices"], signal.SIGKILL))
    problems = survivors(ended.session)
    again = alone()
    problems += [f"afterwards {told}" for told in [*again.troubles(0), *survivors(again.session, 5)]]
    return problems + differences(world.baselines["devices"], snapshot(world.trial))


ORPHANS = Campaign(
    "orphans", "the parent of two processes is killed", _moments, _orphans, kind="kills", weight=1
)
