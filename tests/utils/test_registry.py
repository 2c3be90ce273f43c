"""A file may name code, and nobody runs it before somebody has allowed that; the sentence says what it would be."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from holotype.errors import InputError
from holotype.methods.registry import allow_code, check_code_allowed

EVIL = """
from pathlib import Path
from holotype.methods.kmeans import KMeans

Path(__file__).with_name("owned").touch()

class Mine(KMeans):
    pass
"""
SAYS = ("stranger:Mine", "the module 'stranger' would be imported", "its 'Mine' run", "--allow-code")


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that somebody could have put where Python finds it; returns what it leaves when it is run."""
    (tmp_path / "stranger.py").write_text(EVIL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    return tmp_path / "owned"


def test_names_of_ours_are_always_fine_and_code_is_after_it_was_allowed() -> None:
    assert check_code_allowed("rpc", "model.json") == "rpc"
    with pytest.raises(InputError) as told:
        check_code_allowed("stranger:Mine", "model.json")
    assert all(words in str(told.value) for words in SAYS)
    with allow_code():
        assert check_code_allowed("stranger:Mine", "model.json") == "stranger:Mine"
        with allow_code(False), pytest.raises(InputError):
            check_code_allowed("stranger:Mine", "model.json")
    with pytest.raises(InputError):
        check_code_allowed("stranger:Mine", "model.json")


@pytest.mark.parametrize("form", ["config", "study"])
def test_a_file_of_settings_runs_no_code(
    form: str, stranger: Path, squares_folder: Path, tmp_path: Path, holotype
) -> None:
    file, data = tmp_path / "theirs.yaml", squares_folder / "squares.csv"
    if form == "config":
        file.write_text(f"method_name: stranger:Mine\ndataset: {data}\n")
        words = ["train", "--config", file, "--print_config"]
    else:
        file.write_text(
            f"question: whose?\nseeds: [0]\ndatasets: [{data}]\nrows:\n  mine: {{method: stranger:Mine}}\n"
        )
        words = ["bench", "--study", file, "--table-only", "--results", tmp_path / "results"]
    refused = holotype(*words)
    assert refused.code == 2
    assert all(one in refused.err for one in (*SAYS, str(file)))
    assert not stranger.exists()
    holotype(*words, "--allow-code")
    assert stranger.exists()


def test_a_model_runs_no_code(
    stranger: Path, squares_folder: Path, tiny_flags: list[str], tmp_path: Path, holotype
) -> None:
    run, data = tmp_path / "run", squares_folder / "squares.csv"
    assert holotype("train", "kmeans", data, *tiny_flags, "--out", run).code == 0
    sheet = json.loads((run / "model.json").read_text())
    (run / "model.json").write_text(json.dumps(sheet | {"method_name": "stranger:Mine"}))
    words = (
        "assign",
        run,
        squares_folder / "red",
        "--out",
        tmp_path / "new.csv",
        "--device",
        "cpu",
        "--no-progress",
    )
    refused = holotype(*words)
    assert refused.code == 2
    assert all(one in refused.err for one in (*SAYS, "model.json"))
    assert not stranger.exists()
    assert holotype(*words, "--allow-code").code == 0
    assert stranger.exists()


def test_what_a_person_types_is_their_own_word(stranger: Path, squares_folder: Path, holotype) -> None:
    typed = holotype("train", "stranger:Mine", squares_folder / "squares.csv", "--print_config")
    assert (typed.code, "method_name: stranger:Mine" in typed.out) == (0, True)


def test_commands_that_read_no_such_file_do_not_know_the_flag(tmp_path: Path, holotype) -> None:
    assert holotype("embed", tmp_path, "--allow-code").code == 2
