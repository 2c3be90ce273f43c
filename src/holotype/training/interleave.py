"""Interleave several training loops in one process, step by step."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from holotype.errors import InputError, Stopped
from holotype.methods.base import Prediction
from holotype.training.loop import Loop, Training
from holotype.training.progress import StopRequest, TrainingBar
from holotype.utils.distributed import rank
from holotype.utils.memory import is_out_of_memory

Outcome = Prediction | InputError | Stopped


@dataclass(frozen=True)
class LoopEnd:
    """What a loop ended with, and the seconds it had taken by then."""

    outcome: Outcome
    seconds: float

    def prediction(self) -> Prediction:
        """Of a loop that came to its end; raises what ended it otherwise."""
        if not isinstance(self.outcome, Prediction):
            raise self.outcome
        return self.outcome


def train_in_turns(loops: Mapping[str, Loop], *, fewer: str = "--parallel") -> dict[str, LoopEnd]:
    """Advance every loop by one step in turn until all have ended. loops: by the names that lines begin with.

    A loop that fails does not end the others. A stop that is asked for reaches every loop, and each saves its
    state before it ends. fewer: the flag that says how many there are.
    """
    if not loops:
        return {}
    device = next(iter(loops.values())).compute.device
    streams = {name: make_stream(device) for name in loops}
    wait_for(device)  # images, tokens and weights were made on the default stream
    ended: dict[str, LoopEnd] = {}
    show = any(loop.progress for loop in loops.values()) and rank() == 0
    total = sum(loop.total_steps for loop in loops.values())
    with (
        StopRequest() as stop,
        TrainingBar(show, f"{len(loops)} runs" if len(loops) > 1 else "Training", total) as bar,
    ):
        turns = {name: loop.training(stop, bar.part(name)) for name, loop in loops.items()}
        while turns:
            for name in list(turns):
                with on_stream(streams[name]):
                    outcome = step_loop(turns[name], len(loops), fewer)
                if outcome is not None:
                    ended[name] = LoopEnd(outcome, loops[name].seconds())
                    del turns[name]
    wait_for(device)  # what follows reads the weights on the default stream
    return ended


def step_loop(turn: Training, together: int, fewer: str = "--parallel") -> Outcome | None:
    """One step of a loop; what it ended with, if that was its end."""
    try:
        next(turn)
    except StopIteration as end:
        prediction: Prediction = end.value
        return prediction
    except (InputError, Stopped) as error:
        return error
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        on_gpu = isinstance(error, torch.OutOfMemoryError)
        level = "device" if on_gpu else "host"
        less = f", or leave images and tokens less with --memory.{level}_gb" if fewer == "--parallel" else ""
        return InputError(
            f"{'the memory of the GPU' if on_gpu else 'memory'} ran out with {together} runs at once; run the same "
            f"command again with a smaller {fewer}{less}."
        )
    return None


def make_stream(device: torch.device) -> torch.cuda.Stream | None:
    return torch.cuda.Stream(device) if device.type == "cuda" else None


def on_stream(stream: torch.cuda.Stream | None) -> contextlib.AbstractContextManager[Any]:
    return torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext()


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
