"""`holotype cache`: a list, a question, and nothing deleted that is in use."""

import io
import sys
from pathlib import Path

import pytest
import torch

from holotype.cli import cache
from holotype.models.token_cache import cache_file, read_tokens, save_tokens

from .conftest import assert_sentence

SIZE, BYTES = (6, 20), 268  # of a file: tokens of 16 bits, and what they are checked by


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for digest in ("a" * 64, "b" * 64):
        file = cache_file(tmp_path / "holotype" / "tokens", digest)
        save_tokens(torch.zeros(SIZE, dtype=torch.float16), file, 10_000)
    return tmp_path / "holotype"


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("Yes\n", 0), ("n\n", 2), ("", 2), (None, 2)])
def test_clearing_asks_first(holotype, folder: Path, monkeypatch, answer: str | None, left: int) -> None:
    """And says so where nobody is at the terminal."""
    keys = io.StringIO(answer or "")
    keys.isatty = lambda: answer is not None  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", keys)
    outcome = holotype("cache", "--clear")
    if answer is None:
        assert_sentence(outcome, "add --yes")
    else:
        assert f"Delete 2 files, {2 * BYTES} bytes? [y/N]" in outcome.out
        assert (f"Deleted 2 files, {2 * BYTES} bytes." in outcome.out) is not bool(left)
    assert len(list((folder / "tokens").iterdir())) == left


def test_yes_needs_no_answer(holotype, folder: Path) -> None:
    assert holotype("cache", "--yes").code == 2
    assert holotype("cache", "--clear", "--yes").code == 0
    assert holotype("cache", "--clear").out == f"Nothing is kept in {folder}.\n"


def test_what_a_run_uses_stays(holotype, folder: Path, monkeypatch) -> None:
    file = cache_file(folder / "tokens", "a" * 64)
    tokens, _ = read_tokens(file, SIZE, torch.float16, "host", torch.device("cpu"))
    (folder / "notes.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(cache, "remove_cache_entry", lambda entry: False)
        assert "1 file could not be deleted" in holotype("cache", "--clear", "--yes").out
    said = holotype("cache", "--clear", "--yes").out
    for part in ("in use", f"deletes {BYTES} bytes", "notes.txt  not made by Holotype", "Deleted 1 file, "):
        assert part in said
    assert [path.name for path in (folder / "tokens").iterdir()] == [file.name]
    assert (folder / "notes.txt").exists()
    assert tokens.shape == SIZE
