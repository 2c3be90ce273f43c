"""Files of tests are handed out in the order that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import pytest_collection_modifyitems
from tests.long_files import SECONDS, TESTS, turn


def test_every_long_file_is_there_and_begins_before_the_others() -> None:
    files = [TESTS / name for name in SECONDS]
    assert [file for file in files if not file.is_file()] == []
    assert all(turn(file) < turn(TESTS / "test_package.py") for file in files)
    assert turn(files[0]) == min(map(turn, files))


def test_the_longest_begin_and_the_others_stay_in_their_order() -> None:
    class Item:
        def __init__(self, name: str) -> None:
            self.path = Path(TESTS / name)

    names = ["cli/test_cut.py", "discovery/test_year.py", "cli/test_cut.py", "torture/test_short.py"]
    items = [Item(name) for name in [*names, "data/test_table.py", "discovery/test_year.py"]]
    pytest_collection_modifyitems(items)
    assert [item.path.relative_to(TESTS).as_posix() for item in items] == [
        "torture/test_short.py",
        "discovery/test_year.py",
        "discovery/test_year.py",
        "cli/test_cut.py",
        "cli/test_cut.py",
        "data/test_table.py",
    ]


def test_processes_take_files_in_that_order(request: pytest.FixtureRequest) -> None:
    """Not by how many tests they hold."""
    assert request.config.option.loadscopereorder is False
