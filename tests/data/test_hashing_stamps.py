"""A stamp changes with the file, and with nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from holotype.data.hashing import file_stamps


def test_a_stamp_is_size_and_time(tmp_path: Path) -> None:
    file = tmp_path / "a #1.jpg"
    file.write_bytes(b"12345")
    os.utime(file, ns=(1, 1_700_000_000_123_456_789))
    assert file_stamps([str(file), str(tmp_path / "gone.jpg"), "\0"]) == ["5-1700000000123456789", "", ""]
    os.utime(file, ns=(2, 1_700_000_000_123_456_790))
    assert file_stamps([str(file)]) == ["5-1700000000123456790"]


def test_images_of_a_container_have_its_stamp(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 4, 4), np.uint8))
    one, two, itself = file_stamps([f"{tmp_path}/a.npz#0", f"{tmp_path}/a.npz#1", f"{tmp_path}/a.npz"])
    assert one == two == itself != ""
    assert file_stamps([f"{tmp_path}/b.npz#0"]) == [""]
