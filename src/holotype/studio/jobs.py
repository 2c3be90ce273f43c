"""Jobs of the studio: a fixed list of commands on the run that was named at the start, each a child process.

The server never trains: a child that runs out of memory leaves it alive, and the run can be continued. One job runs at
a time. How far it is stands in the run folder (heartbeat.json, metrics.jsonl); what it says goes to studio/job.log.
What it writes lies in fixed places of the folder `studio` in the run folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holotype.errors import InputError
from holotype.results.discovery import DISCOVERY_FILE
from holotype.runs.status import status_of
from holotype.studio.live import PYTHON

STUDIO = "studio"
"""The folder in the run folder."""
LOG = "job.log"
SETTINGS = ("k", "method", "steps", "sample", "effort", "bursts", "seed", "seeds", "device")
"""Of config.yaml, that a next round has again; the backbone is that of the folder anyway."""
MAX_POINTS = 200
MAX_LINES = 12
"""Of the log that the page shows."""
KILLED = 9
"""The signal that no process can refuse; Windows has no name for it."""
PATIENCE = 60.0
"""Seconds that a job has to save its state when the studio closes."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobContext:
    """What jobs work on."""

    run: Path
    images: str = ""
    """That the command line has named; "" = those of the last round."""
    new_images: str = ""
    """Of --assign."""
    settings: tuple[str, ...] = ()
    """Of the first round, as flags."""

    @property
    def out(self) -> Path:
        return self.run / STUDIO


@dataclass(frozen=True)
class Job:
    """An entry of the list."""

    title: str
    commands: Callable[[JobContext], list[list[str]]]
    """Modules to start with their words, one after the other; InputError where it cannot be done."""
    result: str = ""
    """What it writes, from the run folder."""


def first_settings(wish: Any, classes: list[str]) -> tuple[str, ...]:
    """Return the flags of a first round that a page asks for: numbers, and classes of the folder; nothing else."""
    if not isinstance(wish, dict):
        return ()
    flags = list[str]()
    for name, most in (("k", 10_000), ("seeds", 9)):
        if (value := wish.get(name)) is not None:
            if type(value) is not int or not 1 <= value <= most:
                raise InputError(f"--{name} takes a whole number from 1 to {most:,}.")
            flags.append(f"--{name}={value}")
    heaps = wish.get("unlabelled") or []
    if not isinstance(heaps, list) or not all(heap in classes for heap in heaps):
        raise InputError("There is no such class in this folder.")
    return (*flags, *(f"--unlabelled={heap}" for heap in heaps))


def _discover(context: JobContext) -> list[list[str]]:
    """The first round, or the next one."""
    if not context.images or (context.run / DISCOVERY_FILE).is_file():
        return _next_round(context)
    words = [context.images, "--out", str(context.run), *context.settings, "--no-progress"]
    return [["holotype", "discover", *words]]


def _next_round(context: JobContext) -> list[list[str]]:
    from holotype.config.parse import parse_yaml
    from holotype.discovery.source import Source

    if not (context.run / "rounds").is_dir():
        raise InputError("Only a run of holotype discover has rounds.")
    known = Source.load(context.run)
    if context.images and (known is None or known.images != Source.of(context.images).images):
        known = Source.of(context.images)
    if known is None:
        raise InputError(
            "This run does not say where its images are; start the studio with their folder: holotype studio PHOTOS."
        )
    file = context.run / "config.yaml"
    try:
        asked = dict(parse_yaml(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{file} cannot be read ({error}); start the next round in a terminal.") from error
    settings = {name: str(asked[name]) for name in SETTINGS if asked.get(name) is not None}
    if ":" in settings.get("method", ""):  # the file may be a stranger's
        raise InputError("This run has a method of your own; start its next round in a terminal.")
    words = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    return [["holotype", "discover", *known.arguments(), "--out", str(context.run), *words, "--no-progress"]]


def _corrected(*words: str) -> Callable[[JobContext], list[list[str]]]:
    """A command on the run with the edits of the log applied.

    words: of `holotype`, with {run}, {out} and {new} for folders.
    """

    def commands(context: JobContext) -> list[list[str]]:
        if "{new}" in words and not context.new_images:
            raise InputError("Name the folder when you start the studio: holotype studio RUN --assign NEW.")
        places = {"run": context.run, "out": context.out, "new": context.new_images}
        both = (["report", "{run}", "--no-progress"], words)
        return [["holotype", *(word.format(**places) for word in command)] for command in both]

    return commands


def _learn(context: JobContext) -> list[list[str]]:
    if not (context.run / "rounds").is_dir():
        raise InputError("Only a run of holotype discover has rounds.")
    return [["holotype.studio.learn", str(context.run)]]


def _take_back(context: JobContext) -> list[list[str]]:
    from holotype.studio.take_back_round import round_before

    round_before(context.run)
    return [["holotype.studio.take_back_round", str(context.run)]]


JOBS = {
    "discover": Job("Next round", _discover),
    "learn": Job("Learn at once", _learn),
    "write": Job(
        "Write folders",
        _corrected("write", "{run}", "--folders", "{out}/folders", "--overwrite", "--no-progress"),
        f"{STUDIO}/folders",
    ),
    "export": Job(
        "Export the model",
        _corrected("export", "{run}", "{out}/model.onnx", "--overwrite"),
        f"{STUDIO}/model.onnx",
    ),
    "assign": Job(
        "Place new images",
        _corrected("assign", "{run}", "{new}", "--out", "{out}/assigned.csv", "--overwrite", "--no-progress"),
        f"{STUDIO}/assigned.csv",
    ),
    "take-back": Job("Take back the last round", _take_back),
}
"""All that a page can start, by name."""


@dataclass
class JobState:
    """How the last job stands, as the page takes it. What is not known is empty, or None."""

    name: str
    title: str
    state: str
    """running, stopping, done, stopped or failed."""
    started: str
    own: bool = True
    """Started here; else it can only be watched."""
    phase: str = ""
    step: int | None = None
    steps: int | None = None
    seconds_left: float | None = None
    loss: float | None = None
    curve: list[tuple[int, float]] = field(default_factory=list)
    """Steps and losses of the training that is on its way."""
    lines: list[str] = field(default_factory=list)
    """The last ones that it has said."""
    result: str = ""

    @property
    def runs(self) -> bool:
        return self.state in ("running", "stopping")


class JobRunner:
    """Starts, stops and watches."""

    def __init__(self, context: JobContext) -> None:
        self.context = context
        self.state: JobState | None = None
        self._child: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def available(self) -> list[dict[str, str]]:
        """Return all jobs by name and title, with the reason why one cannot be started now."""
        return [
            {"name": name, "title": job.title, "why_not": self._why_not(job)} for name, job in JOBS.items()
        ]

    def _why_not(self, job: Job) -> str:
        try:
            job.commands(self.context)
        except InputError as error:
            return str(error)
        return ""

    def start(self, name: str, settings: tuple[str, ...] = ()) -> None:
        """Start a job; InputError where there is no such one, another one runs, or it cannot be done. settings: of a
        first round."""
        if name not in JOBS:
            raise InputError("There is no such job.")
        before = self._task
        if self.state is not None and self.state.runs:
            if self.state.name != "learn" or name == "learn":
                raise InputError(f"{self.state.title} is running; wait for it, or stop it.")
            self.stop()  # it begins by itself and holds nobody up
        job, context = JOBS[name], replace(self.context, settings=settings)
        commands = [[*PYTHON, *words] for words in job.commands(context)]
        self.context.out.mkdir(parents=True, exist_ok=True)
        (self.context.out / LOG).unlink(missing_ok=True)
        self.state = JobState(name, job.title, "running", datetime.now(UTC).isoformat(timespec="seconds"))
        self._task = asyncio.create_task(self._run(job, commands, self.state, before))

    async def _run(
        self, job: Job, commands: list[list[str]], state: JobState, before: asyncio.Task[None] | None
    ) -> None:
        code, whole, more = 0, False, list[str]()
        if before is not None:
            await asyncio.wait([before])
        try:
            for words in commands:
                with (self.context.out / LOG).open("ab") as said:
                    self._child = await asyncio.create_subprocess_exec(
                        *words,
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        start_new_session=True,
                    )
                if state.state == "stopping":
                    self._signal()
                code = await self._child.wait()
                whole = not code and words is commands[-1]
                if code or state.state == "stopping":
                    break
        except OSError as error:
            code, more = 1, [f"It could not be started ({error.strerror or error})."]
        self._child = None
        self._read_progress(state)
        state.phase, state.step, state.steps, state.seconds_left = "", None, None, None
        stopped = code == 128 + signal.SIGINT or state.state == "stopping"
        if code and not stopped:
            state.lines = [*state.lines, *(more or _ending(code))]
            log.warning(f"{state.title} failed: {' '.join(state.lines[-1:])}")
        state.result = job.result if whole else ""
        state.state = "done" if whole else "stopped" if stopped else "failed"

    def stop(self) -> None:
        """Ask the job to stop, as Ctrl-C does: it saves its state, and the next start goes on from there."""
        if self.state is None or not self.state.runs or not self.state.own:
            raise InputError("No job of this studio is running.")
        self.state.state = "stopping"
        self._signal()

    def _signal(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._child is not None and os.name == "posix":
                os.killpg(self._child.pid, signal.SIGINT)
            elif self._child is not None:
                self._child.terminate()

    async def close(self) -> None:
        """Stop what runs, and wait until it has saved its state."""
        if self._task is not None and not self._task.done():
            self.stop()
            await asyncio.wait([self._task], timeout=PATIENCE)

    def poll(self) -> dict[str, Any] | None:
        """Return how the job stands now; of one that others have started in the folder, as far as it says so."""
        if self.state is None or not self.state.runs or not self.state.own:
            self._find_other_process()
        if self.state is not None and self.state.runs:
            self._read_progress(self.state)
        return asdict(self.state) if self.state else None

    def _find_other_process(self) -> None:
        with contextlib.suppress(InputError, OSError):
            found = status_of(self.context.run)
            if found.alive and (self.state is None or self.state.own):
                told = [f"Process {found.pid} on {found.host} works in this run: {found.command}"]
                self.state = JobState(
                    "discover", "Next round", "running", found.last_sign, own=False, lines=told
                )
            elif not found.alive and self.state is not None and not self.state.own:
                self.state = None

    def _read_progress(self, state: JobState) -> None:
        with contextlib.suppress(InputError, OSError):
            found = status_of(self.context.run)
            if found.alive:
                state.phase, state.step, state.steps = found.phase, found.step, found.steps
                state.seconds_left, state.loss = found.seconds_left, found.loss
        state.curve = (
            loss_curve(self.context.run, datetime.fromisoformat(state.started).timestamp()) or state.curve
        )
        if state.own:
            with contextlib.suppress(OSError):
                text = (self.context.out / LOG).read_bytes()[-8192:].decode(errors="replace")
                state.lines = [line for line in text.splitlines() if line.strip()][-MAX_LINES:]


def _ending(code: int) -> list[str]:
    """What a code says that the child itself could not."""
    killed = code in (-KILLED, 128 + KILLED)
    if code >= 0 and not killed:
        return []
    why = "was killed, often because memory ran out" if killed else f"died (signal {-code})"
    return [f"The job {why}; start it again to go on from what was saved."]


def loss_curve(run: Path, since: float) -> list[tuple[int, float]]:
    """Return steps and losses of the training that was written to last, after a moment; nothing where there is none."""
    files = [*run.glob("rounds/*/metrics.jsonl"), *run.glob("rounds/*/trainings/*/metrics.jsonl")]
    with contextlib.suppress(OSError):
        newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
        if newest is not None and newest.stat().st_mtime >= since - 1:
            return _points(newest.read_text(encoding="utf-8", errors="replace"))
    return []


def _points(text: str) -> list[tuple[int, float]]:
    points = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):  # half a line
            entry = json.loads(line)
            if entry["kind"] == "epoch":
                points.append((int(entry["counter"]), float(entry["loss"])))
    return points[:: -(-len(points) // MAX_POINTS) or 1]
