"""The studio while everything around it dies: edits are sent, the server and its job are killed, none is lost or twice.

A case is a page that sends 2,000 edits to a studio that trains rounds meanwhile. The server is killed ten times, and so
is the job. What was not acknowledged is sent again, as the page does it. Hostile requests are tried in between: none of
them may be answered with data.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.studio.client import Client
from tools.torture.harness import Campaign, Case, numbered
from tools.torture.world import TOP, World

EDITS, KILLS = 2_000, 10
BATCH = 25
LONGEST_LIFE = 8.0
"""Seconds until a server, or its job, is killed; a job begins to train after about four."""
LOST = (OSError, ValueError, http.client.HTTPException, AssertionError)
"""What a page sees of a server that dies."""
HOSTILE = (
    {"Host": "evil.example"},
    {"Host": ""},
    {"Sec_Fetch_Site": "cross-site"},
    {"Origin": "http://evil.example"},
    {"Cookie": None},
    {"Cookie": "holotype-1=x"},
)


def _check(world: World, case: Case) -> list[str]:
    seed, number = case.what
    run = world.fresh("run") / "run"
    try:
        return list(_play(run, world, random.Random(f"{seed} {number}")))
    finally:
        _kill_job(run)


def _play(run: Path, world: World, dice: random.Random) -> Iterator[str]:
    from holotype.results.discovery import Discovery
    from holotype.results.edits import read_log

    found = Discovery.load(run)
    unsent, killed = [_item(i, found.run_id, found.digests, dice) for i in range(EDITS)], Counter[str]()
    for life in range(KILLS + 1):
        last, share = life == KILLS, len(unsent) // (KILLS + 1 - life)
        with _studio(run, world) as (server, page):
            seconds = dice.uniform(1.0, LONGEST_LIFE)
            strike = time.monotonic() + dice.uniform(0.5, seconds)
            fuse = threading.Timer(seconds, server.kill)
            if not last:
                fuse.start()
            with contextlib.suppress(*LOST):
                page.enter()
                page.post("/api/job", {"start": "discover"})
            while server.poll() is None and (unsent or not last):
                batch = unsent[: dice.randrange(1, BATCH)]
                with contextlib.suppress(*LOST):
                    saved = set(page.post("/api/edits", {"edits": batch}).json()["saved"])
                    unsent = [item for item in unsent if item["id"] not in saved]
                    if (
                        dice.random() < 0.1
                        and page.ask("GET", "/api/state", **dice.choice(HOSTILE)).status == 200
                    ):
                        yield "a hostile request was answered"
                if time.monotonic() > strike and not last and _kill_job(run):
                    killed["job"] += 1
                    strike += seconds
                time.sleep(0.0 if last else seconds * BATCH / 2 / max(share, 1))
            killed["server"] += not last
    if killed["server"] < KILLS or not killed["job"]:
        yield f"only {dict(killed)} were killed"
    log = Counter(edit.time for edit in read_log(run))
    yield from (f"edit {i} is in the log {log[_time(i)]} times" for i in range(EDITS) if log[_time(i)] != 1)


def _item(i: int, run: str, digests: list[str], dice: random.Random) -> dict[str, object]:
    edit = {"id": str(i), "run": run, "time": _time(i), "digest": dice.choice(digests)}
    return edit | {"action": dice.choice(("confirm", "reject")), "category": "", "value": "red", "row": None}


def _time(i: int) -> str:
    return f"2026-01-01T00:{i // 60 % 60:02d}:{i % 60:02d}.{i:06d}Z"


@contextlib.contextmanager
def _studio(run: Path, world: World) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    paths = os.pathsep.join([str(TOP / "src"), os.environ.get("PYTHONPATH", "")])
    place = {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(world.trial / "cache")}
    command = [sys.executable, "-m", "holotype", "studio", str(run), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | place)
    try:
        assert server.stdout is not None
        yield server, Client(re.findall(r"http://\S+", server.stdout.readline())[0])
    finally:
        server.kill()
        server.wait()


def _kill_job(run: Path) -> bool:
    """Kill the job in a run folder, which outlives a server that was killed; return whether there was one."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = place.read_bytes().split(b"\0")
            if b"discover" in words and os.fsencode(run) in words:
                os.kill(int(place.parent.name), signal.SIGKILL)
                found.append(place)
    return bool(found)


STUDIO = Campaign(
    "studio",
    "edits while the server and its job are killed",
    numbered(EDITS),
    _check,
    kind="edits",
    weight=0.8,
)
