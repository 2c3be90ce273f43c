"""The heartbeat: told while a command runs, at most once a second, gone with success, and never in anybody's way."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from holotype.errors import InputError, Interrupted, Stopped
from holotype.utils import heartbeat
from holotype.utils.heartbeat import (
    HEARTBEAT_FILE,
    Beat,
    is_alive,
    read_beat,
    running_heartbeat,
    seconds_since,
    update_heartbeat,
)


def beat_of(folder) -> Beat:
    found = read_beat(folder)
    assert found is not None
    return found


def test_it_tells_what_it_is_told_and_goes_when_all_is_done(tmp_path):
    with running_heartbeat(tmp_path):
        assert read_beat(tmp_path) is None  # nobody has said a word: the folder may be refused yet
        update_heartbeat(tmp_path, phase="training", step=3, steps=10, loss=1.5)
        found = beat_of(tmp_path)
        assert (found.phase, found.step, found.steps, found.loss) == ("training", 3, 10, 1.5)
        assert (found.pid, found.host, found.ended) == (os.getpid(), socket.gethostname(), "")
        assert is_alive(found.pid, found.host, found.born, found.time)
    assert list(tmp_path.iterdir()) == []
    update_heartbeat(tmp_path, phase="training")  # nobody listens any more
    assert list(tmp_path.iterdir()) == []


def test_it_beats_by_itself_and_is_written_once_a_second_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "SECONDS", 0.2)
    written, write = [], heartbeat.Heartbeat._write
    monkeypatch.setattr(
        heartbeat.Heartbeat, "_write", lambda self: (written.append(self.beat.step), write(self))
    )
    with running_heartbeat(tmp_path):
        for step in range(200):
            update_heartbeat(tmp_path, phase="training", step=step)
            time.sleep(0.005)
        assert 2 <= len(written) < 20
        assert written[0] == 0
        time.sleep(0.3)
        assert beat_of(tmp_path).step == 199


def test_another_phase_forgets_how_far_the_last_one_was(tmp_path):
    with running_heartbeat(tmp_path):
        update_heartbeat(
            tmp_path,
            phase="training",
            stage="train",
            epoch=1,
            step=3,
            loss=1.0,
            saved="2020-01-01T00:00:00+00:00",
        )
        update_heartbeat(tmp_path, phase="placing")
        found = heartbeat._heartbeats[tmp_path.resolve()].beat
        assert (found.phase, found.stage, found.epoch, found.step, found.loss) == (
            "placing",
            "",
            None,
            None,
            None,
        )
        assert found.saved


@pytest.mark.parametrize(
    ("error", "ended", "words"),
    [
        (Stopped("epoch 3"), "stopped", "epoch 3"),
        (Interrupted(15), "stopped", "SIGTERM"),
        (InputError("There is no image."), "failed", "There is no image."),
        (ZeroDivisionError("oh"), "failed", "ZeroDivisionError('oh')"),
    ],
)
def test_it_stays_when_a_command_does_not_come_to_its_end(tmp_path, error, ended, words):
    def command() -> None:
        with running_heartbeat(tmp_path):
            update_heartbeat(tmp_path, phase="training")
            raise error

    with pytest.raises(type(error)):
        command()
    assert (beat_of(tmp_path).ended, beat_of(tmp_path).words) == (ended, words)
    assert [path.name for path in tmp_path.iterdir()] == [HEARTBEAT_FILE]


def test_a_folder_inside_tells_the_one_around_it_and_nobody_else(tmp_path):
    (tmp_path / "a" / "rounds" / "1").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    with (
        running_heartbeat(tmp_path / "a"),
        running_heartbeat(tmp_path / "b"),
        running_heartbeat(tmp_path / "a"),
    ):
        update_heartbeat(tmp_path / "a" / "rounds" / "1", phase="training")
        assert beat_of(tmp_path / "a").phase == "training"
        assert read_beat(tmp_path / "b") is None
        update_heartbeat(None, step=7)
        time.sleep(0.05)
        assert {heart.beat.step for heart in heartbeat._heartbeats.values()} == {7}
    assert not list(tmp_path.rglob(HEARTBEAT_FILE))


def test_a_disk_that_refuses_it_stops_nobody(tmp_path):
    folder = tmp_path / "gone"
    with running_heartbeat(folder):
        update_heartbeat(folder, phase="training")
    assert not folder.exists()


def test_of_several_processes_the_first_beats(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with running_heartbeat(tmp_path):
        update_heartbeat(tmp_path, phase="training")
    assert list(tmp_path.iterdir()) == []


def test_who_lives_and_who_does_not():
    host = socket.gethostname()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    born = heartbeat._started(process.pid)
    assert is_alive(process.pid, host, born)
    if born:  # the system tells: a later process of the same number is another one
        assert not is_alive(process.pid, host, "1")
    process.kill()
    process.wait()
    assert not is_alive(process.pid, host, born)
    for nonsense in (0, -1, 2**70):
        assert not is_alive(nonsense, host)
    now, long_ago = heartbeat._timestamp(), "2020-01-01T00:00:00+00:00"
    assert is_alive(1, "another-machine", time=now)
    assert not is_alive(1, "another-machine", time=long_ago)
    assert not is_alive(1, "another-machine")
    assert seconds_since("nonsense") == float("inf")


def test_a_broken_one_is_told(tmp_path):
    (tmp_path / HEARTBEAT_FILE).write_text("{")
    with pytest.raises(InputError, match=r"heartbeat\.json cannot be read .*delete it"):
        read_beat(tmp_path)
    (tmp_path / HEARTBEAT_FILE).unlink()
    assert read_beat(tmp_path) is None
    with running_heartbeat(tmp_path):
        update_heartbeat(tmp_path, phase="training")
        assert replace(beat_of(tmp_path), time="") is not None
