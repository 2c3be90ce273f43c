"""The campaign of tools/torture sees what it is to see, and its short form loses nothing.

`make torture MINUTES=n` tries the rest. A failure names the one command that repeats it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tools.torture import disk
from tools.torture.__main__ import CAMPAIGNS
from tools.torture.child import Strike, in_child, program, survivors
from tools.torture.compare import differences, snapshot
from tools.torture.harness import Budget, Campaign, Case, run, survive
from tools.torture.hooks import Watch
from tools.torture.mutate import flipped, worse, worse_json
from tools.torture.runfiles import noticed
from tools.torture.world import TOP, World

from holotype.utils.atomic import write_text

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the campaign needs Linux's processes"),
    pytest.mark.xdist_group("torture"),
]

SHORT = [campaign.name for campaign in CAMPAIGNS if campaign.short]
AT_LEAST = {
    "stops": 30,
    "torn": 5,
    "tables": 300,
    "images": 2000,
    "files": 20,
    "edits": 200,
    "disguised": 100,
    "links": 14,
    "inside": 4,
    "writers": 2,
    "full": 3,
    "faults": 6,
    "names": 20,
    "settings": 50,
}
"""How many each of them tries."""
MEMORY = Path("/dev/shm")
"""Where files lie in memory: on a disk the campaign takes half as long again, waiting for it."""
ROOM = 1 << 30
"""Bytes that there must be; it needs a tenth of them."""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    file = tmp_path_factory.mktemp("torture") / "record.json"
    quick = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    place = {"TMPDIR": str(MEMORY)} if quick else {}
    paths = os.pathsep.join([str(TOP / "src"), str(TOP), os.environ.get("PYTHONPATH", "")])
    said = subprocess.run(
        [sys.executable, "-m", "tools.torture", "--short", "--record", str(file)],
        cwd=TOP,
        env=os.environ | place | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert file.is_file(), said.stderr
    content = json.loads(file.read_text())
    return {one["campaign"]: one for one in content["campaigns"]}


@pytest.mark.parametrize("name", SHORT)
def test_nothing_is_lost(record: dict[str, dict[str, Any]], name: str) -> None:
    found = record[name]
    told = [line for failure in found["failures"] for line in (failure["again"], *failure["problems"])]
    assert not found["lost"], "\n".join(told)
    assert found["tried"] >= AT_LEAST.get(name, 1)


# -- children ---------------------------------------------------------------------------------------------


def test_how_a_child_ends_is_told() -> None:
    def speaks() -> dict[str, int]:
        print("a word")
        print("another", file=sys.stderr)
        return {"a": 1}

    ended = in_child(speaks)
    assert (ended.code, ended.out, ended.err, ended.value) == (0, "a word\n", "another\n", {"a": 1})
    assert not ended.troubles()
    assert in_child(lambda: 2).code == 2
    assert "traceback" in in_child(lambda: 1 / 0).troubles()[0]
    assert "SIGSEGV" in in_child(lambda: os.kill(os.getpid(), signal.SIGSEGV)).troubles()[0]


def test_a_child_that_hangs_is_ended() -> None:
    ended = in_child(lambda: time.sleep(60), patience=0.2)
    assert ended.hung
    assert "hung" in ended.troubles()[0]
    assert ended.seconds < 20


def test_a_child_is_struck_from_outside() -> None:
    assert in_child(lambda: time.sleep(60), strike=Strike(0.1)).signal == signal.SIGKILL
    assert in_child(lambda: time.sleep(60), strike=Strike(0.1, signal.SIGTERM)).signal == signal.SIGTERM


def test_much_is_said_and_nothing_is_lost() -> None:
    assert len(in_child(lambda: print("x" * 1_000_000)).out) == 1_000_001


def test_what_outlives_its_parent_is_found() -> None:
    def leaves_one() -> None:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)

    assert len(survivors(in_child(leaves_one).session, 0.2)) == 1
    assert survivors(in_child(lambda: None).session, 0.2) == []


# -- hooks ------------------------------------------------------------------------------------------------


def in_place(file: Path) -> None:
    """How nobody should write a file."""
    file.write_text("")
    file.write_text("new")


@pytest.mark.parametrize(("write", "torn"), [(in_place, True), (lambda file: write_text(file, "new"), False)])
def test_a_kill_before_each_change_shows_who_writes_in_place(tmp_path: Path, write, torn: bool) -> None:
    file = tmp_path / "a.txt"

    def work(at: int) -> Watch:
        watch = Watch(at=at).install_in(str(tmp_path))
        write(file)
        return watch

    count, contents = in_child(lambda: work(-1)).value.count, set()
    assert count > 1
    for at in range(count):
        file.write_text("old")
        assert in_child(lambda at=at: work(at)).signal == signal.SIGKILL
        contents.add(file.read_text())
    assert ("" in contents) == torn


def test_the_system_refuses_where_it_is_told_to(tmp_path: Path) -> None:
    def work() -> object:
        watch = Watch(at=1, error=errno.ENOSPC).install_in(str(tmp_path))
        (tmp_path / "a").write_text("")
        try:
            (tmp_path / "b").write_text("")
        except OSError as error:
            return error.errno, watch.refused

    assert in_child(work).value == (errno.ENOSPC, 1)
    assert not (tmp_path / "b").exists()


def test_what_happens_elsewhere_is_listed(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside")

    def work() -> object:
        watch = Watch().install_in(str(tmp_path / "inside"))
        (tmp_path / "inside" / "a").write_text("")
        (tmp_path / "inside" / "link").write_text("through")
        os.system("true")
        return watch.outside, watch.started

    outside, started = in_child(work).value
    assert outside == [f"open {tmp_path / 'outside'}"]
    assert len(started) == 1


# -- what is compared, and what is made worse -------------------------------------------------------------


def test_times_and_random_ids_are_not_compared_and_numbers_are(tmp_path: Path) -> None:
    text = '{"loss": %s, "seconds": %s, "run_id": "%s", "time": "%s"}'
    for name, values in {"a": (1.5, 2, "abcdefabcdef-1", "x"), "b": (1.5, 3, "000000000000-1", "y")}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.json").write_text(text % values)
    one, other = snapshot(tmp_path / "a"), snapshot(tmp_path / "b")
    assert differences(one, other) == []
    (tmp_path / "b" / "m.json").write_text(text % (1.25, 2, "abcdefabcdef-1", "x"))
    (tmp_path / "b" / ".m.part").write_text("")
    assert differences(one, snapshot(tmp_path / "b")) == [".m.part was left behind", "m.json differs"]


def test_the_same_seed_makes_the_same_worse() -> None:
    import random

    content = bytes(range(256))
    assert [worse(random.Random(i), content) for i in range(50)] == [
        worse(random.Random(i), content) for i in range(50)
    ]
    assert len({worse(random.Random(i), content)[1] for i in range(50)}) > 40
    assert (
        len({worse_json(random.Random(i), b'{"a": [1, {"b": null}], "c": "d"}')[1] for i in range(50)}) > 15
    )
    assert sum(bin(a ^ b).count("1") for a, b in zip(content, flipped(content, 1000), strict=True)) == 1


def test_a_damaged_file_is_noticed_where_it_is_named_and_not_used() -> None:
    file = Path("run/features.npy")
    assert noticed("Another round is trained.\nrun/features.npy was damaged, and is not used.\n", file)
    assert not noticed("Every image: run/features.npy\nrun/other.npy cannot be read.\n", file)


def test_the_one_that_kills_a_batch_is_found() -> None:
    def dies() -> list[str]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return []

    found = survive([("a", list), ("b", dies), ("c", lambda: ["odd"]), ("d", lambda: 1 / 0)])
    assert [line.split(":")[0] for line in found] == ["b", "c", "d"]
    assert "SIGSEGV" in found[0]
    assert "ZeroDivisionError" in found[2]


def test_what_takes_too_much_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system counts roughly, by up to some megabytes a core: so the difference is a large one."""
    monkeypatch.setattr("tools.torture.harness.MOST_BYTES", 300_000_000)
    (found,) = survive([("small", list), ("large", lambda: [] * len(b"x" * 800_000_000))])
    assert re.fullmatch(r"large: took 0\.[6-9] GB", found)


# -- campaigns --------------------------------------------------------------------------------------------


def test_a_failure_says_how_to_repeat_it(tmp_path: Path) -> None:
    def check(world: World, case: Case) -> list[str]:
        return ["lost"] if case.key == "3" else []

    campaign = Campaign("mine", "tried", lambda world, seed: (Case(str(i)) for i in range(6)), check)
    world = World(tmp_path)
    found = run(campaign, world, 5, Budget())
    assert (found.tried, found.survived, found.lost, found.whole) == (6, 5, 1, True)
    assert found.failures[0].again == "python -m tools.torture --only mine --seed 5 --case '3'"
    assert run(campaign, world, 5, Budget(only="3")).tried == 1
    assert run(campaign, world, 5, Budget(cases=2)).tried == 2


def test_further_processes_are_the_same_command_wherever_the_campaign_began(
    tmp_path: Path, monkeypatch
) -> None:
    """In a folder of its own, with a path that was said from another one."""
    monkeypatch.setenv("PYTHONPATH", os.path.relpath(TOP / "src"))
    world = World(tmp_path)
    world.fresh()

    def work() -> str:
        world.settle()
        told = "import holotype, tests, os; print(holotype.__file__, os.getcwd())"
        command = [sys.executable, "-c", told]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    import holotype

    assert in_child(work).value.split() == [holotype.__file__, str(world.trial)]
    assert program("train", 3)[-2:] == ["train", "3"]


def test_a_full_disk_has_one_name_in_all_worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are a byte longer or shorter from one time to the next, as their dates and paths are."""
    monkeypatch.setattr(disk, "baseline", lambda world, command: [])
    found = []
    for more in (0, 1):
        sizes = {"edits": [20 + more, 300, 5_000 + more]}
        cases = {case.key: case.what[1] for case in disk._limits(World(tmp_path, short=True, sizes=sizes), 3)}
        low = [0, *sizes["edits"]]
        assert all(low[int(key.split()[1])] <= at < low[int(key.split()[1]) + 1] for key, at in cases.items())
        found.append(list(cases))
    assert found[0] == found[1]
    assert len(found[0]) == 3
