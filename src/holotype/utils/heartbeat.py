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
from holotype.utils.locks import command_line, is_worker
from holotype.utils.serialization import FileSchema, dump_json

HEARTBEAT_FILE = "heartbeat.json"
HEARTBEAT_SCHEMA = FileSchema(1, "delete it; nothing but holotype status needs it")
SECONDS = 1.0
"""Between two beats."""
SILENT_SECONDS = 30.0
"""Seconds without a beat after which a process of another machine counts as dead."""


@dataclass(frozen=True)
class Beat:
    """The content of the file. What is not known is empty, or None."""

    pid: int
    host: str
    born: str
    """Tells the process from a later one of the same number, where the system says it."""
    command: str
    started: str
    """ISO 8601, like all times here."""
    time: str
    """Of this beat."""
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
    saved: str = ""
    """When a state was written last."""
    ended: str = ""
    """stopped or failed; "" while it runs."""
    words: str = ""
    """Where it was stopped, or why it failed."""


class Heartbeat:
    """Beats for one folder."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / HEARTBEAT_FILE
        now, command = _timestamp(), command_line()
        self.beat = Beat(os.getpid(), socket.gethostname(), _started(os.getpid()), command[:500], now, now)
        self._told, self._end = False, threading.Event()
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def tell(self, **facts: Any) -> None:
        """What is new. The first word starts the beating; another phase forgets how far the last one was."""
        if "phase" in facts and facts["phase"] != self.beat.phase:
            fresh = ("stage", "epoch", "epochs", "step", "steps", "loss", "seconds_left")
            facts = dict.fromkeys(fresh) | {"stage": ""} | facts
        with self._guard:
            self.beat = replace(self.beat, **facts)
        if not self._told:
            self._told = True
            self._write()
            self._thread.start()

    def end(self, ended: str, words: str = "") -> None:
        """ended: as in the file; "" where all is done, and the file goes, unless an end was told before."""
        if not self._told:
            return
        self._end.set()
        self._thread.join()
        ended, words = (ended, words) if ended else (self.beat.ended, self.beat.words)
        if ended:
            self.tell(ended=ended, words=" ".join(words.split())[:300])
            self._write()
        else:
            with contextlib.suppress(OSError):
                self.file.unlink(missing_ok=True)

    def _go_on(self) -> None:
        while not self._end.wait(SECONDS):
            self._write()

    def _write(self) -> None:
        with self._guard:
            self.beat = replace(self.beat, time=_timestamp())
            text = dump_json({"format": HEARTBEAT_SCHEMA.format, **asdict(self.beat)})
        part = self.file.with_name(
            f".{HEARTBEAT_FILE}.{secrets.token_hex(8)}.part"
        )  # as files.py calls and sweeps them
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, self.file)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


_heartbeats: dict[Path, Heartbeat] = {}
"""Those that beat in this process, by folder."""


@contextmanager
def running_heartbeat(folder: Path) -> Iterator[None]:
    """For the time of a command in `folder`. Nothing is written before the first word (`tell`)."""
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
    """Say what is new in `folder`, or in the nearest folder around it that has a heart; None: in all that beat."""
    if not _heartbeats:
        return
    if folder is None:
        found = list(_heartbeats.values())
    else:
        place = folder.resolve()
        found = [_heartbeats[near] for near in (place, *place.parents) if near in _heartbeats][:1]
    for heart in found:
        heart.tell(**facts)


# -- for whoever looks on --------------------------------------------------------------------------------


def read_beat(folder: Path) -> Beat | None:
    """The last one; None where there is none."""
    file = folder / HEARTBEAT_FILE
    try:
        return HEARTBEAT_SCHEMA.make(file, Beat, every=False) if file.is_file() else None
    except InputError:
        if file.exists():
            raise
        return None  # its run ended in between


def is_alive(pid: int, host: str, born: str = "", time: str = "") -> bool:
    """Does the process live? On another machine, has it been heard of lately? time: when it was."""
    if host != socket.gethostname():
        return time != "" and seconds_since(time) < SILENT_SECONDS
    if pid < 1:  # these mean groups of processes
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        pass
    return not born or _started(pid) == born


def seconds_since(moment: str) -> float:
    """Since an ISO 8601 time; infinity for what is none."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    except (ValueError, TypeError):
        return float("inf")


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _started(pid: int) -> str:
    """When the system started a process, in its own unit; "" where it does not tell, or there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except (OSError, IndexError):
        return ""
