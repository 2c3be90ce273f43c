"""Processes that belong together start together and end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holotype.errors import InputError
from holotype.utils import launch as module
from holotype.utils.launch import process_count

SECONDS = 30
"""Within which nobody may be left alone."""

SCRIPT = """
import os, sys, time
from pathlib import Path
case, folder = sys.argv[1], Path(sys.argv[2])
first = os.environ.get("RANK", "0") == "0"
if case == "slow start" and not first:
    (folder / "1.pid").write_text(str(os.getpid()))
    import holotype
    time.sleep(600)
import torch
torch.set_num_threads(1)
from holotype.utils import launch as module, parent
from holotype.utils.launch import launch
from holotype.utils.distributed import any_process, rank, world_size

module.GRACE[False] = 1.0  # not 4: the tests would wait for it
module.SECONDS_BETWEEN_LOOKS = parent.SECONDS_BETWEEN_LOOKS = 0.1

if case == "never joins" and not first:
    sys.exit(3)
launch(2, "gloo")
assert world_size() == 2
(folder / f"{rank()}.partial").write_text(str(os.getpid()))
(folder / f"{rank()}.partial").rename(folder / f"{rank()}.pid")
if case == "ends":  # the first waits until the other has written, however busy the machine is
    any_process(False, torch.device("cpu"))
if case == "computes":  # without a word to each other, as on GPUs
    time.sleep(600)
while case == "talks":
    any_process(False, torch.device("cpu"))
    time.sleep(0.05)
if case == "stops":
    if first:
        time.sleep(2 * module.GRACE[False])  # writes the state
        (folder / "written").write_text("")
    sys.exit(130)
"""


@pytest.fixture
def start(tmp_path):
    """Start the script as a file in a case; kills what is left of it in the end."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    started: list[subprocess.Popen] = []

    def begin(case: str, *python: str) -> subprocess.Popen:
        command = [sys.executable, *(python or (str(script),)), case, str(tmp_path)]
        free = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        started.append(subprocess.Popen(command, env=free, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()
    for file in tmp_path.glob("*.pid"):
        if is_alive(int(file.read_text())):
            os.kill(int(file.read_text()), signal.SIGKILL)


def pids(folder: Path) -> list[int]:
    """Of both processes, once they have met."""
    files = [folder / f"{number}.pid" for number in range(2)]
    wait_until(lambda: all(file.exists() for file in files), 120)
    return [int(file.read_text()) for file in files]


def wait_until(true, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # one that has ended and that nobody has asked for its code is not alive
    status = Path(f"/proc/{process}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def together(test):
    return pytest.mark.processes(pytest.mark.xdist_group("processes")(test))


@pytest.mark.parametrize("case", ["talks", "computes"])
@together
def test_the_others_end_when_the_first_is_killed(start, tmp_path, case):
    process = start(case)
    first, second = pids(tmp_path)
    assert first == process.pid
    process.kill()
    process.wait()
    wait_until(lambda: not is_alive(second))


@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0])
@together
def test_the_others_end_when_the_first_is_killed_at_their_start(start, tmp_path, seconds):
    """They have not met yet, and are about to import torch or somebody's own slow modules."""
    process = start("slow start")
    wait_until(lambda: (tmp_path / "1.pid").exists(), 120)
    time.sleep(seconds)
    process.kill()
    process.wait()
    second = int((tmp_path / "1.pid").read_text())
    assert second != process.pid
    wait_until(lambda: not is_alive(second))


@pytest.mark.parametrize("case", ["talks", "computes"])
@together
def test_the_first_ends_when_another_is_killed(start, tmp_path, case):
    process = start(case)
    _, second = pids(tmp_path)
    os.kill(second, signal.SIGKILL)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode > 0
    assert "Process 1 of this run failed (exit code 137)." in said


@together
def test_the_first_ends_when_another_fails_before_they_meet(start, tmp_path):
    process = start("never joins")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "Process 1 of this run failed (exit code 3)." in said
    assert not list(tmp_path.glob("*.pid"))


@together
def test_the_first_may_finish_writing_when_the_others_have_stopped(start, tmp_path):
    process = start("stops")
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert (tmp_path / "written").exists()


@together
def test_code_on_the_command_line_can_be_started_again(start, tmp_path):
    process = start("ends", "-X", "utf8", "-c", SCRIPT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert len(set(pids(tmp_path))) == 2


# -- what is asked for ------------------------------------------------------------------------------------


def test_without_a_launcher_as_many_as_asked_for(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert process_count(3) == 3
    monkeypatch.setenv("RANK", "7")  # somebody's own variable
    assert process_count(3) == 3


@pytest.mark.parametrize(
    ("rank", "world", "sentence"),
    [
        ("0", "two", "must be numbers"),
        ("", "2", "must be numbers"),
        ("2", "2", "RANK is 2, but WORLD_SIZE is 2"),
    ],
)
def test_nonsense_of_a_launcher_is_refused(monkeypatch, rank, world, sentence):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(InputError, match=sentence):
        process_count(1)


def test_the_first_has_longer_to_write_the_state_than_to_say_what_is_wrong():
    """The processes of these tests have less of both."""
    assert module.GRACE[True] >= 60 > module.GRACE[False] >= 2


def test_a_session_cannot_be_started_again(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(InputError, match="2 processes cannot be started from an interactive session"):
        module._this_command(2)


def test_no_more_processes_than_a_machine_can_bear(monkeypatch):
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(module, "_this_command", lambda processes: pytest.fail("they would be started"))
    with pytest.raises(
        InputError, match=r"^2,147,483,648 processes are more than the 2 cores here; lower --dev"
    ):
        module._start_workers(2**31)


def test_codes_of_signals_are_told_as_shells_tell_them():
    class Ended:
        def __init__(self, code):
            self.code = code

        def poll(self):
            return self.code

    assert module._failed([Ended(None), Ended(0), Ended(2), Ended(-9)]) == {3: 2, 4: 137}
