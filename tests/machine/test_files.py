"""Files are the old content or the new one, never a part."""

import pytest

from holotype.errors import InputError
from holotype.machine.files import write_beside, write_text


def test_a_failure_leaves_the_old_content_and_no_litter(tmp_path):
    file = tmp_path / "a.txt"
    write_text(file, "old")

    def fails(beside):
        beside.write_text("ne")
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        write_beside(file, fails)
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_folders_are_made_and_an_impossible_place_is_said(tmp_path):
    write_text(tmp_path / "deep" / "er" / "a.txt", "new")
    assert (tmp_path / "deep" / "er" / "a.txt").read_text() == "new"
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="could not be written"):
        write_text(tmp_path / "file" / "a.txt", "new")
