"""A process watches the one that started it, and nobody else; what was started otherwise watches nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from holotype.utils.launch import PARENT, PARENT_POLL_SECONDS

WORDS = "import sys, holotype; print('there', flush=True); sys.stdin.read()"


def start(**parent: str) -> subprocess.Popen[str]:
    """A process that works until it is told to end."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", WORDS], env=os.environ | parent, text=True, **pipes)


def test_a_process_whose_parent_is_gone_ends_by_itself():
    orphan = start(**{PARENT: "1"})  # whoever that is, it has not started this one
    assert orphan.wait(60) == 1


def test_a_process_with_its_parent_works_on():
    """All three at once, for longer than there is between two looks after a parent."""
    processes = [start(**parent) for parent in ({PARENT: str(os.getpid())}, {PARENT: "nonsense"}, {})]
    assert [process.stdout.readline() for process in processes] == ["there\n"] * 3
    time.sleep(2 * PARENT_POLL_SECONDS)
    assert [process.poll() for process in processes] == [None] * 3
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 3


def test_importing_stays_light():
    words = "import sys, holotype; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", words], env=os.environ | {PARENT: str(os.getpid())}).returncode
        == 0
    )
