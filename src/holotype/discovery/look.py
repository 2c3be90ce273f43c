"""A first look at a collection, before anything is trained: what is there, and what a person may want to mend first.

Nothing is changed. Each finding is one line, with a few examples; where there is nothing to say, there is no line.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.config.schema import DiscoverConfig
from holotype.data.duplicates import MAX_PAIRS, Pair, same_files, same_pictures, scan_thumbnails
from holotype.data.exif import ExifData
from holotype.data.label_hygiene import similar_names, unsorted_names
from holotype.data.labels import read_list
from holotype.data.load import with_readable_classes
from holotype.data.paths import find_images, relative
from holotype.data.table import Table
from holotype.errors import InputError

if TYPE_CHECKING:
    from holotype.discovery.round import Round

NAMED, CLASSES_NAMED = 3, 12
"""Examples of a line, and classes that are named with their size; the others are counted."""
LISTS = (".csv", ".tsv", ".txt", ".parquet")
LARGEST_LIST = 50_000_000
"""Bytes of a file beyond which nobody looks whether it holds labels."""

log = logging.getLogger("holotype")


@dataclass(frozen=True)
class Look:
    """What was seen."""

    table: Table
    """With the problems that were found, and without the classes that cannot be read."""
    lines: list[str]
    """The result first."""
    unread: list[str]
    """Lines about images that cannot be read. When a discovery begins, embedding says this."""
    shots: list[ExifData]
    """What the heads of the files say."""


def look(table: Table, config: DiscoverConfig, progress: bool = False) -> Look:
    """Look at every image once, small, and at the names of the classes."""
    seen = scan_thumbnails(list(table.path), progress)
    told = table.with_problems([old or new for old, new in zip(table.problem, seen.problem, strict=True)])
    readable, gone = with_readable_classes(told)
    copies = _linked(same_files(list(table.path), progress), table)
    linked = _groups(copies)
    near = [(a, b) for a, b in same_pictures(seen) if linked.get(a, a) != linked.get(b, b)]
    lines = [
        *_result(table, config, len(readable.known)),
        *_names(table),
        *_label_files(table),
        *_copies(copies, table, "The same file"),
        *_copies(near, table, "Nearly the same picture"),
    ]
    return Look(readable, lines, _unread(told, gone), seen.shots)


def tell(round: Round, table: Table) -> None:
    """The look and the time that a discovery will take, in the log. table: as it was read."""
    from holotype.discovery.forecast import forecast  # torch takes seconds, and a look does without

    time = forecast(table, round.config, round.chosen.backbone, len(round.seeds)).words
    for line in (*look(table, round.config, round.progress).lines, time):
        log.info(line)


def tell_again(round: Round, table: Table, to_embed: int) -> None:
    """The same before a later round, without opening its images again; --dry-run does that.

    table: as it was read. to_embed: images.
    """
    from holotype.discovery.forecast import forecast

    called, config = round.given.called(round.table), round.config
    result = _result(called, config, len(called.known), round.corrected)
    time = forecast(table, config, round.chosen.backbone, len(round.seeds), to_embed).words
    for line in (*result, *_names(called), *_label_files(table), time):
        log.info(line)


# -- images and classes ---------------------------------------------------------------------------------


def _result(table: Table, config: DiscoverConfig, known: int, corrected: bool = False) -> list[str]:
    """known: classes that take part. corrected: people have said how many categories there are."""
    size = Counter(label for label in table.label if label)
    labelled = sum(size.values())
    first = f"{len(table):,} images: {labelled:,} labelled in {_many(len(size), 'class', 'classes')}, "
    first += f"{len(table) - labelled:,} unlabelled."
    if config.k == "auto":
        how = "follows from corrections" if corrected else "is estimated"
        first += f" How many categories there are {how} (--k sets it)."
    elif int(config.k) >= known:
        first += f" {words_of_room(int(config.k), known)}"
    if not size:
        return [first]
    named = ", ".join(f"{name} {n:,}" for name, n in size.most_common(CLASSES_NAMED))
    rest = [n for _, n in size.most_common()[CLASSES_NAMED:]]
    of_rest = (
        f"{min(rest):,}"
        if rest and min(rest) == max(rest)
        else f"{min(rest, default=0):,} to {max(rest, default=0):,}"
    )
    more = f" and {len(rest):,} more of {of_rest} {'image' if of_rest == '1' else 'images'}" if rest else ""
    return [first, f"Classes by labelled images: {named}{more}."]


def words_of_room(k: int, known: int) -> str:
    return f"--k {k} leaves room for {_many(k - known, 'new category', 'new categories')}."


def _names(table: Table) -> list[str]:
    size = Counter(table.label)
    lines = []
    groups = similar_names(table.known)
    for group in groups[:NAMED]:
        told = ", ".join(f"{name} ({size[name]:,})" for name in group)
        lines.append(
            f"Probably one class under {len(group)} names, but treated as {len(group)} classes: {told}."
        )
    if len(groups) > NAMED:
        others = "; ".join(", ".join(group) for group in groups[NAMED : 2 * NAMED])
        lines.append(f"{_many(len(groups) - NAMED, 'more group')} of names like these: {others}.")
    asked = unsorted_names(table.known)
    for name in asked[:NAMED]:
        lines.append(
            f"Is {name} a class, or a folder of unsorted images? --unlabelled {shlex.quote(name)} treats its "
            f"{_many(size[name], 'image')} as unlabelled."
        )
    if len(asked) > NAMED:
        lines.append(f"The same question for {', '.join(asked[NAMED : 2 * NAMED])}.")
    return lines


def _unread(table: Table, gone: Sequence[str]) -> list[str]:
    lines = []
    problems = [problem for problem in table.problem if problem]
    if problems:
        shown = " ".join(problems[:NAMED])
        lines.append(f"{_many(len(problems), 'image')} cannot be read: {shown}")
    if gone:
        lines.append(words_of_unread_classes(gone))
    return lines


def words_of_unread_classes(gone: Sequence[str]) -> str:
    """gone: names of the classes, at least one."""
    more = f" and {len(gone) - NAMED:,} more" if len(gone) > NAMED else ""
    return (
        f"No labelled image of {', '.join(gone[:NAMED])}{more} can be read, so "
        f"{'it is no class' if len(gone) == 1 else 'they are no classes'} here."
    )


# -- label files ----------------------------------------------------------------------------------------


def _label_files(table: Table) -> list[str]:
    """Lists in the folder of the images that give them other labels than they have."""
    lines = []
    for file in _lists(table.root):
        shown = os.path.relpath(file) if file.is_relative_to(Path.cwd()) else str(file)
        try:
            differs = _differing(file, table)
        except (InputError, OSError) as problem:
            if "label" in file.stem.lower():
                lines.append(f"{shown} is not used: {problem}")
            continue
        if differs:
            lines.append(
                f"{shown} says otherwise of the labels of {_many(differs, 'image')}; "
                f"--labels {shlex.quote(shown)} takes what it says."
            )
    return lines[:NAMED]


def _lists(root: str) -> list[Path]:
    try:
        there = [Path(entry.path) for entry in os.scandir(root) if entry.is_file()] if root else []
        lists = [file for file in there if file.suffix.lower() in LISTS and not file.name.startswith(".")]
        return sorted(file for file in lists if file.stat().st_size <= LARGEST_LIST)
    except OSError:
        return []


def _differing(file: Path, table: Table) -> int:
    """Images to which the list gives another label than the table does."""
    listed = read_list(file)
    own = dict(zip(table.path, table.label, strict=True))
    found, _ = find_images(listed.path, (Path(table.root),), own.__contains__, lambda: list(own))
    given = {path: label for path, label in zip(found, listed.label, strict=True) if path is not None}
    return sum(own[path] != label for path, label in given.items())


# -- copies ---------------------------------------------------------------------------------------------


def _linked(groups: Sequence[Sequence[int]], table: Table) -> list[Pair]:
    """A chain of pairs through each group, so that copies with different labels are neighbours once."""
    pairs = []
    for group in groups:
        chain = sorted(group, key=lambda row: (str(table.label[row]), row))
        pairs += list(pairwise(chain))
    return pairs


def _groups(pairs: Sequence[Pair]) -> dict[int, int]:
    """The first row of the chain that each row of these pairs belongs to; pairs come chain by chain."""
    first: dict[int, int] = {}
    for one, other in pairs:
        first[other] = first.setdefault(one, one)
    return first


def _copies(pairs: Sequence[Pair], table: Table, what: str) -> list[str]:
    """Pairs across labels, pairs of a labelled and an unlabelled image, and the number of the others."""
    labels = [(table.label[one], table.label[other]) for one, other in pairs]
    across = [pair for pair, (a, b) in zip(pairs, labels, strict=True) if a and b and a != b]
    half = [pair for pair, (a, b) in zip(pairs, labels, strict=True) if bool(a) != bool(b)]
    same = len(pairs) - len(across) - len(half)
    lines = []
    if across:
        lines.append(f"{what} under different labels: {_shown(across, table)}; check these labels first.")
    if half:
        lines.append(f"{what} both labelled and unlabelled: {_shown(half, table)}.")
    if same:
        rest = [pair for pair, (a, b) in zip(pairs, labels, strict=True) if a == b]
        lines.append(f"{what} twice in a class or among the unlabelled: {_shown(rest, table)}.")
    return lines


def _shown(pairs: Sequence[Pair], table: Table) -> str:
    examples = "; ".join(f"{_short(table, one)} and {_short(table, other)}" for one, other in pairs[:NAMED])
    told = _many(len(pairs), "pair") + (" or more" if len(pairs) >= MAX_PAIRS else "")
    return f"{told}, {'for example ' if len(pairs) > NAMED else ''}{examples}"


def _short(table: Table, row: int) -> str:
    """The path as seen from the folder of the images."""
    path = str(table.path[row])
    return relative([path], table.root)[0]


def _many(n: int, one: str, several: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else several or one + 's'}"
