"""What a run writes while it trains: a line per epoch and per scoring, and the state it can go on from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from holotype.errors import InputError
from holotype.machine.files import write_text
from holotype.machine.processes import found_by_first, rank
from holotype.training.state import load_tensors, read_facts, save_state


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
class State:
    """What a stopped run goes on from."""

    position: Position
    seconds: float
    """Spent so far."""
    tensors: dict[str, Tensor]


class Metrics:
    """`metrics.jsonl`: one JSON object a line, in the order of training."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rewind(self, counter: int) -> None:
        """Drop what was written after the state that training resumes from, and any half-written line."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text().splitlines():
            try:
                if json.loads(line)["counter"] <= counter:
                    kept.append(line + "\n")
            except (ValueError, KeyError):
                continue
        write_text(self.path, "".join(kept))

    def append(self, **entry: Any) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise InputError(
                f"{self.path} could not be written ({error.strerror or error}); "
                "free some space and run the same command again: it goes on from the last saved state."
            ) from error


class Journal:
    """The lines and states of one run; without a folder it writes nothing. Of several processes the first writes."""

    def __init__(self, folder: Path | None, identity: str = "") -> None:
        """identity: digest of what the run is; a state of another one is not gone on from."""
        self.folder, self.identity = folder, identity
        self.writes = folder is not None and rank() == 0
        self.metrics = Metrics(folder / "metrics.jsonl") if folder and self.writes else None

    def write(self, **entry: Any) -> None:
        if self.metrics:
            self.metrics.append(**entry)

    def save(self, state: State) -> None:
        if self.folder and self.writes:
            facts = {**vars(state.position), "seconds": state.seconds, "identity": self.identity}
            save_state(self.folder, state.tensors, facts)

    def resume(self) -> State | None:
        """The last state, if there is one, as the first process finds it; lines written after it are dropped."""
        state = found_by_first(self._read)
        if self.metrics and state is None:
            self.metrics.rewind(0)  # a run that died before its first state left lines, too
        elif self.metrics and state is not None:
            # inside an epoch its line is still to come, even where all its steps are done
            self.metrics.rewind(state.position.counter - (state.position.step > 0))
        return state

    def _read(self) -> State | None:
        facts = read_facts(self.folder, self.identity) if self.folder else None
        if self.folder is None or facts is None:
            return None
        tensors = load_tensors(self.folder, facts)
        position = Position(**{name: facts[name] for name in vars(Position())})
        return State(position, facts["seconds"], tensors)
