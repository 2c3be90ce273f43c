"""The token cache as a thing on disk and in memory: names, files that are whole or absent, a bounded folder."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from holotype.errors import InputError
from holotype.models import token_cache as cache_module
from holotype.models.token_cache import (
    CacheViews,
    EntryChecksums,
    TokenCache,
    cache_file,
    checksum_block,
    evict_to_fit,
    is_complete,
    read_tokens,
    save_tokens,
    storage_dtype,
)
from holotype.utils.serialization import CorruptFile

SIZE, HALF, CPU = (6, 20), torch.float16, torch.device("cpu")


def random_tokens() -> torch.Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(0)).half()


@pytest.mark.parametrize("text", ["16", "16+", "+8", "0+2", "1+2", "a+b", "16+8+4", "-4+2", "", "99999+1"])
def test_views_that_mean_nothing_are_refused(text):
    with pytest.raises(InputError, match=r"cache_views is .* must be auto, off, or .*: 16\+8"):
        CacheViews.parse(text)


def test_views_are_written_as_they_are_read_and_entries_of_an_image_lie_side_by_side():
    views = CacheViews.parse(" 16+8 ")
    assert (views, str(views)) == (CacheViews(16, 8), "16+8")
    assert (views.centre, views.entries, views.nbytes(10, 21)) == (24, 25, 10 * 25 * 21 * 2)
    assert CacheViews.parse("2+0") == CacheViews(2, 0)
    views = CacheViews(2, 1)
    position = torch.tensor([1, -1, 0])  # image 1 was left out
    cache = TokenCache(views, "host", torch.arange(8.0)[:, None].half(), position)
    rows, view = torch.tensor([[0], [2]]), torch.tensor([[0, 1, views.centre]])
    entry = cache.entry(rows, view)
    assert entry.tolist() == [[4, 5, 7], [0, 1, 3]]
    assert cache.take(entry[0]).flatten().tolist() == [4, 5, 7]
    assert cache.mode == "cached 2+1"
    assert cache.nbytes == 16


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_kept_cache_is_read_again_and_cannot_be_changed_by_mistake(tmp_path, dtype):
    """To the bit, also of a trunk that computes in bf16."""
    assert storage_dtype(torch.bfloat16) == torch.bfloat16
    assert storage_dtype(torch.float32) == storage_dtype(torch.float64) == torch.float16
    tokens, file = random_tokens().to(dtype), cache_file(tmp_path / "new", "a" * 64)
    assert not is_complete(file, SIZE)
    save_tokens(tokens, file, limit=10_000)
    assert is_complete(file, SIZE)
    assert not is_complete(file, (6, 25))
    found = read_tokens(file, SIZE, dtype, "host", CPU)[0]
    assert torch.equal(found, tokens)
    found.zero_()
    assert torch.equal(read_tokens(file, SIZE, dtype, "disk", CPU)[0], tokens)
    whole, checks = read_tokens(file, SIZE, dtype, "device", CPU)
    assert torch.equal(whole, tokens)
    assert checks is None  # all of it was looked at


def test_the_cache_used_longest_ago_goes_first(tmp_path):
    def kept() -> set[str]:
        return {path.stem for path in tmp_path.glob("*.tokens")}

    for age, name in enumerate(("newest", "middle", "oldest")):
        file = tmp_path / f"{name}.tokens"
        file.write_bytes(b"x" * 100)
        os.utime(file, (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "not-ours.txt").write_bytes(b"x" * 1000)
    assert evict_to_fit(tmp_path, 100, limit=320)
    assert kept() == {"newest", "middle"}
    with pytest.raises(CorruptFile):  # no cache in truth, and used now all the same
        read_tokens(tmp_path / "middle.tokens", (1, 50), HALF, "host", CPU)
    assert evict_to_fit(tmp_path, 100, limit=200)
    assert kept() == {"middle"}
    assert not evict_to_fit(tmp_path, 300, limit=200)  # can never fit: nothing is deleted for it
    assert kept() == {"middle"}
    assert (tmp_path / "not-ours.txt").exists()


@pytest.mark.parametrize("how", ["macOS", "a file system that cannot", "broken"])
def test_where_space_cannot_be_reserved(tmp_path, monkeypatch, caplog, how):
    if how == "macOS":
        monkeypatch.delattr(cache_module.os, "posix_fallocate", raising=False)
    else:
        number = errno.EINVAL if how != "broken" else errno.EIO
        refuse = lambda *_: (_ for _ in ()).throw(OSError(number, "refused"))  # noqa: E731
        monkeypatch.setattr(cache_module.os, "posix_fallocate", refuse, raising=False)
    tokens, file = random_tokens(), tmp_path / "a.tokens"
    save_tokens(tokens, file, limit=10_000)
    if how == "broken":
        assert "could not be kept for later runs: refused" in caplog.text
        assert list(tmp_path.iterdir()) == []
        return
    assert torch.equal(read_tokens(file, SIZE, HALF, "host", CPU)[0], tokens)
    file.unlink()
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    save_tokens(tokens, file, limit=10_000)  # a full disk is noticed at once
    assert "could not be kept for later runs: No space left on device" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_others_may_make_room_at_the_same_time_and_a_cache_too_large_says_so(tmp_path, caplog, monkeypatch):
    with caplog.at_level("INFO", logger="holotype"):
        save_tokens(random_tokens(), tmp_path / "a.tokens", limit=100)
    assert "is not kept for later runs" in caplog.text
    assert list(tmp_path.iterdir()) == []
    gone, there = tmp_path / "gone.tokens", tmp_path / "there.tokens"
    there.write_bytes(b"x" * 100)
    listed = Path.glob
    monkeypatch.setattr(Path, "glob", lambda self, pattern: [gone, *listed(self, pattern)])
    assert evict_to_fit(tmp_path, 100, limit=150)
    assert not there.exists()


ENTRY_SIZE = (4, 3, 2)


@pytest.fixture
def file(tmp_path):
    tokens = np.arange(24, dtype=np.int16).reshape(ENTRY_SIZE)
    (tmp_path / "a.tokens").write_bytes(tokens.tobytes() + checksum_block(tokens))
    return tmp_path / "a.tokens"


def checks_of(file) -> EntryChecksums:
    return EntryChecksums(file, np.memmap(file, np.int16, "c", shape=ENTRY_SIZE))


def test_every_flipped_bit_is_noticed(file):
    whole = file.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            file.write_bytes(flipped)
            with pytest.raises(CorruptFile):
                checks_of(file).look_at_all()


def test_only_the_changed_entry_is_refused_and_the_file_goes(file):
    changed = bytearray(file.read_bytes())
    changed[2 * 12] ^= 1  # the first number of entry 2
    file.write_bytes(changed)
    checks = checks_of(file)
    checks.look(torch.tensor([0, 1, 3]))
    with pytest.raises(InputError, match=r"a\.tokens was damaged .*entry 2 .*run the same command again"):
        checks.look(torch.tensor([1, 2]))
    assert not file.exists()
    checks.tokens[1] = 7  # its own pages are this process's own affair: an entry is looked at once
    checks.look(torch.tensor([0, 1, 3]))
    with pytest.raises(InputError):
        checks.look(torch.tensor([2]))
