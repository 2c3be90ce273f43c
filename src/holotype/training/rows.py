"""Which rows of a table take part in training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holotype.config.schema import TrainConfig
from holotype.data.bursts import burst_units, first_frames
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods.base import Stage
from holotype.training.shards import Shards
from holotype.utils.distributed import world_size


@dataclass(frozen=True)
class Rows:
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
    shards: Shards | None = None
    """Of a token cache that the processes share out; None where batches are drawn from all images alike."""
    unit: np.ndarray | None = None
    """(N,) equal for the frames of one burst; None where there are no bursts (data/bursts.py)."""

    def drawn(self, generator: Callable[[], torch.Generator]) -> tuple[Tensor, Tensor]:
        """The labelled and the unlabelled rows of an epoch: all of them, or one frame of each burst, drawn blindly."""
        if self.unit is None:
            return self.labelled, self.unlabelled
        order = self.usable[torch.randperm(len(self.usable), generator=generator())].numpy()
        rows = torch.from_numpy(np.sort(first_frames(self.unit, order)))
        labelled = self.target[rows] >= 0
        return rows[labelled], rows[~labelled]


def training_rows(table: Table, config: TrainConfig, stages: Sequence[Stage]) -> Rows:
    """Those of a method with these stages; one that only clusters has no batches."""
    return index_rows(table, *((config.batch_size, config.shards) if stages else (world_size(), 0)))


def index_rows(table: Table, batch_size: int, shards: int = 0) -> Rows:
    """shards: of the token cache; 0 = it is not shared out."""
    usable = torch.from_numpy(table.usable.copy())
    target = torch.where(usable, torch.from_numpy(table.target.copy()), -1)
    rows, unit = usable.nonzero().flatten(), burst_units(table)
    n = len(first_frames(unit, rows.numpy()))
    if batch_size > n:
        once = "" if unit is None else ", each burst counted once"
        raise InputError(
            f"the batch size {batch_size} is larger than the {n} usable images of {table.name}{once}; "
            "lower it with --train.batch_size."
        )
    if batch_size % world_size():
        raise InputError(
            f"the batch size {batch_size} cannot be shared evenly by {world_size()} processes; "
            "choose a multiple with --train.batch_size."
        )
    if shards and batch_size % shards:
        raise InputError(
            f"the batch size {batch_size} cannot be drawn evenly from {shards} shards; choose a multiple with "
            "--train.batch_size, or other --train.shards."
        )
    if shards and unit is not None:
        raise InputError("--train.shards does not go together with bursts yet; leave one of them out.")
    return Rows(
        usable=rows,
        labelled=(usable & (target >= 0)).nonzero().flatten(),
        unlabelled=(usable & (target < 0)).nonzero().flatten(),
        target=target,
        steps=n // batch_size,
        shards=Shards.deal(rows, len(table), shards) if shards else None,
        unit=unit,
    )


def check_rows(own: Tensor, rows: Rows, method: str) -> Tensor:
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
