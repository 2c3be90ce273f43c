"""The short form of the campaign: one process tries it all, and each campaign has its test here.

`make torture MINUTES=n` tries the rest. A failure names the one command that repeats it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.torture.campaigns import CAMPAIGNS

TOP = Path(__file__).resolve().parents[2]
SHORT = [campaign.name for campaign in CAMPAIGNS if campaign.short]
AT_LEAST = {
    "stops": 30,
    "torn": 5,
    "tables": 300,
    "images": 2000,
    "read": 300,
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
"""How many each of them tries; of `read` there are ten for every file of a run folder."""
MEMORY = Path("/dev/shm")
"""Where files lie in memory: on a disk the campaign takes half as long again, waiting for it."""
ROOM = 1 << 30
"""Bytes that there must be; it needs a tenth of them."""

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the campaign needs Linux's processes"),
    pytest.mark.xdist_group("torture"),
]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    file = tmp_path_factory.mktemp("torture") / "record.json"
    quick = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    place = {"TMPDIR": str(MEMORY)} if quick else {}
    paths = os.pathsep.join([str(TOP / "src"), str(TOP), os.environ.get("PYTHONPATH", "")])
    said = subprocess.run(
        [sys.executable, "-m", "tests.torture", "--short", "--record", str(file)],
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
    assert not found["skipped"]
