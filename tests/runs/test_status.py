"""How runs, sweeps and discoveries stand: running, stopped, failed, dead, finished; told by files alone."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from holotype.errors import InputError, Stopped
from holotype.runs.status import read_status, status_of
from holotype.utils.heartbeat import HEARTBEAT_SCHEMA, running_heartbeat, update_heartbeat
from holotype.utils.locks import lock_folder
from holotype.utils.serialization import dump_json

NOBODY = 2**22 + 1
"""No process has this number."""


def begin(folder: Path, **identity: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "identity.json").write_text(dump_json({"format": 1, "method": {}, **identity}))
    return folder


def finish(folder: Path, **scores: float | None) -> Path:
    (folder / "scores.json").write_text(dump_json({"format": 2, "scores": {"all": None, **scores}}))
    return folder


def leave_beat(folder: Path, **facts: object) -> None:
    """What a process left that was killed."""
    told = {"pid": NOBODY, "host": socket.gethostname(), "command": "holotype train"}
    times = dict.fromkeys(("started", "time"), "2024-05-06T07:08:09+00:00")
    HEARTBEAT_SCHEMA.write(folder / "heartbeat.json", {**told, **times, **facts})


def test_a_run_tells_where_it_is_while_it_runs(tmp_path):
    run = begin(tmp_path / "run")
    with lock_folder(run), running_heartbeat(run):
        assert (status_of(run).state, status_of(run).phase) == ("running", "starting")
        assert status_of(run).pid == os.getpid()
        update_heartbeat(
            run,
            phase="training",
            stage="train",
            epoch=2,
            epochs=9,
            step=3,
            steps=10,
            loss=1.5,
            seconds_left=70.0,
        )
        (found,) = read_status(run)
    assert (found.kind, found.state, found.alive) == ("run", "running", True)
    assert (found.phase, found.stage, found.epoch, found.epochs) == ("training", "train", 2, 9)
    assert (found.step, found.steps, found.loss, found.seconds_left) == (3, 10, 1.5, 70.0)
    assert status_of(run).state == "begun"


def test_a_run_whose_process_is_gone_is_dead(tmp_path):
    run = begin(tmp_path)
    leave_beat(run, phase="training", step=7, steps=10)
    (run / "state.json").write_text("{}")
    found = status_of(run)
    assert (found.state, found.alive, found.step) == ("dead", False, 7)
    assert found.last_save
    assert found.last_sign == "2024-05-06T07:08:09+00:00"


@pytest.mark.parametrize("ended", ["", "stopped", "failed"])
def test_one_that_is_begun_again_runs_before_its_first_word(tmp_path, ended):
    """Reading images and weights takes a while; what the process before it left says nothing of it."""
    run = begin(tmp_path)
    leave_beat(run, phase="training", ended=ended)
    with lock_folder(run), running_heartbeat(run):
        found = status_of(run)
        assert (found.state, found.phase, found.pid) == ("running", "starting", os.getpid())
        update_heartbeat(
            run, ended="failed", words="No space left."
        )  # one of several runs, while the others go on
        assert (status_of(run).state, status_of(run).words) == ("failed", "No space left.")


def test_one_that_died_before_its_first_word_is_dead_too(tmp_path):
    run = begin(tmp_path)
    facts = {"pid": NOBODY, "host": socket.gethostname(), "command": "x", "time": "2024-05-06T07:08:09+00:00"}
    (run / ".lock").write_text(json.dumps(facts))
    assert (status_of(run).state, status_of(run).pid) == ("dead", NOBODY)


def test_a_stop_and_a_failure_say_their_words(tmp_path):
    def ends(error: Exception) -> None:
        with running_heartbeat(tmp_path):
            update_heartbeat(tmp_path, phase="training")
            raise error

    begin(tmp_path)
    for error, state in ((Stopped("epoch 3"), "stopped"), (InputError("No space left."), "failed")):
        with pytest.raises(type(error)):
            ends(error)
        assert (status_of(tmp_path).state, status_of(tmp_path).words) == (state, str(error))


def test_a_finished_run_has_its_scores_whatever_else_was_left(tmp_path):
    run = finish(begin(tmp_path), all=0.5, old=0.75, new=0.25)
    leave_beat(run, phase="placing")
    found = status_of(run)
    assert (found.state, found.scores) == ("finished", {"all": 0.5, "old": 0.75, "new": 0.25})
    (run / "scores.json").write_text("{")
    (run / "heartbeat.json").unlink()
    assert status_of(run).state == "begun"
    assert "scores.json cannot be read" in status_of(run).words


def test_files_that_go_while_somebody_looks_are_not_there(tmp_path, monkeypatch):
    """A run that ends removes its heartbeat and its state."""
    run, there = begin(tmp_path), Path.is_file
    gone = ("heartbeat.json", "state.json")
    monkeypatch.setattr(Path, "is_file", lambda path: path.name in gone or there(path))
    assert (status_of(run).state, status_of(run).last_save) == ("begun", "")


def test_a_discovery_goes_through_rounds(tmp_path):
    run = begin(tmp_path, backbone={})
    (run / "identity.json").write_text(dump_json({"format": 3, "backbone": {}}))
    assert (status_of(run).kind, status_of(run).state, status_of(run).round) == ("discovery", "begun", 0)
    finish(begin(run / "rounds" / "1"))
    finish(run)
    assert (status_of(run).state, status_of(run).round) == ("finished", 1)
    begin(run / "rounds" / "2")
    leave_beat(run, phase="counting")
    assert (status_of(run).state, status_of(run).phase, status_of(run).round) == ("dead", "counting", 1)


def test_a_sweep_is_all_of_its_runs(tmp_path, holotype):
    finish(begin(tmp_path / "sweep" / "a"), all=0.5)
    begin(tmp_path / "sweep" / "study" / "b")
    (tmp_path / "sweep" / "notes").mkdir()
    assert [Path(one.folder).name for one in read_status(tmp_path / "sweep")] == ["a", "b"]
    outcome = holotype("status", tmp_path / "sweep")
    assert outcome.code == 0
    assert outcome.out.startswith("2 runs: 1 finished, 1 begun\n")
    told = json.loads(holotype("status", tmp_path / "sweep", "--json").out)
    assert [(one["state"], one["alive"]) for one in told] == [("finished", False), ("begun", False)]


def test_what_is_no_run_is_one_sentence(tmp_path, holotype):
    for folder, said in ((tmp_path / "gone", "There is no folder"), (tmp_path, "holds no run")):
        outcome = holotype("status", folder)
        assert (outcome.code, outcome.out) == (2, "")
        assert said in outcome.err


def test_the_command_tells_a_person(tmp_path, holotype):
    run = begin(tmp_path / "run")
    leave_beat(run, phase="training", stage="train", epoch=2, epochs=9, step=3000, steps=9000, loss=1.25)
    said = holotype("status", run).out
    assert "dead: its process is gone; the same command continues from what was saved" in said
    assert "training: stage train, epoch 2 of 9, step 3,000 of 9,000, loss 1.250" in said
    assert f"process {NOBODY} on" in said
    assert "--json" in holotype("status", "--help").out
