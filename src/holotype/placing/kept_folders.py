"""A folder of folders of images that is brought up to date again and again, and in which other people's files stay.

What will be is written down before anything is done (manifest.py), so that a stopped command leaves nothing that the
next one does not know.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from holotype.data.addresses import is_address
from holotype.data.containers import file_of, image_exists
from holotype.data.stores import stamp_of
from holotype.errors import InputError
from holotype.machine.bars import counting
from holotype.machine.locks import hold
from holotype.placing.folders import COPY, file_name, free_name, is_part, is_same, numbered, place, safe_name
from holotype.placing.manifest import Made, Manifest, entries, read_manifest, stamp


@dataclass(frozen=True)
class Wanted:
    """An image and the name of the folder in which it belongs."""

    path: str
    folder: str


@dataclass
class Sorted:
    """What became of the images."""

    images: int = 0
    """That lie in the folders now."""
    folders: int = 0
    made: Counter[str] = field(default_factory=Counter)
    """New files: HARD, SYMBOLIC or COPY."""
    moved: int = 0
    removed: int = 0
    """Files that were outdated, or of images that are no longer asked for."""
    left: int = 0
    """Files that lie where ours did and were changed, or whose images are gone: they stay."""
    gone: int = 0
    """Images that could not be sorted because their files are gone."""
    file: list[str] = field(default_factory=list)
    """(N,) of each image, from the root; "" where there is none."""


@dataclass(frozen=True)
class _Waiting:
    """An image that has no file in its folder yet."""

    row: int
    path: str
    folder: str
    held: str
    """Its file in another folder, which may move; "" = none."""


def sort_images(
    root: Path,
    runs: Sequence[str],
    wanted: Sequence[Wanted],
    *,
    copy: bool = False,
    progress: bool = False,
) -> Sorted:
    """Let the folder `root` hold these images, each in its folder, and no others of ours.

    runs: the run's id, then those of its earlier rounds. copy: copies instead of links, also of what is linked already.
    """
    if root.exists() and not root.is_dir():
        raise InputError(f"{root} is a file, not a folder; name another.")
    with hold(root):
        return _Sorting(read_manifest(root, runs), runs[0], copy).run(wanted, progress)


class _Sorting:
    """One command's work: plan, write the plan down, do it, write down what is there."""

    def __init__(self, kept: Manifest, run_id: str, copy: bool) -> None:
        self.root, self.kept, self.run_id, self.copy = kept.root, kept, run_id, copy
        self.now = Manifest(kept.root)
        self.done = Sorted()
        self.surplus: set[str] = set()
        """Files of ours that nobody asks for, and that are not all that is left of an image."""
        ours = set(kept.folders.values())
        self.folder_taken = {entry.name.casefold() for entry in entries(self.root) if entry.name not in ours}
        self.name_taken: dict[str, set[str]] = {}
        self.next_number: dict[tuple[str, str], int] = {}
        self.folders_there: set[str] = set()

    def run(self, wanted: Sequence[Wanted], progress: bool) -> Sorted:
        moves, makes = self._go(self._stay(wanted))
        self.now.save(self.run_id, self.kept)
        with counting("Sorting images", len(moves) + len(makes), progress) as advance:
            self._remove()
            for before, after in moves:
                self._move(before, after)
                advance(1)
            for name, path in makes:
                self._make(name, path)
                advance(1)
        self._tidy()
        self.now.save(self.run_id)
        self.done.images = len(self.now.files)
        self.done.folders = len({name.rpartition("/")[0] for name in self.now.files})
        return self.done

    # -- the plan -----------------------------------------------------------------------------------

    def _stay(self, wanted: Sequence[Wanted]) -> list[_Waiting]:
        """Note what may stay where it is; returns the images that need a file, and finds out which files may go."""
        self._follow(wanted)
        by_image: dict[str, list[str]] = {}
        for name, made in self.kept.files.items():
            by_image.setdefault(made.image, []).append(name)
        waiting = []
        for row, one in enumerate(wanted):
            folder = self._folder(one.folder)
            fresh = [name for name in by_image.get(one.path, ()) if self.kept.look(name, self.copy)[1]]
            here = next((name for name in fresh if name.rpartition("/")[0] == folder), "")
            held = here or next(iter(fresh), "")
            if held:
                by_image[one.path].remove(held)
            if here:
                self.now.files[here] = self.kept.files[here]
            else:
                waiting.append(_Waiting(row, one.path, folder, held))
            self.done.file.append(here)
        for image, names in by_image.items():
            there = [name for name in names if os.path.lexists(self.root / name)]
            is_there = image_exists(image)
            may_go = [name for name in there if (is_there or self._dangles(name)) and self.kept.look(name)[0]]
            self.surplus.update(may_go)
            self.done.left += len(there) - len(may_go)
        return waiting

    def _follow(self, wanted: Sequence[Wanted]) -> None:
        """Let the list call images by their paths of today: where one is gone and its file is what one that the list
        does not know would become, that is the same image, moved or renamed. Size and time say which to look at."""
        listed, asked = {made.image for made in self.kept.files.values()}, {one.path for one in wanted}
        gone = {image for image in listed - asked if not image_exists(image)}
        new: dict[tuple[str, str], list[str]] = {}
        for path in sorted(asked - listed) if gone else ():
            if image_exists(path):
                new.setdefault((_image_stamp(path), _part_of(path)), []).append(path)
        for name, made in self.kept.files.items():
            able = new.get((made.image_stamp, _part_of(made.image)), []) if made.image in gone else []
            if (same := next((path for path in able if is_same(path, self.root / name)), None)) is not None:
                self.kept.files[name] = replace(made, image=same)
                able.remove(same)

    def _dangles(self, name: str) -> bool:
        """Is the file a link that leads nowhere, and so nothing that is left of an image?"""
        return os.path.islink(self.root / name) and not os.path.exists(self.root / name)

    def _go(self, waiting: Sequence[_Waiting]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """(file now, file then) of what moves, and (file, image) of what is new."""
        moves, makes = [], []
        for one in waiting:
            made = self.kept.files[one.held] if one.held else _expected(one.path)
            if made is None:
                self.done.gone += 1
                continue
            name = self._free(one.folder, one.path)
            self.done.file[one.row], self.now.files[name] = name, made
            if one.held:
                moves.append((one.held, name))
            else:
                makes.append((name, one.path))
        return moves, makes

    def _folder(self, name: str) -> str:
        """The folder of a category: the one that it had, or one that nobody has."""
        if name not in self.now.folders:
            others = {folder.casefold() for folder in (self.kept.folders | self.now.folders).values()}
            new = free_name(safe_name(name), self.folder_taken | others)
            self.now.folders[name] = self.kept.folders.get(name, new)
        return self.now.folders[name]

    def _free(self, folder: str, path: str) -> str:
        """A name that no file in the folder has, in whatever spelling."""
        if folder not in self.name_taken:
            names = [entry.name for entry in entries(self.root / folder)]
            self.name_taken[folder] = {n.casefold() for n in names if f"{folder}/{n}" not in self.surplus}
        taken = self.name_taken[folder]
        stem, ending = file_name(path)
        key = (folder, (stem + ending).casefold())
        number = self.next_number.get(key, 1)
        while numbered(stem, ending, number).casefold() in taken:
            number += 1
        self.next_number[key] = number + 1
        taken.add(numbered(stem, ending, number).casefold())
        return f"{folder}/{numbered(stem, ending, number)}"

    # -- doing --------------------------------------------------------------------------------------

    def _remove(self) -> None:
        for name in self.surplus:
            with _telling(self.root / name):
                (self.root / name).unlink(missing_ok=True)
        self.done.removed = len(self.surplus)

    def _move(self, before: str, after: str) -> None:
        with _telling(self.root / after):
            self._make_folder(after)
            os.rename(self.root / before, self.root / after)
        self.done.moved += 1

    def _make(self, name: str, path: str) -> None:
        target = self.root / name
        with _telling(target):
            self._make_folder(name)
            kind = place(path, target, copy=self.copy)
            if kind == COPY:  # some file systems round times; a link has the stamp that was expected
                self.now.files[name] = Made(path, stamp(os.stat(target)), _image_stamp(path))
        self.done.made[kind] += 1

    def _make_folder(self, name: str) -> None:
        folder = name.rpartition("/")[0]
        if folder not in self.folders_there:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
            self.folders_there.add(folder)

    def _tidy(self) -> None:
        """Remove folders of ours that have become empty, and forget those that nobody uses."""
        used = {name.rpartition("/")[0] for name in self.now.files}
        for folder in {*self.kept.folders.values(), *self.now.folders.values()} - used:
            with contextlib.suppress(OSError):
                (self.root / folder).rmdir()
        self.now.folders = {name: folder for name, folder in self.now.folders.items() if folder in used}


def _image_stamp(path: str) -> str:
    file = file_of(path)
    return stamp_of(file) if is_address(file) else stamp(os.stat(file))


def _part_of(path: str) -> str:
    """What of its file an image is; "" = the whole."""
    return path[len(file_of(path)) :]


def _expected(path: str) -> Made | None:
    """A file before it is made: it will have the size and the time of its image. None where the image is gone."""
    if is_part(path):
        return Made(path) if image_exists(path) else None
    try:
        now = stamp(os.stat(path))
    except OSError:
        return None
    return Made(path, now, now)


@contextlib.contextmanager
def _telling(target: Path) -> Iterator[None]:
    """An error of the system as a sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{target} could not be written ({error.strerror or error}); what is there stays: free some space or name "
            "another folder, then run the same command again."
        ) from error
