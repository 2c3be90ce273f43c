"""What is no file is not waited for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from holotype.machine.regular import check_file, only_a_file, read_bytes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes among files")


def test_a_file_is_read_and_so_is_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    check_file(tmp_path / "a")
    assert read_bytes(tmp_path / "a") == read_bytes(tmp_path / "b") == b"x" * 100_000


def test_pipes_and_devices_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    before = len(os.listdir("/dev/fd"))
    for name in ("pipe", "zeros"):
        with pytest.raises(OSError, match="a pipe or a device"):
            read_bytes(tmp_path / name)
        with pytest.raises(OSError, match="a pipe or a device"):
            check_file(tmp_path / name)
    assert len(os.listdir("/dev/fd")) == before


def test_folders_and_what_is_missing_are_told_as_ever(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError), open(tmp_path / "nothing", opener=only_a_file):
        pass
