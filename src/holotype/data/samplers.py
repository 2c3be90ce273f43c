"""Samplers: which images a step sees, and the keyed random numbers behind every draw."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def keyed_generator(*key: int | str) -> torch.Generator:
    """A CPU generator that depends on `key` alone.

    Every draw of a run comes from such a generator, keyed by (seed, stage, epoch, step, purpose): a
    resumed run, a run on another device and a run on several processes all draw the same numbers.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") & (2**63 - 1))


def keyed_uniforms(keys: Sequence[bytes], count: int, *key: int | str) -> Tensor:
    """(count, n) float64 in [0, 1): of each of n things the numbers that depend on its own key and on `key` alone."""
    salt = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
    drawn = b"".join(hashlib.blake2b(own, digest_size=8 * count, key=salt).digest() for own in keys)
    bits = np.frombuffer(drawn, "<u8").reshape(len(keys), count) >> np.uint64(11)
    return torch.from_numpy((bits * 2.0**-53).T.copy())


def balanced_rows(labelled: Tensor, unlabelled: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw `n` rows with replacement, each labelled with probability 1/2 (methods of the SimGCD family).

    The same distribution as weighted sampling with weight 1 for a labelled row and N_L/N_U for an
    unlabelled one, but without a limit on the number of rows.
    labelled: (N_L,) rows, unlabelled: (N_U,) rows -> (n,) rows.
    """
    if len(labelled) == 0 or len(unlabelled) == 0:
        pool = torch.cat([labelled, unlabelled])
        return pool[torch.randint(len(pool), (n,), generator=generator)]
    coin = torch.rand(n, generator=generator) < 0.5
    from_labelled = labelled[torch.randint(len(labelled), (n,), generator=generator)]
    from_unlabelled = unlabelled[torch.randint(len(unlabelled), (n,), generator=generator)]
    return torch.where(coin, from_labelled, from_unlabelled)


def uniform_rows(labelled: Tensor, unlabelled: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw `n` rows without replacement: every image at most once an epoch."""
    pool = torch.cat([labelled, unlabelled])
    return pool[torch.randperm(len(pool), generator=generator)[:n]]


SAMPLERS = {"balanced": balanced_rows, "uniform": uniform_rows}


def labelled_rows(label: Tensor, n: int, batch: int, per_class: int, generator: torch.Generator) -> Tensor:
    """Draw `n` places of (N_L,) labelled images, each as often as the others but for one."""
    rounds = [torch.randperm(len(label), generator=generator) for _ in range(-(-n // len(label)))]
    return torch.cat(rounds)[:n]


def class_rows(label: Tensor, n: int, batch: int, per_class: int, generator: torch.Generator) -> Tensor:
    """Draw `n` places of labelled images, every class with the same probability, with replacement."""
    share = 1.0 / label.bincount().double()
    return torch.multinomial(share[label], n, replacement=True, generator=generator)


def pk_rows(label: Tensor, n: int, batch: int, per_class: int, generator: torch.Generator) -> Tensor:
    """Draw `n` places of labelled images: batches of P = batch / K classes, K = per_class images of each.

    Classes of a batch differ where there are P; images of a class are drawn with replacement.
    """
    classes, p = label.unique(), batch // per_class
    found = []
    for _ in range(n // batch):
        rounds = [torch.randperm(len(classes), generator=generator) for _ in range(-(-p // len(classes)))]
        for c in classes[torch.cat(rounds)[:p]]:
            own = (label == c).nonzero().flatten()
            found.append(own[torch.randint(len(own), (per_class,), generator=generator)])
    return torch.cat(found)


LABEL_SAMPLERS = {"labelled": labelled_rows, "classes": class_rows, "pk": pk_rows}
"""Of labelled images alone, by their classes."""
