"""The campaign itself: it sees what it is to see. A campaign that finds nothing may have looked at nothing."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Pipe
from pathlib import Path

import pytest

from holotype.utils.atomic import write_text
from tests.torture import shares, tally
from tests.torture.__main__ import Keeper
from tests.torture.batches import survive
from tests.torture.child import Strike, in_child, program, survivors
from tests.torture.compare import differences, snapshot
from tests.torture.hooks import Watch
from tests.torture.mutate import flipped, worse, worse_json
from tests.torture.rot import noticed
from tests.torture.shares import Teller
from tests.torture.tally import Budget, Campaign, Case, Failure, Tally
from tests.torture.world import TOP, World

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the campaign needs Linux's processes")


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
    monkeypatch.setattr("tests.torture.batches.MOST_BYTES", 300_000_000)
    (found,) = survive([("small", list), ("large", lambda: [] * len(b"x" * 800_000_000))])
    assert re.fullmatch(r"large: took 0\.[6-9] GB", found)


# -- campaigns --------------------------------------------------------------------------------------------


def test_cases_are_shared_and_a_failure_says_how_to_repeat_it(tmp_path: Path) -> None:
    seen: list[str] = []

    def check(world: World, case: Case) -> list[str]:
        seen.append(case.key)
        return ["lost"] if case.key == "3" else []

    campaign = Campaign("mine", "tried", lambda world, seed: (Case(str(i)) for i in range(6)), check)
    world = World(tmp_path)
    found = tally.run(campaign, world, 5, Budget())
    assert (found.tried, found.survived, found.lost, found.whole) == (6, 5, 1, True)
    assert found.failures[0].again == "python -m tests.torture --only mine --seed 5 --case '3'"
    seen.clear()
    parts = [tally.run(campaign, world, 5, Budget(share=i, of=2)) for i in range(2)]
    assert [part.tried for part in parts] == [3, 3]
    assert sorted(seen) == [str(i) for i in range(6)]
    assert tally.run(campaign, world, 5, Budget(only="3")).tried == 1
    assert tally.run(campaign, world, 5, Budget(cases=2)).tried == 2


# -- processes that share a campaign ------------------------------------------------------------------------


def lost(campaign: str, tried: int, *problems: str) -> Tally:
    again = f"python -m tests.torture --only {campaign}"
    failures = [Failure(campaign, str(i), [problem], again) for i, problem in enumerate(problems)]
    return Tally(campaign, "inputs", tried=tried, lost=len(problems), failures=failures)


def test_what_is_lost_is_said_and_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    reads, writes = Pipe(duplex=False)
    tell = Teller(1, writes)
    tell(lost("mine", 1))
    assert not reads.poll()  # nothing to say, and nothing said a moment ago
    for found in (lost("mine", 2, "a.csv\nis missing"), lost("mine", 3, "a.csv\nis missing", "hung")):
        tell(found)
        assert reads.recv().lost == found.lost
    first, second = capsys.readouterr().err.splitlines()
    assert first == "[2] LOST: python -m tests.torture --only mine  # a.csv is missing"
    assert second.endswith("# hung")


def test_a_campaign_that_dies_in_its_middle_leaves_its_record(tmp_path: Path, monkeypatch) -> None:
    """What both processes had told until then, whole, though one of them was killed before its end."""
    mine, late = (Campaign(name, "tried", lambda *_: iter(()), lambda *_: []) for name in ("mine", "late"))

    def work(given, chosen, number: int, jobs: int, writes) -> None:
        writes.send(lost("mine", 5 + number, *["gone"] * number))
        if number:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(shares, "work", work)
    file, kept = tmp_path / "record.json", []
    keeper = Keeper(file, 17)

    def keep(tallies: list[Tally]) -> None:
        keeper(tallies)
        kept.append(json.loads(file.read_text()))

    started = [shares.share(argparse.Namespace(), [mine, late], number, 2) for number in range(2)]
    tallies, ended = shares.gather(started, [mine, late], keep)
    assert not ended
    assert [(tally.tried, tally.lost) for tally in tallies] == [(11, 1), (0, 0)]
    assert len(kept) == 2
    assert not any(one["ended"] for one in kept)
    keeper.write(tallies, ended)
    last = json.loads(file.read_text())
    assert (last["tried"], last["lost"], last["ended"], last["seed"]) == ({"inputs": 11}, 1, False, 17)
    assert last["campaigns"][0]["failures"][0]["problems"] == ["gone"]
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_a_process_whose_first_one_is_gone_ends(monkeypatch) -> None:
    def work(given, chosen, number: int, jobs: int, writes) -> None:
        while True:
            writes.send(lost("mine", 1))

    monkeypatch.setattr(shares, "work", work)
    child, reads = shares.share(argparse.Namespace(), [], 0, 1)
    assert reads.recv().tried == 1
    reads.close()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130


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
