"""Export a run as folders of links, one per category.

Such a folder is filled beside its place and then renamed, so that a kill leaves nothing half-written. A marker in it
lists its files: what somebody added or changed, or the only copy of an image that is left, is never replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from holotype import __version__
from holotype.data.boxes import split_box
from holotype.data.decode import ImageProblem, encode_image, read_image
from holotype.data.image_files import has_own_file, image_exists, split_archive
from holotype.data.paths import split_member, split_query
from holotype.data.readers.folder import REJECTED_FOLDER, UNREADABLE_FOLDER
from holotype.data.readers.folder import SORTED_FOLDER as MARKER
from holotype.errors import InputError
from holotype.export.results_table import ResultsTable, read_results_table
from holotype.utils.atomic import atomic_folder, write_text
from holotype.utils.console import progress_bar
from holotype.utils.text import plural

UNSAFE = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]|\.\.+')
"""What some file system does not take in a name, and what would lead out of a folder."""
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that mean devices on Windows."""
LONGEST = 120
"""Bytes of a folder's name, and of a file's without its ending and its number; file systems take 255."""
FORMATS = dict.fromkeys((".jpg", ".jpeg", ".jpe", ".jfif"), "JPEG")
"""Of boxes, by the ending of their pictures; others become PNG."""
QUALITY = 95
HARD_LINK, SYMLINK, COPY = "hard link", "symbolic link", "copy"
"""What an image becomes in a folder."""
IGNORED = (MARKER, ".DS_Store", "Thumbs.db", "desktop.ini")
"""The marker, and what systems put into any folder."""
SHOWN = 5
"""Files that a sentence names."""


class TargetFile(NamedTuple):
    """An image and the name of the folder in which it belongs."""

    path: str
    folder: str


@dataclass
class FoldersResult:
    """What became of the images."""

    images: int = 0
    """That lie in the folders."""
    folders: int = 0
    made: Counter[str] = field(default_factory=Counter)
    """Files by kind: HARD_LINK, SYMLINK or COPY."""
    gone: int = 0
    """Images that were left out because their files are gone."""
    file: list[str] = field(default_factory=list)
    """(N,) of each image, with slashes, from the folder that holds the folders; "" where there is none."""

    def summary(self, out: Path) -> str:
        """Describe in lines what was written to `out`."""
        lines = [f"{plural(self.images, 'image')} in {plural(self.folders, 'folder')}: {out}"]
        made = [plural(n, kind, "copies" if kind == COPY else "") for kind, n in self.made.most_common()]
        lines += [f"{', '.join(made)}."] if made else []
        lines += [f"{plural(self.gone, 'image')} left out: the files are gone."] if self.gone else []
        return "\n".join(lines)


def write_folders(
    run: Path, folder: Path, *, copy: bool = False, overwrite: bool = False, progress: bool = False
) -> FoldersResult:
    """Write every image of a run into `folder`, one sub-folder per category, and what belongs to none apart.

    Args:
        run: Folder of the run.
        folder: A new or empty folder.
        copy: Write copies instead of links.
        overwrite: Replace a folder that Holotype wrote.
        progress: Show a progress bar.

    Returns:
        What was written.
    """
    results = read_results_table(run, need_files=True)
    targets = target_files(results)
    with new_folder(folder, results.found.run_id, overwrite=overwrite) as new:
        return new.add(targets, copy=copy, progress=progress)


def target_files(results: ResultsTable) -> list[TargetFile]:
    """Return where each image belongs. A part of a file that cannot be read is no file, and is left out."""
    special = (UNREADABLE_FOLDER, REJECTED_FOLDER)
    names = UniqueNames((*results.category, *special))
    renamed = {name: names.free(name) for name in special}  # categories of such names
    rows = zip(results.path, results.category, results.problem, strict=True)
    return [
        TargetFile(
            path, renamed.get(category, category) or (UNREADABLE_FOLDER if problem else REJECTED_FOLDER)
        )
        for path, category, problem in rows
        if category or not problem or not is_partial_file(path)
    ]


@dataclass
class NewFolder:
    """A folder that is being filled, and will take its place when it is whole."""

    path: Path
    images: dict[str, str] = field(default_factory=dict)
    """Image of each file that was made of one; files by name from `path`, with slashes."""

    def add(
        self, wanted: Sequence[TargetFile], *, below: str = "", copy: bool = False, progress: bool = False
    ) -> FoldersResult:
        """Link or copy images into sub-folders of the folder `below` in this one. Call it once for each `below`."""
        done, root, names, folders = FoldersResult(), self.path / below, UniqueNames(), dict[str, str]()
        with progress_bar("Sorting images", len(wanted), progress) as advance:
            for path, category in wanted:
                name = ""
                if image_exists(path):
                    if category not in folders:
                        folders[category] = names.free(safe_name(category))
                    stem, ending = export_file_name(path)
                    name = names.free(f"{folders[category]}/{stem}", ending)
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    done.made[link_file(path, root / name, copy=copy)] += 1
                    self.images[f"{below}/{name}" if below else name] = path
                done.file.append(name)
                advance(1)
        done.images, done.folders = done.made.total(), len(folders)
        done.gone = len(wanted) - done.images
        return done

    def write_marker(self, run_id: str) -> None:
        """List every file with its image and its stamp."""
        files = {
            name: (self.images.get(name, ""), _stamp(found)) for name, found in _list_files(self.path).items()
        }
        write_text(
            self.path / MARKER, json.dumps({"holotype": __version__, "run_id": run_id, "files": files})
        )


@contextlib.contextmanager
def new_folder(
    root: Path, run_id: str, *, overwrite: bool = False, merged: Collection[str] = ()
) -> Iterator[NewFolder]:
    """Yield a folder to fill, which becomes `root` when the block ends; InputError where `root` may not be replaced.

    merged: files that people may have changed, because the block takes over what they wrote into them.
    """
    check_replaceable(root, overwrite, merged)
    try:
        with atomic_folder(Path(os.path.realpath(root)), replace=True) as part:
            new = NewFolder(part)
            yield new
            new.write_marker(run_id)
            check_replaceable(root, overwrite, merged)  # somebody may have put something there meanwhile
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"{root} could not be written ({reason}); name another, or free some space."
        ) from error


def check_replaceable(root: Path, overwrite: bool, merged: Collection[str] = ()) -> None:
    """Raise InputError unless `root` is absent, empty, or a folder of Holotype of which nothing would be lost."""
    if os.path.lexists(root) and not root.is_dir():
        raise InputError(f"{root} is not a folder; name another.")
    if not root.is_dir() or not {*os.listdir(root)} - {*IGNORED}:
        return
    written = _read_marker(root)
    if not overwrite:
        raise InputError(f"{root} exists already; add --overwrite to replace it, or name another folder.")
    lost = [
        name
        for name, found in _list_files(root).items()
        if name not in merged and not (name in written and _is_spare(found, *written[name]))
    ]
    if lost:
        more = f" and {len(lost) - SHOWN:,} more" if len(lost) > SHOWN else ""
        raise InputError(
            f"{root} holds files that would be lost (added, changed, or without their originals): "
            f"{', '.join(lost[:SHOWN])}{more}; move them elsewhere, or name another folder."
        )


def _read_marker(root: Path) -> dict[str, tuple[str, str]]:
    """Return image and stamp by file; raise InputError where there is no marker that can be read."""
    try:
        files = json.loads((root / MARKER).read_bytes())["files"]
        return {name: (image, stamp) for name, (image, stamp) in files.items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{root} holds other files; name a new or empty folder.") from error


def _list_files(root: Path) -> dict[str, os.stat_result]:
    """Return all files below `root` by their names from there, with slashes; links are not followed."""

    def fail(error: OSError) -> None:
        raise error

    files = {}
    for where, folders, names in os.walk(root, onerror=fail):
        for name in {*names, *folders} - {*IGNORED}:
            file = os.path.join(where, name)
            found = os.lstat(file)
            if not stat.S_ISDIR(found.st_mode):
                files[os.path.relpath(file, root).replace(os.sep, "/")] = found
    return dict(sorted(files.items()))


def _is_spare(found: os.stat_result, image: str, stamp: str) -> bool:
    """Would nothing be lost without this file of ours? image, stamp: what the marker has of it."""
    if stat.S_ISLNK(found.st_mode) or found.st_nlink > 1:
        return True  # the content is elsewhere as well
    return stamp == _stamp(found) and (not image or image_exists(image))


def _stamp(found: os.stat_result) -> str:
    return f"{found.st_size}-{found.st_mtime_ns}"


def link_file(path: str, target: Path, *, copy: bool = False) -> str:
    """Make `target` the image at `path`, and return what it became: HARD_LINK, SYMLINK or COPY.

    An image inside a container has no file to link to: it is written as PNG; a box as what lies in it, as JPEG where
    the picture is one. Raises OSError where nothing could be written.
    """
    if is_partial_file(path):
        try:
            image, _ = read_image(path)
        except ImageProblem as problem:
            raise OSError(str(problem)) from problem
        target.write_bytes(encode_image(image, FORMATS.get(target.suffix.lower(), "PNG"), quality=QUALITY))
        return COPY
    source = os.path.realpath(path)  # a hard link to a symbolic link would be one
    for kind, make in () if copy else ((HARD_LINK, os.link), (SYMLINK, os.symlink)):
        with contextlib.suppress(OSError):  # not every file system has links
            make(source, target)
            return kind
    shutil.copyfile(source, target)
    times = os.stat(source)
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    return COPY


def is_partial_file(path: str) -> bool:
    """Is an image only a part of its file, or no file here, so that there is nothing to link to?"""
    return split_box(path)[1] is not None or not has_own_file(path)


class UniqueNames:
    """Names of files and folders that differ in whatever spelling: a/b and a_b, Cat and cat."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = {name.casefold() for name in taken}
        self._last: Counter[str] = Counter()

    def free(self, stem: str, ending: str = "") -> str:
        """Return `stem` + `ending`, with the first number that makes it a new name, and take it."""
        key = (stem + ending).casefold()
        while True:
            self._last[key] += 1
            name = numbered(stem, ending, self._last[key])
            if name.casefold() not in self.taken:
                self.taken.add(name.casefold())
                return name


def safe_name(name: str) -> str:
    """A name that every file system takes, as near to `name` as can be."""
    safe = UNSAFE.sub("_", name).strip().rstrip(". ")
    if len(safe.encode("utf-8", "replace")) > LONGEST:
        safe = safe.encode("utf-8", "ignore")[:LONGEST].decode("utf-8", "ignore").rstrip(". ")
    if not safe or safe.startswith(".") or RESERVED.fullmatch(safe):
        safe = f"_{safe}"
    return safe


def export_file_name(path: str) -> tuple[str, str]:
    """Stem and ending of the file that an image gets, both safe."""
    path, box = split_box(path)
    told = " box " + "-".join(f"{100 * value:.0f}" for value in (box.x, box.y, box.w, box.h)) if box else ""
    if part := split_archive(path):
        return safe_name(f"{os.path.basename(part[0])}-{part[1]}{told}"), ".png"
    if inside := split_member(path):
        file = os.path.basename(split_query(inside[1])[0])
        return safe_name(f"{os.path.splitext(file)[0]}-{inside[2]}{told}"), ".png"
    stem, ending = os.path.splitext(os.path.basename(split_query(path)[0]))
    if box and ending.lower() not in FORMATS:
        ending = ".png"
    return safe_name(stem + told), UNSAFE.sub("_", ending).rstrip(". ")


def numbered(stem: str, ending: str, number: int) -> str:
    """name.jpg, name (2).jpg, ..."""
    return stem + ending if number == 1 else f"{stem} ({number}){ending}"
