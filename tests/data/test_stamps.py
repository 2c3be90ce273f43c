"""A stamp changes with the file, and a file that is gone has none."""

import os

from holotype.data.stamps import stamps


def test_a_stamp_is_size_and_time(tmp_path) -> None:
    file, other = tmp_path / "a.png", tmp_path / "pack.npz"
    file.write_bytes(b"abc")
    other.write_bytes(b"abcd")
    os.utime(file, ns=(5, 7))
    os.utime(other, ns=(5, 9))
    assert stamps([str(file), f"{other}#3", str(tmp_path / "gone.png")]) == ["3-7", "4-9", ""]
