"""The cache folder as it is found: what is ours, what is held, and what may go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from holotype.models.token_cache import SUFFIX, cache_file, read_tokens, save_tokens
from holotype.utils import cache_dir as kept_module
from holotype.utils.atomic import atomic_path
from holotype.utils.cache_dir import list_cache, remove_cache_entry
from holotype.utils.locks import NoLocks

SIZE, CPU = (6, 20), torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two token caches, and a file of somebody else."""
    for digest in ("a" * 64, "b" * 64):
        save_tokens(torch.zeros(SIZE, dtype=torch.float16), cache_file(tmp_path / "tokens", digest), 10_000)
    (tmp_path / "notes.txt").write_text("mine")
    os.utime(cache_file(tmp_path / "tokens", "a" * 64), (1, 1))
    return tmp_path


def names(folder: Path) -> dict[str, bool]:
    return {kept.path.name[:1]: kept.can_go for kept in list_cache(folder)}


def test_sizes_ages_and_purposes(folder: Path) -> None:
    assert f"*{SUFFIX}" == kept_module.TOKEN_FILE
    first, second, foreign = list_cache(folder)
    assert (first.nbytes, second.nbytes, foreign.nbytes) == (268, 268, 4)  # with checksums
    assert first.age > 1e9 > 1000 > second.age
    assert "token cache" in first.purpose
    assert foreign.purpose == ""
    assert not foreign.can_go
    assert not remove_cache_entry(foreign)
    assert foreign.path.exists()


def test_a_cache_that_a_run_reads_is_held_until_it_is_done(folder: Path) -> None:
    file = cache_file(folder / "tokens", "a" * 64)
    tokens, checks = read_tokens(file, SIZE, torch.float16, "host", CPU)
    assert names(folder) == {"a": False, "b": True, "n": False}
    (held,) = [kept for kept in list_cache(folder) if kept.held]
    assert not remove_cache_entry(held)
    assert file.exists()
    assert tokens.sum() == 0
    del tokens, checks
    assert names(folder) == {"a": True, "b": True, "n": False}
    assert remove_cache_entry(held)
    assert not file.exists()


def test_another_process_that_reads_is_seen_as_well(folder: Path) -> None:
    file = cache_file(folder / "tokens", "a" * 64)
    code = (
        "import sys, torch; from pathlib import Path; from holotype.models.token_cache import read_tokens\n"
        f"kept = read_tokens(Path(sys.argv[1]), {SIZE}, torch.float16, 'host', torch.device('cpu'))\n"
        "print('reads', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(file)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "reads\n"
        assert names(folder)["a"] is False
        other.communicate()
    assert names(folder)["a"] is True


def test_a_part_goes_unless_somebody_writes_it(folder: Path) -> None:
    left = folder / "tokens" / f".x.{'0' * 16}.part"
    with atomic_path(folder / "tokens" / "new.tokens") as part:
        left.write_bytes(b"half")  # after the sweep that comes with writing
        found = {kept.path: kept for kept in list_cache(folder)}
        assert found[part].held
        assert not remove_cache_entry(found[part])
        assert found[left].can_go
        assert remove_cache_entry(found[left])
    assert not left.exists()


def test_links_are_not_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "c.tokens"
    outside.write_bytes(b"precious")
    (folder / "tokens" / "c.tokens").symlink_to(outside)
    (link,) = [kept for kept in list_cache(folder) if kept.path.name == "c.tokens"]
    assert not link.can_go
    assert not remove_cache_entry(link)
    assert outside.read_bytes() == b"precious"


def test_without_locks_what_was_used_within_a_day_stays(folder: Path, monkeypatch) -> None:
    def none(descriptor: int) -> bool:
        raise NoLocks("this system has none")

    monkeypatch.setattr(kept_module, "try_lock", none)
    assert names(folder) == {"a": True, "b": False, "n": False}


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert list_cache(tmp_path / "none") == []
