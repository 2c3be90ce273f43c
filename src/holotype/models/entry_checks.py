"""Checksums in the file of a token cache: one of each entry, which is compared when the entry is first read.

They follow the tokens: 4 bytes an entry, and 4 of the checksums themselves. A cache may be larger than memory and is
read as it is used, so that it is not read as a whole to be checked; each entry costs its share once, at 2 GB a second.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from torch import Tensor

from holotype.errors import InputError
from holotype.utils.serialization import CorruptFile

BYTES = 4
"""Of a checksum."""


def tail_bytes(entries: int) -> int:
    """What the checksums of so many entries take."""
    return BYTES * (entries + 1)


def make_tail(tokens: np.ndarray) -> bytes:
    """The checksums of (entries, ...) tokens, as they end the file."""
    own = np.array([zlib.crc32(entry) for entry in tokens], dtype="<u4").tobytes()
    return own + zlib.crc32(own).to_bytes(BYTES, "little")


class EntryChecks:
    """Which entries of a file were read and are as they were written."""

    def __init__(self, file: Path, tokens: np.ndarray) -> None:
        """tokens: (entries, ...) as mapped from the file. Raises Broken where the checksums are not whole."""
        with file.open("rb") as stream:
            stream.seek(tokens.nbytes)
            tail = stream.read(tail_bytes(len(tokens)))
        own, last = tail[:-BYTES], tail[-BYTES:]
        if len(own) != BYTES * len(tokens) or zlib.crc32(own).to_bytes(BYTES, "little") != last:
            raise CorruptFile("its checksums are not whole")
        self.file, self.tokens = file, tokens
        self.told = np.frombuffer(own, dtype="<u4")
        self.seen = np.zeros(len(tokens), dtype=bool)

    def look_at_all(self) -> None:
        """Raise Broken where any entry has changed."""
        changed = self._changed(range(len(self.told)))
        if changed:
            raise CorruptFile(f"{len(changed):,} of {len(self.told):,} entries do not match their checksums")

    def look(self, entry: Tensor) -> None:
        """Raise InputError where one of these entries (n,) has changed; the file goes, so that it is built anew."""
        wanted = entry.numpy()
        new = wanted[~self.seen[wanted]]
        if not len(new) or not (changed := self._changed(np.unique(new).tolist())):
            return
        self.file.unlink(missing_ok=True)
        raise InputError(
            f"The token cache {self.file} was damaged since it was written (entry {changed[0]:,} does not match its "
            "checksum), and is removed; run the same command again: it builds the cache anew and goes on from the last "
            "saved state."
        )

    def _changed(self, entries: range | list[int]) -> list[int]:
        """Those that are not what they were; the others count as seen."""
        changed = [at for at in entries if zlib.crc32(self.tokens[at]) != self.told[at]]
        self.seen[entries] = True
        self.seen[changed] = False
        return changed
