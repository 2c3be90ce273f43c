"""Images that were moved: a discovery goes on when its folder of images lies elsewhere.

What decides whether two collections are the same are the paths relative to their root. What a discovery has written
down speaks of absolute paths; `follow` lets it speak of the new ones.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from holotype.categories.edits import LOG, Edit, read_log, to_csv
from holotype.categories.found import Category, Discovery
from holotype.data.table import Table
from holotype.machine.files import write_text
from holotype.report.mailed import short_names


def relative(paths: Sequence[str], root: str) -> list[str]:
    """Paths as seen from the root, with slashes, as Table.fingerprint sees them; as they are where there is no root."""
    return [os.path.relpath(path, root).replace(os.sep, "/") if root else path for path in paths]


def follow(folder: Path, rounds: Sequence[Path], table: Table) -> None:
    """Let the rounds and the log of edits of a discovery speak of the images of `table`, wherever they lay before.

    The log comes first: until a round is written, it can be done again.
    """
    for path in rounds:
        found = Discovery.load(path)
        before = [str(one) for one in found.images["path"]]
        if found.facts.root == table.root or before == list(table.path):
            continue
        if relative(before, found.facts.root) != relative(list(table.path), table.root):
            continue
        now = dict(zip(before, table.path, strict=True))
        if (folder / LOG).is_file():
            edits = [_elsewhere(edit, now) for edit in read_log(folder)]
            write_text(folder / LOG, to_csv(edits))
        moved(found, now, table.root).save(path)


def moved(found: Discovery, now: Mapping[str, str], root: str) -> Discovery:
    """The discovery with other paths. now: old path to new path."""
    facts = found.facts
    roots = (*(r for r in facts.earlier_roots if r != root), facts.root)
    images = found.images.assign(path=[now[str(path)] for path in found.images["path"]])
    categories = [_with_paths(category, now) for category in found.categories]
    confirmed = {now.get(path, path): value for path, value in facts.edits.confirmed.items()}
    edits = dataclasses.replace(facts.edits, confirmed=confirmed)
    return dataclasses.replace(
        found,
        images=images,
        categories=categories,
        facts=dataclasses.replace(facts, root=root, earlier_roots=roots, edits=edits),
    )


def _with_paths(category: Category, now: Mapping[str, str]) -> Category:
    exemplars, borderline = (
        [now.get(p, p) for p in shown] for shown in (category.exemplars, category.borderline)
    )
    return dataclasses.replace(category, exemplars=exemplars, borderline=borderline)


def _elsewhere(edit: Edit, now: Mapping[str, str]) -> Edit:
    return dataclasses.replace(edit, image=now.get(edit.image, edit.image))


def at_home(edits: Sequence[Edit], found: Discovery) -> list[Edit]:
    """Edits that were made in a report of the time before the images were moved, or in one that was mailed and calls
    them by short names, with the paths of today."""
    every, root = [str(path) for path in found.images["path"]], found.facts.root
    paths = set(every)
    now = {}
    if any(edit.image and edit.image not in paths for edit in edits):
        now = dict(zip(short_names(every, root), every, strict=True))
    for edit in edits:
        for before in found.facts.earlier_roots if edit.image and edit.image not in paths else ():
            here = os.path.normpath(os.path.join(root, os.path.relpath(edit.image, before)))
            if here in paths:
                now[edit.image] = here
    return [_elsewhere(edit, now) for edit in edits]
