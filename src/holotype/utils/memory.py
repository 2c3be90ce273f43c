"""Memory budgets for images and cached tokens: on the GPU, in host memory, in files.

Nothing here reserves memory. `find_budget` reads what is free at this moment and leaves room for the run itself.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from holotype.config.types import Gigabytes
from holotype.errors import InputError
from holotype.utils.atomic import OWN_SUFFIX, claimed, remove_unused

if TYPE_CHECKING:
    import torch

Level = Literal["device", "host", "disk"]
"""Where images or tokens lie: on the GPU, in the host's memory, in a memory-mapped file."""
LEVELS: tuple[Level, ...] = ("device", "host", "disk")
"""From the fastest to the roomiest."""
PLACE_NAMES: dict[Level, str] = {"device": "GPU memory", "host": "host memory", "disk": "disk space"}
"""How people call them."""

GB = 1_000_000_000
DEVICE_RESERVE = 0.15
"""Share of all GPU memory kept free for networks and activations, but at least LEAST_RESERVE."""
LEAST_RESERVE = 2 * GB
HOST_SHARE = 0.5
"""Share of the available host memory that is taken by default; networks, activations and others need the rest."""
MOST_HOST = 0.9
"""Nothing takes more than this share of what is free, whatever is asked for."""
DEFAULT_DISK = 20 * GB
"""Default of `MemoryConfig.disk_gb`."""
UNKNOWN_HOST = 4 * GB
"""Available host memory where the system does not tell."""


@dataclass
class MemoryConfig:
    """How much memory images and cached tokens may take. 1 GB is 1,000,000,000 bytes."""

    device_gb: Gigabytes | None = None
    """GB of GPU memory that images and cached tokens may take; by default most of what is free."""
    host_gb: Gigabytes | None = None
    """GB of host memory that images and cached tokens may take; by default half of what is available."""
    disk_gb: Gigabytes | None = None
    """GB that files in cache_dir may take in all; by default 20, and never more than is free."""
    cache_dir: str | None = None
    """Folder for memory-mapped images and token caches; by default holotype in the user's cache folder."""


@dataclass(frozen=True)
class Budget:
    """Bytes that may be taken at each level; without a GPU `device` is 0."""

    device: int
    host: int
    disk: int

    @classmethod
    def at(cls, level: Level, nbytes: int) -> Budget:
        """`nbytes` at one level and nothing at the others."""
        return cls(**{name: nbytes if name == level else 0 for name in LEVELS})


NOTHING = Budget(0, 0, 0)


def smallest_budget(budgets: Sequence[Budget]) -> Budget:
    """What every one of them has."""
    return Budget(*(min(getattr(budget, level) for budget in budgets) for level in LEVELS))


def find_budget(config: MemoryConfig, device: torch.device, taken: Budget = NOTHING) -> Budget:
    """What may be taken now.

    taken: what images and tokens of this run hold already. It counts against the settings, which speak of
    all of them together; it does not count against what is free, where it is missing by itself.
    Files that are kept in the cache folder do not reduce `disk`: they can be deleted.
    """
    processes = _processes()
    free_device, usual_device = _device_memory(device)
    free_host = available_memory() // processes
    free_disk = _free_disk(cache_folder(config)) // processes
    device_limit = _limit("device_gb", config.device_gb)
    host_limit = _limit("host_gb", config.host_gb, processes)
    disk_limit = _limit("disk_gb", config.disk_gb, processes)
    return Budget(
        device=_within(free_device, usual_device if device_limit is None else device_limit - taken.device),
        host=_within(
            free_host, int(HOST_SHARE * free_host) if host_limit is None else host_limit - taken.host
        ),
        disk=_within(
            free_disk, (DEFAULT_DISK // processes if disk_limit is None else disk_limit) - taken.disk
        ),
    )


def cache_folder(config: MemoryConfig) -> Path:
    """The folder for memory-mapped images and token caches; it need not exist yet."""
    if config.cache_dir is not None:
        return Path(config.cache_dir).expanduser()
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):  # the rule of that variable: a relative path is to be ignored
        return Path(named) / "holotype"
    try:
        return Path.home() / ".cache" / "holotype"
    except RuntimeError:  # an account without a home
        return Path(tempfile.gettempdir()) / "holotype"


def _limit(name: str, gigabytes: float | None, processes: int = 1) -> int | None:
    """Bytes that a setting allows one of the run's processes; None where it is not set. Nonsense is refused."""
    if gigabytes is None:
        return None
    if not (math.isfinite(gigabytes) and gigabytes > 0):
        raise InputError(
            f"--memory.{name} is {gigabytes}; give a positive number of GB, or leave it out for the default."
        )
    return int(gigabytes * GB) // processes


def _within(free: int, wanted: int) -> int:
    """`wanted`, as far as it is free."""
    return max(0, min(wanted, int(MOST_HOST * free)))


def _processes() -> int:
    """Processes of this run on this machine, which share its memory and disk."""
    from holotype.utils.distributed import local_world_size

    return local_world_size()


def _device_memory(device: torch.device) -> tuple[int, int]:
    """Bytes free on `device`, and how many of them to take by default; none on a CPU."""
    import torch

    if device.type == "cuda":
        torch.cuda.empty_cache()  # what torch keeps for later is free
        free, total = torch.cuda.mem_get_info(device)
    elif device.type == "mps":
        total = torch.mps.recommended_max_memory()
        # the GPU has no memory of its own there
        free = max(0, min(total - torch.mps.driver_allocated_memory(), available_memory()))
    else:
        return 0, 0
    return free, max(0, free - max(LEAST_RESERVE, int(DEVICE_RESERVE * total)))


def is_out_of_memory(error: BaseException) -> bool:
    """Does the error speak of memory? Not every device has an exception of its own for it."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error).lower() for words in ("out of memory", "can't allocate memory"))


def _free_disk(folder: Path) -> int:
    """Bytes free where `folder` is or would be made."""
    for place in (folder.absolute(), *folder.absolute().parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return 0


def available_memory(root: Path = Path("/")) -> int:
    """Bytes of host memory a process can take without anything being swapped out or killed."""
    found = [_meminfo(root), *_cgroups(root)]
    known = [n for n in found if n is not None]
    return max(0, min(known)) if known else UNKNOWN_HOST


def _meminfo(root: Path) -> int | None:
    """MemAvailable of Linux; elsewhere half of the memory that is built in."""
    lines = _read(root / "proc/meminfo").splitlines()
    fields = {line.split(":")[0]: line.split()[1] for line in lines if len(line.split()) > 1}
    if "MemAvailable" in fields:
        return int(fields["MemAvailable"]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return None


def _cgroups(root: Path) -> Iterator[int]:
    """What the limits on this process's control groups, and on those around them, leave (versions 1 and 2)."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        inside = top / path.strip("/")
        # In a container the path may be the one outside it; then only `top` exists.
        for group in (inside, *inside.parents):
            if not group.is_relative_to(top):
                break
            left = _free_in(group, *names)
            if left is not None:
                yield left


def _free_in(group: Path, limit_file: str, usage_file: str, reclaimable: str) -> int | None:
    """Limit minus use of one control group; file pages not used of late do not count as use."""
    limit, usage = _read(group / limit_file).strip(), _read(group / usage_file).strip()
    if not (limit.isdigit() and usage.isdigit()):  # "max", or no such file
        return None
    stat = dict(line.split(" ", 1) for line in _read(group / "memory.stat").splitlines() if " " in line)
    return int(limit) - int(usage) + int(stat.get(reclaimable, 0))


def _read(path: Path) -> str:
    """A small file of the system, "" where it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# -- the cache folder ---------------------------------------------------------------------------------

TOKENS = "tokens"
"""The folder of token caches."""
TOKEN_FILE = "*.tokens"


@dataclass(frozen=True)
class CacheEntry:
    """A file or a folder that lies in the cache folder."""

    path: Path
    nbytes: int
    age: float
    """Seconds since it was last used."""
    purpose: str
    """What it is for; "" for what other programs have left there, which is never deleted."""
    held: bool
    """Whether a live process uses it; where files cannot be locked, whether one has within a day."""

    @property
    def can_go(self) -> bool:
        return bool(self.purpose) and not self.held


def list_cache(folder: Path) -> list[CacheEntry]:
    """Everything in the cache folder, the largest first. Links are named and never followed."""
    return sorted(_entries(folder), key=lambda kept: (-kept.nbytes, str(kept.path)))


def remove_cache_entry(kept: CacheEntry) -> bool:
    """Delete it unless a process has taken hold of it meanwhile; whether it is gone."""
    if kept.purpose:
        remove_unused(kept.path)
    return not kept.path.exists()


def _entries(folder: Path) -> Iterator[CacheEntry]:
    for place in (folder, folder / TOKENS):
        with contextlib.suppress(OSError):  # none has been made yet
            for name in sorted(os.listdir(place)):
                path = place / name
                if path != folder / TOKENS or path.is_symlink() or not path.is_dir():
                    with contextlib.suppress(FileNotFoundError):  # somebody else makes room as well
                        yield _read_entry(path, place.name == TOKENS and place != folder)


def _read_entry(path: Path, among_tokens: bool) -> CacheEntry:
    facts, purpose = path.lstat(), ""
    if OWN_SUFFIX.fullmatch(path.name):
        purpose = "half-written file"
    elif among_tokens and path.match(TOKEN_FILE):
        purpose = "token cache: spares later runs the frozen part of the network"
    if path.is_symlink():
        purpose = ""
    nbytes = _size(path) if path.is_dir() and not path.is_symlink() else facts.st_size
    return CacheEntry(
        path, nbytes, max(0.0, time.time() - facts.st_mtime), purpose, bool(purpose) and _is_locked(path)
    )


def _size(folder: Path) -> int:
    """Bytes of all files below it."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size if path.is_symlink() or path.is_file() else 0
    return total


def _is_locked(path: Path) -> bool:
    with claimed(path) as free:
        return not free
