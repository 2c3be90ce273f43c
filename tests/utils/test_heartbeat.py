"""The heartbeat: told while a command runs, at most once a second, gone with success, and never in anybody's way."""

import os
import socket
import time

import pytest

from holotype.errors import InputError, Interrupted, Stopped
from holotype.utils import heartbeat, locks
from holotype.utils.heartbeat import (
    HEARTBEAT_FILE,
    Beat,
    is_alive,
    read_beat,
    running_heartbeat,
    seconds_since,
    update_heartbeat,
)
from holotype.utils.locks import LOCK, NoLocks, lock_folder


def beat_of(folder) -> Beat:
    found = read_beat(folder)
    assert found is not None
    return found


def test_it_tells_what_it_is_told_and_a_folder_inside_tells_the_one_around_it(tmp_path):
    with running_heartbeat(tmp_path):
        assert read_beat(tmp_path) is None  # nobody has said a word: the folder may be refused yet
        update_heartbeat(tmp_path, phase="training", step=3, steps=10, loss=1.5)
        found = beat_of(tmp_path)
        assert (found.phase, found.step, found.steps, found.loss) == ("training", 3, 10, 1.5)
        assert (found.pid, found.host, found.ended) == (os.getpid(), socket.gethostname(), "")
        update_heartbeat(tmp_path, phase="placing", saved="2020-01-01T00:00:00+00:00")
        found = heartbeat._heartbeats[tmp_path.resolve()].beat  # it forgets how far the last phase was
        assert (found.phase, found.step, found.loss, bool(found.saved)) == ("placing", None, None, True)
    update_heartbeat(tmp_path, phase="training")  # nobody listens any more
    assert list(tmp_path.iterdir()) == []
    one, other = tmp_path / "a", tmp_path / "b"
    (one / "rounds" / "1").mkdir(parents=True)
    other.mkdir()
    with running_heartbeat(one), running_heartbeat(other), running_heartbeat(one):
        update_heartbeat(tmp_path, phase="embedding")
        update_heartbeat(one / "rounds" / "1", phase="training")
        assert beat_of(one).phase == "training"
        assert read_beat(other) is None
        update_heartbeat(None, step=7)
        assert {heart.beat.step for heart in heartbeat._heartbeats.values()} == {7}
    assert not list(tmp_path.rglob(HEARTBEAT_FILE))


def test_it_beats_by_itself_and_is_written_now_and_then_only(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "SECONDS", 0.05)
    written, write = [], heartbeat.Heartbeat._write

    def counted(self) -> None:
        written.append(self.beat.step)
        write(self)

    monkeypatch.setattr(heartbeat.Heartbeat, "_write", counted)
    with running_heartbeat(tmp_path):
        for step in range(1000):
            update_heartbeat(tmp_path, phase="training", step=step)
        assert written[0] == 0
        assert len(written) < 500
        deadline = time.monotonic() + 30
        while beat_of(tmp_path).step != 999:
            assert time.monotonic() < deadline
            time.sleep(0.01)


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


def test_a_disk_that_refuses_it_stops_nobody_and_a_further_process_has_none(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    with running_heartbeat(folder):
        update_heartbeat(folder, phase="training")
    assert not folder.exists()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with running_heartbeat(tmp_path):
        update_heartbeat(tmp_path, phase="training")
    assert list(tmp_path.iterdir()) == []


def test_who_lives_and_who_does_not(tmp_path, monkeypatch):
    host, now, long_ago = socket.gethostname(), heartbeat._timestamp(), "2020-01-01T00:00:00+00:00"
    assert seconds_since("nonsense") == float("inf")
    (tmp_path / HEARTBEAT_FILE).write_text("{")
    with pytest.raises(InputError, match=r"heartbeat\.json cannot be read .*delete it"):
        read_beat(tmp_path)
    with lock_folder(tmp_path):
        assert is_alive(tmp_path, host, long_ago)
    (tmp_path / LOCK).touch()  # as a killed process leaves it
    assert not is_alive(tmp_path, host, now)
    assert is_alive(tmp_path, "another-machine", now)
    assert not is_alive(tmp_path, "another-machine", long_ago)

    def refuse(descriptor: int) -> bool:
        raise NoLocks("none here")

    monkeypatch.setattr(locks, "try_lock", refuse)
    assert is_alive(tmp_path, host, now)
    assert not is_alive(tmp_path, host, long_ago)
