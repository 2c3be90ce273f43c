"""A file may name code, and nobody runs it before somebody has allowed that; the sentence says what it would be."""

from __future__ import annotations

import json
import sys

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


def test_names_of_ours_are_always_fine_and_code_is_after_it_was_allowed() -> None:
    assert check_code_allowed("rpc", "model.json") == "rpc"
    with allow_code():
        assert check_code_allowed("stranger:Mine", "model.json") == "stranger:Mine"
        with allow_code(False), pytest.raises(InputError):
            check_code_allowed("stranger:Mine", "model.json")
    with pytest.raises(InputError) as told:
        check_code_allowed("stranger:Mine", "model.json")
    assert all(words in str(told.value) for words in SAYS)


@pytest.mark.parametrize("form", ["config", "study", "model"])
def test_a_file_runs_no_code(form: str, squares_folder, tmp_path, tiny_flags, holotype, monkeypatch) -> None:
    (tmp_path / "stranger.py").write_text(EVIL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    file, data, run = tmp_path / "theirs.yaml", squares_folder / "squares.csv", tmp_path / "run"
    if form == "config":
        file.write_text(f"method_name: stranger:Mine\ndataset: {data}\n")
        words = ["train", "--config", file, "--print_config"]
    elif form == "study":
        rows = "rows:\n  mine: {method: stranger:Mine}\n"
        file.write_text(f"question: whose?\nseeds: [0]\ndatasets: [{data}]\n{rows}")
        words = ["bench", "--study", file, "--table-only", "--results", tmp_path / "results"]
    else:
        file = run / "model.json"
        assert holotype("train", "kmeans", data, *tiny_flags, "--out", run).code == 0
        file.write_text(json.dumps(json.loads(file.read_text()) | {"method_name": "stranger:Mine"}))
        out = ("--out", tmp_path / "new.csv", "--device", "cpu", "--no-progress")
        words = ["assign", run, squares_folder / "red", *out]
    refused = holotype(*words)
    assert refused.code == 2
    assert all(one in refused.err for one in (*SAYS, file.name))
    assert not (tmp_path / "owned").exists()
    holotype(*words, "--allow-code")
    assert (tmp_path / "owned").exists()
    # what a person types is their own word, and other commands do not know the flag
    typed = holotype("train", "stranger:Mine", data, "--print_config")
    assert (typed.code, "method_name: stranger:Mine" in typed.out) == (0, True)
    assert holotype("embed", tmp_path, "--allow-code").code == 2
