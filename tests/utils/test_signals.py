"""SIGTERM and SIGHUP interrupt as Ctrl-C does, with their own exit code, and nohup is heeded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holotype.cli import main
from holotype.errors import Interrupted
from holotype.utils.signals import handled_signals, interrupting

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no such signals")

SLOW = """
import sys, time
import holotype.cli.data as data
from pathlib import Path
from holotype.cli import main
from holotype.utils.atomic import beside
def command(words):
    with beside(Path(sys.argv[1]) / "file"):
        print("busy", flush=True)
        time.sleep(60)
data.command = command
sys.exit(main(["data", "list"]))
"""


@pytest.fixture
def usual():
    """The handlers that a process starts with."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_within_the_block_a_signal_interrupts_and_afterwards_it_is_as_before(usual, number):
    with interrupting():
        with pytest.raises(Interrupted) as stop:
            os.kill(os.getpid(), number)
        assert isinstance(stop.value, KeyboardInterrupt)
        assert stop.value.number == number
    assert signal.getsignal(number) == signal.SIG_DFL


def test_what_is_ignored_or_handled_stays_so(usual):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, handler := lambda *_: None)
    with interrupting():
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGTERM) is handler
        assert signal.SIGHUP not in handled_signals()


def test_another_thread_takes_no_signals():
    found = []
    thread = threading.Thread(target=lambda: found.append(handled_signals()))
    thread.start()
    thread.join()
    assert found == [()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_ends_with_the_usual_code_and_leaves_nothing_half_written(tmp_path: Path, number):
    command = [sys.executable, "-c", SLOW, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    assert len(list(tmp_path.iterdir())) == 1
    time.sleep(0.2)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said == "Stopped at once; the same command continues from what was saved, if anything was.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_stop_that_a_library_makes_an_error_of_its_own_is_still_one(usual, monkeypatch, capsys):
    """As safetensors does: a callback that is interrupted is told as a ValueError."""

    def command(words):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        except KeyboardInterrupt:
            raise ValueError("could not determine the shape") from None

    monkeypatch.setattr("holotype.cli.data.command", command)
    assert main(["data", "list"]) == 128 + signal.SIGTERM
    assert capsys.readouterr().err.startswith("Stopped at once")

    def fails(words):
        raise ValueError("a fault of ours")

    monkeypatch.setattr("holotype.cli.data.command", fails)
    with pytest.raises(ValueError, match="a fault of ours"):
        main(["data", "list"])
