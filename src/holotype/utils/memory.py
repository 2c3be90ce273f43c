"""Memory budgets for images and cached tokens: on the GPU, in host memory, in files.

Nothing here reserves memory. `find_budget` reads what is free at this moment and leaves room for the run itself.
"""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import platformdirs
import psutil

from holotype.config.parse import Gigabytes
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
CGROUP_FILES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Limit, use and what of it can be reclaimed, by the controller that has them: versions 2 and 1 of control groups."""


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
        """Return `nbytes` at one level and nothing at the others."""
        return cls(**{name: nbytes if name == level else 0 for name in LEVELS})


NOTHING = Budget(0, 0, 0)


def smallest_budget(budgets: Sequence[Budget]) -> Budget:
    """Return what every one of them has."""
    return Budget(*(min(getattr(budget, level) for budget in budgets) for level in LEVELS))


def find_budget(config: MemoryConfig, device: torch.device, taken: Budget = NOTHING) -> Budget:
    """Return what may be taken now.

    taken: what images and tokens of this run hold already. It counts against the settings, which speak of
    all of them together; it does not count against what is free, where it is missing by itself.
    Files that are kept in the cache folder do not reduce `disk`: they can be deleted.
    """
    from holotype.utils.distributed import local_world_size

    processes = local_world_size()  # of this machine, which share its memory and disk
    free_device, usual_device = _device_memory(device)
    free_host = available_memory() // processes
    free_disk = _free_disk(cache_folder(config)) // processes

    def within(level: Level, free: int, usual: int, sharing: int = processes) -> int:
        gigabytes = getattr(config, f"{level}_gb")
        if gigabytes is None:
            wanted = usual
        elif 0 < gigabytes < math.inf:
            wanted = int(gigabytes * GB) // sharing - getattr(taken, level)
        else:
            raise InputError(f"--memory.{level}_gb is {gigabytes}; give a positive number, or leave it out.")
        return max(0, min(wanted, int(MOST_HOST * free)))

    return Budget(
        device=within("device", free_device, usual_device, sharing=1),
        host=within("host", free_host, int(HOST_SHARE * free_host)),
        disk=within("disk", free_disk, DEFAULT_DISK // processes - taken.disk),
    )


def cache_folder(config: MemoryConfig) -> Path:
    """Return the folder for memory-mapped images and token caches; it need not exist yet."""
    if config.cache_dir is not None:
        return Path(config.cache_dir).expanduser()
    folder = Path(platformdirs.user_cache_dir("holotype", appauthor=False))
    return folder if folder.is_absolute() else Path(tempfile.gettempdir()) / "holotype"  # without a home


def _device_memory(device: torch.device) -> tuple[int, int]:
    """Return bytes free on `device`, and how many of them to take by default; none on a CPU."""
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
    """Return whether the error speaks of memory: not every device has an exception of its own for it."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error).lower() for words in ("out of memory", "can't allocate memory"))


def _free_disk(folder: Path) -> int:
    """Return bytes free where `folder` is or would be made."""
    for place in (folder.absolute(), *folder.absolute().parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return 0


def available_memory(root: Path = Path("/")) -> int:
    """Return bytes of host memory that a process can take without anything being swapped out or killed."""
    limits = [left for left in _cgroups(root) if left is not None]
    return max(0, min([psutil.virtual_memory().available, *limits]))


def _cgroups(root: Path) -> Iterator[int | None]:
    """Yield what the limits on this process's control groups, and on those around them, leave."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in CGROUP_FILES.keys() & set(controllers.split(",")):
            top = root / "sys/fs/cgroup" / controller
            inside = top / path.strip("/")
            # In a container the path may be the one outside it; then only `top` exists.
            for group in (inside, *inside.parents):
                if group.is_relative_to(top):
                    yield _free_in(group, *CGROUP_FILES[controller])


def _free_in(group: Path, limit_file: str, usage_file: str, reclaimable: str) -> int | None:
    """Return limit minus use of one control group; file pages not used of late do not count as use."""
    limit, usage = _read(group / limit_file).strip(), _read(group / usage_file).strip()
    if not (limit.isdigit() and usage.isdigit()):  # "max", or no such file
        return None
    found = re.search(rf"^{reclaimable} (\d+)", _read(group / "memory.stat"), re.MULTILINE)
    return int(limit) - int(usage) + (int(found[1]) if found else 0)


def _read(path: Path) -> str:
    """Return a small file of the system, "" where it does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


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
    """Return everything in the cache folder, the largest first. Links are named and never followed."""
    found = []
    for path in (*folder.glob("*"), *(folder / TOKENS).glob("*")):
        with contextlib.suppress(FileNotFoundError):  # somebody else makes room as well
            if path != folder / TOKENS:
                found.append(_read_entry(path))
    return sorted(found, key=lambda entry: (-entry.nbytes, str(entry.path)))


def remove_cache_entry(entry: CacheEntry) -> bool:
    """Delete it unless a process has taken hold of it meanwhile; return whether it is gone."""
    if entry.purpose:
        remove_unused(entry.path)
    return not entry.path.exists()


def _read_entry(path: Path) -> CacheEntry:
    purpose = ""
    if OWN_SUFFIX.fullmatch(path.name):
        purpose = "half-written file"
    elif path.parent.name == TOKENS and path.match(TOKEN_FILE):
        purpose = "token cache: spares later runs the frozen part of the network"
    if path.is_symlink():
        purpose = ""
    age = max(0.0, time.time() - path.lstat().st_mtime)
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    nbytes = sum(file.lstat().st_size for file in files)
    if not purpose:
        return CacheEntry(path, nbytes, age, purpose, held=False)
    with claimed(path) as free:
        return CacheEntry(path, nbytes, age, purpose, held=not free)
