"""Files of tests are handed out in the order that was meant."""

from __future__ import annotations

import pytest

from tests.conftest import pytest_collection_modifyitems
from tests.long_files import SECONDS, TESTS, turn


def test_every_long_file_is_there_and_begins_before_the_others() -> None:
    files = [TESTS / name for name in SECONDS]
    assert [file for file in files if not file.is_file()] == []
    assert all(turn(file) < turn(TESTS / "test_package.py") for file in files)
    assert turn(files[0]) == min(map(turn, files))


class Item:
    def __init__(self, name: str) -> None:
        self.path = TESTS / name


def test_the_longest_begin_and_the_others_stay_in_their_order(
    pytestconfig: pytest.Config, monkeypatch
) -> None:
    monkeypatch.setattr(pytestconfig.option, "shuffle", None)
    names = ["cli/test_cut.py", "discovery/test_year.py", "cli/test_cut.py", "test_torture.py"]
    items = [Item(name) for name in [*names, "data/test_table.py", "discovery/test_year.py"]]
    pytest_collection_modifyitems(pytestconfig, items)
    assert [item.path.relative_to(TESTS).as_posix() for item in items] == [
        "test_torture.py",
        "discovery/test_year.py",
        "discovery/test_year.py",
        "cli/test_cut.py",
        "cli/test_cut.py",
        "data/test_table.py",
    ]


def test_a_seed_is_an_order(pytestconfig: pytest.Config, monkeypatch) -> None:
    """The processes of a run must agree on it."""
    items = [Item(str(number)) for number in range(50)]
    first, again, other = items.copy(), items.copy(), items.copy()
    for seed, several in (("1", first), ("1", again), ("2", other)):
        monkeypatch.setattr(pytestconfig.option, "shuffle", seed)
        pytest_collection_modifyitems(pytestconfig, several)
    assert first == again != other
    assert items not in (first, other)
    assert set(first) == set(items)


def test_processes_take_files_in_that_order(request: pytest.FixtureRequest) -> None:
    """Not by how many tests they hold."""
    assert request.config.option.loadscopereorder is False
