"""Signals interrupt, and processes that belong together start together and end together."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holotype.cli import main
from holotype.errors import InputError, Interrupted
from holotype.utils import processes as module
from holotype.utils.processes import PARENT, PARENT_POLL_SECONDS, handled_signals, interrupting, process_count

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no such signals")
SECONDS = 30
"""Within which nobody may be left alone."""

SLOW = """
import sys, time
import holotype.cli.info as data
from pathlib import Path
from holotype.cli import main
from holotype.utils.atomic import atomic_path
def command(words):
    with atomic_path(Path(sys.argv[1]) / "file"):
        print("busy", flush=True)
        time.sleep(60)
data.data_command = command
sys.exit(main(["data", "list"]))
"""


@pytest.fixture
def usual():
    """The handlers that a process starts with."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_within_the_block_a_signal_interrupts_and_what_is_ignored_or_handled_stays_so(usual):
    for number in (signal.SIGTERM, signal.SIGHUP):
        with interrupting(), pytest.raises(Interrupted) as stop:
            os.kill(os.getpid(), number)
        assert isinstance(stop.value, KeyboardInterrupt)
        assert stop.value.number == number
        assert signal.getsignal(number) == signal.SIG_DFL
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, handler := lambda *_: None)
    with interrupting():
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGTERM) is handler
        assert signal.SIGHUP not in handled_signals()
    found = []
    thread = threading.Thread(target=lambda: found.append(handled_signals()))
    thread.start()
    thread.join()
    assert found == [()]  # another thread takes no signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_command_ends_with_the_usual_code_and_leaves_nothing_half_written(tmp_path: Path, number):
    command = [sys.executable, "-c", SLOW, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    assert len(list(tmp_path.iterdir())) == 1
    time.sleep(0.2)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.count("\n"), list(tmp_path.iterdir())) == (128 + number, 1, [])


def test_a_stop_that_a_library_makes_an_error_of_its_own_is_still_one(usual, monkeypatch, capsys):
    """As safetensors does: a callback that is interrupted is told as a ValueError."""

    def command(words):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        except KeyboardInterrupt:
            raise ValueError("could not determine the shape") from None

    monkeypatch.setattr("holotype.cli.info.data_command", command)
    assert main(["data", "list"]) == 128 + signal.SIGTERM
    assert capsys.readouterr().err.startswith("Stopped at once")
    monkeypatch.setattr("holotype.cli.info.data_command", lambda options: int("a fault of ours"))
    with pytest.raises(ValueError, match="a fault of ours"):
        main(["data", "list"])


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
from holotype.utils import processes as module
from holotype.utils.processes import launch
from holotype.utils.distributed import any_rank, rank, world_size

module.GRACE[False] = 1.0  # not 4: the tests would wait for it
module.PARENT_POLL_SECONDS = 0.1

if case == "never joins" and not first:
    sys.exit(3)
launch(2, "gloo")
assert world_size() == 2
(folder / f"{rank()}.partial").write_text(str(os.getpid()))
(folder / f"{rank()}.partial").rename(folder / f"{rank()}.pid")
if case == "ends":  # the first waits until the other has written, however busy the machine is
    any_rank(False, torch.device("cpu"))
if case == "computes":  # without a word to each other, as on GPUs
    time.sleep(600)
while case == "talks":
    any_rank(False, torch.device("cpu"))
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


def wait_until(true, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def pid(folder: Path, number: int) -> int:
    file = folder / f"{number}.pid"
    wait_until(file.exists, 120)
    return int(file.read_text())


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


@pytest.mark.parametrize("case", ["computes", "slow start"])
@together
def test_the_others_end_when_the_first_is_killed(start, tmp_path, case):
    """Also where they have not met yet, and are about to import torch or somebody's own slow modules."""
    process = start(case)
    second = pid(tmp_path, 1)
    assert second != process.pid
    if case != "slow start":
        assert pid(tmp_path, 0) == process.pid
    process.kill()
    process.wait()
    wait_until(lambda: not is_alive(second))


@together
def test_the_first_ends_when_another_is_killed(start, tmp_path):
    process = start("talks")
    pid(tmp_path, 0)
    os.kill(pid(tmp_path, 1), signal.SIGKILL)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode > 0
    assert "Process 1 of this run failed (exit code 137)." in said


@pytest.mark.parametrize(("case", "code"), [("never joins", 3), ("stops", 130), ("ends", 0)])
@together
def test_the_first_ends_with_the_others(start, tmp_path, case, code):
    """One may fail before they meet; where the others have stopped, the first may finish writing; code on the command
    line can be started again."""
    process = start(case, *(("-X", "utf8", "-c", SCRIPT) if case == "ends" else ()))
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert ("Process 1 of this run failed (exit code 3)." in said) == (case == "never joins")
    assert len(list(tmp_path.glob("*.pid"))) == (0 if case == "never joins" else 2)
    assert (tmp_path / "written").exists() == (case == "stops")


def test_as_many_as_asked_for_or_as_a_launcher_has_set_and_what_cannot_be_started(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert process_count(3) == 3
    monkeypatch.setenv("RANK", "7")  # somebody's own variable
    assert process_count(3) == 3
    for rank, world in (("0", "two"), ("", "2"), ("2", "2"), ("-1", "2")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", world)
        with pytest.raises(InputError, match="not numbers of a launcher"):
            process_count(1)
    monkeypatch.setenv("RANK", "0")
    assert process_count(1) == process_count(2) == 2
    with pytest.raises(InputError, match="contradicts the launcher"):
        process_count(3)
    # the first has longer to write the state than to say what is wrong; these tests have less of both
    assert module.GRACE[True] >= 60 > module.GRACE[False] >= 2
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    with pytest.raises(InputError, match="2,147,483,648 processes are more than the 2 cores here; lower"):
        module._start_workers(2**31)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(InputError, match="interactive session"):
        module._start_workers(2)


def start_child(**parent: str) -> subprocess.Popen[str]:
    """A process that works until it is told to end, and is light."""
    words = "import sys, holotype; print('numpy' in sys.modules, flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", words], env=os.environ | parent, text=True, **pipes)


def test_a_process_ends_with_its_parent_and_works_on_with_it():
    """All at once, for longer than there is between two looks after a parent."""
    orphan = start_child(**{PARENT: "1"})  # whoever that is, it has not started this one
    processes = [start_child(**parent) for parent in ({PARENT: str(os.getpid())}, {PARENT: "nonsense"}, {})]
    assert [process.stdout.readline() for process in processes] == ["False\n"] * 3
    time.sleep(1.5 * PARENT_POLL_SECONDS)
    assert [process.poll() for process in processes] == [None] * 3
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 3
    assert orphan.wait(60) == 1
