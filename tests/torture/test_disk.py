"""Cases of a disk that fills up."""

from pathlib import Path

import pytest

from tests.torture import disk
from tests.torture.world import World


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
