"""A folder is one process's at a time."""

import pytest

from holotype.errors import InputError
from holotype.machine.locks import hold


def test_a_folder_is_held_once(tmp_path) -> None:
    with hold(tmp_path / "run"), pytest.raises(InputError, match="Another process is at work"):
        hold(tmp_path / "run")
    hold(tmp_path / "run").release()
