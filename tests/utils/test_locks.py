"""One command at a time in a folder, and nobody shut out by a command that is gone."""

from __future__ import annotations

import errno
import json
import logging
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
    FolderLock,
    lock_folder,
    lock_path,
    remove_stale_lock,
    try_lock,
    try_shared_lock,
    wait_for_lock,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no such locks")

HOLDER = """
import sys, time
from pathlib import Path
from holotype.errors import InputError
from holotype.utils.locks import lock_folder
try:
    with lock_folder(Path(sys.argv[1])):
        print("held", flush=True)
        time.sleep(float(sys.argv[2]))
except InputError as error:
    print(error, flush=True)
    sys.exit(2)
"""

CROWD = """
import os, sys
from pathlib import Path
from holotype.errors import InputError
from holotype.utils.locks import lock_folder
folder, inside = Path(sys.argv[1]), Path(sys.argv[2])
held = 0
while held < 30:
    try:
        with lock_folder(folder):
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
            held += 1
            os.unlink(inside)
    except InputError:
        pass
"""


def start(folder: Path, seconds: float = 60) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(folder), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def holder(tmp_path):
    """Another process that holds tmp_path/run."""
    process = start(tmp_path / "run")
    assert first_line(process) == "held"
    yield process
    process.kill()
    process.communicate()


def test_of_two_processes_exactly_one_runs(tmp_path):
    both = [start(tmp_path / "run") for _ in range(2)]
    said = [first_line(process) for process in both]
    assert sorted(words == "held" for words in said) == [False, True]
    holder, refused = sorted(both, key=lambda process: said[both.index(process)] != "held")
    assert refused.wait(timeout=60) == 2
    holder.kill()
    for process in both:
        process.communicate()


def test_the_holder_is_named(holder, tmp_path):
    with pytest.raises(InputError) as refused:
        lock_folder(tmp_path / "run")
    words = str(refused.value)
    assert words.startswith(
        f"{tmp_path / 'run'} is in use by process {holder.pid} on {socket.gethostname()} since "
    )
    assert f"(-c {tmp_path / 'run'} 60)" in words
    assert words.endswith("; wait for it to end, or use another folder.")
    facts = json.loads((tmp_path / "run" / LOCK).read_text())
    assert facts.keys() == {"pid", "host", "command", "time"}
    assert f"{datetime.fromisoformat(facts['time']).astimezone():%H:%M}" in words


def test_a_holder_of_another_day_is_named_with_its_date(holder, tmp_path):
    file = tmp_path / "run" / LOCK
    facts = json.loads(file.read_text())
    file.write_text(json.dumps(facts | {"time": "2020-02-03T04:05:06+00:00"}))
    with pytest.raises(InputError, match=r"since 2020-02-03 \d\d:05"):
        lock_folder(tmp_path / "run")


def test_a_holder_that_has_not_signed_is_still_one(holder, tmp_path):
    (tmp_path / "run" / LOCK).write_text("")
    with pytest.raises(InputError, match="in use by another process; wait"):
        lock_folder(tmp_path / "run")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_dead_holder_shuts_nobody_out(holder, tmp_path, number):
    holder.send_signal(number)
    holder.wait()
    assert (tmp_path / "run" / LOCK).exists()
    with lock_folder(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / LOCK).read_text())["pid"] == os.getpid()
    assert not (tmp_path / "run" / LOCK).exists()


def test_a_crowd_takes_turns(tmp_path):
    """Lock files come and go all the time, and never are two processes inside."""
    words = [sys.executable, "-c", CROWD, str(tmp_path / "a" / "run"), str(tmp_path / "inside")]
    crowd = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    said = [process.communicate(timeout=300) for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 4, said
    assert not list(tmp_path.rglob(LOCK))


# -- within one process -----------------------------------------------------------------------------------


def test_two_runs_of_one_process_cannot_share_a_folder(tmp_path):
    with lock_folder(tmp_path):
        with pytest.raises(InputError, match="in use by another run of this very process"):
            lock_folder(tmp_path)
        with pytest.raises(InputError, match="in use"):
            lock_folder(tmp_path / "sub" / "..")
    lock_folder(tmp_path).release()


def test_a_part_of_the_work_may_hold_a_folder_inside_or_the_same_one(tmp_path):
    with lock_folder(tmp_path / "run") as outer:
        with lock_folder(tmp_path / "run" / "rounds" / "1", within=outer):
            assert (tmp_path / "run" / "rounds" / "1" / LOCK).exists()
        with lock_folder(tmp_path / "run", within=outer):
            pass
        with pytest.raises(InputError, match="in use"):  # the outer one goes on holding it
            lock_folder(tmp_path / "run")


def test_release_is_once_enough_and_leaves_what_was_there(tmp_path):
    made, kept = lock_folder(tmp_path / "a" / "b"), lock_folder(tmp_path / "c")
    (tmp_path / "c" / "result.json").write_text("{}")
    for lock in (made, kept, made, kept):
        lock.release()
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["result.json"]
    (tmp_path / "mine").mkdir()
    lock_folder(tmp_path / "mine").release()
    assert (tmp_path / "mine").is_dir()


def test_of_the_processes_of_a_run_the_first_alone_holds(tmp_path, monkeypatch):
    with lock_folder(tmp_path):
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        lock_folder(tmp_path).release()
        assert (tmp_path / LOCK).exists()
        monkeypatch.setenv("RANK", "0")
        with pytest.raises(InputError, match="in use"):
            lock_folder(tmp_path)


# -- where there are no locks -----------------------------------------------------------------------------


@pytest.fixture
def unwarned(monkeypatch, caplog):
    monkeypatch.setattr(locks, "_warned", False)
    caplog.set_level(logging.INFO, "holotype")
    return caplog


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS])
def test_a_drive_without_locks_is_used_without_and_said_once(tmp_path, monkeypatch, unwarned, number):
    import fcntl

    def refuse(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock_folder(tmp_path / "run"), lock_folder(tmp_path / "run"):
        pass
    (record,) = unwarned.records
    assert record.levelname == "WARNING"
    assert "no two commands write to it at once" in record.getMessage()


def test_other_failures_are_not_taken_for_a_missing_lock(tmp_path, monkeypatch):
    import fcntl

    def fail(descriptor: int, how: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(InputError, match="broken"):
        lock_folder(tmp_path)


def test_a_link_is_no_lock(tmp_path):
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(precious)
    with pytest.raises(InputError, match="symbolic link"):
        lock_folder(tmp_path / "run")
    assert precious.read_text() == "mine"


def test_a_folder_that_cannot_be_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        lock_folder(tmp_path / "file")
    with pytest.raises(InputError, match="cannot be used"):
        lock_folder(tmp_path / "file" / "run")


@pytest.mark.skipif(sys.platform != "linux", reason="no other system has a folder in which none can be made")
def test_a_folder_that_nobody_can_make_is_said_and_not_tried_for_ever():
    with pytest.raises(InputError, match="cannot be used"):
        lock_folder(Path("/proc/holotype/run"))


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_what_cannot_be_written_needs_no_lock(tmp_path, monkeypatch, number):
    """A finished run on a medium for reading alone, or of somebody else: no lock lies there, and none can be made."""
    opens = os.open

    def read_only(path: object, flags: int, mode: int = 0) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return opens(path, flags)

    monkeypatch.setattr(locks.os, "open", read_only)
    lock = lock_folder(tmp_path)
    assert isinstance(lock, FolderLock)
    lock.release()
    with wait_for_lock(tmp_path / "edits.csv", "the log of edits"):
        assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_of_a_lock_is_removed_and_a_held_one_is_not(tmp_path):
    file = tmp_path / "a.tokens"
    remove_stale_lock(file)
    assert list(tmp_path.iterdir()) == []
    lock_path(file).write_text("somebody who is gone")
    remove_stale_lock(file)
    assert list(tmp_path.iterdir()) == []
    with wait_for_lock(file, "a cache"):
        remove_stale_lock(file)
        assert lock_path(file).exists()
    assert not lock_path(file).exists()


# -- files that several commands write, or read while another would clear them ----------------------------


def test_a_second_writer_waits_and_says_for_whom(tmp_path, caplog):
    file, order = tmp_path / "edits.csv", []
    caplog.set_level("INFO", logger="holotype")

    def second() -> None:
        with wait_for_lock(file, "the log of edits"):
            order.append("second")

    with wait_for_lock(file, "the log of edits"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.5)
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]
    assert "Waiting for the log of edits, which is in use by another run of this very process" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_dead_writer_keeps_nobody_waiting(tmp_path):
    words = (
        "import sys, time; from pathlib import Path; from holotype.utils.locks import wait_for_lock\n"
        "with wait_for_lock(Path(sys.argv[1]), 'it'):\n    print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", words, str(tmp_path / "a")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert first_line(process) == "held"
    assert (tmp_path / ".a.lock").exists()
    process.kill()
    process.communicate()
    with wait_for_lock(tmp_path / "a", "it"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_several_share_cannot_be_locked(tmp_path: Path) -> None:
    file = tmp_path / "shared"
    file.write_bytes(b"x")
    one, other, third = (os.open(file, os.O_RDONLY) for _ in range(3))
    assert try_shared_lock(one)
    assert try_shared_lock(other)
    assert not try_lock(third)
    os.close(one)
    assert not try_lock(third)
    os.close(other)
    assert try_lock(third)
    again = os.open(file, os.O_RDONLY)
    assert not try_shared_lock(again)  # and it does not wait for long
    os.close(third)
    os.close(again)
