"""A token cache in virtual shards, so that several processes hold a part each and still draw the batches of one.

The usable images are dealt out to S shards in turn. Position j of every batch is drawn from shard j mod S, whatever the
number of processes; process p of P, where P divides S, encodes the positions p, p + P, ... and so needs the images of
the shards p, p + P, ... alone. Batches are drawn evenly from the shards instead of freely from all images: this is why
the number of shards, and not that of processes, is a part of what a run is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holotype.errors import InputError
from holotype.utils.distributed import rank, world_size


@dataclass(frozen=True)
class Shards:
    """Which shard each image is in."""

    count: int
    shard: Tensor
    """(N,) of every row of a table, -1 for those that cannot be read; on the CPU."""

    @classmethod
    def deal(cls, usable: Tensor, n: int, count: int) -> Shards:
        """usable: (n_usable,) rows of a table of n."""
        if count % world_size():
            raise InputError(
                f"{count} shards cannot be dealt out evenly to {world_size()} processes; "
                "choose a multiple with --train.shards."
            )
        if count > len(usable):
            raise InputError(f"--train.shards {count} is more than the {len(usable):,} usable images.")
        shard = torch.full((n,), -1)
        shard[usable] = torch.arange(len(usable)) % count
        return cls(count, shard)

    def owner(self, rows: Tensor) -> Tensor:
        """(n,) rows -> (n,) number of the process that holds their tokens."""
        return self.shard[rows] % world_size()

    def held(self, usable: Tensor) -> Tensor:
        """(n_held,) places among `usable` of the images that this process holds."""
        return (self.owner(usable) == rank()).nonzero().flatten()

    def largest(self, usable: Tensor) -> int:
        """Images of the process that holds the most."""
        return int(self.owner(usable).bincount(minlength=world_size()).max())

    def draw(
        self,
        sampler: Callable[[Tensor, Tensor, int, torch.Generator], Tensor],
        pools: tuple[Tensor, Tensor],
        n: int,
        generator: Callable[[int], torch.Generator],
    ) -> Tensor:
        """(n,) rows, of which number j is drawn from shard j mod S, of which n is a multiple.

        pools: labelled and unlabelled rows. generator: of a shard, by its number.
        """
        parts = []
        for number in range(self.count):
            labelled, unlabelled = (pool[self.shard[pool] == number] for pool in pools)
            parts.append(sampler(labelled, unlabelled, n // self.count, generator(number)))
        return torch.stack(parts, dim=1).flatten()
