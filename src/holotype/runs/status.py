"""How a run, a discovery or a sweep stands, from what lies in its folder; nothing is asked of the process itself."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from holotype.errors import InputError
from holotype.utils.heartbeat import Beat, RunProgress, is_alive, read_beat
from holotype.utils.locks import LockInfo, read_lock_info
from holotype.utils.serialization import CorruptFile, read_json
from holotype.utils.text import suggest_path

State = Literal["running", "stopped", "failed", "dead", "finished", "begun"]
"""dead: it neither ended nor lives. begun: nobody works on it, and nobody can say why not."""
IDENTITY_NAME, SCORES_NAME, STATE_NAME = "identity.json", "scores.json", "state.json"
ROUNDS_NAME = "rounds"
SCORED_NAME = ("all", "old", "new")


@dataclass(frozen=True, kw_only=True)
class Status(RunProgress):
    """A run or a discovery. What is not known is empty, or None."""

    folder: str
    kind: Literal["run", "discovery"]
    state: State
    last_save: str = ""
    """ISO 8601."""
    last_sign: str = ""
    """When the process was heard of last, or the run was finished."""
    round: int = 0
    """Of a discovery: the last one that has come to its end."""
    scores: dict[str, float] = field(default_factory=dict)
    """All, Old and New of a finished run, where the truth is known."""

    @property
    def alive(self) -> bool:
        return self.state == "running"

    def as_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "alive": self.alive}


def read_status(folder: Path) -> list[Status]:
    """Of the run or discovery in `folder`, or of all those in a folder of runs, by name."""
    if not folder.is_dir():
        raise InputError(
            f"There is no folder {folder}{suggest_path(folder)}; give the folder of a run, of a discovery or "
            "of a sweep."
        )
    if is_run(folder):
        return [status_of(folder)]
    found = [status_of(each) for each in sorted(_runs_in(folder))]
    if not found:
        raise InputError(
            f"{folder} holds no run, and none of its folders does; give the --out of holotype train, bench or discover."
        )
    return found


def is_run(folder: Path) -> bool:
    """Is it that of a run or of a discovery, or about to be?"""
    named = any((folder / name).exists() for name in (IDENTITY_NAME, SCORES_NAME))
    return named or read_lock_info(folder) is not None


def _runs_in(folder: Path, deep: int = 2) -> Iterator[Path]:
    """Of a sweep: runs/NAME-METHOD-..., or runs/STUDY/NAME-METHOD-..."""
    for each in folder.iterdir():
        if each.is_dir() and not each.name.startswith("."):
            if is_run(each):
                yield each
            elif deep > 1:
                yield from _runs_in(each, deep - 1)


def status_of(folder: Path) -> Status:
    """Of one run or discovery."""
    kind: Literal["run", "discovery"] = "discovery" if _is_discovery(folder) else "run"
    beat, holder = read_beat(folder), read_lock_info(folder)
    done = max((int(n.name) for n in _rounds(folder) if (n / SCORES_NAME).is_file()), default=0)
    known = Status(folder=str(folder), kind=kind, state="begun", round=done, last_save=_last_save(folder))
    lives = holder is not None and is_alive(folder, holder.host, holder.time)
    if holder and beat and lives and (holder.pid, holder.host) != (beat.pid, beat.host):
        beat = None  # of a process before the one that has the folder now
    if beat is not None:
        told = _from_heartbeat(known, beat)
        if told.alive and not is_alive(folder, beat.host, beat.time):
            told = dataclasses.replace(told, state="dead")
        if told.alive or kind == "discovery" or not (folder / SCORES_NAME).is_file():
            return told
    if lives and holder is not None:
        return _from_lock(known, holder)
    if (folder / SCORES_NAME).is_file():
        return _finished(known, folder / SCORES_NAME)
    if holder is not None:
        return dataclasses.replace(_from_lock(known, holder), state="dead")
    return known


def _from_heartbeat(known: Status, beat: Beat) -> Status:
    state: State = "running"
    if beat.ended:
        state = "stopped" if beat.ended == "stopped" else "failed"
    progress = {one.name: getattr(beat, one.name) for one in dataclasses.fields(RunProgress)}
    saved = beat.saved or known.last_save
    return dataclasses.replace(known, **progress, state=state, last_save=saved, last_sign=beat.time)


def _from_lock(known: Status, holder: LockInfo) -> Status:
    """Somebody has the folder and has not said a word yet."""
    process: dict[str, Any] = {"pid": holder.pid, "host": holder.host, "command": holder.command}
    return dataclasses.replace(known, state="running", phase="starting", last_sign=holder.time, **process)


def _finished(known: Status, file: Path) -> Status:
    try:
        own = read_json(file)["scores"]
        scores = {name: float(own[name]) for name in SCORED_NAME if own.get(name) is not None}
    except (OSError, CorruptFile, KeyError, TypeError, ValueError, AttributeError):
        return dataclasses.replace(known, words=f"{file} cannot be read")
    return dataclasses.replace(known, state="finished", last_sign=_changed(file), scores=scores)


def _is_discovery(folder: Path) -> bool:
    if (folder / ROUNDS_NAME).is_dir():
        return True
    try:
        content = read_json(folder / IDENTITY_NAME)
        return "method" not in content and "backbone" in content
    except (OSError, CorruptFile, TypeError):
        return False


def _rounds(folder: Path) -> list[Path]:
    there = (folder / ROUNDS_NAME).iterdir() if (folder / ROUNDS_NAME).is_dir() else ()
    return [path for path in there if path.is_dir() and path.name.isdecimal()]


def _last_save(folder: Path) -> str:
    """When a state was written that is still there."""
    times = []
    for place in (folder, *_rounds(folder)):
        with contextlib.suppress(FileNotFoundError):  # a run that ends removes its own
            times.append(_changed(place / STATE_NAME))
    return max(times, default="")


def _changed(file: Path) -> str:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")
