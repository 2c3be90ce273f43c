"""Two processes give the weights of one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from safetensors.torch import load_file

from holotype.training.checkpoint import read_checkpoint_info

from .conftest import assert_equal_weights, metrics, weights
from .two_processes import CASES, ROOMS, caches, restarts, tells, train_all, worker

LATER = ("timm", "torch._dynamo", "scipy.optimize")
"""What training imports on its way."""


def start_two(job, *given):
    """job(rank, *given) in two processes, forked from one that has imported what they need."""
    mp.set_forkserver_preload(["tests.training.two_processes", *LATER])
    mp.start_processes(job, args=given, nprocs=2, start_method="forkserver")


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_two_processes_give_the_weights_of_one(world, tmp_path):
    """float64, to 1e-9; with 16 rows of which about half are labelled, the processes' counts are uneven."""
    for rank in range(2):
        (tmp_path / "images" / str(rank)).mkdir(parents=True)
    (tmp_path / "one").mkdir()
    train_all(world, tmp_path / "one", 0)
    start_two(worker, 2, str(tmp_path / "images"), str(tmp_path))
    for name in CASES:
        one = load_file(tmp_path / "one" / f"{name}-0.safetensors")
        for rank in range(2):
            two = load_file(tmp_path / f"{name}-{rank}.safetensors")
            assert one.keys() == two.keys()
            for key in one:
                torch.testing.assert_close(two[key], one[key], rtol=1e-9, atol=1e-9, msg=f"{name} {key}")
    start = world.loop("simgcd").model_tensors()
    trained = load_file(tmp_path / "one" / "simgcd-0.safetensors")
    assert not torch.allclose(start["method.classifier.v"].double(), trained["method.classifier.v"])


def run_two(job, tmp_path):
    """`job` of two_processes.py in two processes; returns what each of them noted."""
    start_two(job, str(tmp_path))
    return [json.loads((tmp_path / f"noted-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_what_one_finds_all_know(tmp_path):
    first, second = run_two(tells, tmp_path)
    assert first == second
    assert first.pop("resumed") == [5, [1.0, 1.0, 1.0]]
    assert first == {"first": 0, "all": [0, 10], "fault": "the first one's", "here": 2}


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_processes_with_unequal_room_train_on_the_same_views(tmp_path):
    """16+8 views fit the one to the byte and not the other; neither process waits for the other for ever."""
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
    first, second = run_two(caches, tmp_path)
    assert first == second
    assert len(first["found"]) == 2 * len(ROOMS)
    for name, (views, level, tokens, again) in first["found"].items():
        assert level == ROOMS[name.rpartition(" ")[0]][1]
        assert views == ("15+8" if level == "host" else "16+8")
        assert tokens == again


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_all_processes_go_back_together_and_end_together(tmp_path):
    first, second = run_two(restarts, tmp_path)
    assert first == second
    assert first["restarts"] == [{"stage": "train", "epoch": 1, "back_to": 1, "rate": 0.05}]
    assert first["sentence"].startswith("the loss became {'cls': nan")
    assert [line["kind"] for line in metrics(tmp_path / "run")] == ["epoch", "restart", "epoch", "epoch"]


KILLED = """
import os, sys
from pathlib import Path
from tests.narrow import narrow
from tests.training.conftest import decoded
from holotype.models.zoo import patch_torchvision
patch_torchvision()
import timm, torch._dynamo
narrow()
world = decoded(Path({images!r}))
for _ in sys.stdin:  # a run for each line, in a process of its own that has imported everything
    process = os.fork()
    if not process:
        world.loop("rpc", epochs=40, out=Path({out!r}), save_seconds=0).fit()
        os._exit(0)
    print(process, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


@pytest.mark.processes
def test_a_run_killed_at_any_moment_ends_with_the_same_weights(world, tmp_path):
    """SIGKILL, twice, while a state is written after every step; the third start goes to the end."""
    images, out = tmp_path / "images", tmp_path / "run"
    images.mkdir()
    words = [sys.executable, "-c", KILLED.format(images=str(images), out=str(out))]
    named = {"env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, "text": True}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **named) as starts:
        for patience in (0.31, 0.53):
            print(file=starts.stdin, flush=True)
            process = int(starts.stdout.readline())
            begun, deadline = counter(out), time.monotonic() + 60
            while counter(out) == begun and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(patience)
            os.kill(process, signal.SIGKILL)
            assert starts.stdout.readline() == f"-{signal.SIGKILL:d}\n"
            assert begun < counter(out) < 40 * 3  # it was killed on its way
        starts.stdin.close()
    resumed, whole = world.loop("rpc", epochs=40, out=out), world.loop("rpc", epochs=40)
    resumed.fit(), whole.fit()
    assert_equal_weights(weights(resumed), weights(whole))
    assert [line["epoch"] for line in metrics(out, "epoch")] == list(range(40))


def counter(folder: Path) -> int:
    facts = read_checkpoint_info(folder)
    return facts["counter"] if facts else 0
