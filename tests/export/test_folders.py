"""Folders of images: a new one, or one in place of ours; nothing of anybody else's is lost."""

import errno
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from export.made_results import edit, made_run, paths
from holotype.data.load import load_table
from holotype.data.readers.folder import REJECTED_FOLDER, SORTED_FOLDER, UNREADABLE_FOLDER, read_folder
from holotype.errors import InputError
from holotype.export import folders
from holotype.export.folders import COPY, HARD_LINK, SYMLINK, TargetFile, new_folder, write_folders
from holotype.results.discovery import Discovery
from holotype.utils import atomic

ODD = ["a/b", "a\\b", "a_b", "A/B", "..", ".", ".hidden", "", "  ", "CON", "nul.txt", 'he said "hi"', "=cmd()",
       "<script>alert(1)</script>", "Käfer ✓", "end. ", "x" * 500, "ü" * 500, "line\nbreak", "-rf"]  # fmt: skip
TREE = {"cat/0.png": 0, "cat/1.png": 1, "dog/2.png": 2, "dog/3.png": 3}


def picture(path: Path, value: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4, 3), value, dtype=np.uint8)).save(path)
    return str(path)


@pytest.fixture
def images(tmp_path) -> list[str]:
    return [picture(tmp_path / "photos" / f"{i}.png", i) for i in range(4)]


def sort(root: Path, images: list[str], names: str = "cat cat dog dog", *, overwrite=False, **how):
    """names: folders, one word per image."""
    with new_folder(root, "r1", overwrite=overwrite) as new:
        return new.add([TargetFile(*pair) for pair in zip(images, names.split(), strict=True)], **how)


def tree(root: Path) -> dict[str, int]:
    """Grey value of every image."""
    found = sorted(root.rglob("*.png"))
    return {file.relative_to(root).as_posix(): int(np.asarray(Image.open(file))[0, 0, 0]) for file in found}


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "no links here")


def test_a_new_folder_holds_links_of_the_images_that_exist(tmp_path, images) -> None:
    out = tmp_path / "deep" / "out"
    done = sort(out, [*images, str(tmp_path / "never.png")], "cat cat dog dog emu")
    assert tree(out) == TREE
    assert (done.images, done.folders, done.made, done.gone) == (4, 2, {HARD_LINK: 4}, 1)
    assert done.file == [*TREE, ""]
    assert os.path.samefile(out / "cat" / "0.png", images[0])
    marker = json.loads((out / SORTED_FOLDER).read_text())
    assert (marker["run_id"], set(marker["files"])) == ("r1", set(TREE))
    assert os.listdir(tmp_path / "deep") == ["out"]
    sort(tmp_path / "photos" / "sorted", images)  # links inside a collection are no further images
    assert list(read_folder(tmp_path / "photos").path) == images
    assert set(read_folder(tmp_path / "photos" / "sorted").known) == {"cat", "dog"}


def test_symbolic_links_and_copies_where_hard_links_fail(tmp_path, images, monkeypatch) -> None:
    monkeypatch.setattr(os, "link", refuse)
    assert sort(tmp_path / "sym", images).made == {SYMLINK: 4}
    monkeypatch.setattr(os, "symlink", refuse)
    assert sort(tmp_path / "copies", images).made == {COPY: 4}
    assert tree(tmp_path / "sym") == tree(tmp_path / "copies") == TREE
    link, copy = (tmp_path / name / "cat" / "1.png" for name in ("sym", "copies"))
    assert (link.is_symlink(), copy.is_symlink()) == (True, False)
    assert copy.stat().st_mtime_ns == os.stat(images[1]).st_mtime_ns


def test_images_inside_a_container_and_boxes_are_written(tmp_path, images) -> None:
    np.savez(tmp_path / "pack.npz", x=np.arange(2 * 5 * 5, dtype=np.uint8).reshape(2, 5, 5))
    parts = [f"{tmp_path / 'pack.npz'}#1", f"{images[3]}#xywh=percent:0,0,50,50"]
    assert sort(tmp_path / "out", parts, "cat cat").made == {COPY: 2}
    assert tree(tmp_path / "out") == {"cat/3 box 0-0-50-50.png": 3, "cat/pack.npz-1.png": 25}
    with pytest.raises(InputError, match="could not be written"):
        sort(tmp_path / "bad", [f"{tmp_path / 'pack.npz'}#7"], "cat")


def test_names_are_safe_and_differ_whatever_their_spelling(tmp_path) -> None:
    for name in ODD:
        safe = folders.safe_name(name)
        assert not set(safe) & set('<>:"/\\|?*\n\0')
        assert safe[0] != "."
        assert safe[-1] not in ". "
        assert len(safe.encode()) <= folders.LONGEST + 1
        assert safe.upper() != "CON"
    same = [picture(tmp_path / "photos" / sub / name, i) for i, (sub, name) in enumerate(
        (("a", "IMG.png"), ("b", "img.PNG"), ("c", "IMG.png"), ("d", "a:b?.png"), ("e", "con.png"), ("f", "x..y.png"))
    )]  # fmt: skip
    done = sort(tmp_path / "out", same, "A_B a/b A_B a/b A_B a/b")
    assert done.file == ["A_B/IMG.png", "a_b (2)/img.PNG", "A_B/IMG (2).png",
                         "a_b (2)/a_b_.png", "A_B/_con.png", "a_b (2)/x_y.png"]  # fmt: skip
    taken = [picture(tmp_path / "more" / name) for name in ("0/x.png", "1/x (2).png", "2/x.png")]
    assert sort(tmp_path / "more out", taken, "c c c").file == ["c/x.png", "c/x (2).png", "c/x (3).png"]
    with new_folder(tmp_path / "odd", "r1") as new:
        odd = new.add([TargetFile(same[0], name) for name in ODD])
    assert odd.folders == len({name.partition("/")[0].casefold() for name in odd.file}) == len(ODD)


def test_a_folder_of_somebody_else_is_refused_with_and_without_overwrite(tmp_path, images) -> None:
    (tmp_path / "out" / "sub").mkdir(parents=True)
    (tmp_path / "out" / "sub" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    for name in ("out", "file", "nowhere"):
        for overwrite in (False, True):
            with pytest.raises(InputError):
                sort(tmp_path / name, images, overwrite=overwrite)
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / ".DS_Store").touch()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    sort(tmp_path / "link", images)  # an empty folder is filled, and the folder that is named may be a link
    assert (tmp_path / "link").is_symlink()
    assert tree(tmp_path / "disk") == TREE
    for marker in ("{", "[]", '{"files": 1}', '{"files": {"a": 1}}'):
        (tmp_path / "out" / SORTED_FOLDER).write_text(marker)
        with pytest.raises(InputError, match="holds other files"):
            sort(tmp_path / "out", images, overwrite=True)
    assert (tmp_path / "out" / "sub" / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("copy", [False, True])
def test_ones_own_is_replaced_whole_with_overwrite_alone(tmp_path, images, copy) -> None:
    out = tmp_path / "out"
    sort(out, images, copy=copy)
    with pytest.raises(InputError, match="--overwrite"):
        sort(out, images, "cat emu emu emu")
    assert tree(out) == TREE
    (out / "dog" / "Thumbs.db").touch()
    os.replace(picture(tmp_path / "new.png", 99), images[0])  # it was edited by a program that renames
    done = sort(out, images, "cat emu emu emu", copy=copy, overwrite=True)
    assert tree(out) == {"cat/0.png": 99, "emu/1.png": 1, "emu/2.png": 2, "emu/3.png": 3}
    assert done.made == {COPY if copy else HARD_LINK: 4}
    assert sorted(os.listdir(out)) == [SORTED_FOLDER, "cat", "emu"]
    assert sorted(os.listdir(tmp_path)) == ["out", "photos"]


CHANGES = {
    "an added file": (False, "cat/notes.txt", lambda out, _: (out / "cat" / "notes.txt").write_text("mine")),
    "an added link": (False, "cat/mine", lambda out, _: (out / "cat" / "mine").symlink_to(out.parent)),
    "a changed copy": (True, "cat/1.png", lambda out, _: picture(out / "cat" / "1.png", 88)),
    "a copy without original": (True, "cat/1.png", lambda _, images: Path(images[1]).unlink()),
    "the last link": (False, "cat/1.png", lambda _, images: Path(images[1]).unlink()),
}


@pytest.mark.parametrize(("copy", "lost", "change"), CHANGES.values(), ids=CHANGES)
def test_what_would_be_lost_is_named_and_stays(tmp_path, images, change, copy, lost) -> None:
    out = tmp_path / "out"
    sort(out, images, copy=copy)
    change(out, images)
    before = sorted((file, file.stat().st_ino) for file in out.rglob("*"))
    with pytest.raises(InputError, match=f"would be lost.*{lost}"):
        sort(out, images, overwrite=True)
    assert sorted((file, file.stat().st_ino) for file in out.rglob("*")) == before


def test_what_somebody_adds_while_it_is_written_stays(tmp_path, images) -> None:
    out = tmp_path / "out"
    sort(out, images)
    with pytest.raises(InputError, match=r"notes\.txt"), new_folder(out, "r1", overwrite=True):
        (out / "notes.txt").write_text("mine")
    assert (out / "notes.txt").read_text() == "mine"


def test_a_stop_and_a_kill_or_a_failure_between_the_two_renames_lose_nothing(tmp_path, images, monkeypatch):
    """What people have written into a package comes back before the next one takes it over."""
    out, rename = tmp_path / "out", os.rename
    for there in ([], ["out"]):
        with pytest.raises(KeyboardInterrupt), new_folder(out, "r1", overwrite=True):
            raise KeyboardInterrupt
        assert sorted(os.listdir(tmp_path)) == [*there, "photos"]
        sort(out, images, overwrite=True)
    out.rename(atomic._name_before(out))
    with new_folder(out, "r1", overwrite=True) as new:
        assert tree(out) == TREE
        new.add([TargetFile(images[0], "emu")])
    assert tree(out) == {"emu/0.png": 0}

    def fail(here: Path, there: Path) -> None:
        if Path(there) == out and Path(here).suffix == ".part":
            raise OSError(errno.EIO, "the disk fails")
        rename(here, there)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(InputError, match="the disk fails"):
        sort(out, images, "a a a a", overwrite=True)
    assert tree(out) == {"emu/0.png": 0}
    assert sorted(os.listdir(tmp_path)) == ["out", "photos"]


def sizes(root: Path) -> Counter[str]:
    """Images by folder."""
    return Counter(file.parent.name for file in root.rglob("*.png"))


def test_every_image_lies_in_its_category_and_moves_with_corrections(tmp_path) -> None:
    run, out = made_run(tmp_path), tmp_path / "sorted"
    found = Discovery.load(run)
    (tmp_path / "pack.npz").write_bytes(b"cut off")
    columns = ["path", "category", "category_id", "kind", "problem"]
    found.images.loc[5, columns[1:]] = ["", "", "", "cut off"]
    # is no file: left out
    found.images.loc[6, columns] = [f"{tmp_path / 'pack.npz'}#1", "", "", "", "cut off"]
    found.save(run)
    assert write_folders(run, out).images == len(found.images) - 1 == sum(sizes(out).values())
    assert sizes(out)[UNREADABLE_FOLDER] == 1
    assert sizes(out)["_script_alert(1)__script_"] == found.category("<script>alert(1)</script>").n
    one, other = paths(run, "Bag")[:2]
    edit(run, ("rename", "", "new-01", "a/b: c?"), ("merge", "", "new-03", "new-02"))
    edit(run, ("move", one, "", "_rejected"), ("reject", other, "", ""))
    write_folders(run, out, overwrite=True)
    found, named = Discovery.load(run), sizes(out)
    assert (named["a_b_ c_"], named["new-02"]) == (found.category("new-01").n, found.category("new-02").n)
    assert named["_rejected (2)"] == 1  # the category of that name
    assert [file.name for file in (out / REJECTED_FOLDER).iterdir()] == [Path(other).name.replace('"', "_")]
    assert "new-03" not in named
    # as a collection of its own: what was rejected comes back neither as a class nor among the rest
    read = load_table(out)
    assert len(read) == len(found.images) - 3
    assert REJECTED_FOLDER not in read.known
