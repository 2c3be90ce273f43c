"""Labels of the images of a stream, whose paths are never all in memory: from folders, from a list, or none.

Whoever reads the stream shows every path once (`see`), then `settle`s, and asks for labels from then on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from holotype.data.archives import split_archive
from holotype.data.boxes import split_box
from holotype.data.labels import match_labels, read_list
from holotype.data.paths import absolute, find_images
from holotype.data.readers.folder import folder_label
from holotype.data.storage import is_address, split_member
from holotype.errors import InputError


class NoLabels:
    """No image carries a label."""

    def see(self, path: Sequence[str]) -> None:
        """path: as seen from the root."""

    def settle(self) -> None:
        """All paths were seen; raises InputError for labels that belong to none of them."""

    def of(self, path: str) -> str:
        """The label of an image by its path from the root, "" = none."""
        return ""


class FolderLabels(NoLabels):
    """The first folder below the root is the label, as in a folder of images.

    What lies in a tar or a Parquet file, or outside the root, is in no such folder.
    """

    def __init__(self, root: str) -> None:
        self.root = root

    def of(self, path: str) -> str:
        parts = PurePosixPath(path).parts
        if is_address(path) or os.path.isabs(path) or parts[0] == "..":
            return ""
        whole = split_box(absolute(path, self.root))[0]
        packed = split_member(whole) is not None or split_archive(whole) is not None
        return "" if packed else folder_label(parts)


class ListedLabels(NoLabels):
    """A file with the columns path and label tells those that there are. A box has the label of its picture, unless the
    file names that very box."""

    def __init__(self, file: Path, root: str) -> None:
        self.listed, self.root = read_list(file), root
        self.starts = (Path(root), Path(os.path.abspath(file.parent)))
        self.meant: set[str] = set()
        """Absolute paths of pictures that the list may mean."""
        find_images(self.listed.path, self.starts, self._note, list)
        self.there: set[str] = set()
        """Those of them that were seen, and their boxes."""
        self.label: dict[str, str] = {}

    def _note(self, path: str) -> bool:
        """A path that is asked for; whether there is such an image is not known yet."""
        self.meant.add(path)
        return False

    def see(self, path: Sequence[str]) -> None:
        for one in path:
            whole = absolute(one, self.root)
            picture = split_box(whole)[0]
            if picture in self.meant:
                self.there |= {whole, picture}

    def settle(self) -> None:
        listed = self.listed
        found, _ = find_images(listed.path, self.starts, self.there.__contains__, list)
        self._complain([row for row, path in enumerate(found) if path is None])
        kept = match_labels(listed, self.starts, self.there.__contains__, list, missing="", whole=True)
        of_line = {line: row for row, line in enumerate(listed.line)}
        rows = zip(kept.path, kept.line, strict=True)
        self._complain([of_line[line] for path, line in rows if path not in self.there])
        self.label = dict(zip(kept.path, kept.label, strict=True))

    def _complain(self, absent: Sequence[int]) -> None:
        listed = self.listed
        if absent:
            raise InputError(
                f"{len(absent):,} of the {len(listed.path):,} images that {listed.file} labels are not among the "
                f"embeddings, for example {listed.some(absent)}; relative paths start at {self.starts[0]}."
            )

    def of(self, path: str) -> str:
        whole = absolute(path, self.root)
        return self.label.get(whole, self.label.get(split_box(whole)[0], ""))
