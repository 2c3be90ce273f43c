"""Batches of an epoch: which rows, views, random numbers and schedule values each step gets.

Everything is drawn on the CPU from keyed generators, a block of steps at a time, so that a resumed run, another device
and several processes draw the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holotype.config.schema import TrainConfig
from holotype.data.samplers import LABEL_SAMPLERS, SAMPLERS, keyed_generator
from holotype.data.table import Table, burst_units, first_frames
from holotype.errors import InputError
from holotype.methods.base import Method, Progress, Stage
from holotype.models.token_cache import CacheShards
from holotype.training.views import Key, ViewSource, to_device
from holotype.utils.distributed import world_size

log = logging.getLogger("holotype")

DRAW_BLOCK = 16
"""Steps whose random numbers are drawn and sent to the device together."""
EPOCHS_AHEAD = 3
"""Steps announced to the source before they are fetched."""


@dataclass(frozen=True)
class RowIndex:
    """Row numbers of a table, on the CPU."""

    usable: Tensor
    """(n,) rows whose image can be read."""
    labelled: Tensor
    """Those of them that carry a label."""
    unlabelled: Tensor
    """The others."""
    target: Tensor
    """(N,) class index of every row of the table, -1 where it has none or cannot be read."""
    steps: int
    """Full batches in as many draws as there are usable rows; a burst counts as one."""
    shards: CacheShards | None = None
    """Of a token cache that the processes share out; None where batches are drawn from all images alike."""
    unit: np.ndarray | None = None
    """(N,) equal for the frames of one burst; None where there are no bursts (data/bursts.py)."""

    def full_batches(self, batch_size: int) -> int:
        """Return the steps of an epoch with batches of this size."""
        n = len(self.usable) if self.unit is None else len(first_frames(self.unit, self.usable.numpy()))
        return n // batch_size

    def drawn(self, generator: Callable[[], torch.Generator]) -> tuple[Tensor, Tensor]:
        """The labelled and the unlabelled rows of an epoch: all of them, or one frame of each burst, drawn blindly."""
        if self.unit is None:
            return self.labelled, self.unlabelled
        order = self.usable[torch.randperm(len(self.usable), generator=generator())].numpy()
        rows = torch.from_numpy(np.sort(first_frames(self.unit, order)))
        labelled = self.target[rows] >= 0
        return rows[labelled], rows[~labelled]


def training_rows(table: Table, config: TrainConfig, stages: Sequence[Stage]) -> RowIndex:
    """Those of a method with these stages; one that only clusters has no batches."""
    for size in {stage.batch_size for stage in stages} - {None}:
        index_rows(table, size or 0, config.shards)  # refused where it does not fit
    return index_rows(table, *((config.batch_size, config.shards) if stages else (world_size(), 0)))


def index_rows(table: Table, batch_size: int, shards: int = 0) -> RowIndex:
    """shards: of the token cache; 0 = it is not shared out."""
    usable = torch.from_numpy(table.usable.copy())
    target = torch.where(usable, torch.from_numpy(table.target.copy()), -1)
    rows, unit = usable.nonzero().flatten(), burst_units(table)
    n = len(first_frames(unit, rows.numpy()))
    if batch_size > n:
        once = "" if unit is None else ", each burst counted once"
        raise InputError(
            f"the batch size {batch_size} is larger than the {n} usable images of {table.name}{once}; "
            "lower it with --train.batch-size."
        )
    if batch_size % world_size():
        raise InputError(
            f"the batch size {batch_size} cannot be shared evenly by {world_size()} processes; "
            "choose a multiple with --train.batch-size."
        )
    if shards and batch_size % shards:
        raise InputError(
            f"the batch size {batch_size} cannot be drawn evenly from {shards} shards; choose a multiple with "
            "--train.batch-size, or other --train.shards."
        )
    if shards and unit is not None:
        raise InputError("--train.shards does not go together with bursts yet; leave one of them out.")
    labelled = target[rows] >= 0
    dealt = CacheShards.deal(rows, len(table), shards) if shards else None
    return RowIndex(rows, rows[labelled], rows[~labelled], target, n // batch_size, dealt, unit)


def check_rows(own: Tensor, rows: RowIndex, method: str) -> Tensor:
    """(steps, B) rows that a method drew itself, on the CPU; InputError for what no step could see."""
    own = own.cpu()
    if own.ndim != 2 or own.dtype != torch.long or not own.numel():
        raise InputError(
            f"The rows of {method} are {tuple(own.shape)} of {own.dtype}; they must be whole numbers (steps, images)."
        )
    if not bool(torch.isin(own, rows.usable).all()):
        raise InputError(f"The rows of {method} name images that are not there or cannot be read.")
    if own.shape[1] % world_size():
        raise InputError(
            f"The {own.shape[1]} images in a step of {method} cannot be shared evenly by {world_size()} processes."
        )
    return own


@dataclass(frozen=True)
class BatchDraw:
    """Everything random about one step, and its time, drawn before it."""

    request: Any
    """The views, as the source knows them."""
    tensors: dict[str, Tensor]
    """`image` (B,) rows of the table, `clock` (C,) what changes with time, and `random.NAME` for each of the method's
    draws; on the device."""
    clock: tuple[str, ...]
    """Names of the values in `tensors["clock"]`."""


EpochDraws = tuple[int, Iterator[BatchDraw]]
"""Steps of a whole epoch, and the draws from the step on at which it is entered."""


class StageDraws:
    """Draws the epochs of one stage."""

    def __init__(
        self,
        stage: Stage,
        source: ViewSource,
        method: Method,
        rows: RowIndex,
        batch_size: int,
        epochs: int,
        key: Key,
    ) -> None:
        """epochs: of the stage. key: of all its draws (seed, number of the stage)."""
        self.stage, self.source, self.method = stage, source, method
        self.rows, self.batch_size, self.epochs, self.key = rows, batch_size, epochs, key
        self._ahead: EpochDraws | None = None
        if rows.unit is not None and not self.early:
            log.warning(f"{type(method).__name__} draws its images itself, so every frame of a burst counts.")

    @property
    def early(self) -> bool:
        """Whether an epoch can be drawn before the work at its start is done: a method's own rows depend on that."""
        return type(self.method).rows is Method.rows

    def epoch(self, number: int, first: int = 0) -> EpochDraws:
        """Return the number of steps of an epoch, and their draws from step `first` on."""
        ahead, self._ahead = self._ahead, None
        return ahead or self._begin(number, first)

    def draw_ahead(self, number: int) -> None:
        """Draw the first batches of the next epoch now, if there is one that does not depend on work at its start."""
        if number < self.epochs and self.early:
            self._ahead = self._begin(number)

    def _begin(self, number: int, first: int = 0) -> EpochDraws:
        rows = self.rows_of(number)
        drawn = self.draw(rows, number, first)
        return len(rows), chain(list(islice(drawn, 1)), drawn)

    def rows_of(self, number: int) -> Tensor:
        """(steps, B) rows of the table that an epoch sees, on the CPU."""
        key, steps = (*self.key, number, "rows"), self.rows.full_batches(self.batch_size)
        own = self.method.rows(self.stage, number, keyed_generator(*key))
        shards = self.rows.shards if self.source.shared else None
        if own is not None:
            if shards:
                raise InputError(
                    f"{type(self.method).__name__} draws images of its own, which a cache in shards cannot give; "
                    "leave out --train.shards."
                )
            return check_rows(own, self.rows, type(self.method).__name__)
        n = steps * self.batch_size
        pools = self.rows.drawn(lambda: keyed_generator(*self.key, number, "frames"))
        if self.stage.sampler in LABEL_SAMPLERS:
            drawn = self._by_label(pools[0], n, bool(shards), keyed_generator(*key))
        elif shards:
            drawn = shards.draw(
                SAMPLERS[self.stage.sampler], pools, n, lambda number: keyed_generator(*key, number)
            )
        else:
            drawn = SAMPLERS[self.stage.sampler](*pools, n, keyed_generator(*key))
        return drawn.view(steps, -1)

    def _by_label(self, labelled: Tensor, n: int, shared: bool, generator: torch.Generator) -> Tensor:
        """(n,) labelled rows by the sampler of the stage."""
        stage, size = self.stage, self.batch_size
        if shared:
            raise InputError(
                f"The sampler {stage.sampler} does not go together with --train.shards; leave it out."
            )
        if stage.sampler == "pk" and size % stage.per_class:
            raise InputError(
                f"the batch size {size} is no multiple of the {stage.per_class} images of a class in stage "
                f"{stage.name}; choose another --train.batch-size."
            )
        places = LABEL_SAMPLERS[stage.sampler](
            self.rows.target[labelled], n, size, stage.per_class, generator
        )
        return labelled[places]

    def draw(self, rows: Tensor, number: int, first: int = 0) -> Iterator[BatchDraw]:
        """The steps of epoch `number` from step `first` on. rows: (steps, B) of the whole epoch."""
        waiting: list[BatchDraw] = []
        for start in range(first - first % DRAW_BLOCK, len(rows), DRAW_BLOCK):
            for drawn in self._block(rows, number, start)[max(first - start, 0) :]:
                self.source.expect(drawn.request)
                waiting.append(drawn)
                if len(waiting) > EPOCHS_AHEAD:
                    yield waiting.pop(0)
        yield from waiting

    def _block(self, rows: Tensor, number: int, start: int) -> list[BatchDraw]:
        """The steps from `start` on that are drawn together."""
        device, dtype = self.source.encoder.device, self.source.encoder.dtype
        part, key = rows[start : start + DRAW_BLOCK], (*self.key, number, start)
        requests = self.source.draw(part, self.stage.views, key)
        moments = [Progress(number, self.epochs, start + i, len(rows)) for i in range(len(part))]
        times = [
            {"epoch": float(at.epoch), "progress": at.progress, **self.method.schedule(self.stage, at)}
            for at in moments
        ]
        clock = torch.tensor([[*time.values()] for time in times], dtype=dtype)
        tensors = {"image": to_device(part, device), "clock": to_device(clock, device)}
        for name, shape in self.method.draws(self.stage, rows.shape[1]).items():
            random = torch.rand(len(part), *shape, generator=keyed_generator(*key, name))
            tensors[f"random.{name}"] = to_device(random.to(dtype), device)
        return [
            BatchDraw(request, {name: block[i] for name, block in tensors.items()}, tuple(times[i]))
            for i, request in enumerate(requests)
        ]
