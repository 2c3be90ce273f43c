"""How runs, sweeps and discoveries stand: running, stopped, failed, dead, finished; told by files alone."""

import json
import os
import socket
from pathlib import Path

import pytest

from holotype.runs.status import read_status, status_of
from holotype.utils.heartbeat import HEARTBEAT_SCHEMA, running_heartbeat, update_heartbeat
from holotype.utils.locks import lock_folder
from holotype.utils.serialization import dump_json

NOBODY = 2**22 + 1  # no process has this number
THEN = "2024-05-06T07:08:09+00:00"
HERE = {"pid": NOBODY, "host": socket.gethostname(), "command": "holotype train"}
PROGRESS = {"phase": "training", "stage": "train", "epoch": 2, "epochs": 9}
PROGRESS |= {"step": 3000, "steps": 9000, "loss": 1.25}


def begin(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "identity.json").write_text(dump_json({"format": 1, "method": {}}))
    return folder


def finish(folder: Path, **scores: float | None) -> Path:
    (folder / "scores.json").write_text(dump_json({"format": 2, "scores": {"all": None, **scores}}))
    return folder


def leave_beat(folder: Path, **facts: object) -> None:
    """What a process left that was killed."""
    times = {"started": THEN, "time": THEN}
    HEARTBEAT_SCHEMA.write(folder / "heartbeat.json", {**HERE, **times, **facts})


def state(folder: Path) -> tuple[str, str]:
    return status_of(folder).state, status_of(folder).phase


def test_a_run_tells_where_it_is_while_it_runs(tmp_path) -> None:
    run = begin(tmp_path / "run")
    with lock_folder(run), running_heartbeat(run):
        assert state(run) == ("running", "starting")
        assert status_of(run).pid == os.getpid()
        update_heartbeat(run, seconds_left=70.0, **PROGRESS)
        (found,) = read_status(run)
    assert (found.kind, found.state, found.alive, found.seconds_left) == ("run", "running", True, 70.0)
    assert {name: getattr(found, name) for name in PROGRESS} == PROGRESS
    assert state(run) == ("begun", "")


@pytest.mark.parametrize("ended", ["", "stopped", "failed"])
def test_one_that_is_begun_again_runs_before_its_first_word(tmp_path, ended) -> None:
    """Reading images and weights takes a while; what the process before it left says nothing of it."""
    run = begin(tmp_path)
    leave_beat(run, phase="training", ended=ended)
    with lock_folder(run), running_heartbeat(run):
        assert state(run) == ("running", "starting")
        assert status_of(run).pid == os.getpid()
        update_heartbeat(run, ended="failed", words="No space left.")  # while others go on
        assert (status_of(run).state, status_of(run).words) == ("failed", "No space left.")


def test_a_finished_run_has_its_scores_whatever_else_was_left(tmp_path) -> None:
    run = finish(begin(tmp_path), all=0.5, old=0.75, new=0.25)
    leave_beat(run, phase="placing")
    found = status_of(run)
    assert (found.state, found.scores) == ("finished", {"all": 0.5, "old": 0.75, "new": 0.25})
    (run / "scores.json").write_text("{")
    (run / "heartbeat.json").unlink()
    assert status_of(run).state == "begun"
    assert "scores.json cannot be read" in status_of(run).words


def test_a_discovery_goes_through_rounds(tmp_path, monkeypatch) -> None:
    run, there = begin(tmp_path), Path.is_file
    with monkeypatch.context() as patch:  # a run that ends removes its heartbeat while somebody looks
        patch.setattr(Path, "is_file", lambda path: path.name == "heartbeat.json" or there(path))
        assert (status_of(run).state, status_of(run).last_save) == ("begun", "")
    finish(begin(run / "rounds" / "1"))
    finish(run)
    found = status_of(run)
    assert (found.kind, found.state, found.round) == ("discovery", "finished", 1)
    begin(run / "rounds" / "2")
    leave_beat(run, phase="counting")
    assert state(run) == ("dead", "counting")
    assert status_of(run).round == 1


def test_the_command_tells_of_a_run_and_of_a_sweep(tmp_path, holotype) -> None:
    finish(begin(tmp_path / "sweep" / "a"), all=0.5)
    run = begin(tmp_path / "sweep" / "study" / "b")
    (tmp_path / "sweep" / "notes").mkdir()
    (tmp_path / "sweep" / "notes" / "table.md").touch()
    assert [Path(one.folder).name for one in read_status(tmp_path / "sweep")] == ["a", "b"]
    assert holotype("status", tmp_path / "sweep").out.startswith("2 runs: 1 finished, 1 begun\n")
    told = json.loads(holotype("status", tmp_path / "sweep", "--json").out)
    assert [(one["state"], one["alive"]) for one in told] == [("finished", False), ("begun", False)]
    leave_beat(run, **PROGRESS)
    said = holotype("status", run).out
    assert "dead: its process is gone; the same command continues from what was saved" in said
    assert "training: stage train, epoch 2 of 9, step 3,000 of 9,000, loss 1.250" in said
    assert f"process {NOBODY} on" in said
    for folder, words in (("gone", "There is no folder"), ("sweep/notes", "holds no run")):
        outcome = holotype("status", tmp_path / folder)
        assert (outcome.code, outcome.out) == (2, "")
        assert words in outcome.err
