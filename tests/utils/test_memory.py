"""Budgets follow what is free and the settings; the cache folder is listed and cleared."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from holotype.errors import InputError
from holotype.models.token_cache import SUFFIX, cache_file, read_tokens, save_tokens
from holotype.utils import atomic, memory
from holotype.utils.atomic import atomic_path
from holotype.utils.locks import NoLocks
from holotype.utils.memory import (
    Budget,
    MemoryConfig,
    cache_folder,
    find_budget,
    is_out_of_memory,
    list_cache,
    remove_cache_entry,
)

CPU = torch.device("cpu")
GB, GIB8 = 1_000_000_000, 8 * 1024**3


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine of which the test says what is free."""
    found = SimpleNamespace(host=40 * GB, disk=100 * GB)
    monkeypatch.setattr(memory, "available_memory", lambda: found.host)
    monkeypatch.setattr(memory, "_free_disk", lambda folder: found.disk)
    return found


def test_defaults_leave_room_and_settings_count_up_to_what_is_free(free, monkeypatch) -> None:
    assert find_budget(MemoryConfig(), CPU) == Budget(device=0, host=20 * GB, disk=20 * GB)
    given = MemoryConfig(device_gb=5, host_gb=0.25, disk_gb=60)
    assert find_budget(given, CPU) == Budget(device=0, host=GB // 4, disk=60 * GB)
    greedy = find_budget(MemoryConfig(host_gb=1000, disk_gb=1000), CPU)
    assert greedy == Budget(device=0, host=36 * GB, disk=90 * GB)
    # what is taken counts against the settings only
    given = MemoryConfig(host_gb=5)
    assert find_budget(given, CPU, Budget.at("host", 2 * GB)).host == 3 * GB
    assert find_budget(given, CPU, Budget.at("host", 9 * GB)).host == 0
    assert find_budget(given, CPU, Budget.at("disk", 2 * GB)) == Budget(0, 5 * GB, 18 * GB)
    assert find_budget(MemoryConfig(), CPU, Budget.at("host", 2 * GB)).host == 20 * GB
    # processes share the host and the disk
    monkeypatch.setattr("holotype.utils.distributed.local_world_size", lambda: 4)
    assert find_budget(MemoryConfig(), CPU) == Budget(0, 5 * GB, 5 * GB)
    assert find_budget(MemoryConfig(host_gb=8, disk_gb=4), CPU) == Budget(0, 2 * GB, GB)
    free.host, free.disk = 8 * GB, 40 * GB
    assert find_budget(MemoryConfig(), CPU) == Budget(device=0, host=GB, disk=5 * GB)


@pytest.mark.parametrize("name", ["device_gb", "host_gb", "disk_gb"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_nonsense_is_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"--memory.{name} is {value}; give a positive"):
        find_budget(MemoryConfig(**{name: value}), CPU)


def test_a_gpu_keeps_a_reserve_and_unified_memory_is_bounded_by_the_host(free, monkeypatch) -> None:
    cuda, mps, now = torch.device("cuda", 0), torch.device("mps"), [130 * GB, 140 * GB]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: now)
    assert find_budget(MemoryConfig(), cuda) == Budget(109 * GB, 20 * GB, 20 * GB)
    for asked, taken, left in ((20, 0, 20), (20, 15, 5), (500, 0, 117)):
        config = MemoryConfig(device_gb=asked)
        assert find_budget(config, cuda, Budget.at("device", taken * GB)).device == left * GB
    for now[:], left in (([7 * GB, 8 * GB], 5 * GB), ([GB, 8 * GB], 0)):
        assert find_budget(MemoryConfig(), cuda).device == left
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 12 * GB)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 2 * GB)
    assert find_budget(MemoryConfig(), mps).device == 8 * GB
    free.host = 6 * GB
    assert find_budget(MemoryConfig(), mps).device == 4 * GB


V1, V2 = "4:memory:/a/b\n3:cpuset:/\n0::/\n", "0::/a/b\n"


def v1(place: str, limit: int, usage: int, stat: str = "") -> dict[str, str]:
    values = {"limit_in_bytes": f"{limit}\n", "usage_in_bytes": f"{usage}\n", "stat": stat}
    return {f"memory/{place}memory.{name}": text for name, text in values.items()}


def v2(place: str, limit: object, usage: int, stat: str = "") -> dict[str, str]:
    values = {"max": limit, "current": usage, "stat": stat}
    return {f"{place}memory.{name}": str(x) for name, x in values.items()}


@pytest.mark.parametrize(
    ("groups", "files", "left"),
    [
        ("", {}, GIB8),
        (V2, v2("a/b/", 3 * GB, GB), 2 * GB),
        (V2, v2("a/b/", "max", GB), GIB8),
        (V2, v2("a/", 3 * GB, GB), 2 * GB),  # the group around it
        (V2, v2("", 3 * GB, GB), 2 * GB),  # a container's own view
        (V2, v2("a/b/", GB, 3 * GB // 2), 0),
        (V2, v2("a/b/", 3 * GB, 3 * GB // 2, "anon 7\ninactive_file 500000000\nactive_file 7\n"), 2 * GB),
        (V1, v1("a/b/", 3 * GB, 3 * GB // 2, "inactive_file 1\ntotal_inactive_file 500000000\n"), 2 * GB),
        (V1, v1("", 9223372036854771712, 3 * GB // 2), GIB8),
    ],
)
def test_what_linux_has_and_limits_on_containers_leave(monkeypatch, tmp_path, groups, files, left) -> None:
    placed = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    info = {"proc/self/cgroup": groups}
    for name, text in (info | placed).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=GIB8))
    assert memory.available_memory(tmp_path) == left


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have caches elsewhere")
def test_where_the_cache_lies(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder(MemoryConfig(cache_dir="~/mine")) == tmp_path / "mine"
    assert cache_folder(MemoryConfig()) == tmp_path / "xdg" / "holotype"
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_folder(MemoryConfig()) == tmp_path / ".cache" / "holotype"
    budget = find_budget(MemoryConfig(cache_dir=str(tmp_path / "not" / "yet" / "there")), CPU)
    assert budget.device == 0 < min(budget.host, budget.disk)
    assert not (tmp_path / "not").exists()
    assert memory.available_memory(tmp_path) > 0


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (torch.OutOfMemoryError("Tried to allocate 20 GiB."), True),
        (MemoryError(), True),
        (RuntimeError("MPS backend out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_which_errors_speak_of_memory(error, memory):
    assert is_out_of_memory(error) is memory


SIZE = (6, 20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two token caches, and a file and a folder of somebody else."""
    for digest in ("a" * 64, "b" * 64):
        save_tokens(torch.zeros(SIZE, dtype=torch.float16), cache_file(tmp_path / "tokens", digest), 10_000)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "n.txt").write_text("mine")
    os.utime(cache_file(tmp_path / "tokens", "a" * 64), (1, 1))
    return tmp_path


def can_go(folder: Path) -> dict[str, bool]:
    return {entry.path.name[:1]: entry.can_go for entry in list_cache(folder)}


def test_sizes_ages_and_purposes(folder: Path) -> None:
    assert f"*{SUFFIX}" == memory.TOKEN_FILE
    first, second, foreign = list_cache(folder)
    assert (first.nbytes, second.nbytes, foreign.nbytes) == (268, 268, 4)  # with checksums
    assert first.age > 1e9 > 1000 > second.age
    assert "token cache" in first.purpose
    assert (foreign.purpose, foreign.can_go, remove_cache_entry(foreign)) == ("", False, False)
    assert foreign.path.exists()
    assert list_cache(folder / "none") == []
    link = folder / "tokens" / "c.tokens"
    link.symlink_to(foreign.path)
    (entry,) = [entry for entry in list_cache(folder) if entry.path == link]
    assert (entry.can_go, remove_cache_entry(entry)) == (False, False)  # links are not followed


def test_a_cache_that_a_run_reads_is_held_until_it_is_done_and_a_part_while_it_is_written(folder: Path):
    file = cache_file(folder / "tokens", "a" * 64)
    tokens, checks = read_tokens(file, SIZE, torch.float16, "host", CPU)
    assert can_go(folder) == {"a": False, "b": True, "n": False}
    (held,) = [entry for entry in list_cache(folder) if entry.held]
    assert not remove_cache_entry(held)
    assert file.exists()
    assert tokens.sum() == 0
    del tokens, checks
    assert can_go(folder) == {"a": True, "b": True, "n": False}
    assert remove_cache_entry(held)
    assert not file.exists()
    left = folder / "tokens" / f".x.{'0' * 16}.part"
    with atomic_path(folder / "tokens" / "new.tokens") as part:
        left.write_bytes(b"half")  # after the sweep that comes with writing
        found = {entry.path: entry for entry in list_cache(folder)}
        assert found[part].held
        assert not remove_cache_entry(found[part])
        assert found[left].can_go
        assert remove_cache_entry(found[left])


def test_without_locks_what_was_used_within_a_day_stays(folder: Path, monkeypatch) -> None:
    def none(descriptor: int) -> bool:
        raise NoLocks("this system has none")

    monkeypatch.setattr(atomic, "try_lock", none)
    assert can_go(folder) == {"a": True, "b": False, "n": False}
