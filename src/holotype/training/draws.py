"""What the steps of an epoch see: which images, which views, which random numbers, and the time, drawn before them.

Everything is drawn on the CPU from keyed generators, a block of steps at a time, so that a resumed run, another device
and several processes draw the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor

from holotype.data.samplers import SAMPLERS, keyed_generator
from holotype.errors import InputError
from holotype.methods.base import Method, Progress, Stage
from holotype.training.rows import Rows, check_rows
from holotype.training.sources import Key, Source

log = logging.getLogger("holotype")

BLOCK = 16
"""Steps whose random numbers are drawn and sent to the device together."""
AHEAD = 3
"""Steps announced to the source before they are fetched."""


@dataclass(frozen=True)
class Drawn:
    """Everything random about one step, and its time, drawn before it."""

    request: Any
    """The views, as the source knows them."""
    tensors: dict[str, Tensor]
    """`image` (B,) rows of the table, `clock` (C,) what changes with time, and `random.NAME` for each of the method's
    draws; on the device."""
    clock: tuple[str, ...]
    """Names of the values in `tensors["clock"]`."""


@dataclass(frozen=True)
class Epoch:
    """The draws of one epoch."""

    number: int
    steps: int
    """Of the whole epoch."""
    drawn: Iterator[Drawn]
    """From the step on at which the epoch is entered."""


class StageDraws:
    """Draws the epochs of one stage."""

    def __init__(
        self, stage: Stage, source: Source, method: Method, rows: Rows, batch_size: int, epochs: int, key: Key
    ) -> None:
        """epochs: of the stage. key: of all its draws (seed, number of the stage)."""
        self.stage, self.source, self.method = stage, source, method
        self.rows, self.batch_size, self.epochs, self.key = rows, batch_size, epochs, key
        if rows.unit is not None and not self.early:
            log.warning(f"{type(method).__name__} draws its images itself, so every frame of a burst counts.")

    @property
    def early(self) -> bool:
        """Whether an epoch can be drawn before the work at its start is done: a method's own rows depend on that."""
        return type(self.method).rows is Method.rows

    def epoch(self, number: int, first: int = 0) -> Epoch:
        """The steps of an epoch from step `first` on, of which the first few are drawn now."""
        rows = self.rows_of(number)
        drawn = self.draw(rows, number, first)
        return Epoch(number, len(rows), chain(list(islice(drawn, 1)), drawn))

    def rows_of(self, number: int) -> Tensor:
        """(steps, B) rows of the table that an epoch sees, on the CPU."""
        key, steps = (*self.key, number, "rows"), self.rows.steps
        own = self.method.rows(self.stage, number, keyed_generator(*key))
        shards = self.rows.shards if self.source.shared else None
        if own is not None:
            if shards:
                raise InputError(
                    f"{type(self.method).__name__} draws images of its own, which a cache in shards cannot give; "
                    "leave out --train.shards."
                )
            return check_rows(own, self.rows, type(self.method).__name__)
        sampler, n = SAMPLERS[self.stage.sampler], steps * self.batch_size
        pools = self.rows.drawn(lambda: keyed_generator(*self.key, number, "frames"))
        if shards:
            drawn = shards.draw(sampler, pools, n, lambda number: keyed_generator(*key, number))
        else:
            drawn = sampler(*pools, n, keyed_generator(*key))
        return drawn.view(steps, -1)

    def draw(self, rows: Tensor, number: int, first: int = 0) -> Iterator[Drawn]:
        """The steps of epoch `number` from step `first` on. rows: (steps, B) of the whole epoch."""
        waiting: list[Drawn] = []
        for start in range(first - first % BLOCK, len(rows), BLOCK):
            for drawn in self._block(rows, number, start)[max(first - start, 0) :]:
                self.source.expect(drawn.request)
                waiting.append(drawn)
                if len(waiting) > AHEAD:
                    yield waiting.pop(0)
        yield from waiting

    def _block(self, rows: Tensor, number: int, start: int) -> list[Drawn]:
        """The steps from `start` on that are drawn together."""
        device, dtype = self.source.encoder.device, self.source.encoder.dtype
        part, key = rows[start : start + BLOCK], (*self.key, number, start)
        requests = self.source.draw(part, self.stage.views, key)
        moments = [Progress(number, self.epochs, start + i, len(rows)) for i in range(len(part))]
        times = [tell_time(self.method, self.stage, at) for at in moments]
        clock = torch.tensor([[*time.values()] for time in times], dtype=dtype)
        tensors = {"image": _send(part, device), "clock": _send(clock, device)}
        for name, shape in self.method.draws(self.stage, rows.shape[1]).items():
            random = torch.rand(len(part), *shape, generator=keyed_generator(*key, name))
            tensors[f"random.{name}"] = _send(random.to(dtype), device)
        return [
            Drawn(request, {name: block[i] for name, block in tensors.items()}, tuple(times[i]))
            for i, request in enumerate(requests)
        ]


def tell_time(method: Method, stage: Stage, at: Progress) -> dict[str, float]:
    """What changes with time, by name."""
    return {"epoch": float(at.epoch), "progress": at.progress, **method.schedule(stage, at)}


def _send(host: Tensor, device: torch.device) -> Tensor:
    """To the device without waiting for it."""
    if device.type != "cuda":
        return host.to(device)
    return host.contiguous().pin_memory().to(device, non_blocking=True)
