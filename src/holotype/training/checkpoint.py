"""Checkpoints and metrics of a run: save, resume, one line per epoch.

`state.json` is the point of commitment: it names the tensor file that belongs to it. The tensors are
written first under a new name, then `state.json` is replaced, then older tensor files are removed.
A kill between any two of these steps leaves a pair that loads. Both bear the identity of the run, and `state.json` the
checksum of the tensors, so that a state of another run or a damaged one is never gone on from.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from holotype.errors import InputError
from holotype.utils.atomic import check_not_link, write_bytes, write_text
from holotype.utils.distributed import rank, run_on_rank0
from holotype.utils.heartbeat import SECONDS, update_heartbeat
from holotype.utils.serialization import FileSchema, SchemaError, from_dict

INFO_FILE = "state.json"
STATE_FILE = FileSchema(2, "restore it from a copy, or delete it to train from the start")


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write a state; the one before it stays loadable until this one is whole."""
    on_cpu = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    # `save` + our own write, because safetensors' own writer hides the system's error (a full disk)
    content = save(on_cpu, {"identity": str(facts.get("identity", ""))})
    digest = checkpoint_digest(content)
    # the same counter comes again at the end of a stage, and after a restart: by its counter alone a file would be
    # replaced that the state before still names
    name = f"state-{facts['counter']:08d}-{digest}.safetensors"
    write_bytes(folder / name, content)
    STATE_FILE.write(folder / INFO_FILE, {**facts, "tensors": name, "digest": digest})
    for old in folder.glob("state-*.safetensors"):
        if old.name != name:
            old.unlink(missing_ok=True)


def read_checkpoint_info(folder: Path, identity: str | None = None) -> dict[str, Any] | None:
    """The facts of the state in `folder`, or None where there is none.

    identity: digest of the run that goes on; a state of another run is refused.
    """
    path = folder / INFO_FILE
    if not path.exists():
        return None
    facts = STATE_FILE.read(path)
    for key, kind in {"counter": int, "tensors": str, "digest": str}.items():
        if type(facts.get(key)) is not kind:
            raise STATE_FILE.broken(path, f"it is no training state: {key} is {facts.get(key)!r}")
    if Path(facts["tensors"]).name != facts["tensors"]:
        raise STATE_FILE.broken(path, f"its tensors {facts['tensors']!r} lie in another folder")
    if identity is not None and facts.get("identity") != identity:
        raise InputError(
            f"{path} is the training state of another run or version, which this one cannot go on from; "
            "choose another --out, or delete it to train from the start."
        )
    return facts


def checkpoint_digest(content: bytes) -> str:
    """Of a file of tensors: against damage, so that it may be quick (2 GB in a second)."""
    return f"{zlib.crc32(content):08x}"


def clear_checkpoint(folder: Path) -> None:
    """Remove the state of a run that is finished; what says that there is one goes first."""
    (folder / INFO_FILE).unlink(missing_ok=True)
    for tensors in folder.glob("state-*.safetensors"):
        tensors.unlink(missing_ok=True)


def load_tensors(folder: Path, facts: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors that belong to `facts`."""
    path = folder / facts["tensors"]
    try:
        content = path.read_bytes()
        if checkpoint_digest(content) != facts["digest"]:
            raise ValueError(f"it is not the file that {INFO_FILE} was written with")
        tensors: dict[str, Tensor] = load(content)
    except Exception as error:  # safetensors raises its own error class for damaged files
        raise InputError(
            f"{path} is missing or damaged ({error}); restore it from a copy, or delete {folder / INFO_FILE} "
            "to train from the start."
        ) from error
    return tensors


log = logging.getLogger("holotype")

RESTART = "restart"
"""Kind of the line that says that training went back."""


@dataclass
class Position:
    """Where training stands: the next step to take."""

    stage: int = 0
    epoch: int = 0
    step: int = 0
    counter: int = 0
    """Steps taken since the start, over all stages."""
    begun: bool = False
    """Whether the work at the start of the epoch (before_epoch) has been done."""


@dataclass
class CheckpointState:
    """What a stopped run goes on from."""

    position: Position
    seconds: float
    """Spent so far."""
    tensors: dict[str, Tensor]
    guard: dict[str, Any] = field(default_factory=dict)
    """What the guard knows of the run (guard.py), plain."""
    captured: dict[str, bool] = field(default_factory=dict)
    """Stages so far, and whether their steps were replayed as a CUDA graph."""


class MetricsLog:
    """`metrics.jsonl`: one JSON object a line, in the order of training."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rewind(self, counter: int, restarts: int = 0) -> None:
        """Drop what was written after the state that training resumes from, and any half-written line.

        restarts: those that the state knows of; a later one is yet to come again, and so is all that followed it.
        """
        if not self.path.exists():
            return
        kept: list[str] = []
        for line in self.path.read_bytes().decode(errors="replace").splitlines():
            try:
                entry = json.loads(line)
                restarts -= entry.get("kind") == RESTART
                if restarts < 0:
                    break
                if entry["counter"] <= counter:
                    kept.append(line + "\n")
            except (ValueError, KeyError, TypeError, AttributeError):  # half a line, or not ours
                continue
        write_text(self.path, "".join(kept))

    def append(self, **entry: Any) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", opener=check_not_link) as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise InputError(
                f"{self.path} could not be written ({error.strerror or error}); "
                "free some space and run the same command again: it goes on from the last saved state."
            ) from error


class Checkpointer:
    """The lines and states of one run; without a folder it writes nothing. Of several processes the first writes."""

    def __init__(self, folder: Path | None, identity: str = "") -> None:
        """identity: digest of what the run is; a state of another one is not gone on from."""
        self.folder, self.identity = folder, identity
        self.writes = folder is not None and rank() == 0
        self.last_beat, self.pace = 0.0, (0.0, 0)
        """When the heartbeat was told last, and the moment and step that the time left is reckoned from."""
        self.metrics = MetricsLog(folder / "metrics.jsonl") if folder and self.writes else None

    def write(self, **entry: Any) -> None:
        if self.metrics:
            self.metrics.append(**entry)

    def save(self, state: CheckpointState) -> None:
        if self.folder and self.writes:
            facts = {**vars(state.position), "seconds": state.seconds, "identity": self.identity}
            facts |= {"guard": state.guard, "captured": state.captured}
            save_checkpoint(self.folder, state.tensors, facts)
            update_heartbeat(self.folder, saved=datetime.now(UTC).isoformat(timespec="seconds"))

    def beat(self, at: Position, stage: str, epochs: int, steps: int, terms: Iterable[Tensor]) -> None:
        """Tell the heartbeat where training stands, at most once a second: reading a loss waits for the device.

        epochs: of the stage. steps: of the run, as far as they are known. terms: of the loss of this step.
        """
        now = time.monotonic()
        if not self.writes or now - self.last_beat < SECONDS:
            return
        if not self.last_beat:
            self.pace = (now, at.counter)
        self.last_beat, (since, first), left = now, self.pace, None
        if at.counter > first:
            left = round(max((steps - at.counter) * (now - since) / (at.counter - first), 0.0), 1)
        moment = {"stage": stage, "epoch": at.epoch + 1, "epochs": epochs, "step": at.counter}
        loss = float(sum(float(term) for term in terms))
        total = max(steps, at.counter)
        update_heartbeat(self.folder, phase="training", **moment, steps=total, loss=loss, seconds_left=left)

    def restart(self, sound: CheckpointState, restarts: Sequence[Any]) -> None:
        """Training goes back to a sound state. restarts: all so far, dataclasses, the last one of which is this one."""
        log.warning("%s%s", f"{self.folder}: " if self.folder else "", restarts[-1])
        if self.metrics:
            self.metrics.rewind(sound.position.counter, len(restarts) - 1)
            self.metrics.append(kind=RESTART, **vars(restarts[-1]), counter=sound.position.counter)

    def resume(self) -> CheckpointState | None:
        """The last state, if there is one, as the first process finds it; lines written after it are dropped."""
        state = run_on_rank0(self._read)
        if self.metrics and state is None:
            self.metrics.rewind(0)  # a run that died before its first state left lines, too
        elif self.metrics and state is not None:
            # inside an epoch its line is still to come, even where all its steps are done
            known = len(state.guard.get("restarts", ()))
            self.metrics.rewind(state.position.counter - (state.position.step > 0), known)
        return state

    def _read(self) -> CheckpointState | None:
        facts = read_checkpoint_info(self.folder, self.identity) if self.folder else None
        if self.folder is None or facts is None:
            return None
        fields = {name: facts[name] for name in ("seconds", "guard", "captured") if name in facts}
        position = {name: facts[name] for name in vars(Position()) if name in facts}
        try:
            state = from_dict(CheckpointState, {"position": position, "tensors": {}, **fields})
        except SchemaError as problem:
            raise self.broken(problem) from problem
        state.tensors = load_tensors(self.folder, facts)
        return state

    def broken(self, reason: Exception | str) -> InputError:
        """Return the error of a state that cannot be resumed from."""
        return STATE_FILE.broken((self.folder or Path()) / INFO_FILE, reason)
