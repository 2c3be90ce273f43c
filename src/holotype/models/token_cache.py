"""Token cache: the trunk's output for a fixed number of views per image, on disk or in memory.

An approximation, always marked as such: instead of a fresh crop, a step draws one of M weak and S strong views
that every image has. One more entry per image holds its centre view, for evaluation. Tokens lie in one
tensor of (entries, tokens * D), on the device, in host memory or in a memory-mapped file, in 16 bits: float16, or
bfloat16 where the trunk computes in it, so that a cached view is to the bit what the trunk would return. Files
are kept for later runs under the hash of all that decides their content; they can be deleted at any time. Checksums
follow the tokens: 4 bytes an entry, and 4 of the checksums themselves. Where views are drawn for each image by itself,
the keys of the images follow, 16 bytes each and 4 of their checksum: what another cache of the same family holds of the
same images is copied from there (`KeyedTokens`). A cache may be larger than memory and is read as
it is used, so that it is not read as a whole to be checked; each entry costs its share once, at 2 GB a second.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from holotype.data.image_store import KEY_BYTES
from holotype.errors import InputError
from holotype.utils.atomic import atomic_path, clean_partial
from holotype.utils.distributed import rank, world_size
from holotype.utils.locks import try_shared_lock
from holotype.utils.memory import Level
from holotype.utils.serialization import CorruptFile
from holotype.utils.text import format_bytes

CHECKSUM_BYTES = 4
"""Of a checksum."""


def checksum_bytes(entries: int) -> int:
    """What the checksums of so many entries take."""
    return CHECKSUM_BYTES * (entries + 1)


def checksum_block(tokens: np.ndarray) -> bytes:
    """The checksums of (entries, ...) tokens, as they end the file."""
    own = np.array([zlib.crc32(entry) for entry in tokens], dtype="<u4").tobytes()
    return own + zlib.crc32(own).to_bytes(CHECKSUM_BYTES, "little")


class EntryChecksums:
    """Which entries of a file were read and are as they were written."""

    def __init__(self, file: Path, tokens: np.ndarray) -> None:
        """tokens: (entries, ...) as mapped from the file. Raises Broken where the checksums are not whole."""
        with file.open("rb") as stream:
            stream.seek(tokens.nbytes)
            tail = stream.read(checksum_bytes(len(tokens)))
        own, last = tail[:-CHECKSUM_BYTES], tail[-CHECKSUM_BYTES:]
        whole = len(own) == CHECKSUM_BYTES * len(tokens)
        if not whole or zlib.crc32(own).to_bytes(CHECKSUM_BYTES, "little") != last:
            raise CorruptFile("its checksums are not whole")
        self.file, self.tokens = file, tokens
        self.told = np.frombuffer(own, dtype="<u4")
        self.seen = np.zeros(len(tokens), dtype=bool)

    def look_at_all(self) -> None:
        """Raise Broken where any entry has changed."""
        changed = self.changed(range(len(self.told)))
        if changed:
            raise CorruptFile(f"{len(changed):,} of {len(self.told):,} entries do not match their checksums")

    def look(self, entry: Tensor) -> None:
        """Raise InputError where one of these entries (n,) has changed; the file goes, so that it is built anew."""
        wanted = entry.numpy()
        new = wanted[~self.seen[wanted]]
        if not len(new) or not (changed := self.changed(np.unique(new).tolist())):
            return
        self.file.unlink(missing_ok=True)
        raise InputError(
            f"The token cache {self.file} was damaged since it was written (entry {changed[0]:,} does not match its "
            "checksum), and is removed; run the same command again: it builds the cache anew and goes on from the last "
            "saved state."
        )

    def changed(self, entries: range | list[int]) -> list[int]:
        """Those that are not what they were; the others count as seen."""
        changed = [at for at in entries if zlib.crc32(self.tokens[at]) != self.told[at]]
        self.seen[list(entries)] = True
        self.seen[changed] = False
        return changed


log = logging.getLogger("holotype")

VALUE_BYTES = 2
"""Of a number in the cache."""
SUFFIX = ".tokens"
Size = tuple[int, int]
"""Of the tensor of a cache: entries, numbers in each."""


@dataclass(frozen=True)
class CacheViews:
    """How many views of each image are kept: M weak, S strong, and the centre."""

    weak: int
    strong: int

    @classmethod
    def parse(cls, text: str) -> CacheViews:
        """From `16+8`."""
        found = re.fullmatch(r"(\d{1,4})\+(\d{1,4})", str(text).strip())
        if not found or int(found[1]) < 2:
            raise InputError(
                f"cache_views is {text!r}, but it must be auto, off, or the numbers of weak and strong views "
                "kept of each image, of which at least 2 weak ones: 16+8."
            )
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.weak}+{self.strong}"

    @property
    def centre(self) -> int:
        """Place of the centre view among an image's entries."""
        return self.weak + self.strong

    @property
    def entries(self) -> int:
        """Entries per image."""
        return self.weak + self.strong + 1

    def nbytes(self, images: int, width: int) -> int:
        """Return what a cache of so many images takes. width: numbers of a view as prepared for the tail."""
        return images * self.entries * width * VALUE_BYTES


@dataclass(frozen=True)
class CacheShards:
    """Which shard of a token cache each image is in.

    The usable images are dealt out to S shards in turn. Position j of every batch is drawn from shard j mod S, whatever
    the number of processes; process p of P, where P divides S, encodes the positions p, p + P, ... and so needs the
    images of the shards p, p + P, ... alone. Batches are drawn evenly from the shards, not freely from all images: this
    is why the number of shards, and not that of processes, is a part of what a run is.
    """

    count: int
    shard: Tensor
    """(N,) of every row of a table, -1 for those that cannot be read; on the CPU."""

    @classmethod
    def deal(cls, usable: Tensor, n: int, count: int) -> CacheShards:
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


@dataclass(eq=False)
class TokenCache:
    """What training draws its views from."""

    views: CacheViews
    level: Level
    tokens: Tensor
    """(images * entries, tokens * D) of 16 bits."""
    position: Tensor
    """(N,) int64 on the CPU: place of each row of the table among the images cached here; -1 for one left out."""
    seconds: float = 0.0
    """Spent on building or reading it."""
    checks: EntryChecksums | None = None
    """Of a file that an earlier run left, and that is read as it is used."""
    shards: CacheShards | None = None
    """Where each process holds a part of the images: which process has which."""

    @property
    def mode(self) -> str:
        """As it stands in records."""
        return f"cached {self.views}"

    @property
    def nbytes(self) -> int:
        return self.tokens.numel() * VALUE_BYTES

    def entry(self, rows: Tensor, view: Tensor) -> Tensor:
        """Entries of the given views of the given rows, which broadcast against each other; all on the CPU."""
        return self.position[rows] * self.views.entries + view

    def take(self, entry: Tensor) -> Tensor:
        """(n,) entries, where the tokens lie -> (n, tokens * D). InputError where one is not what was written."""
        if self.checks is not None:
            self.checks.look(entry)
        return self.tokens.index_select(0, entry)


def storage_dtype(trunk: torch.dtype) -> torch.dtype:
    """The 16 bits in which the output of a trunk is kept."""
    return torch.bfloat16 if trunk == torch.bfloat16 else torch.float16


def cache_file(folder: Path, digest: str) -> Path:
    return folder / f"{digest[:32]}{SUFFIX}"


def file_bytes(size: Size, keys: Sequence[bytes] = ()) -> int:
    """What a cache takes in a file. keys: of its images, where it has some."""
    return VALUE_BYTES * math.prod(size) + checksum_bytes(size[0]) + len(_key_block(keys))


def _key_block(keys: Sequence[bytes]) -> bytes:
    joined = b"".join(keys)
    return joined + zlib.crc32(joined).to_bytes(CHECKSUM_BYTES, "little") if keys else b""


def is_complete(file: Path, size: Size, keys: Sequence[bytes] = ()) -> bool:
    """Whether `file` is a cache of that size; anything else under its name is made again."""
    return file.is_file() and file.stat().st_size == file_bytes(size, keys)


class KeyedTokens:
    """A cache of other images, of the same network and the same views."""

    def __init__(self, file: Path, entries: int, width: int) -> None:
        """entries: of an image. Raises CorruptFile where it is no such cache."""
        each = entries * (VALUE_BYTES * width + CHECKSUM_BYTES) + KEY_BYTES
        n, rest = divmod(file.stat().st_size - 2 * CHECKSUM_BYTES, each)
        if n < 1 or rest:
            raise CorruptFile("its size is of another cache")
        with file.open("rb") as stream:
            try_shared_lock(stream.fileno())
            stream.seek(-KEY_BYTES * n - CHECKSUM_BYTES, os.SEEK_END)
            block = stream.read()
            self.tokens = np.memmap(stream, np.int16, "c", shape=(n * entries, width))
        self.keys = [block[first : first + KEY_BYTES] for first in range(0, KEY_BYTES * n, KEY_BYTES)]
        if block != _key_block(self.keys):
            raise CorruptFile("its keys are not whole")
        self.entries, self._checks = entries, EntryChecksums(file, self.tokens)

    def copy(self, image: int, tokens: Tensor) -> bool:
        """Copy an image into (entries, width); False where it is not what was written."""
        rows = range(image * self.entries, (image + 1) * self.entries)
        if self._checks.changed(rows):
            return False
        tokens.copy_(torch.from_numpy(self.tokens[rows.start : rows.stop]).view(tokens.dtype))
        return True


def read_tokens(
    file: Path, size: Size, dtype: torch.dtype, level: Level, device: torch.device
) -> tuple[Tensor, EntryChecksums | None]:
    """A kept cache; except on a device, nothing is read before it is used, and is checked then.

    Raises Broken where it was damaged, as far as that is known by now.
    """
    os.utime(file)  # the one used longest ago is the first to go
    with file.open("rb") as stream:
        # as long as the mapping lasts: `holotype cache --clear` leaves it alone
        try_shared_lock(stream.fileno())
        # mode c: pages can be changed in memory and never reach the file
        mapped = np.memmap(stream, np.int16, "c", shape=size)
    checks, tokens = EntryChecksums(file, mapped), torch.from_numpy(mapped).view(dtype)
    if level != "device":
        return tokens, checks
    checks.look_at_all()
    return tokens.to(device), None


@contextmanager
def writing_tokens(
    file: Path, size: Size, dtype: torch.dtype, keys: Sequence[bytes] = ()
) -> Iterator[Tensor]:
    """A new file as a tensor to be filled; it gets its name when the block ends, and vanishes if that fails."""
    with atomic_path(file) as part:
        with part.open("r+b") as stream:
            reserve(stream, file_bytes(size, keys))
        mapped = np.memmap(part, np.int16, "r+", shape=size)
        yield torch.from_numpy(mapped).view(dtype)
        mapped.flush()
        with part.open("r+b") as stream:
            stream.seek(mapped.nbytes)
            stream.write(checksum_block(mapped) + _key_block(keys))


def reserve(stream: BinaryIO, nbytes: int) -> None:
    """Make an empty file `nbytes` long: a full disk is an error here, not a crash at some later page."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(stream.fileno(), 0, nbytes)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    # macOS and some file systems cannot reserve
    if nbytes > shutil.disk_usage(Path(stream.name).parent).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), stream.name)
    stream.truncate(nbytes)


def save_tokens(tokens: Tensor, file: Path, limit: int, keys: Sequence[bytes] = ()) -> None:
    """Write a cache for later runs, unless it is larger than all of them together may be."""
    size = (len(tokens), tokens.shape[1])
    nbytes = file_bytes(size, keys)
    if not evict_to_fit(file.parent, nbytes, limit):
        sizes = f"{format_bytes(nbytes)} are more than the {format_bytes(limit)} for all of them"
        log.info("The token cache is not kept for later runs: %s.", sizes)
        return
    try:
        with writing_tokens(file, size, tokens.dtype, keys) as kept:
            kept.copy_(tokens)
    except OSError as error:
        log.warning("The token cache could not be kept for later runs: %s.", error.strerror or error)


def evict_to_fit(folder: Path, nbytes: int, limit: int) -> bool:
    """Delete the caches used longest ago until `nbytes` more fit into `limit`; False if they never can."""
    if nbytes > limit:
        return False
    clean_partial(folder, again=True)
    kept = []
    for path in folder.glob(f"*{SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # somebody else makes room as well
            facts = path.stat()
            kept.append((facts.st_mtime, facts.st_size, path))
    total = sum(size for _, size, _ in kept)
    for _, size, path in sorted(kept):
        if total + nbytes <= limit:
            break
        total -= size
        path.unlink(missing_ok=True)
    return True
