"""Folders of links: names made safe, nothing overwritten, a copy where no link can be made."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.errors import InputError
from holotype.placing.folders import LONGEST, Folders, safe_name

ODD = ["a/b", "a\\b", "a_b", "A/B", "..", ".", ".hidden", "", "  ", "CON", "nul.txt", 'he said "hi"', "=cmd()",
       "<script>alert(1)</script>", "Käfer ✓", "end. ", "x" * 500, "ü" * 500, "line\nbreak", "-rf"]  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_safe_names(name) -> None:
    safe = safe_name(name)
    assert safe
    assert not set(safe) & set('<>:"/\\|?*\n\0')
    assert not safe.startswith(".")
    assert not safe.endswith((".", " "))
    assert len(safe.encode()) <= LONGEST + 1
    assert safe.upper() != "CON"
    assert safe_name("Sneaker 2 (red)") == "Sneaker 2 (red)"


def test_names_that_look_alike_on_disk_stay_apart(tmp_path) -> None:
    folders = Folders(tmp_path)
    made = [folders.folder(name) for name in ODD]
    assert len({path.name.casefold() for path in made}) == len(ODD)
    assert all(path.parent == tmp_path for path in made)
    assert folders.folder("a/b") == made[0]


def picture(path: Path, value: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4, 3), value, dtype=np.uint8)).save(path)
    return str(path)


def test_links_overwrite_nothing_and_are_made_once(tmp_path) -> None:
    one, two = picture(tmp_path / "x" / "same name.png", 1), picture(tmp_path / "y" / "same name.png", 2)
    out = tmp_path / "out"
    (out / "cat").mkdir(parents=True)
    (out / "cat" / "same name.png").write_text("somebody's own")
    folders = Folders(out)
    first, second = folders.add(one, "cat"), folders.add(two, "cat")
    assert (first.name, second.name) == ("same name (2).png", "same name (3).png")
    assert os.path.samefile(first, one)
    assert os.path.samefile(second, two)
    assert (out / "cat" / "same name.png").read_text() == "somebody's own"
    again = Folders(out)
    assert [again.add(one, "cat"), again.add(two, "cat")] == [first, second]
    assert len(list((out / "cat").iterdir())) == 3


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "no links here")


def test_a_fault_of_the_disk_makes_no_copy_of_a_link(tmp_path, monkeypatch) -> None:
    """Else the copy would stay one for good: it is the same image."""
    image = picture(tmp_path / "a.png", 7)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", fail)
        with pytest.raises(InputError, match=r"could not be linked .*the disk fails"):
            Folders(tmp_path / "out").add(image, "cat")
    assert list((tmp_path / "out" / "cat").iterdir()) == []
    assert os.path.samefile(Folders(tmp_path / "out").add(image, "cat"), image)


def test_symbolic_links_and_copies_where_hard_links_fail(tmp_path, monkeypatch) -> None:
    image = picture(tmp_path / "a.png", 7)
    monkeypatch.setattr(os, "link", refuse)
    link = Folders(tmp_path / "sym").add(image, "cat")
    assert link.is_symlink()
    assert link.read_bytes() == Path(image).read_bytes()
    monkeypatch.setattr(os, "symlink", refuse)
    copy = Folders(tmp_path / "copy").add(image, "cat")
    assert not copy.is_symlink()
    assert copy.read_bytes() == Path(image).read_bytes()


def test_an_image_inside_a_container_is_written(tmp_path) -> None:
    np.savez(tmp_path / "pack.npz", x=np.arange(2 * 5 * 5, dtype=np.uint8).reshape(2, 5, 5))
    target = Folders(tmp_path / "out").add(f"{tmp_path / 'pack.npz'}#1", "cat")
    assert target.name == "pack.npz-1.png"
    assert np.asarray(Image.open(target))[0, 0, 0] == 25


def test_nothing_is_put_through_a_link_to_another_folder(tmp_path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cat").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match="cat is a link to another folder"):
        Folders(tmp_path / "out")
    assert not list((tmp_path / "precious").iterdir())


def test_the_folder_that_is_named_may_be_a_link(tmp_path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    image = picture(tmp_path / "a.png")
    Folders(tmp_path / "out").add(image, "cat")
    assert [path.name for path in (tmp_path / "disk" / "cat").iterdir()] == ["a.png"]


def test_a_file_in_the_way_is_one_sentence(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file, not a folder"):
        Folders(tmp_path / "file")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cat").write_text("")
    with pytest.raises(InputError, match="could not be linked"):
        Folders(tmp_path / "out").add(picture(tmp_path / "a.png"), "cat")


def test_copies_and_boxes_are_made_once_too(tmp_path, monkeypatch) -> None:
    """Two pictures of one name and one content are two files, however often the same command is typed."""
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "symlink", refuse)
    one, two = picture(tmp_path / "x" / "fox.png", 1), picture(tmp_path / "y" / "fox.png", 1)
    images = [one, two, f"{one}#xywh=percent:0,0,50,50", f"{one}#xywh=percent:50,50,50,50"]
    made = []
    for _ in range(2):
        folders = Folders(tmp_path / "out")
        made.append([folders.add(image, "cat") for image in images])
    assert made[0] == made[1]
    assert len({*made[0]}) == len(list((tmp_path / "out" / "cat").iterdir())) == 4


def test_a_new_image_of_the_same_name_makes_no_others_anew(tmp_path) -> None:
    """Cameras call their first picture alike; a further folder of them comes first in the order of paths."""
    old = [picture(tmp_path / f"camera {n}" / "IMG_0001.png", n) for n in (2, 3)]
    folders = Folders(tmp_path / "out")
    before = [folders.add(image, "fox") for image in old]
    new = picture(tmp_path / "camera 1" / "IMG_0001.png", 1)
    folders = Folders(tmp_path / "out")
    assert folders.add(new, "fox").name == "IMG_0001 (3).png"
    assert [folders.add(image, "fox") for image in old] == before
    assert len(list((tmp_path / "out" / "fox").iterdir())) == 3


def test_the_same_command_at_the_same_time_makes_nothing_twice(tmp_path, monkeypatch) -> None:
    """Between the look at what is there and the link, the other one makes it."""
    images = [tmp_path / "a" / "1.png", tmp_path / "b" / "1.png"]
    for image in images:
        image.parent.mkdir()
        Image.new("RGB", (4, 4)).save(image)
    other, link = Folders(tmp_path / "out"), os.link

    def too_late(source: str, target: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        other.add(source, "cat")
        link(source, target)

    mine = Folders(tmp_path / "out")
    placed = []
    for image in images:
        monkeypatch.setattr(os, "link", too_late)
        placed.append(mine.add(str(image), "cat"))
    assert sorted(path.name for path in (tmp_path / "out" / "cat").iterdir()) == ["1 (2).png", "1.png"]
    assert [os.path.samefile(image, target) for image, target in zip(images, placed, strict=True)] == [
        True,
        True,
    ]
