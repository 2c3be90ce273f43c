"""Plan a round: what changed in images, labels, settings and edits, and what follows.

Images are looked at and known again by their content, all that was written down follows them to their paths of today,
edits are taken in, and labels get their meaning. Nothing is trained here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from holotype.config.schema import DiscoverConfig
from holotype.data.boxes import split_box
from holotype.data.table import Table
from holotype.discovery.collection import (
    Collection,
    CollectionDiff,
    compare_labels,
    diff_collections,
    index_images,
    read_collection,
    shown_names,
    with_digests,
)
from holotype.discovery.constraints import Constraints
from holotype.discovery.label_aliases import LabelAliases, resolve_aliases
from holotype.discovery.relocate import Relocation, commit_relocation, rewrite_paths
from holotype.discovery.round_config import RoundConfig, read_round_config, stated_groups
from holotype.discovery.rounds import (
    EditHistory,
    RoundFiles,
    add_edits,
    corrected_rounds,
    finished_rounds,
    inputs_of,
    last_round,
    replay_edits,
    round_folder,
)
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, append_edits, run_ids


@dataclass
class RoundState:
    """A discovery and its collection as they stand."""

    last: int
    """Number of the last finished round, 0 where there is none."""
    table: Table
    """With the ids of classes as labels, before edits."""
    seen: Collection
    difference: CollectionDiff
    """From what the last round saw."""
    asked: RoundConfig
    played: EditHistory
    lines: list[str]
    """What has changed, in words."""
    trains: bool
    """Is there something that the last round was not given?"""

    @property
    def begun(self) -> RoundFiles:
        return RoundFiles(self.played.given, self.seen, self.asked)

    @property
    def labelled(self) -> Table:
        """The table with the labels of edits."""
        return self.played.given.apply(self.table)

    @property
    def here(self) -> Set[str]:
        """Images that are not gone, by path from the root."""
        return self.seen.here.keys()

    @property
    def digests(self) -> tuple[str, ...]:
        """(N,) in the order of the table."""
        return tuple(seen.digest for seen in self.seen.here.values())


def plan_round(
    folder: Path, table: Table, config: DiscoverConfig, edits: Path | None = None, progress: bool = False
) -> RoundState:
    """Look at the images, and let the folder of the discovery know where they lie now; take a file of edits in."""
    commit_relocation(folder)
    last = last_round(folder)
    known = read_collection(folder)
    now = index_images(table, known, progress)
    before = seen_images(folder, last) if last else Collection(table.root)
    difference = diff_collections(before, now)
    if last:
        check_same_images(folder, table, before, now, difference)
        relocate_images(folder, table, before, now, difference)
    if edits is not None:
        add_edits(folder, edits)
    means = known.means if known else {}
    played, then = (
        replay_edits(folder, labels=now.labels(means)),
        read_round_config(round_folder(folder, last)),
    )
    words = resolve_aliases(now, before, difference.then, means, previous_result(played))
    if words.names:
        played = rename_labels(folder, played, words, now.labels(means))
    table = words.spoken(table)
    labels = dict(zip(now.images, table.label, strict=True))
    compare_labels(difference, before, with_digests(now, labels, frozenset()))
    seen = with_digests(now, labels, difference.relabelled).with_gone(
        before.moved(difference.moves, now.root)
    )
    seen = dataclasses.replace(seen, means=words.means)
    last_look = read_collection(folder)
    if seen != last_look or list(seen.means) != list(last_look.means):  # what was said last stands last
        seen.save(folder)
    asked = current_config(config, table, now)
    told = played.without(played.overruled(difference.relabelled, labels))
    here, was_told = seen.here.keys(), inputs_of(folder, last) if last else Constraints()
    changed = ImageChanges(
        last,
        now.root if last and before.root != now.root else "",
        difference,
        words,
        asked.others(then) if then else [],
        edits_before=played.given,
        edits=told.given,
        more=restrict_to(was_told, here) != restrict_to(told.given, here),
    )
    return RoundState(last, table, seen, difference, asked, told, changed.lines(), changed.trains)


def relocate_images(
    folder: Path, table: Table, before: Collection, now: Collection, difference: CollectionDiff
) -> None:
    """Let what was written down speak of the images where they lie now."""
    if not difference.moves and before.root == now.root:
        return
    rounds = [round_folder(folder, number) for number in finished_rounds(folder)]
    files = dict(zip(now.images, map(str, table.path), strict=True))
    where = Relocation(now.root, difference.moves, files)
    rewrite_paths(folder, [*rounds, *corrected_rounds(folder)], before.root, where)


def rename_labels(
    folder: Path, played: EditHistory, words: LabelAliases, labels: Mapping[str, str]
) -> EditHistory:
    """Let classes have the names that their labels give them now; an edit like any other, and the log keeps it. labels:
    as in play."""
    run, *_ = (*run_ids(folder), *played.runs[-1:])  # a kill may have left what people see a round behind
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    edits = [Edit(run, at, "rename", "", id, name) for id, name in words.names.items()]
    append_edits(folder, edits)
    return replay_edits(folder, labels=labels)


def previous_result(played: EditHistory) -> Discovery | None:
    return played.applied.discovery if played.applied else None


def restrict_to(given: Constraints, here: Set[str]) -> tuple[dict[str, str], frozenset[str]]:
    """What edits say of images that are not gone."""
    return {path: label for path, label in given.labels.items() if path in here}, given.rejected & here


def check_same_images(
    folder: Path, table: Table, before: Collection, now: Collection, found: CollectionDiff
) -> None:
    """Raise InputError for a collection that has nothing in common with that of the discovery."""
    same = len(found.then) - len(found.repaired)
    if not same and (not found.then or before.root != now.root):
        then, today = (any(split_box(path)[1] for path in seen.here) for seen in (before, now))
        cure = "choose another folder with --out"
        if then != today:
            cure = f"{'give its boxes again with --boxes' if then else 'leave the boxes out'}, or {cure}"
        raise InputError(
            f"{folder} holds a discovery of other images: none of its {len(before.here):,}{' boxes' if then else ''} "
            f"is among those of {table.name}; {cure}."
        )


# -- in words -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageChanges:
    """All that may have changed since a round."""

    last: int
    root: str
    """The folder of the images, where it is another one than before."""
    images: CollectionDiff
    classes: LabelAliases
    settings: list[str]
    edits_before: Constraints
    """What edits say, those included that a later label overrules."""
    edits: Constraints
    """The same without."""
    more: bool
    """Do edits say something else to the images that are here than the last round was told?"""

    @property
    def trains(self) -> bool:
        return not self.last or self.images.trains or bool(self.settings) or self.more

    def lines(self) -> list[str]:
        if not self.last:
            return []
        lines = [f"The images are in {self.root} now."] if self.root else []
        lines += [f"Since round {self.last}: {self.images.words}."] if self.images.words else []
        lines += self.details()
        if self.trains:
            return [*lines, "Another round is trained."]
        nothing = "Nothing else has changed" if lines else "Nothing has changed"
        return [*lines, f"{nothing} since round {self.last}: its result stands."]

    def details(self) -> list[str]:
        """What else there is to say than how many images and labels are others."""
        lines = [*self._repaired(), *self._labels()]
        if self.settings:
            lines.append(f"Settings that differ from round {self.last}: {', '.join(self.settings)}.")
        if self.more and not self.images.trains:
            lines.append(f"There are edits that round {self.last} did not have.")
        return lines

    def _repaired(self) -> list[str]:
        repaired = self.images.repaired
        if not repaired:
            return []
        lines = [f"Repaired or replaced, and read again: {shown_names(repaired)}."]
        spoken = [path for path in repaired if path in self.edits.labels or path in self.edits.rejected]
        if spoken:
            lines.append(
                f"What edits say of {shown_names(spoken)} still counts; correct it in the report if it shows "
                "something else "
                "now."
            )
        return lines

    def _labels(self) -> list[str]:
        lines = [
            f"The class {id} is labelled {name} {'again' if id == name else 'now'}; it stays the same class under that "
            "name."
            for id, name in self.classes.names.items()
        ]
        if self.images.labels_are_others:
            lines.append(
                f"None of the images that had a label in round {self.last} keeps it. If a list of labels was "
                "forgotten, stop now and name it with --labels."
            )
        said = self.edits_before.labels.keys() | self.edits_before.rejected
        said -= self.edits.labels.keys() | self.edits.rejected
        later = [path for path in sorted(self.images.relabelled) if path in said]
        if later:
            lines.append(
                f"Labels that are newer than edits of the same images count instead: {shown_names(later)}."
            )
        return lines


# -- what a round was begun with ----------------------------------------------------------------------------


def seen_images(folder: Path, number: int) -> Collection:
    """The images as a round saw them."""
    own = round_folder(folder, number)
    if (seen := read_collection(own)) is not None:
        return seen
    raise InputError(
        f"{own} does not say which images it was begun with (no collection.parquet); restore it from a copy, or run "
        "holotype discover with another --out."
    )


def current_config(config: DiscoverConfig, table: Table, now: Collection) -> RoundConfig:
    """now: the images of the table."""
    return RoundConfig.of(
        config, table.name, stated_groups(table, [seen.digest for seen in now.images.values()])
    )
