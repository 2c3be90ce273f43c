"""Files that several commands write, or read while another would clear them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holotype.utils.locks import try_lock, try_shared_lock, wait_for_lock
from tests.utils.test_locks import first_line
from tests.utils.test_locks import unwarned as unwarned  # the fixture: as if nothing had been said yet

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no such locks")


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
        "import sys, time; from pathlib import Path; from holotype.utils.locks import waiting_for\n"
        "with waiting_for(Path(sys.argv[1]), 'it'):\n    print('held', flush=True); time.sleep(60)"
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


def test_without_locks_nobody_waits(tmp_path, monkeypatch, unwarned):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with wait_for_lock(tmp_path / "a", "it"), wait_for_lock(tmp_path / "a", "it"):
        pass


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
