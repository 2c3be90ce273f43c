"""Dry run: inspect a collection and preview the next round; nothing is written.

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

import numpy as np

from holotype.config.schema import DiscoverConfig
from holotype.data.bursts import with_groups
from holotype.data.duplicates import MAX_PAIRS, Pair, same_files, same_pictures, scan_thumbnails
from holotype.data.exif import ExifData
from holotype.data.label_hygiene import similar_names, unsorted_names
from holotype.data.labels import read_list
from holotype.data.load import with_readable_classes
from holotype.data.paths import find_images, relative
from holotype.data.table import Table
from holotype.discovery.corrected_k import expected_k
from holotype.discovery.edit_summary import check_assignable
from holotype.discovery.exif_cache import ExifTable
from holotype.discovery.plan import RoundPlan
from holotype.discovery.relocate import relocated_paths
from holotype.discovery.round_runner import burst_groups, count_bursts
from holotype.errors import InputError

if TYPE_CHECKING:
    from holotype.discovery.round_runner import Round

MAX_FILES_NAMED, MAX_CLASSES_NAMED = 3, 12
"""Examples of a line, and classes that are named with their size; the others are counted."""
LISTS = (".csv", ".tsv", ".txt", ".parquet")
LARGEST_LIST = 50_000_000
"""Bytes of a file beyond which nobody looks whether it holds labels."""

log = logging.getLogger("holotype")


@dataclass(frozen=True)
class DryRunReport:
    """What was seen."""

    table: Table
    """With the problems that were found, and without the classes that cannot be read."""
    lines: list[str]
    """The result first."""
    unread: list[str]
    """Lines about images that cannot be read. When a discovery begins, embedding says this."""
    shots: list[ExifData]
    """What the heads of the files say."""


def inspect_collection(table: Table, config: DiscoverConfig, progress: bool = False) -> DryRunReport:
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
    return DryRunReport(readable, lines, _unread(told, gone), seen.shots)


def log_report(round: Round, table: Table) -> None:
    """The look and the time that a discovery will take, in the log. table: as it was read."""
    from holotype.discovery.time_estimate import estimate_time  # torch takes seconds, and a look does without

    time = estimate_time(table, round.config, round.chosen.backbone, len(round.seeds)).words
    for line in (*inspect_collection(table, round.config, round.progress).lines, time):
        log.info(line)


def log_report_again(round: Round, table: Table) -> None:
    """The same before a later round, without opening its images again; --dry-run does that. table: as it was read."""
    from holotype.discovery.time_estimate import estimate_time

    called, config = round.given.called(round.table), round.config
    result = _result(called, config, len(called.known), round.corrected)
    time = estimate_time(table, config, round.chosen.backbone, len(round.seeds), round.plan.to_embed).words
    for line in (*result, *_names(called), *_label_files(table), time):
        log.info(line)


# -- images and classes ---------------------------------------------------------------------------------


def _result(table: Table, config: DiscoverConfig, known: int, corrected: bool = False) -> list[str]:
    """known: classes that take part. corrected: people have said how many categories there are."""
    size = Counter(label for label in table.label if label)
    labelled = sum(size.values())
    first = (
        f"{len(table):,} images: {labelled:,} labelled in {_count_images(len(size), 'class', 'classes')}, "
    )
    first += f"{len(table) - labelled:,} unlabelled."
    if config.k == "auto":
        how = "follows from corrections" if corrected else "is estimated"
        first += f" How many categories there are {how} (--k sets it)."
    elif int(config.k) >= known:
        first += f" {memory_text(int(config.k), known)}"
    if not size:
        return [first]
    named = ", ".join(f"{name} {n:,}" for name, n in size.most_common(MAX_CLASSES_NAMED))
    rest = [n for _, n in size.most_common()[MAX_CLASSES_NAMED:]]
    of_rest = (
        f"{min(rest):,}"
        if rest and min(rest) == max(rest)
        else f"{min(rest, default=0):,} to {max(rest, default=0):,}"
    )
    more = f" and {len(rest):,} more of {of_rest} {'image' if of_rest == '1' else 'images'}" if rest else ""
    return [first, f"Classes by labelled images: {named}{more}."]


def memory_text(k: int, known: int) -> str:
    return f"--k {k} leaves room for {_count_images(k - known, 'new category', 'new categories')}."


def _names(table: Table) -> list[str]:
    size = Counter(table.label)
    lines = []
    groups = similar_names(table.known)
    for group in groups[:MAX_FILES_NAMED]:
        told = ", ".join(f"{name} ({size[name]:,})" for name in group)
        lines.append(
            f"Probably one class under {len(group)} names, but treated as {len(group)} classes: {told}."
        )
    if len(groups) > MAX_FILES_NAMED:
        others = "; ".join(", ".join(group) for group in groups[MAX_FILES_NAMED : 2 * MAX_FILES_NAMED])
        lines.append(
            f"{_count_images(len(groups) - MAX_FILES_NAMED, 'more group')} of names like these: {others}."
        )
    asked = unsorted_names(table.known)
    for name in asked[:MAX_FILES_NAMED]:
        lines.append(
            f"Is {name} a class, or a folder of unsorted images? --unlabelled {shlex.quote(name)} treats its "
            f"{_count_images(size[name], 'image')} as unlabelled."
        )
    if len(asked) > MAX_FILES_NAMED:
        lines.append(f"The same question for {', '.join(asked[MAX_FILES_NAMED : 2 * MAX_FILES_NAMED])}.")
    return lines


def _unread(table: Table, gone: Sequence[str]) -> list[str]:
    lines = []
    problems = [problem for problem in table.problem if problem]
    if problems:
        shown = " ".join(problems[:MAX_FILES_NAMED])
        lines.append(f"{_count_images(len(problems), 'image')} cannot be read: {shown}")
    if gone:
        lines.append(unread_classes_text(gone))
    return lines


def unread_classes_text(gone: Sequence[str]) -> str:
    """gone: names of the classes, at least one."""
    more = f" and {len(gone) - MAX_FILES_NAMED:,} more" if len(gone) > MAX_FILES_NAMED else ""
    return (
        f"No labelled image of {', '.join(gone[:MAX_FILES_NAMED])}{more} can be read, so "
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
                f"{shown} says otherwise of the labels of {_count_images(differs, 'image')}; "
                f"--labels {shlex.quote(shown)} takes what it says."
            )
    return lines[:MAX_FILES_NAMED]


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
        lines.append(
            f"{what} under different labels: {_list_shown(across, table)}; check these labels first."
        )
    if half:
        lines.append(f"{what} both labelled and unlabelled: {_list_shown(half, table)}.")
    if same:
        rest = [pair for pair, (a, b) in zip(pairs, labels, strict=True) if a == b]
        lines.append(f"{what} twice in a class or among the unlabelled: {_list_shown(rest, table)}.")
    return lines


def _list_shown(pairs: Sequence[Pair], table: Table) -> str:
    examples = "; ".join(
        f"{_shorten(table, one)} and {_shorten(table, other)}" for one, other in pairs[:MAX_FILES_NAMED]
    )
    told = _count_images(len(pairs), "pair") + (" or more" if len(pairs) >= MAX_PAIRS else "")
    return f"{told}, {'for example ' if len(pairs) > MAX_FILES_NAMED else ''}{examples}"


def _shorten(table: Table, row: int) -> str:
    """The path as seen from the folder of the images."""
    path = str(table.path[row])
    return relative([path], table.root)[0]


def _count_images(n: int, one: str, several: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def preview_plan(plan: RoundPlan) -> list[str]:
    """What `discover` would do with this plan; refuse what it would refuse."""
    if not (plan.last and plan.trains):
        return plan.lines()
    check_assignable(plan.labelled, plan.given, plan.folder)
    return [*plan.lines(), *plan.edit_lines(), *_expected_k(plan)]


def _expected_k(plan: RoundPlan) -> list[str]:
    """How many categories there would be, as far as edits have a say."""
    k, labelled, applied = plan.config.k, plan.labelled, plan.history.applied
    if k != "auto":
        return _memory_text(int(k), len(plan.table.known), len(labelled.known))
    if applied is None or not plan.given.binds:
        return []
    found = relocated_paths(applied.discovery, plan.relocation) if plan.relocation else applied.discovery
    return [expected_k(found, labelled)]


def _memory_text(k: int, came: int, known: int) -> list[str]:
    """What --k leaves for new categories, where edits have made classes that the folder does not show. came: classes
    of the labels that images came with; known: those of edits included."""
    if known <= came:
        return []
    so = memory_text(k, known) if k >= known else f"--k {k} becomes {known}."
    return [f"With the labels from edits there are {known} known classes, so {so}"]


def exif_summary(table: Table, config: DiscoverConfig, heads: Sequence[ExifData]) -> list[str]:
    """A line about what the files say, and one about bursts, each where there is something to say. heads: of each
    image."""
    shots = ExifTable(list(heads))
    said = shots.words()
    return ([said] if said else []) + _burst_summary(table, config, shots)


def _burst_summary(table: Table, config: DiscoverConfig, shots: ExifTable) -> list[str]:
    # every two frames are alike here: a discovery looks at the pictures as well, and finds as many or fewer
    alike, later = np.ones((len(table), 1)), "; those that do not look alike are parted later"
    group, how = burst_groups(table, config.bursts, shots.each, alike, found=later)
    grouped = with_groups(table, group).group
    if grouped is None:
        return []
    told = count_bursts(grouped[table.usable])
    return [f"{told} ({how}). A burst counts once; --bursts no counts each image."]
