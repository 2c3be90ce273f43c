"""Thumbnails lie where the page looks for them, upright and whole, and are made once."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from holotype.data.readers.folder import scan_folder
from holotype.errors import InputError
from holotype.report import thumbnails
from holotype.report.thumbnails import CELL, GRID, SIDE, make_thumbnails, sheet_name


def paint(folder, n: int) -> list[str]:
    """n pictures, each of one colour that tells its number."""
    folder.mkdir(exist_ok=True)
    files = []
    for i in range(n):
        file = folder / f"{i}.png"
        Image.new("RGB", (40, 20 + i % 3 * 20), (i * 3 % 256, 80, 160)).save(file)
        files.append(str(file))
    return files


def cut(folder, made, i: int) -> np.ndarray:
    sheet, place = divmod(int(made.cell[i]), GRID**2)
    left, top = place % GRID * CELL, place // GRID * CELL
    with Image.open(folder / sheet_name(sheet)) as image:
        return np.asarray(image.crop((left, top, left + int(made.size[i, 0]), top + int(made.size[i, 1]))), int)


def test_each_thumbnail_is_its_image(tmp_path):
    files = paint(tmp_path, 70)  # more than one sheet
    made = make_thumbnails(files, files, tmp_path / "thumbs", progress=False)
    for i in range(70):
        colour = cut(tmp_path / "thumbs", made, i).mean(axis=(0, 1))
        np.testing.assert_allclose(colour, (i * 3 % 256, 80, 160), atol=4)
        assert made.size[i].max() == SIDE
        assert made.size[i, 0] / made.size[i, 1] == pytest.approx(40 / (20 + i % 3 * 20), rel=0.02)


def test_what_cannot_be_read_has_no_thumbnail(tmp_path):
    files = paint(tmp_path, 3)
    (tmp_path / "1.png").write_bytes(b"no image")
    made = make_thumbnails(files, files, tmp_path / "thumbs", progress=False)
    assert made.cell.tolist() == [0, -1, 2]


def test_photographs_stand_upright(tmp_path):
    """Camera on its side: EXIF says so, and the quick way through JPEG heeds it."""
    image = Image.new("RGB", (800, 400), (200, 40, 40))
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.jpg", exif=exif)
    made = make_thumbnails(["a"], [str(tmp_path / "a.jpg")], tmp_path / "thumbs", progress=False)
    assert made.size[0].tolist() == [SIDE // 2, SIDE]


def test_thumbnails_are_made_once_for_the_same_images(tmp_path, monkeypatch):
    files = paint(tmp_path, 5)
    first = make_thumbnails(files, files, tmp_path / "thumbs", progress=False)

    def never(file: str) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(thumbnails, "_thumbnail", never)
    order = [3, 1, 4, 0, 2]
    again = make_thumbnails(
        [files[i] for i in order], [files[i] for i in order], tmp_path / "thumbs", progress=False
    )
    assert again.cell.tolist() == first.cell[order].tolist()
    with pytest.raises(AssertionError, match="decoded again"):
        make_thumbnails(files[:3], files[:3], tmp_path / "thumbs", progress=False)


def test_only_sheets_with_a_changed_image_are_made_again(tmp_path, monkeypatch):
    files = paint(tmp_path, 150)  # three sheets
    folder = tmp_path / "thumbs"
    first = make_thumbnails(files, files, folder, progress=False)
    kept = {n: (folder / sheet_name(n)).read_bytes() for n in (0, 2)}
    decoded = []
    thumbnail = thumbnails._thumbnail

    def watched(file):
        decoded.append(file)
        return thumbnail(file)

    monkeypatch.setattr(thumbnails, "_thumbnail", watched)
    Image.new("RGB", (20, 60), (250, 10, 10)).save(files[100])
    order = list(range(150))[::-1]  # a report lists images in another order after edits
    again = make_thumbnails([files[i] for i in order], [files[i] for i in order], folder, progress=False)
    assert sorted(decoded) == sorted(files[64:128])
    assert again.cell.tolist() == first.cell[order].tolist()
    at = order.index(100)
    np.testing.assert_allclose(cut(folder, again, at).mean(axis=(0, 1)), (250, 10, 10), atol=4)
    assert again.size[at, 0] < again.size[at, 1]
    assert {n: (folder / sheet_name(n)).read_bytes() for n in (0, 2)} == kept
    decoded.clear()
    make_thumbnails(files, files, folder, progress=False)
    assert decoded == []


def test_a_repaired_image_gets_its_thumbnail(tmp_path):
    files = paint(tmp_path, 3)
    whole = (tmp_path / "1.png").read_bytes()
    (tmp_path / "1.png").write_bytes(b"no image")
    assert make_thumbnails(files, files, tmp_path / "thumbs", progress=False).cell.tolist() == [0, -1, 2]
    (tmp_path / "1.png").write_bytes(whole)
    made = make_thumbnails(files, files, tmp_path / "thumbs", progress=False)
    assert made.cell.tolist() == [0, 1, 2]
    np.testing.assert_allclose(cut(tmp_path / "thumbs", made, 1).mean(axis=(0, 1)), (3, 80, 160), atol=4)


def test_a_lost_sheet_is_made_again(tmp_path):
    files = paint(tmp_path, 70)
    make_thumbnails(files, files, tmp_path / "thumbs", progress=False)
    (tmp_path / "thumbs" / sheet_name(1)).unlink()
    make_thumbnails(files, files, tmp_path / "thumbs", progress=False)
    assert (tmp_path / "thumbs" / sheet_name(1)).is_file()


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"format": 1}', '{"format": 2, "cell": 120, "grid": 8, "thumbs": {"a": 1}}']
)
def test_a_damaged_list_is_made_again(content, tmp_path):
    files = paint(tmp_path, 2)
    folder = tmp_path / "thumbs"
    folder.mkdir()
    (folder / "thumbs.json").write_text(content)
    assert make_thumbnails(["a", "b"], files, folder, progress=False).cell.tolist() == [0, 1]


def test_a_list_that_cannot_be_read_is_named(tmp_path, caplog):
    files, folder = paint(tmp_path, 2), tmp_path / "thumbs"
    make_thumbnails(["a", "b"], files, folder, progress=False)
    manifest = folder / "thumbs.json"
    manifest.write_text("{")
    assert make_thumbnails(["a", "b"], files, folder, progress=False).cell.tolist() == [0, 1]
    assert f"{manifest} cannot be read (" in caplog.text
    caplog.clear()
    make_thumbnails(["a", "b"], files, folder, progress=False)
    assert caplog.text == ""


def test_thumbnails_are_never_taken_for_images(tmp_path, monkeypatch):
    """Also when the report was stopped half-way: the list stands there before the first sheet."""
    files = paint(tmp_path / "photos", 3)

    def stop(*words):
        raise KeyboardInterrupt

    monkeypatch.setattr(thumbnails, "encode_png", stop)
    with pytest.raises(KeyboardInterrupt):
        make_thumbnails(files, files, tmp_path / "photos" / "report" / "thumbs", progress=False)
    (tmp_path / "photos" / "report" / "thumbs" / sheet_name(0)).write_bytes(b"half a sheet")
    assert sorted(map(str, scan_folder(tmp_path / "photos").images)) == files


def test_a_disguised_file_starts_no_program(tmp_path, monkeypatch):
    started = []
    for name in ("Popen", "run", "call", "check_call", "check_output"):
        monkeypatch.setattr(subprocess, name, lambda *words, **named: started.append(words))
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    (tmp_path / "a.jpg").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    )
    made = make_thumbnails(["a"], [str(tmp_path / "a.jpg")], tmp_path / "thumbs", progress=False)
    assert made.cell.tolist() == [-1]
    assert started == []


def test_a_smaller_collection_leaves_no_old_sheets(tmp_path):
    files = paint(tmp_path, 70)
    make_thumbnails(files, files, tmp_path / "thumbs", progress=False)
    make_thumbnails(files[:2], files[:2], tmp_path / "thumbs", progress=False)
    assert [file.name for file in (tmp_path / "thumbs").glob("*.jpg")] == [sheet_name(0)]


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on the size of files is Linux's")
def test_a_sheet_whose_last_bytes_do_not_fit_on_the_disk_is_none(tmp_path):
    """Pillow, given the file, loses them without a word: the system writes a part and says how much."""
    noise = np.random.default_rng(0).integers(0, 255, (CELL, CELL, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    paths = [str(tmp_path / "a.png")]
    make_thumbnails(paths, paths, tmp_path / "whole", False)
    size = (tmp_path / "whole" / "00000.jpg").stat().st_size
    limit, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 10, limit[1]))
    try:
        with pytest.raises(InputError, match="could not be written"):
            make_thumbnails(paths, paths, tmp_path / "full", False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert not (tmp_path / "full" / "00000.jpg").exists()
