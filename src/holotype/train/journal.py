"""What a run writes while it trains: a line per epoch and per scoring, and the state it can go on from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from holotype.machine.processes import rank
from holotype.runs.folder import Metrics, RunFolder
from holotype.train.state import load_tensors, read_facts, save_state


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


class Journal:
    """The lines and states of one run; without a folder it writes nothing. Of several processes the first writes."""

    def __init__(self, folder: RunFolder | None) -> None:
        self.folder = folder
        self.writes = folder is not None and rank() == 0
        self.metrics = Metrics(folder.path / "metrics.jsonl") if folder and self.writes else None

    def write(self, **entry: Any) -> None:
        if self.metrics:
            self.metrics.append(**entry)

    def save(self, state: State) -> None:
        if self.folder and self.writes:
            save_state(self.folder.path, state.tensors, {**vars(state.position), "seconds": state.seconds})

    def resume(self) -> State | None:
        """The last state, if there is one; lines written after it are dropped."""
        facts = read_facts(self.folder.path) if self.folder else None
        if self.folder is None or facts is None:
            if self.metrics:
                self.metrics.rewind(0)  # a run that died before its first state left lines, too
            return None
        tensors = load_tensors(self.folder.path, facts)
        position = Position(**{name: facts[name] for name in vars(Position())})
        if self.metrics:
            # inside an epoch its line is still to come, even where all its steps are done
            self.metrics.rewind(position.counter - (position.step > 0))
        return State(position, facts["seconds"], tensors)
