"""Everything below a folder is read, or counted as passed over; folders that runs wrote are no collections."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from holotype.data.image_files import IMAGE_EXTENSIONS
from holotype.data.readers.folder import read_folder, scan_folder
from holotype.errors import InputError

from .packed import square, write_parquet, write_tar

posix = pytest.mark.skipif(os.name != "posix", reason="file names are bytes, and pipes files, on POSIX only")


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def images(root: Path) -> list[str]:
    return sorted(file.relative_to(root).as_posix() for file in scan_folder(root).images)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("identity.json", {"format": 1, "backbone": {}}),
        ("discovery.json", {"run_id": "4f1c09-1"}),
        ("model.json", {"backbone": {}, "ids": []}),
        ("manifest.json", {"images_per_shard": 512}),
        ("thumbs.json", {"thumbs": {}}),
    ],
)
def test_folders_of_runs_are_passed_over(name: str, content: dict, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "photos-discover"
    touch(tmp_path, "fox/1.jpg", "runs/old/2.jpg", "runs/3.jpg")
    touch(run, "report/thumbs/00000.jpg")
    (run / name).write_text(json.dumps(content))
    assert images(tmp_path) == ["fox/1.jpg", "runs/3.jpg", "runs/old/2.jpg"]
    assert scan_folder(tmp_path).words() == "Skipped: the run folder runs/photos-discover."
    assert images(run) == ["report/thumbs/00000.jpg"]  # asked for by name


@pytest.mark.parametrize("content", ['{"name": "a zoo"}', "[]", "", "{" * 9, "\x00"])
def test_files_of_others_that_are_called_so_hide_nothing(content: str, tmp_path: Path) -> None:
    touch(tmp_path, "fox/1.jpg")
    for name in ("identity.json", "manifest.json", "model.json"):
        (tmp_path / "fox" / name).write_text(content)
    assert images(tmp_path) == ["fox/1.jpg"]


def test_what_a_run_has_sorted_into_no_category_is_no_class(tmp_path: Path) -> None:
    """A folder of `holotype write --folders` as the collection of another discovery."""
    touch(tmp_path, "fox/1.jpg", "_rejected/2.jpg", "_unreadable/3.jpg", "fox/_rejected/4.jpg")
    assert "_rejected/2.jpg" in images(tmp_path)  # anybody may call a folder so
    (tmp_path / ".holotype-folders.json").write_text('{"files": {}}')
    assert images(tmp_path) == ["fox/1.jpg", "fox/_rejected/4.jpg"]
    assert scan_folder(tmp_path).words() == "Skipped: the folders _rejected and _unreadable."


def test_files_are_counted_by_their_ending_and_what_systems_leave_is_not(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "b.MOV", "c.mov", "d", "e.heic", "f.HEIC", "g.json", "h.csv", ".i.mov")
    touch(tmp_path, ".git/j.mov", "@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg", ".thumbnails/1.jpg", "Thumbs.db")
    touch(
        tmp_path, "__MACOSX/fox/._1.jpg", "desktop.ini", "$RECYCLE.BIN/2.jpg", "System Volume Information/x"
    )
    found = scan_folder(tmp_path)
    heic = {} if ".heic" in IMAGE_EXTENSIONS else {".heic": 2}
    assert [file.name for file in found.images if file.suffix == ".jpg"] == ["a.jpg"]
    assert found.passed == Counter({".mov": 2, "": 1} | heic)
    words = found.words()
    assert not heic or "2 .heic files (install pillow-heif>=1.3)" in words
    assert "2 .mov files" in words
    assert "1 file without an ending" in words
    touch(tmp_path / "zoo", *(f"{i}.x{j}" for j in range(9) for i in range(10 - j)))
    words = scan_folder(tmp_path / "zoo").words()
    assert words.startswith("Skipped: 10 .x0 files, 9 .x1 files")
    assert words.endswith("5 .x5 files, 9 files of 3 other endings.")


@posix
def test_names_that_are_no_text_and_pipes_and_devices_are_passed_over_and_told(tmp_path: Path) -> None:
    """Whoever opens a pipe waits, or reads, without end."""
    touch(tmp_path, "good.jpg", "line\nbreak.jpg", "run/2.jpg")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jpg")).write_bytes(b"x")
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    (folder / "b.jpg").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe.jpg")
    os.mkfifo(tmp_path / "run" / "discovery.json")
    (tmp_path / "zeros.png").symlink_to("/dev/zero")
    assert images(tmp_path) == ["good.jpg", "line\nbreak.jpg", "run/2.jpg"]
    words = scan_folder(tmp_path).words()
    assert words.encode("utf-8")
    assert "the non-UTF-8 names" in words
    assert "the special files pipe.jpg and run/discovery.json and zeros.png" in words


def test_links_that_lead_nowhere_and_folders_that_may_not_be_read(tmp_path: Path, monkeypatch) -> None:
    touch(tmp_path, "a/1.jpg", "a.jpg/b.png", "secret/2.jpg")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    scandir = os.scandir

    def guarded(path):
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    # two of them become problems when they are read
    assert images(tmp_path) == ["a.jpg/b.png", "a/1.jpg", "gone.jpg", "loop.jpg"]
    assert "the unreadable folder secret" in scan_folder(tmp_path).words()


def test_images_of_their_own_win_over_packed_ones_which_are_not_mixed(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("1.png", square())])
    assert [Path(path).name for path in read_folder(tmp_path).path] == ["a.tar#1"]
    write_parquet(tmp_path / "b.parquet", [("1", square(), "")])
    with pytest.raises(InputError, match="both Parquet files"):
        read_folder(tmp_path)
    (tmp_path / "2.png").write_bytes(square())
    assert [Path(path).name for path in read_folder(tmp_path).path] == ["2.png"]
