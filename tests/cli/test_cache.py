"""`holotype cache`: a list, a question, and nothing deleted that is in use."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import torch

from holotype.models.token_cache import cache_file, read_tokens, save_tokens

SIZE = (6, 20)
BYTES = 268
"""Of a file: tokens of 16 bits, and what they are checked by."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for digest in ("a" * 64, "b" * 64):
        file = cache_file(tmp_path / "holotype" / "tokens", digest)
        save_tokens(torch.zeros(SIZE, dtype=torch.float16), file, 10_000)
    return tmp_path / "holotype"


def answering(monkeypatch, answer: str, terminal: bool = True) -> None:
    keys = io.StringIO(answer)
    keys.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", keys)


def test_the_list_says_sizes_ages_and_what_for(holotype, folder: Path) -> None:
    outcome = holotype("cache")
    assert outcome.code == 0
    head, *rows, total = outcome.out.splitlines()
    assert str(folder) in head
    assert len(rows) == 2
    assert all(f"{BYTES} bytes" in row and " s " in row and "token cache" in row for row in rows)
    assert total == f"{2 * BYTES} bytes in all; holotype cache --clear deletes all of it."
    assert len(list((folder / "tokens").iterdir())) == 2


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("Yes\n", 0), ("n\n", 2), ("\n", 2), ("", 2)])
def test_clearing_asks_first(holotype, folder: Path, monkeypatch, answer: str, left: int) -> None:
    answering(monkeypatch, answer)
    outcome = holotype("cache", "--clear")
    assert outcome.code == 0
    assert f"Delete 2 files, {2 * BYTES} bytes? [y/N]" in outcome.out
    assert (f"Deleted 2 files, {2 * BYTES} bytes." in outcome.out) is not bool(left)
    assert len(list((folder / "tokens").iterdir())) == left


def test_where_nobody_can_answer_yes_is_needed(holotype, folder: Path, monkeypatch) -> None:
    answering(monkeypatch, "y\n", terminal=False)
    refused = holotype("cache", "--clear")
    assert refused.code == 2
    assert "add --yes" in refused.err
    assert len(list((folder / "tokens").iterdir())) == 2
    assert holotype("cache", "--yes").code == 2
    assert holotype("cache", "--clear", "--yes").code == 0
    assert holotype("cache", "--clear").out == f"Nothing is kept in {folder}.\n"


def test_what_a_run_uses_stays(holotype, folder: Path) -> None:
    file = cache_file(folder / "tokens", "a" * 64)
    tokens, _ = read_tokens(file, SIZE, torch.float16, "host", torch.device("cpu"))
    (folder / "notes.txt").write_text("mine")
    outcome = holotype("cache", "--clear", "--yes")
    assert "in use" in outcome.out
    assert f"bytes in all; holotype cache --clear deletes {BYTES} bytes of it." in outcome.out
    assert "notes.txt  not made by Holotype; left alone" in outcome.out
    assert f"Deleted 1 file, {BYTES} bytes." in outcome.out
    assert [path.name for path in (folder / "tokens").iterdir()] == [file.name]
    assert (folder / "notes.txt").exists()
    assert tokens.shape == SIZE


def test_a_folder_of_ones_own(holotype, folder: Path) -> None:
    outcome = holotype("cache", "--cache-dir", folder)
    assert f"{2 * BYTES} bytes" in outcome.out
