"""Relocate: rewrite stored image paths after files were moved or renamed.

Rounds and the log of edits speak of absolute paths; what a round was given speaks of paths as seen from the root of the
images. `follow` lets all of them speak of the paths of today. It first writes everything anew into the folder `moving`,
which appears as a whole or not at all; `settle` puts its files in their places. A kill in between is made good by the
next command.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.data.detections import box_columns
from holotype.data.paths import absolute, relative
from holotype.data.storage import is_address
from holotype.discovery.collection import read_collection
from holotype.discovery.constraints import LABELS_FILE, read_constraints, read_path_map, write_path_map
from holotype.report.redact import short_names
from holotype.results.discovery import DISCOVERY_FILE as DISCOVERY
from holotype.results.discovery import Category, Discovery
from holotype.results.edits import EDIT_LOG, Edit, edits_csv, read_log
from holotype.utils.atomic import atomic_folder, write_text

if TYPE_CHECKING:
    import pandas as pd

RELOCATION_FILE = "moving"
"""Folder in that of the run: files that are about to take their places."""
PREVIOUS_PATHS_FILE = "earlier.json"
"""Paths that images had to those that they have now, as seen from the root: files of edits may still name them."""
PreviousPaths = dict[str, list[str]]
"""The content of that file."""


@dataclass(frozen=True)
class Relocation:
    """Where the images of a discovery lie now."""

    root: str
    """The folder of the images today."""
    moves: Mapping[str, str] = field(default_factory=dict)
    """Path then to path now, each as seen from the root of its time, where these differ."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Path now to the file, as the table calls it."""

    def file(self, path: str, root: str) -> str:
        """The file of today of one that lay at `path` when the images lay in `root`; a gone one would lie there."""
        (there,) = relative([path], root)
        now = self.moves.get(there, there)
        if root == self.root and now == there:
            return self.files.get(now, path)
        return self.files.get(now) or absolute(now, self.root)


def rewrite_paths(folder: Path, rounds: Sequence[Path], root: str, where: Relocation) -> None:
    """Let a discovery speak of the images where they lie now. rounds: folders of rounds; root: that of then.

    An edit of an image that no round knows stays as it is: it was refused, and shall mean no other image now."""
    with atomic_folder(folder / RELOCATION_FILE) as part:
        known: set[str] = set()
        for own in (folder, *rounds):
            known |= _write_moved(own, part / own.relative_to(folder), where)
        if (folder / EDIT_LOG).is_file():
            edits = [
                _new_place(edit, where.file(edit.image, root)) if edit.image in known else edit
                for edit in read_log(folder)
            ]
            write_text(part / EDIT_LOG, edits_csv(edits))
        write_path_map(part / PREVIOUS_PATHS_FILE, _with_moves(read_previous_paths(folder), where.moves))
    commit_relocation(folder)


def commit_relocation(folder: Path) -> None:
    """Put the files of `moving` in their places, as far as that was not done; nothing where there are none."""
    moving = folder / RELOCATION_FILE
    if not moving.is_dir():
        return
    for file in sorted(path for path in moving.rglob("*") if path.is_file()):
        place = folder / file.relative_to(moving)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, place)
    shutil.rmtree(moving)


def _write_moved(own: Path, place: Path, where: Relocation) -> set[str]:
    """All files in the folder `own` that speak of images, as they will be, into the folder `place`; returns the paths
    that these images had."""
    known: set[str] = set()
    if (own / DISCOVERY).is_file():
        found = Discovery.load(own)
        known = {str(path) for path in found.images["path"]}
        relocated_paths(found, where).save(place)
    if (seen := read_collection(own)) is not None:
        seen.moved(where.moves, where.root).save(place)
    if (own / LABELS_FILE).is_file():
        read_constraints(own).moved(where.moves).save(place)
    return known


def relocated_paths(found: Discovery, where: Relocation) -> Discovery:
    """The discovery with the paths of today."""
    facts = found.facts
    before = [str(path) for path in found.images["path"]]
    now = {path: where.file(path, facts.root) for path in before}
    roots = tuple(root for root in facts.earlier_roots if root != where.root)
    roots += (facts.root,) if facts.root != where.root else ()
    confirmed, came_from = (
        {now.get(path, path): value for path, value in told.items()}
        for told in (facts.edits.confirmed, facts.edits.came_from)
    )
    return dataclasses.replace(
        found,
        images=_with_pictures_and_bursts(found.images.assign(path=[now[path] for path in before]), where),
        categories=[_with_paths(category, now) for category in found.categories],
        facts=dataclasses.replace(
            facts,
            root=where.root,
            earlier_roots=roots,
            edits=dataclasses.replace(facts.edits, confirmed=confirmed, came_from=came_from),
        ),
    )


def _with_pictures_and_bursts(images: pd.DataFrame, where: Relocation) -> pd.DataFrame:
    """The table of images, whose paths are those of today, with what else in it is one: the pictures of boxes, and
    bursts, which are called after a frame unless people have named them."""
    if "group" in images:
        images = images.assign(group=[where.moves.get(group, group) for group in images["group"].fillna("")])
    return (
        images.assign(**box_columns([str(path) for path in images["path"]])) if "file" in images else images
    )


def _with_paths(category: Category, now: Mapping[str, str]) -> Category:
    exemplars, borderline = (
        [now.get(p, p) for p in shown] for shown in (category.exemplars, category.borderline)
    )
    return dataclasses.replace(category, exemplars=exemplars, borderline=borderline)


def _with_moves(earlier: PreviousPaths, moves: Mapping[str, str]) -> PreviousPaths:
    """The latest last: a path may have been that of several images, one after the other."""
    found = {old: [moves.get(now, now) for now in paths] for old, paths in earlier.items()}
    for old, now in moves.items():
        found[old] = [*(one for one in found.get(old, ()) if one != now), now]
    return found


def _new_place(edit: Edit, image: str) -> Edit:
    return dataclasses.replace(edit, image=image)


# -- files of edits that speak of the time before ---------------------------------------------------------


def read_previous_paths(folder: Path) -> PreviousPaths:
    """The content of `earlier.json`; empty where no image was renamed."""
    return (
        read_path_map(folder / PREVIOUS_PATHS_FILE, PreviousPaths)
        if (folder / PREVIOUS_PATHS_FILE).is_file()
        else {}
    )


def resolve_edit_paths(
    edits: Sequence[Edit], rounds: Sequence[Discovery], earlier: PreviousPaths
) -> list[Edit]:
    """Edits that were made in a report of the time before images were moved or renamed, with the paths of today.

    So may those of a report that was mailed, which calls images by short names. An edit speaks of the images of its
    own round; those of a round that nobody knows, of the last one.
    """
    homes = {found.run_id: _PathResolver(found, earlier) for found in rounds}
    last = homes[rounds[-1].run_id]
    return [_new_place(edit, homes.get(edit.run_id, last).find(edit.image)) for edit in edits]


class _PathResolver:
    """The images of a round, under the paths that they have and those that they had."""

    def __init__(self, found: Discovery, earlier: PreviousPaths) -> None:
        paths, root = [str(path) for path in found.images["path"]], found.facts.root
        self.paths, self.earlier, self.roots = set(paths), earlier, (root, *found.facts.earlier_roots)
        self.by_place = dict(zip(relative(paths, root), paths, strict=True))
        self.by_short_name = dict(zip(short_names(paths, root), paths, strict=True))
        """As a report that was mailed calls them."""

    def find(self, image: str) -> str:
        """The path of today, or as it was given where there is none."""
        if not image or image in self.paths:
            return image
        if image in self.by_short_name:
            return self.by_short_name[image]
        whole = os.path.isabs(image) or is_address(image)  # else it is a short name, which starts at the root
        places = [relative([image], root)[0] for root in self.roots] if whole else [image]
        for place in places:
            for now in (place, *reversed(self.earlier.get(place, []))):
                if now in self.by_place:
                    return self.by_place[now]
        return image
