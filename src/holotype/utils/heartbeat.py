"""`heartbeat.json`: what a command is doing and how far it is, for `holotype status`.

A thread replaces the file once a second, so that nothing that computes ever waits for a disk; whoever computes only
says what there is to tell. The file is no promise: it is not synced, and a disk that refuses it stops nobody. It goes
when the command has come to its end, and stays when it was stopped, failed or died.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holotype.errors import InputError, Stopped
from holotype.utils.locks import LOCK, command_line, is_held, is_worker
from holotype.utils.serialization import FileSchema, dump_json

HEARTBEAT_FILE = "heartbeat.json"
HEARTBEAT_SCHEMA = FileSchema(1, "delete it; nothing but holotype status needs it")
SECONDS = 1.0
"""Between two beats."""
SILENT_SECONDS = 30.0
"""Seconds without a beat after which a process counts as dead that holds no lock here."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """Which process runs a command, and how far it is. What is not known is empty, or None."""

    pid: int | None = None
    host: str = ""
    command: str = ""
    phase: str = ""
    """preparing, embedding, counting, training, placing, the map, the report."""
    stage: str = ""
    epoch: int | None = None
    """From 1, within the stage."""
    epochs: int | None = None
    step: int | None = None
    """Done, over all stages; in other phases than training, images."""
    steps: int | None = None
    loss: float | None = None
    seconds_left: float | None = None
    """Of training."""
    words: str = ""
    """Where it was stopped, or why it failed."""


@dataclass(frozen=True, kw_only=True)
class Beat(RunProgress):
    """The content of the file. Times are ISO 8601."""

    started: str = ""
    time: str = ""
    """Of this beat."""
    saved: str = ""
    """When a state was written last."""
    ended: str = ""
    """stopped or failed; "" while it runs."""


class Heartbeat:
    """Beats for one folder."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / HEARTBEAT_FILE
        process: dict[str, Any] = {"pid": os.getpid(), "host": socket.gethostname()}
        self.beat = Beat(**process, command=command_line()[:500], started=_timestamp())
        self._begun, self._end = False, threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def tell(self, **facts: Any) -> None:
        """Note what is new. The first word starts the beating; another phase forgets how far the last one was."""
        if facts.get("phase", self.beat.phase) != self.beat.phase:
            numbers = dict.fromkeys(("epoch", "epochs", "step", "steps", "loss", "seconds_left"))
            facts = {"stage": "", **numbers, **facts}
        self.beat = replace(self.beat, **facts)
        if not self._begun:
            self._begun = True
            self._write()
            self._thread.start()

    def end(self, ended: str, words: str = "") -> None:
        """Stop beating. ended: as in the file; "" where all is done: then the file goes, unless it says an end."""
        if not self._begun:
            return
        self._end.set()
        self._thread.join()
        if ended:
            self.tell(ended=ended, words=" ".join(words.split())[:300])
        if self.beat.ended:
            self._write()
        else:
            with contextlib.suppress(OSError):
                self.file.unlink(missing_ok=True)

    def _go_on(self) -> None:
        while not self._end.wait(SECONDS):
            self._write()

    def _write(self) -> None:
        beat = asdict(replace(self.beat, time=_timestamp()))
        # named as atomic.py names and sweeps parts
        part = self.file.with_name(f".{HEARTBEAT_FILE}.{secrets.token_hex(8)}.part")
        try:
            part.write_text(dump_json({"format": HEARTBEAT_SCHEMA.format, **beat}), encoding="utf-8")
            os.replace(part, self.file)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


_heartbeats: dict[Path, Heartbeat] = {}
"""Those that beat in this process, by folder."""


@contextmanager
def running_heartbeat(folder: Path) -> Iterator[None]:
    """Beat for the time of a command in `folder`. Nothing is written before the first update."""
    place = folder.resolve()
    if place in _heartbeats or is_worker():
        yield
        return
    heart = _heartbeats[place] = Heartbeat(folder)
    try:
        yield
        heart.end("")
    except (Stopped, KeyboardInterrupt) as stop:
        heart.end("stopped", str(stop))
        raise
    except BaseException as error:
        heart.end("failed", str(error) if isinstance(error, InputError) else repr(error))
        raise
    finally:
        del _heartbeats[place]


def update_heartbeat(folder: Path | None, **facts: Any) -> None:
    """Update the heartbeat of `folder` or of its nearest parent that has one; None: of all that beat."""
    if folder is None:
        for heart in [*_heartbeats.values()]:
            heart.tell(**facts)
    elif _heartbeats:
        place = folder.resolve()
        nearest = next((near for near in (place, *place.parents) if near in _heartbeats), None)
        if nearest is not None:
            _heartbeats[nearest].tell(**facts)


def read_beat(folder: Path) -> Beat | None:
    """Return the last beat; None where there is none."""
    file = folder / HEARTBEAT_FILE
    try:
        return HEARTBEAT_SCHEMA.make(file, Beat, every=False) if file.is_file() else None
    except InputError:
        if file.exists():
            raise
        return None  # its run ended in between


def is_alive(folder: Path, host: str, time: str) -> bool:
    """Return whether the process that works on `folder` lives: it holds the lock.

    On another machine, or where nothing can be locked, it is one that has been heard of lately. time: when it was.
    """
    held = is_held(folder / LOCK)
    elsewhere = held is None or host != socket.gethostname()
    return held is True or (elsewhere and seconds_since(time) < SILENT_SECONDS)


def seconds_since(moment: str) -> float:
    """Return the seconds since an ISO 8601 time; infinity for what is none."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    except (ValueError, TypeError):
        return float("inf")


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
