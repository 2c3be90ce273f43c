"""Which images stand for which concept in a step (DCCL's batches), beside the ordinary ones."""

from __future__ import annotations

import torch
from torch import Tensor

from holotype.data.samplers import balanced_rows


def rows_with_concepts(
    standing: Tensor,
    concept: Tensor,
    n: int,
    *,
    steps: int,
    batch_size: int,
    slots: int,
    members: int,
    generator: torch.Generator,
) -> Tensor:
    """(steps, batch_size + slots * members): balanced rows of each step, and beside them those of its concepts.

    standing: (N,) of every row of the table, 1 = labelled, 0 = unlabelled, -1 = cannot be read. concept: (N,) which of
    the n concepts, -1 = none. With n = 0 ordinary rows fill the places: their concept is -1, and no loss counts them.
    """
    labelled, unlabelled = ((standing == value).nonzero()[:, 0] for value in (1, 0))
    ordinary = balanced_rows(labelled, unlabelled, steps * batch_size, generator).view(steps, batch_size)
    if n:
        return torch.cat([ordinary, concept_rows(concept, n, steps, slots, members, generator)], 1)
    filling = balanced_rows(labelled, unlabelled, steps * slots * members, generator)
    return torch.cat([ordinary, filling.view(steps, -1)], 1)


def concept_order(n: int, steps: int, slots: int, generator: torch.Generator) -> Tensor:
    """(steps, slots) of the n concepts: all of them in random order, then all again in another.

    A step has no concept twice unless there are fewer than its slots: where a pass ends within a step, the next one
    begins with concepts that the step has not had.
    """
    order = torch.empty(0, dtype=torch.long)
    while len(order) < steps * slots:
        new = torch.randperm(n, generator=generator)
        had = torch.isin(new, order[len(order) - len(order) % slots :])
        order = torch.cat([order, new[torch.argsort(had.long(), stable=True)]])
    return order[: steps * slots].view(steps, slots)


def concept_rows(
    concept: Tensor, n: int, steps: int, slots: int, members: int, generator: torch.Generator
) -> Tensor:
    """(steps, slots * members) rows: for each step `slots` concepts, and of each so many members, side by side.

    Members are drawn without replacement, or with it where there are fewer. Images of no concept are never drawn.
    concept: (N,) of every row of the table, -1 = none; n >= 1 concepts.
    """
    by_concept = torch.argsort(concept, stable=True)
    size = torch.bincount(concept[concept >= 0], minlength=n)
    of_each = by_concept[int((concept < 0).sum()) :].split(size.tolist())
    chosen = [
        of_each[c][_draw(len(of_each[c]), members, generator)]
        for c in concept_order(n, steps, slots, generator).flatten().tolist()
    ]
    return torch.stack(chosen).view(steps, slots * members)


def _draw(size: int, members: int, generator: torch.Generator) -> Tensor:
    if size < members:
        return torch.randint(size, (members,), generator=generator)
    return torch.randperm(size, generator=generator)[:members]
