"""A training that is killed and started again ends as one that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holotype.training.checkpoint import read_checkpoint_info

from .conftest import assert_equal_weights, weights

KILLED = """
import os, sys
from pathlib import Path
from tests.narrow import narrow
from tests.training.conftest import World, draw_squares
from holotype.data.image_store import ImageStore
from holotype.utils.torchvision_compat import patch_torchvision
patch_torchvision()
import timm, torch._dynamo
narrow()
table = draw_squares(Path({images!r}))
world = World(table, ImageStore.decode(list(table.path), 32, progress=False))
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
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "epoch"] == list(range(40))


def counter(folder: Path) -> int:
    facts = read_checkpoint_info(folder)
    return facts["counter"] if facts else 0
