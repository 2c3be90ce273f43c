"""Thumbnails lie where the page looks for them, upright and whole, and are made once."""

import numpy as np
import pytest
from PIL import Image

from holotype.data.readers.folder import scan_folder
from holotype.report import thumbnails
from holotype.report.thumbnails import CELL, GRID, SIDE, Thumbnails, sheet_name


def paint(folder, n: int) -> list[str]:
    """n pictures, each of one colour that tells its number."""
    folder.mkdir(exist_ok=True)
    files = [folder / f"{i}.png" for i in range(n)]
    for i, file in enumerate(files):
        Image.new("RGB", (40, 20 + i % 3 * 20), (i * 3 % 256, 80, 160)).save(file)
    return [str(file) for file in files]


def make(files: list[str], folder, paths: list[str] | None = None) -> Thumbnails:
    return thumbnails.make_thumbnails(paths or files, files, folder, progress=False)


def colour(folder, made: Thumbnails, i: int) -> np.ndarray:
    sheet, place = divmod(int(made.cell[i]), GRID**2)
    left, top = place % GRID * CELL, place // GRID * CELL
    with Image.open(folder / sheet_name(sheet)) as image:
        part = image.crop((left, top, left + int(made.size[i, 0]), top + int(made.size[i, 1])))
        return np.asarray(part, int).mean(axis=(0, 1))


def test_each_thumbnail_is_its_image_and_a_lost_sheet_is_made_again(tmp_path):
    files, folder = paint(tmp_path, 70), tmp_path / "thumbs"  # more than one sheet
    made = make(files, folder)
    for i in range(70):
        np.testing.assert_allclose(colour(folder, made, i), (i * 3 % 256, 80, 160), atol=4)
        assert made.size[i].max() == SIDE
        assert made.size[i, 0] / made.size[i, 1] == pytest.approx(40 / (20 + i % 3 * 20), rel=0.02)
    (folder / sheet_name(1)).unlink()
    make(files, folder)
    assert (folder / sheet_name(1)).is_file()
    make(files[:2], folder)  # a smaller collection leaves no old sheets
    assert [file.name for file in folder.glob("*.jpg")] == [sheet_name(0)]


def test_what_cannot_be_read_has_none_until_it_is_repaired_and_photographs_stand_upright(tmp_path):
    """Camera on its side: EXIF says so, and the quick way through JPEG heeds it."""
    files, folder = paint(tmp_path, 3), tmp_path / "thumbs"
    whole = (tmp_path / "1.png").read_bytes()
    (tmp_path / "1.png").write_bytes(b"no image")
    assert make(files, folder).cell.tolist() == [0, -1, 2]
    (tmp_path / "1.png").write_bytes(whole)
    made = make(files, folder)
    assert made.cell.tolist() == [0, 1, 2]
    np.testing.assert_allclose(colour(folder, made, 1), (3, 80, 160), atol=4)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (800, 400), (200, 40, 40)).save(tmp_path / "a.jpg", exif=exif)
    assert make([str(tmp_path / "a.jpg")], folder).size.tolist() == [[SIDE // 2, SIDE]]


def test_only_sheets_with_a_changed_image_are_made_again(tmp_path, monkeypatch):
    files, folder = paint(tmp_path, 150), tmp_path / "thumbs"  # three sheets
    first, decoded, thumbnail = make(files, folder), [], thumbnails._thumbnail
    kept = {n: (folder / sheet_name(n)).read_bytes() for n in (0, 2)}
    watched = lambda file, _=None: decoded.append(file) or thumbnail(file)  # noqa: E731
    monkeypatch.setattr(thumbnails, "_thumbnail", watched)
    Image.new("RGB", (20, 60), (250, 10, 10)).save(files[100])
    order = list(range(150))[::-1]  # a report lists images in another order after edits
    again = make([files[i] for i in order], folder)
    assert sorted(decoded) == sorted(files[64:128])
    assert again.cell.tolist() == first.cell[order].tolist()
    np.testing.assert_allclose(colour(folder, again, 49), (250, 10, 10), atol=4)
    assert again.size[49, 0] < again.size[49, 1]
    assert {n: (folder / sheet_name(n)).read_bytes() for n in (0, 2)} == kept
    decoded.clear()
    make(files, folder)
    assert decoded == []
    make(files[:3], folder)
    assert len(decoded) == 3


SHEETS = '{"format": 2, "cell": 120, "grid": 8, "thumbs": '


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"format": 1}', SHEETS + '{"a": 1}}', SHEETS + '{"a": 1, "b": 2}}']
)
def test_a_damaged_list_is_made_again_and_named_where_it_cannot_be_read(content, tmp_path, caplog):
    files, folder = paint(tmp_path, 2), tmp_path / "thumbs"
    folder.mkdir()
    (folder / "thumbs.json").write_text(content)
    assert make(files, folder, ["a", "b"]).cell.tolist() == [0, 1]
    assert (f"{folder / 'thumbs.json'} cannot be read (" in caplog.text) == (content == "{")
    caplog.clear()
    make(files, folder, ["a", "b"])
    assert caplog.text == ""


def test_thumbnails_are_never_taken_for_images(tmp_path, monkeypatch):
    """Also when the report was stopped half-way: the list stands there before the first sheet."""
    files, folder = paint(tmp_path / "photos", 3), tmp_path / "photos" / "report" / "thumbs"

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(thumbnails, "encode_image", stop)
    with pytest.raises(KeyboardInterrupt):
        make(files, folder)
    (folder / sheet_name(0)).write_bytes(b"half a sheet")
    assert sorted(map(str, scan_folder(tmp_path / "photos").images)) == files
