"""Work in a forked child: killed, starved or left alone, its words and its end are told to the parent.

Forking after the imports costs milliseconds where a new interpreter costs seconds, and nothing that a child does
reaches the parent. Parents hold no threads when they fork.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds after which a child counts as hung."""


@dataclass
class Ended:
    """How a child came to its end."""

    code: int | None
    """Exit code; None where a signal ended it."""
    signal: int
    """0 = none."""
    out: str
    err: str
    seconds: float
    hung: bool = False
    value: Any = None
    """What the work gave; None where it did not come so far."""
    session: int = 0
    """Of the child and of all that it started."""
    cpu: float = 0.0
    """Seconds of the processor."""

    def troubles(self, *allowed: int) -> list[str]:
        """Sentences about an end that no input may have. allowed: exit codes, 0 and 2 where none is given."""
        told = " ".join(self.err.split())[-300:]
        if self.hung:
            return [f"hung for {PATIENCE:.0f} s: {told}"]
        if self.signal:
            return [f"died of {signal.Signals(self.signal).name}: {told}"]
        if "Traceback (most recent call last)" in self.err:
            return [f"ended in a traceback: {told}"]
        if self.code not in (allowed or (0, 2)):
            return [f"ended with {self.code}: {told}"]
        if self.code == 2 and len(self.err.strip().splitlines()[-1:]) != 1:
            return ["ended with 2 and said nothing"]
        return []


def in_child(work: Callable[[], Any], *, patience: float = PATIENCE, strike: Strike | None = None) -> Ended:
    """Run `work` in a child; an int that it returns is the exit code. strike: a signal that comes from outside."""
    pipes = [os.pipe() for _ in range(3)]  # not files: limits on these do not hold for what a child says
    sys.stdout.flush()
    sys.stderr.flush()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _live(work, *(write for _, write in pipes))
    for _, write in pipes:
        os.close(write)
    said, hung = _wait(child, [read for read, _ in pipes], started, patience, strike)
    _, status, used = os.wait4(child, 0)
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    out, err = (text.decode("utf-8", "replace") for text in said[:2])
    cpu = used.ru_utime + used.ru_stime
    return Ended(code, died, out, err, time.monotonic() - started, hung, _value(said[2]), child, cpu)


@dataclass(frozen=True)
class Strike:
    """A signal after a while, and again after the same while."""

    after: float
    signal: int = signal.SIGKILL
    times: int = 1


def _wait(
    child: int, pipes: list[int], started: float, patience: float, strike: Strike | None
) -> tuple[list[bytes], bool]:
    """What the child has said until it ended, and whether it had to be ended."""
    handle, said, hung = os.pidfd_open(child), dict.fromkeys(pipes, b""), False
    strikes = [started + strike.after * (n + 1) for n in range(strike.times)] if strike else []
    listened, ended = set(pipes), False
    while not ended:
        until = min([started + patience, *strikes])
        ready = select.select([handle, *listened], [], [], max(0.0, until - time.monotonic()))[0]
        ended = handle in ready
        for pipe in listened & set(ready):
            more = os.read(pipe, 1 << 16)
            said[pipe] += more
            if not more:
                listened.discard(pipe)
        if ended or time.monotonic() < until:
            continue
        if strikes and strike and strikes[0] <= until:
            strikes.pop(0)
            signal.pidfd_send_signal(handle, strike.signal)
        else:
            hung, patience = True, 1e6
            os.killpg(child, signal.SIGKILL)
    for pipe in pipes:
        os.set_blocking(pipe, False)
        with contextlib.suppress(BlockingIOError):  # somebody whom the child has started still has it open
            while more := os.read(pipe, 1 << 16):
                said[pipe] += more
        os.close(pipe)
    os.close(handle)
    return list(said.values()), hung


def _live(work: Callable[[], Any], out: int, err: int, told: int) -> None:
    """The child; never returns."""
    code = 1
    try:
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(n, "w", closefd=False), "utf-8") for n in (1, 2))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(
            signal.SIGTERM, signal.SIG_DFL
        )  # Ray sets one of its own in the process that we are a fork of
        value = work()
        code = value if isinstance(value, int) else 0
        with os.fdopen(told, "wb") as stream:
            stream.write(pickle.dumps(value))
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                code = code or 1
        os._exit(code)


def _value(content: bytes) -> Any:
    try:
        return pickle.loads(content) if content else None
    except Exception:  # cut off by a kill
        return None


def survivors(session: int, patience: float = 30.0) -> list[str]:
    """Processes of a session that outlive its first one by `patience` seconds; they are ended then."""
    until = time.monotonic() + patience
    while alive := _of_session(session):
        if time.monotonic() > until:
            for number in alive:
                os.kill(number, signal.SIGKILL)
            return [f"process {number} outlived its parent by {patience:.0f} s" for number in alive]
        time.sleep(0.05)
    return []


def _of_session(session: int) -> list[int]:
    """Processes, but for those that have ended and were not waited for."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[3]) == session and words[0] not in "ZX":
            found.append(int(entry.name))
    return found


def holotype(*words: object) -> Callable[[], int]:
    """A command, as work for a child."""

    def work() -> int:
        from holotype.cli import main

        given = [str(word) for word in words]
        sys.argv = ["holotype", *given]
        sys.orig_argv = program(*given)  # what the further processes of a run are started with
        return main(given)

    return work


def program(*words: object) -> list[str]:
    """The same command in an interpreter of its own, with heads as small as here (`World.settle` says where it is)."""
    told = "import sys; from tests.narrow import narrow; narrow(); from holotype.cli import main; sys.exit(main())"
    return [sys.executable, "-c", told, *map(str, words)]
