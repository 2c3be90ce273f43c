"""The campaign of tools/torture sees what it is to see, and its short form loses nothing.

`make torture MINUTES=n` tries the rest. A failure names the one command that repeats it.
"""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tools.torture.__main__ import CAMPAIGNS
from tools.torture.harness import Budget, Campaign, Case, Strike, Watch, in_child, run, survive
from tools.torture.world import TOP, World, differences, snapshot

from holotype.utils.atomic import write_text

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the campaign needs Linux's processes"),
    pytest.mark.xdist_group("torture"),
]

AT_LEAST = {"stops": 20, "tables": 300, "images": 1000, "files": 10, "links": 10}
"""How many each of them tries."""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    file = tmp_path_factory.mktemp("torture") / "record.json"
    paths = os.pathsep.join([str(TOP / "src"), str(TOP), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tools.torture", "--short", "--record", str(file)]
    said = subprocess.run(command, cwd=TOP, env=env, capture_output=True, text=True, timeout=900)
    assert file.is_file(), said.stderr
    return {one["campaign"]: one for one in json.loads(file.read_text())["campaigns"]}


@pytest.mark.parametrize("name", [campaign.name for campaign in CAMPAIGNS if campaign.short])
def test_nothing_is_lost(record: dict[str, dict[str, Any]], name: str) -> None:
    found = record[name]
    told = [line for failure in found["failures"] for line in (failure["again"], *failure["problems"])]
    assert not found["lost"], "\n".join(told)
    assert found["tried"] >= AT_LEAST.get(name, 1)


def test_how_a_child_ends_is_told() -> None:
    def speaks() -> dict[str, int]:
        print("a word" + "x" * 1_000_000)
        print("another", file=sys.stderr)
        return {"a": 1}

    ended = in_child(speaks)
    assert (ended.code, len(ended.out), ended.err, ended.value) == (0, 1_000_007, "another\n", {"a": 1})
    assert not ended.troubles()
    assert in_child(lambda: 2).troubles() == ["ended with 2 and said nothing"]
    assert "traceback" in in_child(lambda: 1 / 0).troubles()[0]
    assert "SIGSEGV" in in_child(lambda: os.kill(os.getpid(), signal.SIGSEGV)).troubles()[0]
    hung = in_child(lambda: time.sleep(60), patience=0.2)
    assert ("hung" in hung.troubles()[0], hung.seconds < 20) == (True, True)
    assert in_child(lambda: time.sleep(60), strike=Strike(0.1, signal.SIGTERM)).signal == signal.SIGTERM


def in_place(file: Path) -> None:
    """How nobody should write a file."""
    file.write_text("")
    file.write_text("new")


@pytest.mark.parametrize(("write", "torn"), [(in_place, True), (lambda file: write_text(file, "new"), False)])
def test_a_kill_before_each_change_shows_who_writes_in_place(tmp_path: Path, write, torn: bool) -> None:
    file = tmp_path / "a.txt"

    def work(at: int) -> int:
        watch = Watch(at=at).install_in(str(tmp_path))
        write(file)
        return [*watch.seen]

    count, contents = len(in_child(lambda: work(-1)).value), set()
    assert count > 1
    for at in range(count):
        file.write_text("old")
        assert in_child(lambda at=at: work(at)).signal == signal.SIGKILL
        contents.add(file.read_text())
    assert ("" in contents) == torn


def test_the_system_refuses_where_it_is_told_to_and_what_happens_elsewhere_is_listed(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside")

    def work() -> object:
        watch = Watch(at=1, error=errno.ENOSPC).install_in(str(tmp_path / "inside"))
        (tmp_path / "inside" / "a").write_text("")
        (tmp_path / "inside" / "link").write_text("through")
        os.system("true")
        try:
            (tmp_path / "inside" / "b").write_text("")
        except OSError as error:
            return error.errno, watch.refused, watch.outside, len(watch.started)

    assert in_child(work).value == (errno.ENOSPC, 1, [f"open {tmp_path / 'outside'}"], 1)
    assert not (tmp_path / "inside" / "b").exists()


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


def test_the_one_that_kills_a_batch_or_takes_too_much_memory_is_found(monkeypatch) -> None:
    """The system counts roughly, by up to some megabytes a core: so the difference is a large one."""

    def dies() -> list[str]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return []

    found = survive([("a", list), ("b", dies), ("c", lambda: ["odd"]), ("d", lambda: 1 / 0)])
    assert [line.split(":")[0] for line in found] == ["b", "c", "d"]
    assert ("SIGSEGV" in found[0], "ZeroDivisionError" in found[2]) == (True, True)
    monkeypatch.setattr("tools.torture.harness.MOST_BYTES", 300_000_000)
    (large,) = survive([("small", list), ("large", lambda: [] * len(b"x" * 800_000_000))])
    assert re.fullmatch(r"large: took 0\.[6-9] GB", large)


def test_a_failure_says_how_to_repeat_it(tmp_path: Path) -> None:
    def check(world: World, case: Case) -> list[str]:
        return ["lost"] if case.key == "3" else []

    campaign = Campaign("mine", "tried", lambda world, seed: (Case(str(i)) for i in range(6)), check)
    world = World(tmp_path)
    found = run(campaign, world, 5, Budget())
    assert (found.tried, found.lost, found.whole) == (6, 1, True)
    assert found.failures[0].again == "python -m tools.torture --only mine --seed 5 --case '3'"
    assert run(campaign, world, 5, Budget(only="3")).tried == 1
    assert run(campaign, world, 5, Budget(cases=2)).tried == 2
