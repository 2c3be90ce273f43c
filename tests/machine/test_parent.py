"""A process watches the one that started it, and nobody else; what was started otherwise watches nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from holotype.machine.parent import PARENT

WORDS = "import sys, time, holotype; print('there', flush=True); time.sleep(float(sys.argv[1]))"


def start(seconds: float, **parent: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORDS, str(seconds)]
    return subprocess.Popen(command, env=os.environ | parent, stdout=subprocess.PIPE, text=True)


def test_a_process_whose_parent_is_gone_ends_by_itself():
    orphan = start(600, **{PARENT: "1"})  # whoever that is, it has not started this one
    assert orphan.wait(60) == 1


@pytest.mark.parametrize("parent", [{PARENT: str(os.getpid())}, {PARENT: "nonsense"}, {}])
def test_a_process_with_its_parent_works_on(parent):
    process = start(3, **parent)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    time.sleep(2)
    assert process.poll() is None
    assert process.wait(60) == 0


def test_importing_stays_light():
    words = "import sys, holotype; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", words], env=os.environ | {PARENT: str(os.getpid())}).returncode
        == 0
    )
