"""Lines and states of a run: found again after a stop, none without a folder, one writer of several processes."""

import os

import pytest
import torch

from holotype.errors import InputError
from holotype.training import checkpoint as journal_module
from holotype.training.checkpoint import (
    STATE_FILE,
    Checkpointer,
    CheckpointState,
    Position,
    clear_checkpoint,
    load_tensors,
    read_checkpoint_info,
    save_checkpoint,
)

from .conftest import metrics


def state(counter, step):
    return CheckpointState(Position(0, 1, step, counter, True), 2.5, {"a": torch.full((3,), float(counter))})


def test_a_state_is_found_again_and_later_lines_are_dropped(tmp_path):
    first = Checkpointer(tmp_path)
    first.write(kind="epoch", counter=2)
    assert first.resume() is None
    assert metrics(tmp_path) == []  # of a run that never saved
    first.write(kind="epoch", counter=3)
    first.save(state(counter=5, step=2))
    first.write(kind="epoch", counter=6)
    found = Checkpointer(tmp_path).resume()
    assert (found.position, found.seconds) == (Position(0, 1, 2, 5, True), 2.5)
    assert found.tensors["a"].tolist() == [5, 5, 5]
    assert [line["counter"] for line in metrics(tmp_path)] == [3]
    # inside an epoch its line is still to come: it is written again, once
    first.save(state(counter=6, step=3))
    first.write(kind="epoch", counter=6)
    Checkpointer(tmp_path).resume()
    assert [line["counter"] for line in metrics(tmp_path)] == [3]
    assert len(list(tmp_path.glob("state-*.safetensors"))) == 1


def test_the_heartbeat_is_told_at_most_once_a_second(tmp_path, monkeypatch):
    now, told = [100.0], []
    monkeypatch.setattr(journal_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(journal_module, "update_heartbeat", lambda folder, **facts: told.append(facts))
    journal = Checkpointer(tmp_path)
    for step in range(1, 101):  # ten a second
        now[0] += 0.1
        journal.beat(Position(0, 2, step, step), "train", 9, 400, torch.tensor([1.0, 0.5]))
    Checkpointer(None).beat(Position(), "train", 9, 400, [])
    assert 9 <= len(told) <= 11
    assert told[-1]["seconds_left"] == pytest.approx((400 - told[-1]["step"]) / 10, abs=0.2)


def test_of_several_processes_the_first_writes_and_a_state_of_another_run_is_refused(tmp_path, monkeypatch):
    Checkpointer(tmp_path, "one").save(state(5, 2))
    assert Checkpointer(tmp_path, "one").resume().position.counter == 5
    for other in (Checkpointer(tmp_path, "two"), Checkpointer(tmp_path)):
        with pytest.raises(InputError, match=r"state\.json is the training state of another run"):
            other.resume()
    monkeypatch.setattr(journal_module, "rank", lambda: 1)
    second = Checkpointer(tmp_path, "one")
    second.write(kind="epoch", counter=9)
    second.save(state(9, 1))
    assert second.resume().position.counter == 5
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *(({key: "x"}, "from the start") for key in ("epoch", "step", "begun", "seconds", "guard", "stage")),
        ({"tensors": "../other/state-00000001.safetensors"}, "lie in another folder"),
        ({"tensors": None}, "no training state: tensors is None"),
        ({"counter": "3"}, "no training state: counter is '3'"),
        ({"digest": 7}, "no training state: digest is 7"),
    ],
)
def test_a_state_with_something_else_in_it_is_told_by_its_file(tmp_path, change, said):
    Checkpointer(tmp_path).save(state(5, 2))
    STATE_FILE.write(tmp_path / "state.json", STATE_FILE.read(tmp_path / "state.json") | change)
    with pytest.raises(InputError, match=rf"state\.json cannot be read \(.*{said}"):
        Checkpointer(tmp_path).resume()


def save(folder, counter, epoch=None):
    """epoch: by default as many as steps; the same counter may come again at the end of a stage."""
    epoch = counter if epoch is None else epoch
    save_checkpoint(folder, {"a": torch.full((64,), float(epoch))}, {"counter": counter, "epoch": epoch})


def loaded(folder):
    facts = read_checkpoint_info(folder)
    return float(load_tensors(folder, facts)["a"][0]), facts["epoch"]


@pytest.mark.parametrize("counter", [1, 2], ids=["same counter", "next counter"])
@pytest.mark.parametrize("stop_at", range(2))
@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_kill_before_any_write_leaves_a_loadable_pair(tmp_path, monkeypatch, call, stop_at, counter):
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


def test_damage_is_reported_in_a_sentence_and_every_flipped_bit_is_noticed(tmp_path):
    assert read_checkpoint_info(tmp_path) is None
    save(tmp_path, 1)
    facts = read_checkpoint_info(tmp_path)
    tensors = tmp_path / facts["tensors"]
    tensors.write_bytes(tensors.read_bytes()[:50])
    with pytest.raises(InputError, match="missing or damaged"):
        load_tensors(tmp_path, facts)
    (tmp_path / "state.json").write_text('{"counter": 1')
    with pytest.raises(InputError, match=r"state\.json cannot be read \(it is not whole.*delete it to train"):
        read_checkpoint_info(tmp_path)
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


def test_the_state_of_a_finished_run_goes(tmp_path):
    clear_checkpoint(tmp_path)
    save(tmp_path, 1)
    (tmp_path / "model.safetensors").write_bytes(b"stays")
    clear_checkpoint(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert read_checkpoint_info(tmp_path, "anybody") is None
