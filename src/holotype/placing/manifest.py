"""Which files in a folder were made of which images: `.holotype-folders.json` in the folder itself.

A file counts as ours while it is what was put there: a link to its image, or a copy that nobody has changed since.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holotype.data.containers import file_of
from holotype.data.walk import SORTED
from holotype.errors import InputError
from holotype.machine.files import OURS, write_text
from holotype.machine.locks import LOCK
from holotype.machine.sealed import read_sealed, sealed
from holotype.placing.folders import real

MANIFEST = SORTED
"""data/walk.py knows it as well: the links in such a folder are no further images of a collection."""
FORMAT = 1
OF_NOBODY = (LOCK, ".DS_Store", "Thumbs.db", "desktop.ini")
"""What a new or empty folder may hold: systems put some of it there unasked."""


@dataclass(frozen=True)
class Made:
    """A file of ours."""

    image: str
    stamp: str = ""
    """Size and time of the file; "" where they are not known before it is made."""
    image_stamp: str = ""
    """Those of the image's file then."""


@dataclass
class Manifest:
    """What a folder holds of ours."""

    root: Path
    folders: dict[str, str] = field(default_factory=dict)
    """Name of a category to its folder."""
    files: dict[str, Made] = field(default_factory=dict)
    """By name from the root, with slashes."""

    def look(self, name: str, copies: bool = False) -> tuple[bool, bool]:
        """Of a file in the list: is it still what was put there, and may it stay so? copies: links may not."""
        made, file = self.files[name], os.path.join(self.root, name)
        try:
            there = os.lstat(file)
            if stat.S_ISLNK(there.st_mode):
                ours = os.readlink(file) == real(made.image)
                return ours, ours and not copies
        except OSError:
            return False, False
        image = _stat(file_of(made.image))
        if image is not None and os.path.samestat(there, image):
            return True, not copies
        if not there.st_size:  # a kill has left the name taken and no more
            return True, False
        ours = made.stamp == stamp(there)
        # without its image, the file is all that is left of it
        return ours, ours and (image is None or stamp(image) == made.image_stamp)

    def save(self, run_id: str, before: Manifest | None = None) -> None:
        """before: what is there as well while the work goes on."""
        folders = self.folders if before is None else before.folders | self.folders
        files = self.files if before is None else before.files | self.files
        rows = {name: (made.image, made.stamp, made.image_stamp) for name, made in files.items()}
        content = {"format": FORMAT, "run_id": run_id, "folders": folders, "files": rows}
        write_text(self.root / MANIFEST, sealed(content, indent=None))


def read_manifest(root: Path, runs: Sequence[str]) -> Manifest:
    """What an earlier command left; InputError for a folder that is somebody else's, or another run's.

    runs: the run's id, then those of its earlier rounds.
    """
    file = root / MANIFEST
    if not file.is_file():
        names = [entry.name for entry in entries(root)]
        other = next((name for name in names if not (name in OF_NOBODY or OURS.fullmatch(name))), None)
        if other is not None:
            raise InputError(
                f"{root} holds other files ({other}), and nothing is written among them; name a new or empty folder."
            )
        return Manifest(root)
    try:
        content = read_sealed(file)
        version, run = content["format"], content["run_id"]
        if version == FORMAT and run in runs:
            folders = {str(name): str(folder) for name, folder in content["folders"].items()}
            return Manifest(root, folders, {str(name): Made(*row) for name, row in content["files"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file} cannot be read; name another folder.") from error
    if version != FORMAT:
        raise InputError(
            f"{file} is of another version (format {version}, not {FORMAT}); name another folder."
        )
    raise InputError(f"{root} holds the images of another run ({run}); name another folder.")


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder; nothing where there is none."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


def stamp(found: os.stat_result) -> str:
    return f"{found.st_size}-{found.st_mtime_ns}"


def _stat(file: str) -> os.stat_result | None:
    try:
        return os.stat(file)
    except OSError:
        return None
