"""Rows of a stream that are chosen by a key, the smallest first: the same ones in whatever order and parts they come.

Ties go to the smaller path. No more than about twice as many rows as are wanted are ever kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

PURPOSES = ("cells", "far", "images")
"""Draws that must not depend on each other; each path has a number for each."""
Kept = tuple[int, int, str]
"""Cell, hash and path."""


def path_hashes(path: Sequence[str], seed: int) -> dict[str, np.ndarray]:
    """Purpose to (n,) uint64: numbers that depend on the path and the seed alone, and look drawn at random."""
    key = seed.to_bytes(8, "little")
    digests = (
        hashlib.blake2b(one.encode(errors="surrogateescape"), digest_size=24, key=key).digest()
        for one in path
    )
    number = np.frombuffer(b"".join(digests), dtype="<u8").reshape(len(path), len(PURPOSES))
    return {purpose: number[:, at] for at, purpose in enumerate(PURPOSES)}


def uniform(number: np.ndarray) -> np.ndarray:
    """(n,) uint64 -> float64 above 0 and below 1."""
    return np.asarray(((number >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53)


class Smallest:
    """The n rows with the smallest keys, and their features."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.rows: list[tuple[float, str, np.ndarray]] = []
        self.bound = np.inf
        """A row with a larger key is not among them."""

    def add(self, key: np.ndarray, path: Sequence[str], x: np.ndarray) -> None:
        """key: (r,) float64. path: (r,). x: (r, D)."""
        for row in np.flatnonzero(key <= self.bound).tolist():
            self.rows.append((float(key[row]), path[row], x[row].copy()))
        if len(self.rows) > 2 * self.n:
            self._shrink()

    def _shrink(self) -> None:
        self.rows.sort(key=lambda row: row[:2])
        del self.rows[self.n :]
        if len(self.rows) == self.n:
            self.bound = self.rows[-1][0]

    def features(self) -> np.ndarray:
        """(n, D) in the order of their keys."""
        self._shrink()
        return np.stack([x for _, _, x in self.rows])


class PerCell:
    """Of every cell the same number of rows, those with the smallest hashes; n rows altogether.

    A cell with fewer rows gives all of them, and the others give more. The level only falls while rows come in, so
    that rows beyond it can be dropped at once.
    """

    def __init__(self, cells: int, n: int) -> None:
        self.n = n
        self.size = np.zeros(cells, dtype=np.int64)
        """(C,) rows of each cell so far."""
        self.rows: list[Kept] = []
        self.bound = np.full(cells, np.iinfo(np.uint64).max, dtype=np.uint64)

    def add(self, cell: np.ndarray, number: np.ndarray, path: Sequence[str]) -> None:
        """cell: (r,). number: (r,) uint64 hashes. path: (r,)."""
        self.size += np.bincount(cell, minlength=len(self.size))
        for row in np.flatnonzero(number <= self.bound[cell]).tolist():
            self.rows.append((int(cell[row]), int(number[row]), path[row]))
        if len(self.rows) > 2 * self.n + 2 * len(self.size):
            self._shrink()

    def _shrink(self) -> None:
        """Keep one row more of each cell than the level: who gets what is left over is seen at the end."""
        most = level(self.size, self.n) + 1
        self.rows.sort()
        ranked = zip(self.rows, _ranks(self.rows), strict=True)
        self.rows = []
        for row, rank in ranked:
            if rank < most:
                self.rows.append(row)
            if rank == most - 1:
                self.bound[row[0]] = row[1]

    def chosen(self) -> list[Kept]:
        """Sorted by cell, then hash; n of them, or all where there are fewer."""
        each = level(self.size, self.n)
        self.rows.sort()
        ranks = _ranks(self.rows)
        first = [row for row, rank in zip(self.rows, ranks, strict=True) if rank < each]
        next_ = sorted(
            (row for row, rank in zip(self.rows, ranks, strict=True) if rank == each), key=_by_hash
        )
        return sorted(first + next_[: self.n - len(first)])


def level(size: np.ndarray, n: int) -> int:
    """The largest number of rows that every cell can give, or all that it has, with at most n altogether."""
    if int(size.sum()) <= n:
        return int(size.max(initial=0))
    ordered = np.sort(size)
    before = np.concatenate([[0], np.cumsum(ordered)[:-1]])  # rows of the cells that are smaller
    whole = before + ordered * np.arange(len(ordered), 0, -1)
    at = int(np.flatnonzero(whole > n)[0])  # the first cell that cannot give all
    return int((n - before[at]) // (len(ordered) - at))


def _by_hash(row: Kept) -> tuple[int, str]:
    return row[1], row[2]


def _ranks(rows: Sequence[Kept]) -> list[int]:
    """The place of each row in its cell. rows: sorted."""
    ranks, cell, rank = [], -1, 0
    for row in rows:
        rank = rank + 1 if row[0] == cell else 0
        cell = row[0]
        ranks.append(rank)
    return ranks
