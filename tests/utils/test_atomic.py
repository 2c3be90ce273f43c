"""Files are the old content or the new one, never a part."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holotype.errors import InputError
from holotype.utils import atomic, locks
from holotype.utils.atomic import (
    TemporaryFolder,
    atomic_folder,
    atomic_path,
    atomic_write,
    clean_partial,
    clean_partial_tree,
    write_output,
    write_text,
)

WRITERS, TIMES = 4, 50

WRITER = """
import sys
from pathlib import Path
from holotype.utils.atomic import write_text
for time in range(int(sys.argv[2])):
    write_text(Path(sys.argv[1]), sys.argv[3] * 20_000)
"""

KILLED = """
import os, signal, sys
from pathlib import Path
from holotype.utils.atomic import atomic_write
def die(part):
    part.write_text("half of it")
    os.kill(os.getpid(), signal.SIGKILL)
atomic_write(Path(sys.argv[1]), die)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failure_leaves_the_old_content_and_no_litter(tmp_path):
    file = tmp_path / "a.txt"
    write_text(file, "old")

    def fails(part):
        part.write_text("ne")
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        atomic_write(file, fails)
    assert file.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_folders_are_made_and_an_impossible_place_is_said(tmp_path):
    write_text(tmp_path / "deep" / "er" / "a.txt", "new")
    assert (tmp_path / "deep" / "er" / "a.txt").read_text() == "new"
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="could not be written"):
        write_text(tmp_path / "file" / "a.txt", "new")


@pytest.mark.parametrize("length", [2, 200, 250])
def test_any_name_that_a_file_can_have_can_be_written(tmp_path, length):
    for letter in ("a", "é"):
        file = tmp_path / (letter * (length // len(letter.encode())))
        write_text(file, "new")
        assert file.read_text() == "new"


def test_many_threads_may_write_one_file(tmp_path):
    """Each writes a word of its own, long enough to be seen half."""
    file = tmp_path / "a.txt"
    words = [letter * 20_000 for letter in "abcdefgh"]

    def write(number: int) -> str:
        write_text(file, words[number % len(words)])
        return file.read_text()

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(write, range(WRITERS * TIMES)))
    assert set(seen) <= set(words)
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_many_processes_may_write_one_file(tmp_path):
    file = tmp_path / "a.txt"
    command = [sys.executable, "-c", WRITER, str(file), str(TIMES)]
    running = [subprocess.Popen([*command, letter], stderr=subprocess.PIPE) for letter in "abcd"[:WRITERS]]
    said = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0] * WRITERS, said
    assert file.read_text() in {letter * 20_000 for letter in "abcd"}
    assert names(tmp_path) == ["a.txt"]


# -- links ------------------------------------------------------------------------------------------------


def test_a_link_planted_at_the_name_of_the_part_is_not_written_through(tmp_path, monkeypatch):
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    guesses = iter(["0" * 16, "1" * 16])
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda n: next(guesses))
    (folder / f".a.txt.{'0' * 16}.part").symlink_to(precious)
    (folder / ".a.txt.part").symlink_to(precious)
    write_text(folder / "a.txt", "new")
    assert precious.read_text() == "mine"
    assert (folder / "a.txt").read_text() == "new"
    assert not (folder / "a.txt").is_symlink()


def test_a_link_is_replaced_and_not_what_it_points_to(tmp_path):
    there, link = tmp_path / "there.txt", tmp_path / "link.txt"
    there.write_text("mine")
    link.symlink_to(there)
    write_text(link, "new")
    assert (there.read_text(), link.read_text()) == ("mine", "new")
    assert not link.is_symlink()


@pytest.mark.skipif(os.name != "posix", reason="there are no modes")
def test_files_have_the_mode_that_the_user_has_chosen(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a.txt", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


# -- left-over parts --------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="there is no such kill")
def test_what_a_killed_process_left_is_swept_away(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False)
    assert done.returncode < 0
    assert len(names(tmp_path)) == 2
    write_text(tmp_path / "b.txt", "new")
    assert names(tmp_path) == ["a.txt", "b.txt"]
    assert file.read_text() == "old"


def test_what_is_being_written_is_not_swept_away(tmp_path):
    with atomic_path(tmp_path / "a.txt") as part:
        clean_partial(tmp_path, again=True)
        part.write_text("new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_parts_of_others_stay(tmp_path):
    for name in (".film.mkv.part", "a.0123456789abcdef.part", ".a.part", ".a.0123456789ABCDEF.part"):
        (tmp_path / name).write_text("")
    before = names(tmp_path)
    clean_partial(tmp_path, again=True)
    assert names(tmp_path) == before


def test_without_locks_parts_go_when_they_are_old(tmp_path, monkeypatch):
    def refuse(descriptor: int) -> bool:
        raise locks.NoLocks("none here")

    monkeypatch.setattr(atomic, "try_lock", refuse)
    fresh, old = (tmp_path / f".a.txt.{letter * 16}.part" for letter in "ab")
    fresh.write_text("")
    old.write_text("")
    os.utime(old, (0, 0))
    clean_partial(tmp_path, again=True)
    assert names(tmp_path) == [fresh.name]
    write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_a_part_that_was_swept_before_its_lock_is_made_anew(tmp_path, monkeypatch):
    """Somebody sweeps in the moment between the making of the file and its lock."""
    seen = []

    def swept_first(descriptor: int) -> bool:
        if not seen:
            (part,) = tmp_path.iterdir()
            seen.append(part.name)
            part.unlink()
        return True

    monkeypatch.setattr(atomic, "try_lock", swept_first)
    write_text(tmp_path / "a.txt", "new")
    assert seen
    assert (tmp_path / "a.txt").read_text() == "new"


def test_a_folder_appears_when_it_is_whole(tmp_path):
    with atomic_folder(tmp_path / "images") as part:
        (part / "a.png").write_text("")
        clean_partial(tmp_path, again=True)
        assert not (tmp_path / "images").exists()
    assert names(tmp_path / "images") == ["a.png"]
    with pytest.raises(ValueError, match="half"), atomic_folder(tmp_path / "more") as part:
        raise ValueError("half")
    assert names(tmp_path) == ["images"]


def test_of_two_who_make_a_folder_one_is_first(tmp_path):
    with atomic_folder(tmp_path / "images") as mine, atomic_folder(tmp_path / "images") as theirs:
        assert mine != theirs
        (mine / "mine.png").write_text("")
        (theirs / "theirs.png").write_text("")
    assert names(tmp_path) == ["images"]
    assert names(tmp_path / "images") == ["theirs.png"]


def test_a_folder_is_replaced_whole_where_that_is_wanted(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "old.png").write_text("")
    with atomic_folder(tmp_path / "images", replace=True) as part:
        (part / "new.png").write_text("")
        assert names(tmp_path / "images") == ["old.png"]
    assert names(tmp_path / "images") == ["new.png"]
    assert names(tmp_path) == ["images"]


def test_a_file_that_a_user_names_is_replaced_with_overwrite_alone(tmp_path):
    def write(part):
        part.write_text("new")

    file = tmp_path / "a.txt"
    write_output(file, write)
    file.write_text("mine")
    with pytest.raises(InputError, match="--overwrite"):
        write_output(file, write)
    assert file.read_text() == "mine"
    write_output(file, write, overwrite=True)
    assert file.read_text() == "new"
    link = tmp_path / "link"
    link.symlink_to(file)
    with pytest.raises(InputError, match="--overwrite"):
        write_output(link, write)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="is not a file"):
        write_output(tmp_path / "folder", write, overwrite=True)


def test_a_file_that_somebody_makes_meanwhile_stays(tmp_path):
    def slow(part):
        (tmp_path / "a.txt").write_text("mine")

    with pytest.raises(InputError, match="--overwrite"):
        write_output(tmp_path / "a.txt", slow)
    assert (tmp_path / "a.txt").read_text() == "mine"
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_that_was_left_goes_and_one_behind_a_link_stays(tmp_path):
    left = tmp_path / f".images.{'0' * 16}.part"
    left.mkdir()
    (left / "a.png").write_text("")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "b.png").write_text("")
    link = tmp_path / f".images.{'1' * 16}.part"
    link.symlink_to(mine, target_is_directory=True)
    clean_partial(tmp_path, again=True)
    assert names(tmp_path) == [link.name, "mine"]
    assert names(mine) == ["b.png"]


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    write_text(tmp_path / "a.txt", "old")

    def full(part: Path) -> None:
        part.write_text("ne")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match="No space left on device"):
        atomic_write(tmp_path / "a.txt", full)
    assert names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_what_was_left_deep_in_a_run_goes_and_what_links_point_to_stays(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    part = f".scores.json.{'0' * 16}.part"
    for folder in (run, run / "rounds" / "1" / "corrected", other):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / part).write_text("half")
        (folder / "scores.json").write_text("whole")
    (run / "link").symlink_to(other)
    clean_partial_tree(run)
    assert not list(run.rglob("*.part"))
    assert len(list(run.rglob("scores.json"))) >= 2
    assert (other / part).exists()


def test_a_temporary_folder_goes_with_its_block_and_is_nobody_elses(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with TemporaryFolder() as folder:
        (folder / "photo.png").write_text("")
        assert folder.stat().st_mode & 0o77 == 0
        kept = TemporaryFolder()  # sweeps, and leaves the one in use alone
        assert (folder / "photo.png").exists()
    assert list(tmp_path.iterdir()) == [kept.path]
    kept.cleanup()
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_of_a_killed_process_is_swept_away(tmp_path, monkeypatch):
    words = (
        "import time; from holotype.utils.atomic import TemporaryFolder\n"
        "with TemporaryFolder() as f: (f / 'a').write_text('x'); print(f, flush=True); time.sleep(60)"
    )
    command, place = [sys.executable, "-c", words], os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, env=place, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    process.kill()
    process.communicate()
    assert (left / "a").exists()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f".another.{'0' * 16}.part").mkdir()
    TemporaryFolder().cleanup()
    assert [path.name for path in tmp_path.iterdir()] == [f".another.{'0' * 16}.part"]
