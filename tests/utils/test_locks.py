"""One command at a time in a folder, and nobody shut out by a command that is gone."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

from holotype.errors import InputError
from holotype.utils import locks
from holotype.utils.locks import (
    LOCK,
    is_held,
    lock_folder,
    lock_path,
    remove_stale_lock,
    try_lock,
    try_shared_lock,
    wait_for_lock,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no such locks")

START = "import os, sys, time; from pathlib import Path; from holotype.errors import InputError\n"
START += "from holotype.utils.locks import lock_folder, wait_for_lock; path = Path(sys.argv[1])\n"
HOLDER = """
try:
    with lock_folder(path):
        print("held", flush=True)
        time.sleep(60)
except InputError as error:
    print(error, flush=True)
    sys.exit(2)
"""
WRITER = "with wait_for_lock(path, 'it'):\n    print('held', flush=True); time.sleep(60)"
CROWD = """
inside, held = Path(sys.argv[2]), 0
while held < 30:
    try:
        with lock_folder(path):
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
            held += 1
            os.unlink(inside)
    except InputError:
        pass
"""


def start(code: str, *words: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", START + code, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.communicate()


@pytest.fixture
def holder(tmp_path):
    """Another process that holds tmp_path/run."""
    process = start(HOLDER, tmp_path / "run")
    assert first_line(process) == "held"
    yield process
    end(process)


def refused(folder: Path) -> str:
    with pytest.raises(InputError) as error, lock_folder(folder):
        pass
    return str(error.value)


def test_the_holder_is_named(holder, tmp_path):
    second = start(HOLDER, tmp_path / "run")
    assert f"in use by process {holder.pid} on" in first_line(second)
    assert second.wait(timeout=60) == 2
    end(second)
    said, file = refused(tmp_path / "run"), tmp_path / "run" / LOCK
    facts = json.loads(file.read_text())
    assert facts.keys() == {"pid", "host", "command", "time"}
    since = f"{datetime.fromisoformat(facts['time']).astimezone():%Y-%m-%d %H:%M}"
    assert f"in use by process {holder.pid} on {socket.gethostname()} since {since} (-c {tmp_path}" in said
    assert is_held(file)
    for nobody in ("", json.dumps(facts | {"time": "noon"})):  # one that has not signed is still one
        file.write_text(nobody)
        assert "in use by another process" in refused(tmp_path / "run")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_dead_holder_shuts_nobody_out(holder, tmp_path, number):
    end(holder, number)
    assert (tmp_path / "run" / LOCK).exists()
    assert is_held(tmp_path / "run" / LOCK) is False
    with lock_folder(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / LOCK).read_text())["pid"] == os.getpid()
    assert not (tmp_path / "run" / LOCK).exists()


def test_a_crowd_takes_turns(tmp_path):
    """Lock files come and go all the time, and never are two processes inside."""
    crowd = [start(CROWD, tmp_path / "a" / "run", tmp_path / "inside") for _ in range(4)]
    said = [process.communicate(timeout=300) for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 4, said
    assert not list(tmp_path.rglob(LOCK))


def test_runs_of_one_process_share_no_folder_and_of_its_processes_the_first_holds(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    with lock_folder(tmp_path / "a" / "b"), lock_folder(tmp_path / "c"), lock_folder(tmp_path / "mine"):
        assert "in use by another run of this very process" in refused(tmp_path / "c")
        assert "in use" in refused(tmp_path / "mine" / "sub" / "..")
        (tmp_path / "c" / "result.json").write_text("{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "mine"]
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["result.json"]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with lock_folder(tmp_path):
        assert "in use" in refused(tmp_path)
        monkeypatch.setenv("RANK", "1")
        with lock_folder(tmp_path):
            pass
        assert (tmp_path / LOCK).exists()


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EIO])
def test_a_drive_without_locks_is_used_without_and_said_once(tmp_path, monkeypatch, caplog, number):
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr(locks, "_warned", False)
    if number == errno.EIO:  # other failures are not taken for a missing lock
        assert os.strerror(number) in refused(tmp_path)
        return
    with lock_folder(tmp_path / "run"), lock_folder(tmp_path / "run"):
        (tmp_path / "run" / LOCK).write_text("")
        assert is_held(tmp_path / "run" / LOCK) is None
    (record,) = caplog.records
    assert (record.levelname, "cannot be locked" in record.getMessage()) == ("WARNING", True)


def test_a_link_is_no_lock_and_a_folder_that_cannot_be_is_said_and_not_tried_for_ever(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(precious)
    assert "symbolic link" in refused(tmp_path / "run")
    assert precious.read_text() == "mine"
    nowhere = [Path("/proc/holotype/run")] if sys.platform == "linux" else []
    for folder in (precious, precious / "run", *nowhere):
        assert "cannot be used" in refused(folder)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_what_cannot_be_written_needs_no_lock_unless_somebody_holds_it(tmp_path, monkeypatch, number):
    """A finished run on a medium for reading alone, or of somebody else."""
    opens = os.open

    def read_only(path: object, flags: int, mode: int = 0) -> int:
        if flags & (os.O_CREAT | os.O_RDWR):
            raise OSError(number, os.strerror(number))
        return opens(path, flags)

    with lock_folder(tmp_path / "held"):
        monkeypatch.setattr(locks.os, "open", read_only)
        assert "in use" in refused(tmp_path / "held")
        with lock_folder(tmp_path), wait_for_lock(tmp_path / "edits.csv", "the log of edits"):
            assert [path.name for path in tmp_path.iterdir()] == ["held"]


def test_what_a_killed_process_left_of_a_lock_is_removed_and_a_held_one_is_not(tmp_path):
    file = tmp_path / "a.tokens"
    remove_stale_lock(file)
    process = start(WRITER, file)
    assert first_line(process) == "held"
    remove_stale_lock(file)
    assert lock_path(file).exists()
    end(process)
    with wait_for_lock(file, "it"):  # a dead writer keeps nobody waiting
        pass
    lock_path(file).write_text("somebody who is gone")
    remove_stale_lock(file)
    assert list(tmp_path.iterdir()) == []


def test_a_second_writer_waits_and_says_for_whom_and_what_several_share_cannot_be_locked(tmp_path, caplog):
    file, order = tmp_path / "edits.csv", []
    caplog.set_level("INFO", logger="holotype")

    def second() -> None:
        with wait_for_lock(file, "the log of edits"):
            order.append("second")

    with wait_for_lock(file, "the log of edits"):
        thread = threading.Thread(target=second)
        thread.start()
        while not caplog.records:
            time.sleep(0.01)
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]
    assert "Waiting for the log of edits, which is in use by another run of this very process" in caplog.text
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "shared").write_bytes(b"x")
    one, other, third, last = (os.open(tmp_path / "shared", os.O_RDONLY) for _ in range(4))
    assert try_shared_lock(one)
    assert try_shared_lock(other)
    for each in (one, other):
        assert not try_lock(third)
        os.close(each)
    assert try_lock(third)
    assert not try_shared_lock(last)
    os.close(third)
    os.close(last)
