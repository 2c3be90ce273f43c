"""How a run, a discovery or a sweep stands, from what lies in its folder; nothing is asked of the process itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from holotype.errors import InputError
from holotype.utils.heartbeat import Beat, RunProgress, is_alive, read_beat
from holotype.utils.locks import read_lock_info
from holotype.utils.serialization import CorruptFile, read_json
from holotype.utils.text import suggest_path

State = Literal["running", "stopped", "failed", "dead", "finished", "begun"]
"""dead: it neither ended nor lives. begun: nobody works on it, and nobody can say why not."""


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
    """Return the status of the run or discovery in `folder`, or of all those in a folder of runs, by name."""
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}{suggest_path(folder)}; give that of a run or of runs.")
    found = [status_of(each) for each in sorted(_runs_in(folder))]
    if not found:
        raise InputError(f"{folder} holds no run, and none of its folders does; give the --out of a run.")
    return found


def _runs_in(folder: Path, deep: int = 2) -> Iterator[Path]:
    """Yield the folder itself, or those of a sweep: runs/NAME-METHOD-..., or runs/STUDY/NAME-METHOD-..."""
    named = any((folder / name).exists() for name in ("identity.json", "scores.json"))
    if named or read_lock_info(folder) is not None:
        yield folder
    elif deep:
        for each in folder.iterdir():
            if each.is_dir() and not each.name.startswith("."):
                yield from _runs_in(each, deep - 1)


def status_of(folder: Path) -> Status:
    """Return the status of one run or discovery."""
    scores, beat, holder = folder / "scores.json", read_beat(folder), read_lock_info(folder)
    rounds = [path for path in folder.glob("rounds/*") if path.name.isdecimal()]
    done = [int(path.name) for path in rounds if (path / scores.name).is_file()]
    discovery = (folder / "rounds").is_dir()
    known = Status(
        folder=str(folder),
        kind="discovery" if discovery else "run",
        state="begun",
        round=max(done, default=0),
        last_save=max((_changed(place / "state.json") for place in (folder, *rounds)), default=""),
    )
    lives = holder is not None and is_alive(folder, holder.host, holder.time)
    if beat and holder and lives and (holder.pid, holder.host) != (beat.pid, beat.host):
        beat = None  # a process that lives has taken the folder since
    if beat is not None:
        told = _from_heartbeat(folder, known, beat)
        if told.alive or discovery or not scores.is_file():
            return told
    if scores.is_file() and not lives:
        return _finished(known, scores)
    if holder is None:
        return known
    process: dict[str, Any] = {"pid": holder.pid, "host": holder.host, "command": holder.command}
    state: State = "running" if lives else "dead"  # it has not said a word yet
    return dataclasses.replace(known, state=state, phase="starting", last_sign=holder.time, **process)


def _from_heartbeat(folder: Path, known: Status, beat: Beat) -> Status:
    state: State = "running" if is_alive(folder, beat.host, beat.time) else "dead"
    if beat.ended:
        state = "stopped" if beat.ended == "stopped" else "failed"
    progress = {one.name: getattr(beat, one.name) for one in dataclasses.fields(RunProgress)}
    saved = beat.saved or known.last_save
    return dataclasses.replace(known, **progress, state=state, last_save=saved, last_sign=beat.time)


def _finished(known: Status, file: Path) -> Status:
    try:
        own = read_json(file)["scores"]
        scores = {name: float(own[name]) for name in ("all", "old", "new") if own.get(name) is not None}
    except (OSError, CorruptFile, KeyError, TypeError, ValueError, AttributeError):
        return dataclasses.replace(known, words=f"{file} cannot be read")
    return dataclasses.replace(known, state="finished", last_sign=_changed(file), scores=scores)


def _changed(file: Path) -> str:
    """Return when a file was written; "" where there is none, as the state of a run that ended."""
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")
    except OSError:
        return ""
