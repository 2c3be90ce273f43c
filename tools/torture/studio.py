"""The studio while everything around it dies: edits are sent, the server and its job are killed, none is lost or twice.

A case is a page that sends EDITS edits to a studio that trains rounds meanwhile. The server is killed KILLS times, and
so is the job. What was not acknowledged is sent again, as the page does it. Hostile requests of every kind of
tests/studio/hostile.py are tried in between, and 200 connections that never say what they want: none of them may be
answered with data.
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
from dataclasses import dataclass, field
from pathlib import Path

from tests.studio.client import Client, raw, read_all
from tests.studio.hostile import attacks, flood, halves
from tools.torture.harness import Campaign, Case, numbered
from tools.torture.world import TOP, World

EDITS, KILLS = 10_000, 50
BATCH = 25
LIFE = 4.0
"""Seconds until a server is killed, at most; as a job from its start, or each second one from its first phase."""
PATIENCE = 120.0
LOST = (OSError, ValueError, KeyError, http.client.HTTPException, AssertionError)
"""What a page sees of a server that dies."""


def _check(world: World, case: Case) -> list[str]:
    seed, number = case.what
    run = world.fresh("run") / "run"
    try:
        return list(_play(run, world, random.Random(f"{seed} {number}")))
    finally:
        _kill_job(run)


@dataclass
class Player:
    """A page, and whoever wants to get in."""

    run: Path
    run_id: str
    dice: random.Random
    unsent: list[dict[str, object]]
    count: Counter[str] = field(default_factory=Counter)
    """Kills and attacks."""
    old: str = "holotype-1=x"
    """The cookie of an earlier server."""
    strike: float = 0.0
    """When the job is killed."""
    waits: bool = False
    """It has not come to its first phase, and is to."""

    def enter(self, page: Client) -> None:
        with contextlib.suppress(*LOST):
            page.enter()

    def train(self, page: Client) -> None:
        """Kill the job when its time has come, and start another."""
        now, phase = time.monotonic(), _phase(self.run)
        if self.waits and phase:
            self.waits, self.strike = False, now + self.dice.uniform(0.0, LIFE)
        if now < self.strike:
            return
        if _kill_job(self.run):
            self.count.update(["job", f"job while {phase or 'it starts'}"])
        with contextlib.suppress(*LOST):
            page.post("/api/job", {"start": "discover"})
        self.waits = self.dice.random() < 0.5
        self.strike = now + (PATIENCE if self.waits else self.dice.uniform(0.5, LIFE))

    def send(self, page: Client) -> None:
        batch = self.unsent[: self.dice.randrange(1, BATCH)]
        with contextlib.suppress(*LOST):
            saved = set(page.post("/api/edits", {"edits": batch}).json()["saved"])
            self.unsent = [item for item in self.unsent if item["id"] not in saved]

    def attack(self, page: Client) -> str:
        """Try one request; return its name where it was answered with data."""
        name, sent = self.dice.choice([*attacks(page.host, page.cookie, page.token, self.old)])
        with contextlib.suppress(*LOST):
            answer = raw(page.port, sent)
            self.count["attack"] += bool(answer)
            return name if answer[9:12] == b"200" or self.run_id.encode() in answer else ""
        return ""

    def flood(self, page: Client) -> list[str]:
        """Open 200 connections that hang; return what those were told that were answered with data."""
        answers = [read_all(sock) for sock in flood(page.port, halves(page.host, page.cookie))]
        self.count["attack"] += len(answers)
        return [f"a flood was answered {answer[:80]!r}" for answer in answers if b" 200 " in answer[:16]]


def _play(run: Path, world: World, dice: random.Random) -> Iterator[str]:
    from holotype.results.discovery import Discovery
    from holotype.results.edits import read_log

    found = Discovery.load(run)
    items = [_item(i, found.run_id, found.digests, dice) for i in range(EDITS)]
    player = Player(run, found.run_id, dice, items)
    for life in range(KILLS + 1):
        last, share = life == KILLS, len(player.unsent) // (KILLS + 1 - life)
        with _studio(run, world) as (server, page):
            seconds, left = dice.uniform(0.5, LIFE), len(player.unsent) - share
            if not last:
                threading.Timer(seconds, server.kill).start()
            player.enter(page)
            while server.poll() is None and (not last or player.unsent or player.count["job"] < KILLS):
                player.train(page)
                if len(player.unsent) > left or last:
                    player.send(page)
                if dice.random() < 0.2 and (name := player.attack(page)):
                    yield f"a hostile request was answered: {name}"
                time.sleep(seconds / 100)
            if last:
                yield from player.flood(page)
            player.old = page.cookie or player.old
        player.count["server"] += not last
    print(f"studio: {EDITS - len(player.unsent)} edits, {dict(player.count)}", file=sys.stderr)
    if min(player.count["server"], player.count["job"]) < KILLS or not player.count["attack"]:
        yield f"only {dict(player.count)} were tried"
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
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | place
    )
    try:
        assert server.stdout is not None
        yield server, Client(re.findall(r"http://\S+", server.stdout.readline())[0])
    finally:
        server.kill()
        server.wait()


def _phase(run: Path) -> str:
    from holotype.errors import InputError
    from holotype.runs.status import status_of

    with contextlib.suppress(InputError, OSError):
        found = status_of(run)
        return found.phase if found.alive else ""
    return ""


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
