"""Checksums of a token cache: an entry that has changed is noticed when it is read, and never before it is needed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holotype.errors import InputError
from holotype.models.token_cache import EntryChecksums, checksum_block, checksum_bytes
from holotype.utils.serialization import CorruptFile

SIZE = (4, 3, 2)


@pytest.fixture
def file(tmp_path):
    tokens = np.arange(24, dtype=np.int16).reshape(SIZE)
    (tmp_path / "a.tokens").write_bytes(tokens.tobytes() + checksum_block(tokens))
    return tmp_path / "a.tokens"


def checks_of(file) -> EntryChecksums:
    return EntryChecksums(file, np.memmap(file, np.int16, "c", shape=SIZE))


def test_a_whole_file_is_read_without_a_word(file):
    assert file.stat().st_size == 48 + checksum_bytes(4)
    checks = checks_of(file)
    checks.look(torch.tensor([3, 0, 3]))
    assert checks.seen.tolist() == [True, False, False, True]
    checks.look_at_all()
    assert checks.seen.all()


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
    with pytest.raises(InputError):
        checks.look(torch.tensor([2]))


def test_an_entry_is_looked_at_once(file):
    checks = checks_of(file)
    checks.look(torch.arange(4))
    checks.tokens[1] = 7  # what this process makes of its own pages is its own affair
    checks.look(torch.arange(4))
