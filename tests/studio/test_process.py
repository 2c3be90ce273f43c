"""The command itself, in a process of its own: light, polite at the end, and nothing lost when it is killed."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from holotype.results.edits import read_log
from studio.client import Client
from studio.test_live import item

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at Linux's processes")
MOST_BYTES = 300_000_000


@contextmanager
def studio(run: Path, *words: str):
    """A studio in a process; yields it and the first line that it has said."""
    command = [sys.executable, "-m", "holotype", "studio", str(run), "--no-browser", *words]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield child, Client(re.search(r"http://\S+", child.stdout.readline())[0])
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


def test_the_server_is_light_and_ends_when_it_is_asked_to(run: Path) -> None:
    with studio(run) as (child, window):
        assert window.enter().get("/").status == 200
        assert window.get("/thumb/1?run=run-made-1").status == 200
        assert window.post("/api/edits", {"edits": [item(1)]}).status == 200
        loaded = Path(f"/proc/{child.pid}/maps").read_text()
        assert not [name for name in ("torch", "pandas", "pyarrow", "sklearn") if f"/{name}/" in loaded]
        resident = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert resident < MOST_BYTES
        with window.events():  # an open window does not hold it up
            child.send_signal(signal.SIGINT)
            said, wrong = child.communicate(timeout=20)
    assert (child.returncode, wrong) == (0, "")
    assert "The studio is closed" in said
    assert not (run / "studio").exists()


def post_all(run: Path, kills: int, edits: int, dice: random.Random) -> None:
    """Play a page that sends batches again until they are acknowledged, while the server is killed."""
    unsent = [item(number) for number in range(edits)]
    for life in range(kills + 1):
        last = life == kills
        with studio(run) as (child, window):
            window.enter().get("/")
            fuse = (
                None
                if last
                else subprocess.Popen(["sh", "-c", f"sleep {dice.random() * 0.4}; kill -9 {child.pid}"])
            )
            try:
                while unsent and (last or child.poll() is None):
                    batch = unsent[: dice.randrange(1, 12)]
                    try:
                        answer = window.post("/api/edits", {"edits": batch}).json()
                    except (OSError, ValueError, AssertionError, __import__("http").client.HTTPException):
                        continue
                    acknowledged = set(answer["saved"])
                    unsent = [one for one in unsent if one["id"] not in acknowledged]
            finally:
                if fuse is not None:
                    fuse.wait()
    assert not unsent


def test_nothing_is_lost_and_nothing_counts_twice_when_the_server_is_killed(run: Path) -> None:
    post_all(run, kills=3, edits=300, dice=random.Random(5))
    log = read_log(run)
    assert len(log) == len({edit.id for edit in log}) == 300


def test_bad_input_is_a_sentence(run: Path, squares_folder, tmp_path: Path, holotype, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    cases = {
        ("photos",): "There is no image in",
        (squares_folder, "--read-only"): "without --read-only",
        ("nowhere",): "There is no folder nowhere",
        (run, "--port", "70000"): "from 1 to 65535",
        (run, "--assign", "nowhere"): "There is no nowhere",
    }
    for words, sentence in cases.items():
        outcome = holotype("studio", *words)
        assert (outcome.code, sentence in outcome.err) == (2, True), outcome.err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        outcome = holotype("studio", run, "--port", taken.getsockname()[1], "--no-browser")
    assert (outcome.code, "choose another one with --port" in outcome.err) == (2, True)
    (run / "discovery.json").write_text('{"format": 99}')
    assert "another version" in holotype("studio", run).err


def test_a_missing_extra_is_named(run: Path, holotype, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'holotype[studio]'" in holotype("studio", run).err
