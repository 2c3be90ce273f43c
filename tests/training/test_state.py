"""The state on disk survives full disks, kills between two writes, and damage is reported."""

import errno
import os

import pytest
import torch

from holotype.errors import InputError
from holotype.training.state import clear_state, load_tensors, read_facts, save_state


def save(folder, counter):
    save_state(folder, {"a": torch.full((64,), float(counter))}, {"counter": counter, "epoch": counter})


def loaded(folder):
    facts = read_facts(folder)
    return float(load_tensors(folder, facts)["a"][0]), facts["epoch"]


def test_round_trip_keeps_only_the_last(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2)
    assert loaded(tmp_path) == (2.0, 2)
    assert len(list(tmp_path.glob("state-*.safetensors"))) == 1


@pytest.mark.parametrize("stop_at", range(2))
@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_kill_before_any_write_or_rename_leaves_a_loadable_pair(tmp_path, monkeypatch, call, stop_at):
    save(tmp_path, 1)
    real, seen = getattr(os, call), []

    class Killed(BaseException):
        pass

    def dies(*arguments):
        seen.append(arguments)
        if len(seen) > stop_at:
            raise Killed
        return real(*arguments)

    monkeypatch.setattr(os, call, dies)
    with pytest.raises(Killed):
        save(tmp_path, 2)
    monkeypatch.undo()
    assert loaded(tmp_path) in ((1.0, 1), (2.0, 2))
    save(tmp_path, 3)
    assert loaded(tmp_path) == (3.0, 3)


def test_a_full_disk_is_said_and_the_state_before_stays(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"No space left on device.*untouched"):
        save(tmp_path, 2)
    monkeypatch.undo()
    assert loaded(tmp_path) == (1.0, 1)
    assert not list(tmp_path.glob(".*.part"))


def test_damage_is_reported_in_a_sentence(tmp_path):
    assert read_facts(tmp_path) is None
    save(tmp_path, 1)
    facts = read_facts(tmp_path)
    tensors = tmp_path / facts["tensors"]
    tensors.write_bytes(tensors.read_bytes()[:50])
    with pytest.raises(InputError, match="missing or damaged"):
        load_tensors(tmp_path, facts)
    (tmp_path / "state.json").write_text('{"counter": 1')
    with pytest.raises(InputError, match="cannot be read as a training state"):
        read_facts(tmp_path)


def test_the_state_of_a_finished_run_goes(tmp_path):
    clear_state(tmp_path)
    save(tmp_path, 1)
    (tmp_path / "model.safetensors").write_bytes(b"stays")
    clear_state(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert read_facts(tmp_path, "anybody") is None
