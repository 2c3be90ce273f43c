"""The harness of all campaigns: work in forked children, cases that can be repeated one by one, and their count.

Forking after the imports costs milliseconds where a new interpreter costs seconds, and nothing that a child does
reaches the parent. Parents hold no threads when they fork. Python tells audit hooks of every file that is opened,
renamed or removed, before it happens: so a kill at each of these moments, and a full or broken disk, need no change of
the product.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pickle
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.torture.world import World


PATIENCE = 60.0  # seconds after which a child counts as hung


@dataclass
class Ended:
    """How a child came to its end."""

    code: int | None  # exit code; None where a signal ended it
    signal: int  # 0 = none
    out: str
    err: str
    seconds: float
    hung: bool = False
    value: Any = None  # what the work gave; None where it did not come so far
    session: int = 0  # of the child and of all that it started

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
        return ["ended with 2 and said nothing"] if self.code == 2 and not told else []


@dataclass(frozen=True)
class Strike:
    """A signal after a while, and again after the same while."""

    after: float
    signal: int = signal.SIGKILL
    times: int = 1


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
    status = os.waitpid(child, 0)[1]
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    out, err = (text.decode("utf-8", "replace") for text in said[:2])
    value = None
    with contextlib.suppress(Exception):  # cut off by a kill
        value = pickle.loads(said[2])
    return Ended(code, died, out, err, time.monotonic() - started, hung, value, child)


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
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
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
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


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
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(words[3]) == session and words[0] not in "ZX":
                found.append(int(entry.name))
    return found


CHANGES = {
    **dict.fromkeys(("os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.utime"), 0),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), 1),
}
"""Events that change files, and which of their arguments is the path that is changed: of a rename the target alone,
since both lie in one folder."""
FOLDERS = {"os.rename": 2, "os.remove": 1, "os.mkdir": 2, "os.rmdir": 1}
"""Which argument is the descriptor of a folder that the path starts at."""
MAKES = ("open", "os.mkdir", "os.link", "os.symlink", "os.rename", "os.truncate")
"""Events that a full disk can refuse."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CLOCKWORK = "heartbeat.json"
"""A file that is written by the clock: its changes come at other moments each time."""
DEVICE = re.compile(r"/proc/|/dev/(?!shm/)|/dev/shm/pym-")
"""What is no file on a disk. Below /dev/shm lie ordinary files, and memory that processes share (pym-)."""
STARTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn")
TALKS = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request")


@dataclass
class Watch:
    """What a child does to the outside. Install it in the child."""

    at: int = -1  # number of the change before which something happens, from 0; -1 = never
    error: int = 0  # what the system says from then on, for `last` changes; 0 = the child is killed
    last: int = 1
    held_back: int = 0
    """A signal that waits until the command has opened its first file: before that, nobody could handle it."""
    folders: tuple[str, ...] = ()
    """Changes in these are counted, and are the moments at which `at` happens; those elsewhere are listed."""
    seen: list[str] = field(default_factory=list)  # the changes, in words
    outside: list[str] = field(default_factory=list)  # changes elsewhere
    started: list[str] = field(default_factory=list)  # programs that were started
    talked: list[str] = field(default_factory=list)  # hosts that were asked for something
    refused: int = 0  # how often the system refused

    def install_in(self, *folders: str) -> Watch:
        """Begin, with these folders."""
        self.folders = tuple(os.path.realpath(folder) for folder in folders)
        sys.addaudithook(self._hear)
        return self

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.held_back and event == "open":
            sign, self.held_back = self.held_back, 0
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {sign})
        if event == "open" or event in CHANGES:
            for path in _changed(event, arguments):
                self._change(event, path)
        elif event in STARTS:
            self.started.append(f"{event} {arguments[:2]}")
        elif event in TALKS:
            self.talked.append(f"{event} {arguments[1:3]}")

    def _change(self, event: str, path: str) -> None:
        if not any(path == folder or path.startswith(folder + os.sep) for folder in self.folders):
            if not DEVICE.match(path):
                self.outside.append(f"{event} {path}")
            return
        if CLOCKWORK in os.path.basename(path):
            return
        number = len(self.seen)
        self.seen.append(f"{event} {os.path.basename(path)}")
        if self.at < 0 or not self.at <= number < self.at + self.last:
            return
        if not self.error:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.error != errno.ENOSPC or event in MAKES:
            self.refused += 1
            raise OSError(self.error, os.strerror(self.error), path)


def _changed(event: str, arguments: tuple[Any, ...]) -> Iterable[str]:
    """The path that an event changes, if it is one of a file."""
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, int) or not (flags or 0) & WRITES:
            return []
        where = _absolute(path, None)
        return [where if flags & (os.O_NOFOLLOW | os.O_EXCL) else os.path.realpath(where)]
    place, first = arguments[CHANGES[event]], FOLDERS.get(event)
    folder = arguments[first] if first is not None and len(arguments) > first else None
    return [] if isinstance(place, int) else [_absolute(place, folder)]


def _absolute(path: Any, folder: int | None) -> str:
    text = os.fsdecode(path)
    if not os.path.isabs(text) and isinstance(folder, int) and folder >= 0:
        text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
    head, tail = os.path.split(os.path.abspath(text))
    return os.path.join(os.path.realpath(head), tail)


@dataclass(frozen=True)
class Case:
    """One thing that is tried. The same seed gives the same cases under the same keys."""

    key: str
    what: Any = None  # whatever the campaign needs to try it
    counts: int = 1  # how many inputs it stands for: a batch of images is one case and many inputs


@dataclass(frozen=True)
class Campaign:
    """A way to break things. `cases` may go on for ever; the budget ends it."""

    name: str  # one word, for the table and for --only
    about: str  # what is tried, for the table
    cases: Callable[[World, int], Iterator[Case]]
    """(world, seed) -> what is tried, in the order in which it is."""
    check: Callable[[World, Case], list[str]]
    """Try one; a sentence for everything that was lost. [] = it survived."""
    kind: str = "mutated inputs"  # the column of the record that it counts in
    short: int = 0  # cases in the short form, which `make test` runs; 0 = none, -1 = all
    weight: float = 1.0  # share of the time of the long form


@dataclass
class Failure:
    """Something that was lost, and the command that shows it again."""

    again: str
    problems: list[str]


@dataclass
class Tally:
    """What came of a campaign."""

    campaign: str
    kind: str
    tried: int = 0
    lost: int = 0
    seconds: float = 0.0
    whole: bool = False  # whether every case there is was tried
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class Budget:
    """How much is tried."""

    seconds: float = float("inf")
    cases: int = -1  # -1 = as many as there are
    only: str = ""  # key of the one case to try


def run(campaign: Campaign, world: World, seed: int, budget: Budget) -> Tally:
    """Try the cases of a campaign until they, or the budget, are at an end; a failure is said at once."""
    started, tally = time.monotonic(), Tally(campaign.name, campaign.kind)
    for number, case in enumerate(campaign.cases(world, seed)):
        if number == budget.cases or time.monotonic() - started > budget.seconds:
            break
        if budget.only not in ("", case.key):
            continue
        problems = campaign.check(world, case)
        tally.tried += case.counts
        if problems:
            tally.lost += min(case.counts, len(problems))
            again = f"python -m tools.torture --only {campaign.name} --seed {seed} --case '{case.key}'"
            tally.failures.append(Failure(again, problems))
            print(f"LOST: {again}  # {' '.join(problems[0].split())[:300]}", file=sys.stderr, flush=True)
        if budget.only == case.key:
            break
    else:
        tally.whole = True
    tally.seconds = time.monotonic() - started
    return tally


def numbered(at_once: int = 1) -> Callable[[World, int], Iterator[Case]]:
    """Return cases without end, each of which stands for `at_once` inputs that its seed and number decide."""
    return lambda world, seed: (Case(str(n), (seed, n), at_once) for n in count())


MOST_BYTES = 1_000_000_000  # that one input may take on top of what the child had
Try = tuple[str, Callable[[], list[str]]]


def survive(tries: Sequence[Try], *, watched: str = "/nowhere") -> list[str]:
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


def _all(tries: Sequence[Try], watched: str) -> list[str]:
    problems, watch = [], Watch().install_in(watched)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    told = {"started a program": watch.started, "wrote elsewhere": watch.outside, "called": watch.talked}
    for name, work in tries:
        Path("/proc/self/clear_refs").write_text("5")  # the largest number of bytes begins here again
        before = peak()
        try:
            found = work()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found = [
                f"{type(error).__name__} in {where.name} ({where.filename}:{where.lineno}): {error!s:.200}"
            ]
        if (taken := peak() - before) > MOST_BYTES:
            found.append(f"took {taken / 1e9:.1f} GB")
        for what, seen in told.items():
            found += [f"{what}: {one:.200}" for one in seen]
            seen.clear()
        problems += [f"{name}: {problem}" for problem in found]
    return problems


def peak() -> int:
    """The largest number of bytes in memory."""
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def expect(kinds: tuple[type[BaseException], ...], work: Callable[[], Any]) -> Any:
    """What the work gives; None where it raised one of these errors, whose text must be a sentence."""
    try:
        return work()
    except kinds as error:
        if not str(error).strip() or "Traceback" in str(error):
            raise AssertionError(f"{type(error).__name__} says {str(error)!r}") from error
        return None
