"""A folder of images; the first folder below it is the label. One of Parquet files or tars alone is read as these."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from holotype.data.kinds import IMAGE_EXTENSIONS
from holotype.data.names import composed
from holotype.data.paths import Paths
from holotype.data.readers.parquet import holds_images, paths_in_parquet, read_parquet
from holotype.data.readers.tars import paths_in_tars, read_tars
from holotype.data.table import Table
from holotype.data.walk import Walked, images_below, walk
from holotype.errors import InputError
from holotype.utils.text import suggest_path

UNLABELLED_FOLDERS = ("unlabelled", "unlabeled")

log = logging.getLogger("holotype")


def from_folder(root: Path) -> Table:
    """Every image under `root`; the first folder below it is the label.

    Loose images and those in a folder called `unlabelled` carry no label. Rows are sorted by path; hidden files and
    folders that runs wrote are skipped, and a line in the log says what else was passed over. Where there is no image,
    Parquet files with images and tars are read.
    """
    base, found = _walked(root)
    if not found.images and (packed := read_packed([str(path) for path in found.packed], base.name)):
        return packed
    files = _sorted(root, base, found)
    label = [folder_label(file.parts) for file in files]
    return Table(
        path=np.array([str(base / file) for file in files], dtype=object),
        label=np.array(label, dtype=object),
        known=tuple(sorted(set(label) - {""})),
        name=base.name,
        root=str(base),
    )


def paths_in_folder(source: str) -> Paths:
    """The paths of `from_folder` in a stream."""
    base, found = _base(Path(source)), Walked()
    images = images_below(base, found)
    first = next(images, None)
    if first is None:
        _check_open(source, found)
        packed = paths_packed([str(path) for path in found.packed])
        if packed is None:
            _sorted(Path(source), base, found)  # says that there is no image
        assert packed is not None
        return packed

    def each() -> Iterator[str]:
        yield str(first)
        yield from map(str, images)
        if passed := found.words():
            log.info(passed)

    return Paths(str(base), each())


def images_in(root: Path) -> tuple[Path, list[Path]]:
    """The folder's absolute path and its images relative to it, sorted; never an empty list."""
    base, found = _walked(root)
    return base, _sorted(root, base, found)


def _walked(root: Path) -> tuple[Path, Walked]:
    base = _base(root)
    found = walk(base)
    _check_open(root, found)
    if found.images and (passed := found.words()):
        log.info(passed)
    return base, found


def _base(root: Path) -> Path:
    if not Path(root).is_dir():
        raise InputError(f"The folder {root} does not exist{suggest_path(root)}; check its name.")
    return Path(os.path.abspath(root))


def _check_open(root: Path | str, found: Walked) -> None:
    if "." in found.closed:
        raise InputError(f"The folder {root} may not be read; change its permissions.")


def _sorted(root: Path, base: Path, found: Walked) -> list[Path]:
    files = sorted((f.relative_to(base) for f in found.images), key=lambda f: f.parts)
    if not files:
        if passed := found.words():
            log.info(passed)
        kinds = ", ".join(IMAGE_EXTENSIONS)
        raise InputError(f"There is no image in {root}; files that end in {kinds} count as images.")
    return files


def folder_label(parts: Sequence[str]) -> str:
    """Of an image, by the parts of its path below the folder of all images; "" = none."""
    first = parts[0] if len(parts) > 1 else ""
    return "" if first.lower() in UNLABELLED_FOLDERS else composed(first)


def read_packed(files: Sequence[str], name: str) -> Table | None:
    """What lies in Parquet files with images or in tars, whichever are there; None where neither are.

    files: absolute paths or addresses of Parquet files and tars.
    """
    tars, tables = _kinds(files)
    if tars:
        return read_tars(tars, name)
    return read_parquet(tables, name) if tables else None


def paths_packed(files: Sequence[str]) -> Paths | None:
    """The same as a stream of paths."""
    tars, tables = _kinds(files)
    if tars:
        return paths_in_tars(tars)
    return paths_in_parquet(tables) if tables else None


def _kinds(files: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tars, and Parquet files with images; not both."""
    tars = sorted(file for file in files if ".tar" in _ending(file))
    tables = sorted(file for file in files if ".parquet" in _ending(file) and holds_images(file))
    if tars and tables:
        raise InputError(
            f"There are both Parquet files ({tables[0]}) and tars ({tars[0]}) of images; name one kind of them."
        )
    return tars, tables


def _ending(file: str) -> str:
    return os.path.splitext(file.partition("?")[0])[1].lower()
