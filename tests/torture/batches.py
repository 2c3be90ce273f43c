"""Many small inputs in one child: what it does not live through is looked for one by one."""

from __future__ import annotations

import resource
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.torture.child import in_child
from tests.torture.hooks import Watch

MOST_BYTES = 1_000_000_000
"""That one input may take on top of what the child had."""


def survive(tries: Sequence[tuple[str, Callable[[], list[str]]]], *, watched: str = "/nowhere") -> list[str]:
    """Try each in a child; a sentence for each that was lost. A try gives its own sentences.

    watched: the folder in which it may write.
    """
    ended = in_child(lambda: _all(tries, watched))
    if isinstance(ended.value, list):
        return ended.value
    if len(tries) == 1:
        return [f"{tries[0][0]}: {trouble}" for trouble in ended.troubles() or ["it gave nothing"]]
    half = len(tries) // 2  # the child died: on which?
    found = survive(tries[:half], watched=watched) + survive(tries[half:], watched=watched)
    return found or [f"{tries[0][0]} to {tries[-1][0]}, only together: {' '.join(ended.troubles())}"]


def _all(tries: Sequence[tuple[str, Callable[[], list[str]]]], watched: str) -> list[str]:
    problems, watch = [], Watch().install_in(watched)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, work in tries:
        before = reset_peak()
        try:
            found = work()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found = [
                f"{type(error).__name__} in {where.name} ({where.filename}:{where.lineno}): {error!s:.200}"
            ]
        taken = peak() - before
        if taken > MOST_BYTES:
            found.append(f"took {taken / 1e9:.1f} GB")
        for seen, told in (
            (watch.started, "started a program"),
            (watch.outside, "wrote elsewhere"),
            (watch.talked, "called"),
        ):
            found += [f"{told}: {one:.200}" for one in seen]
            seen.clear()
        problems += [f"{name}: {problem}" for problem in found]
    return problems


def reset_peak() -> int:
    """Bytes in memory now; the largest number begins here again."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """The largest number of bytes in memory since `reset_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def expect(kinds: tuple[type[BaseException], ...], work: Callable[[], Any]) -> Any:
    """What the work gives; None where it raised one of these errors, whose text must be a sentence."""
    try:
        return work()
    except kinds as error:
        said = str(error)
        if not said.strip() or "Traceback" in said:
            raise AssertionError(f"{type(error).__name__} says {said!r}") from error
        return None
