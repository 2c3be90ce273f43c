"""The state on disk survives full disks, kills between two writes, and damage is reported."""

import errno
import os
import shutil

import pytest
import torch
from safetensors import safe_open

from holotype.errors import InputError
from holotype.training.checkpoint import (
    STATE_FILE,
    clear_checkpoint,
    load_tensors,
    read_checkpoint_info,
    save_checkpoint,
)


def save(folder, counter, epoch=None):
    """epoch: by default as many as steps; the same counter may come again at the end of a stage."""
    epoch = counter if epoch is None else epoch
    save_checkpoint(folder, {"a": torch.full((64,), float(epoch))}, {"counter": counter, "epoch": epoch})


def loaded(folder):
    facts = read_checkpoint_info(folder)
    return float(load_tensors(folder, facts)["a"][0]), facts["epoch"]


def test_round_trip_keeps_only_the_last(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2)
    assert loaded(tmp_path) == (2.0, 2)
    assert len(list(tmp_path.glob("state-*.safetensors"))) == 1


@pytest.mark.parametrize("counter", [1, 2], ids=["same counter", "next counter"])
@pytest.mark.parametrize("stop_at", range(2))
@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_kill_before_any_write_or_rename_leaves_a_loadable_pair(
    tmp_path, monkeypatch, call, stop_at, counter
):
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
        save(tmp_path, counter, epoch=2)
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
    assert read_checkpoint_info(tmp_path) is None
    save(tmp_path, 1)
    facts = read_checkpoint_info(tmp_path)
    tensors = tmp_path / facts["tensors"]
    tensors.write_bytes(tensors.read_bytes()[:50])
    with pytest.raises(InputError, match="missing or damaged"):
        load_tensors(tmp_path, facts)
    (tmp_path / "state.json").write_text('{"counter": 1')
    with pytest.raises(
        InputError, match=r"state\.json cannot be read \(it is not whole.*delete it to train from the"
    ):
        read_checkpoint_info(tmp_path)


def test_every_flipped_bit_of_the_tensors_is_noticed(tmp_path):
    save_checkpoint(tmp_path, {"a": torch.arange(4.0)}, {"counter": 3})
    facts = read_checkpoint_info(tmp_path)
    file = tmp_path / facts["tensors"]
    whole = file.read_bytes()
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(flipped)
        with pytest.raises(InputError, match=file.name):
            load_tensors(tmp_path, facts)


def test_tensors_of_another_state_are_refused(tmp_path):
    """Two runs have a state of the same step, and one's tensors are put in the place of the other's."""
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder, value in ((mine, 1.0), (theirs, 2.0)):
        save_checkpoint(folder, {"a": torch.full((4,), value)}, {"counter": 3, "identity": folder.name})
    facts, others = read_checkpoint_info(mine, "mine"), read_checkpoint_info(theirs, "theirs")
    shutil.copy(theirs / others["tensors"], mine / facts["tensors"])
    with pytest.raises(
        InputError, match=r"not the file that state\.json was written with.*train from the start"
    ):
        load_tensors(mine, facts)
    with safe_open(theirs / others["tensors"], "pt") as file:
        assert file.metadata()["identity"] == "theirs"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tensors": "../other/state-00000001.safetensors"}, "lie in another folder"),
        ({"tensors": None}, "no training state: tensors is None"),
        ({"counter": "3"}, "no training state: counter is '3'"),
        ({"digest": 7}, "no training state: digest is 7"),
    ],
)
def test_a_state_that_somebody_has_written_by_hand_is_told(tmp_path, change, said):
    save(tmp_path, 1)
    STATE_FILE.write(tmp_path / "state.json", read_checkpoint_info(tmp_path) | change)
    with pytest.raises(InputError, match=said):
        read_checkpoint_info(tmp_path)


def test_the_state_of_a_finished_run_goes(tmp_path):
    clear_checkpoint(tmp_path)
    save(tmp_path, 1)
    (tmp_path / "model.safetensors").write_bytes(b"stays")
    clear_checkpoint(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert read_checkpoint_info(tmp_path, "anybody") is None
