"""The run folder shares what its last round has, and nothing that something has changed since."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from tools.torture.mutate import flipped

from holotype.discovery import rounds
from holotype.discovery.rounds import SHARED_FILES, check_complete, link_round, round_folder
from holotype.errors import InputError
from holotype.results.features import FEATURES, write_features
from holotype.runs.run_folder import RunFolder


@pytest.mark.parametrize("links", [True, False])
def test_the_run_folder_shares_what_its_last_round_has(tmp_path: Path, monkeypatch, links) -> None:
    if not links:

        def refuse(*_: object) -> None:
            raise OSError("no hard links here")

        monkeypatch.setattr(rounds.os, "link", refuse)
    for number in (1, 2):
        round_folder(tmp_path, number).mkdir(parents=True)
        for name in SHARED_FILES:
            (round_folder(tmp_path, number) / name).write_text(json.dumps({name: number}))
        write_features(round_folder(tmp_path, number), np.full((1, 2), number))
        for _ in range(2):
            link_round(tmp_path, number)
        for name in SHARED_FILES:
            source = round_folder(tmp_path, number) / name
            assert (tmp_path / name).read_bytes() == source.read_bytes()
            assert os.path.samefile(tmp_path / name, round_folder(tmp_path, number) / name) == links
    assert (round_folder(tmp_path, 1) / SHARED_FILES[0]).read_text() == json.dumps({SHARED_FILES[0]: 1})
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("name", "content"), [("scores.json", b"{"), ("model.json", b"{"), ("model.safetensors", b"0.7")]
)
def test_what_something_has_changed_in_a_round_does_not_spread(
    tmp_path: Path, name: str, content: bytes
) -> None:
    """It is noticed before the run folder has anything of the round."""
    own = RunFolder(round_folder(tmp_path, 1))
    own.write_json("scores.json", {"scores": {"all": 0.5}})
    (own.path / "model.safetensors").write_bytes(b"weights: 0.5")
    own.write_json("model.json", {"weights": hashlib.sha256(b"weights: 0.5").hexdigest()})
    check_complete(own.path)
    (own.path / name).write_bytes(b"{")
    with pytest.raises(InputError, match=f"rounds/1/{name}"):
        link_round(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["rounds"]


def test_damaged_features_of_a_round_are_told_and_stay_where_they_are(tmp_path: Path, caplog) -> None:
    own = round_folder(tmp_path, 1)
    own.mkdir(parents=True)
    for folder in (own, tmp_path):
        write_features(folder, np.ones((3, 4)))
    whole = (own / FEATURES).read_bytes()
    (own / FEATURES).write_bytes(flipped(whole, 8 * len(whole) - 500))
    link_round(tmp_path, 1)
    assert (tmp_path / FEATURES).read_bytes() == whole
    assert f"{own / FEATURES} was damaged" in caplog.text


@pytest.mark.parametrize("model", ["[1]", "{}", "null"])
def test_a_model_of_an_unknown_kind_is_left_to_those_who_read_it(tmp_path: Path, model: str) -> None:
    (tmp_path / "model.json").write_text(model)
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    check_complete(tmp_path)
