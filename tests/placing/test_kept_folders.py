"""Folders that are brought up to date: what belongs elsewhere moves, and nothing of anybody else's is touched."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from holotype.data.sources import from_folder
from holotype.errors import InputError
from holotype.machine.sealed import read_sealed
from holotype.placing.folders import COPY, HARD, SYMBOLIC
from holotype.placing.kept_folders import Sorted, Wanted, sort_images
from holotype.placing.manifest import MANIFEST


def picture(path: Path, value: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4, 3), value, dtype=np.uint8)).save(path)
    return str(path)


@pytest.fixture
def images(tmp_path) -> list[str]:
    return [picture(tmp_path / "photos" / f"{i}.png", i) for i in range(4)]


def sort(root: Path, images: list[str], folders: str, **how) -> Sorted:
    """folders: one word per image."""
    pairs = zip(images, folders.split(), strict=True)
    return sort_images(root, ("r2", "r1"), [Wanted(*pair) for pair in pairs], **how)


def tree(root: Path) -> dict[str, str]:
    """Every file but the hidden ones, and what is in it by its grey value."""
    files = [file for file in sorted(root.rglob("*")) if file.is_file() and not file.name.startswith(".")]
    return {
        str(file.relative_to(root)): str(np.asarray(Image.open(file))[0, 0, 0])
        if file.suffix == ".png"
        else ""
        for file in files
    }


def test_images_move_and_empty_folders_go(tmp_path, images) -> None:
    out = tmp_path / "out"
    done = sort(out, images, "cat cat dog dog")
    assert tree(out) == {"cat/0.png": "0", "cat/1.png": "1", "dog/2.png": "2", "dog/3.png": "3"}
    assert (done.images, done.folders, done.made, done.moved) == (4, 2, {HARD: 4}, 0)
    assert os.path.samefile(out / "cat" / "0.png", images[0])
    done = sort(out, images, "cat emu emu emu")
    assert tree(out) == {"cat/0.png": "0", "emu/1.png": "1", "emu/2.png": "2", "emu/3.png": "3"}
    assert (done.made, done.moved, done.removed, done.left) == ({}, 3, 0, 0)
    assert sorted(path.name for path in out.iterdir()) == [MANIFEST, "cat", "emu"]
    done = sort(out, images, "cat emu emu emu")
    assert (done.made, done.moved, done.file[1]) == ({}, 0, "emu/1.png")


def test_a_folder_of_somebody_else_is_left_alone(tmp_path, images) -> None:
    out = tmp_path / "out"
    (out / "sub").mkdir(parents=True)
    (out / "sub" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds other files \(sub\)"):
        sort(out, images, "cat cat dog dog")
    assert tree(out) == {"sub/mine.txt": ""}
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        sort(tmp_path / "file", images, "cat cat dog dog")
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / ".DS_Store").write_text("")
    assert sort(empty, images, "cat cat dog dog").images == 4


def test_files_and_folders_that_people_add_stay(tmp_path, images) -> None:
    out = tmp_path / "out"
    sort(out, images, "cat cat dog dog")
    (out / "cat" / "notes.txt").write_text("mine")
    (out / "emu").mkdir()
    (out / "emu" / "1.png").write_text("mine, too")
    (out / "dog" / "2.png").unlink()
    (out / "dog" / "2.png").write_text("mine as well")
    done = sort(out, images, "emu emu emu dog")
    assert (out / "cat" / "notes.txt").read_text() == "mine"
    assert (out / "emu" / "1.png").read_text() == "mine, too"
    assert (out / "dog" / "2.png").read_text() == "mine as well"
    assert done.left == 1
    assert {path.name for path in (out / "emu (2)").iterdir()} == {"0.png", "1.png", "2.png"}
    again = sort(out, images, "emu emu emu dog")
    assert (again.made, again.moved, again.left) == ({}, 0, 0)


def test_links_of_images_that_nobody_asks_for_go_but_never_the_last_copy(tmp_path, images) -> None:
    out = tmp_path / "out"
    sort(out, images, "cat cat dog dog")
    os.unlink(images[1])
    done = sort(out, images[2:], "dog dog")
    assert (done.removed, done.left) == (1, 1)
    assert tree(out) == {"cat/1.png": "1", "dog/2.png": "2", "dog/3.png": "3"}


def test_an_image_that_is_gone_moves_with_its_last_copy(tmp_path, images) -> None:
    out = tmp_path / "out"
    sort(out, images, "cat cat dog dog", copy=True)
    os.unlink(images[0])
    done = sort(out, [*images, str(tmp_path / "never.png")], "dog cat dog dog dog")
    assert (done.moved, done.gone) == (1, 1)
    assert tree(out)["dog/0.png"] == "0"
    assert done.file[-1] == ""


def test_copies_are_copies_and_follow_their_images(tmp_path, images) -> None:
    out = tmp_path / "out"
    assert sort(out, images, "cat cat dog dog").made == {HARD: 4}
    done = sort(out, images, "cat cat dog dog", copy=True)
    assert (done.made, done.removed) == ({COPY: 4}, 4)
    assert sorted(tree(out)) == ["cat/0.png", "cat/1.png", "dog/2.png", "dog/3.png"]
    assert not os.path.samefile(out / "cat" / "0.png", images[0])
    assert sort(out, images, "cat cat dog dog", copy=True).made == {}
    picture(Path(images[0]), 77)
    picture(out / "cat" / "1.png", 88)
    done = sort(out, images, "cat cat dog dog", copy=True)
    assert (done.made, done.removed, done.left) == ({COPY: 2}, 1, 1)
    found = tree(out)
    assert (found["cat/0.png"], found["cat/1.png"], found["cat/1 (2).png"]) == ("77", "88", "1")


def test_symbolic_links_where_there_are_no_hard_ones(tmp_path, images, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    out = tmp_path / "out"
    assert sort(out, images, "cat cat dog dog").made == {SYMBOLIC: 4}
    done = sort(out, images, "cat dog dog dog")
    assert (done.moved, done.made) == (1, {})
    (out / "cat" / "0.png").unlink()
    (out / "cat" / "0.png").symlink_to(images[3])
    done = sort(out, images, "cat dog dog dog")
    assert (done.left, done.file[0]) == (1, "cat/0 (2).png")


def test_names_are_safe_and_differ_whatever_their_spelling(tmp_path) -> None:
    same = [picture(tmp_path / "photos" / sub / name, i) for i, (sub, name) in enumerate(
        (("a", "IMG.png"), ("b", "img.PNG"), ("c", "IMG.png"), ("d", "a:b?.png"), ("e", "con.png"), ("f", "x..y.png"))
    )]  # fmt: skip
    wanted = [Wanted(path, "a/b" if i % 2 else "A_B") for i, path in enumerate(same)]
    done = sort_images(tmp_path / "out", ("r",), wanted)
    assert done.file == ["A_B/IMG.png", "a_b (2)/img.PNG", "A_B/IMG (2).png",
                         "a_b (2)/a_b_.png", "A_B/_con.png", "a_b (2)/x_y.png"]  # fmt: skip


def test_images_inside_a_container_are_written_once(tmp_path) -> None:
    np.savez(tmp_path / "pack.npz", x=np.arange(2 * 5 * 5, dtype=np.uint8).reshape(2, 5, 5))
    images = [f"{tmp_path / 'pack.npz'}#{i}" for i in range(2)]
    assert sort(tmp_path / "out", images, "cat dog").made == {COPY: 2}
    done = sort(tmp_path / "out", images, "dog dog")
    assert (done.made, done.moved) == ({}, 1)
    assert tree(tmp_path / "out") == {"dog/pack.npz-0.png": "0", "dog/pack.npz-1.png": "25"}


@pytest.mark.parametrize("copy", [False, True])
def test_a_command_that_is_stopped_leaves_nothing_that_the_next_does_not_know(
    tmp_path, images, monkeypatch, copy
) -> None:
    from holotype.placing import kept_folders

    out, real, count = tmp_path / "out", kept_folders.place, [0]

    def stop(*words, **how) -> str:
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        return real(*words, **how)

    monkeypatch.setattr(kept_folders, "place", stop)
    with pytest.raises(KeyboardInterrupt):
        sort(out, images, "cat cat dog dog", copy=copy)
    assert len(tree(out)) == 2
    done = sort(out, images, "dog cat dog dog", copy=copy)
    assert (done.moved, sum(done.made.values()), done.left) == (1, 2, 0)
    assert tree(out) == {"cat/1.png": "1", "dog/0.png": "0", "dog/2.png": "2", "dog/3.png": "3"}


def test_a_name_that_a_kill_has_left_empty_is_taken_again(tmp_path, images) -> None:
    """Copies take their name first, with an empty file, which the copy then replaces."""
    out = tmp_path / "out"
    sort(out, images, "cat cat dog dog", copy=True)
    (out / "cat" / "1.png").write_bytes(b"")
    done = sort(out, images, "cat cat dog dog", copy=True)
    assert (done.removed, sum(done.made.values()), done.left) == (1, 1, 0)
    assert tree(out) == {"cat/0.png": "0", "cat/1.png": "1", "dog/2.png": "2", "dog/3.png": "3"}


def test_a_full_disk_is_one_sentence(tmp_path, images, monkeypatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holotype.placing.kept_folders.place", full)
    with pytest.raises(InputError, match="No space left on device"):
        sort(tmp_path / "out", images, "cat cat dog dog")


def test_another_run_and_another_version_are_refused(tmp_path, images) -> None:
    out = tmp_path / "out"
    sort_images(out, ("r1",), [Wanted(images[0], "cat")])
    assert sort(out, images, "cat cat dog dog").images == 4  # r1 is the round before r2
    with pytest.raises(InputError, match=r"of another run \(r2\)"):
        sort_images(out, ("r3",), [Wanted(images[0], "cat")])
    content = read_sealed(out / MANIFEST)
    (out / MANIFEST).write_text(json.dumps(content | {"format": 9}))
    with pytest.raises(InputError, match="format 9"):
        sort(out, images, "cat cat dog dog")
    (out / MANIFEST).write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        sort(out, images, "cat cat dog dog")
    assert len(tree(out)) == 4


def test_links_inside_a_collection_are_no_further_images(tmp_path, images) -> None:
    sort(tmp_path / "photos" / "sorted", images, "cat cat dog dog")
    assert list(from_folder(tmp_path / "photos").path) == images
    assert set(from_folder(tmp_path / "photos" / "sorted").known) == {"cat", "dog"}


def test_an_image_that_was_replaced_is_linked_anew(tmp_path, images) -> None:
    """A program that saves beside and renames leaves the old picture under the hard link."""
    out = tmp_path / "out"
    sort(out, images, "cat cat dog dog")
    os.replace(picture(tmp_path / "new.png", 99), images[0])
    assert tree(out)["cat/0.png"] == "0"
    done = sort(out, images, "cat cat dog dog")
    assert (tree(out)["cat/0.png"], done.made, done.removed, done.left) == ("99", {HARD: 1}, 1, 0)


@pytest.mark.parametrize("kind", [HARD, SYMBOLIC, COPY])
def test_images_that_were_moved_or_renamed_are_not_there_twice(tmp_path, images, monkeypatch, kind) -> None:
    """The collection lies elsewhere, and one image has another name."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if kind == SYMBOLIC:
        monkeypatch.setattr(os, "link", refuse)
    out, boxed = tmp_path / "out", f"{images[3]}#xywh=percent:0,0,50,50"
    before = [*images[:3], boxed]
    assert sort(out, before, "cat cat dog dog", copy=kind == COPY).made[kind] >= 3
    there = tree(out)
    (tmp_path / "photos").rename(tmp_path / "archive")
    (tmp_path / "archive" / "1.png").rename(tmp_path / "archive" / "one.png")
    now = [path.replace("photos", "archive").replace("1.png", "one.png") for path in before]
    done = sort(out, now, "cat emu dog dog", copy=kind == COPY)
    assert set(tree(out)) == {*there, "emu/one.png"} - {"cat/1.png"}
    assert (done.images, done.left) == (4, 0)
    assert not any(file.is_symlink() and not file.exists() for file in out.rglob("*"))


def test_another_image_of_the_same_size_and_time_is_not_the_one_that_is_gone(tmp_path, images) -> None:
    out = tmp_path / "out"
    sort(out, images, "cat cat dog dog", copy=True)
    content = Path(images[1]).read_bytes()
    time = os.stat(images[1]).st_mtime_ns
    Path(images[1]).unlink()
    other = tmp_path / "photos" / "other.png"
    picture(other, 9)
    assert other.stat().st_size == len(content)
    os.utime(other, ns=(time, time))
    sort(out, [images[0], str(other), *images[2:]], "cat cat dog dog", copy=True)
    assert tree(out)["cat/other.png"] == "9"
    assert (out / "cat" / "1.png").read_bytes() == content  # all that is left of it
