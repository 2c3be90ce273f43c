"""Plan a round, then apply the plan.

`plan_round` compares folder, table, settings and edits with the last round, and writes nothing: `--dry-run` prints what
it returns. `apply_plan` writes to the run folder what was planned. Nothing is trained here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from holotype.config.schema import DiscoverConfig
from holotype.data.boxes import split_box
from holotype.data.paths import relative
from holotype.data.table import Table
from holotype.discovery.backbone_choice import BackboneChoice
from holotype.discovery.collection import (
    Collection,
    CollectionDiff,
    LabelAliases,
    compare_labels,
    diff_collections,
    index_images,
    read_collection,
    resolve_aliases,
    shown_names,
    with_digests,
)
from holotype.discovery.constraints import Constraints, read_constraints, sampled_count
from holotype.discovery.relocate import Relocation, rewrite_paths
from holotype.discovery.rounds import (
    EditHistory,
    StepTimer,
    corrected_rounds,
    count_edits,
    edits_in,
    finished_rounds,
    is_incomplete,
    last_round,
    replay_edits,
    round_folder,
    started_rounds,
)
from holotype.discovery.training_plan import RoundConfig, read_round_config, stated_groups
from holotype.embeddings.store import EmbeddingParts
from holotype.errors import InputError
from holotype.results.apply_edits import REJECTED_NOTE
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, append_edits, check_run, new_edits, read_log, run_ids


@dataclass
class RoundPlan:
    """All that decides the next round of a discovery, and what has changed since the last one."""

    folder: Path
    """Of the discovery."""
    config: DiscoverConfig
    table: Table
    """With the ids of classes as labels, before edits."""
    seen: Collection
    """Its images, and those that are gone; paths as seen from the root of today."""
    round_config: RoundConfig
    history: EditHistory = field(default_factory=EditHistory)
    """What people have said, by the paths of today, less what newer labels overrule."""
    last: int = 0
    """Number of the last finished round, 0 where there is none."""
    difference: CollectionDiff = field(default_factory=CollectionDiff)
    """From what the last round saw."""
    aliases: LabelAliases = field(default_factory=LabelAliases)
    edits: list[Edit] = field(default_factory=list)
    """That the log does not hold yet: those of a file, and renames that follow from labels."""
    relocation: Relocation | None = None
    """Where the images lie now, if that is not where the folder of the discovery says."""
    old_root: str = ""
    """The folder of the images in the last round."""
    settings: list[str] = field(default_factory=list)
    """Settings that differ from those of the last round, in words."""
    has_new_edits: bool = False
    """Do edits say something else of these images than the last round was given?"""
    overruled: list[str] = field(default_factory=list)
    """Images whose label is newer than the edits of them."""
    edits_line: str = ""
    """On the file of edits."""

    @property
    def trains(self) -> bool:
        """Is there something that the last round was not given?"""
        return not self.last or self.difference.trains or bool(self.settings) or self.has_new_edits

    @property
    def given(self) -> Constraints:
        """What edits say to the round."""
        return self.history.given

    @property
    def labelled(self) -> Table:
        """The table with the labels of edits."""
        return self.given.apply(self.table)

    @property
    def to_embed(self) -> int | None:
        """Images that the rounds before have not embedded; None = all."""
        return len(self.difference.new) + len(self.difference.repaired) if self.last else None

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """(N,) contents of the images, in the order of the table."""
        return tuple(entry.digest for entry in self.seen.here.values())

    @property
    def number(self) -> int:
        """Number of the round: that of the last one where it was stopped, or else a new one."""
        number = max(started_rounds(self.folder), default=0)
        own, stopped = round_folder(self.folder, number), number > last_round(self.folder)
        return number if stopped and (self.is_that_of(own) or is_incomplete(own)) else number + 1

    def is_that_of(self, own: Path) -> bool:
        """Does the round in the folder `own` train on the very same? The name of a category changes nothing."""
        try:
            given, seen, config = read_constraints(own), read_collection(own), read_round_config(own)
        except InputError:  # stopped before all of it was written
            return False
        same = (given.labels, given.rejected) == (self.given.labels, self.given.rejected)
        if not same or config is None or seen is None:
            return False
        return self.round_config == config and _trained_images(seen) == _trained_images(self.seen)

    def start(self) -> int:
        """Begin the round, or resume the one that was stopped; returns its number."""
        number = self.number
        own = round_folder(self.folder, number)
        if not self.is_that_of(own):
            self.given.save(own)
            self.seen.save(own)
            self.round_config.save(own)  # last: a round without it was stopped on its way
        return number

    # -- in words ---------------------------------------------------------------------------------------

    def lines(self) -> list[str]:
        """What has changed, and whether another round follows; nothing before the first round."""
        if not self.last:
            return []
        moved = self.old_root != self.seen.root
        lines = [self.edits_line] if self.edits_line else []
        changes = [f"The images are in {self.seen.root} now."] if moved else []
        changes += [f"Since round {self.last}: {self.difference.words}."] if self.difference.words else []
        changes += [*self._repaired(), *self._labels()]
        if self.settings:
            changes.append(f"Settings that differ from round {self.last}: {', '.join(self.settings)}.")
        if self.has_new_edits and not self.difference.trains:
            changes.append(f"There are edits that round {self.last} did not have.")
        if self.trains:
            return [*lines, *changes, "Another round is needed."]
        nothing = "Nothing else has changed" if changes else "Nothing has changed"
        return [*lines, *changes, f"{nothing} since round {self.last}: its result stands."]

    def edit_lines(self) -> list[str]:
        """Which edits take part in the round, which do not and why."""
        return self.history.told(self.number, self.seen.here.keys(), self.folder)

    def _repaired(self) -> list[str]:
        repaired = self.difference.repaired
        if not repaired:
            return []
        lines = [f"Repaired or replaced, and read again: {shown_names(repaired)}."]
        edited = [path for path in repaired if path in self.given.labels or path in self.given.rejected]
        if edited:
            lines.append(
                f"What edits say of {shown_names(edited)} still counts; correct it in the report if it shows "
                "something else now."
            )
        return lines

    def _labels(self) -> list[str]:
        lines = [
            f"The class {id} is labelled {name} {'again' if id == name else 'now'}; it stays the same class under that "
            "name."
            for id, name in self.aliases.names.items()
        ]
        if self.difference.labels_are_others:
            lines.append(
                f"None of the images that had a label in round {self.last} keeps it. If a list of labels was "
                "forgotten, stop now and name it with --labels."
            )
        if self.overruled:
            lines.append(
                f"Labels that are newer than edits of the same images count instead: {shown_names(self.overruled)}."
            )
        return lines


@dataclass
class Round:
    """A round on its way from plan to categories."""

    plan: RoundPlan
    chosen: BackboneChoice
    table: Table
    """With the labels of edits; as the round goes on, with problems, bursts and the labels that they spread."""
    number: int = 1
    seeds: tuple[int, ...] = (0,)
    """Of its trainings."""
    embedded: EmbeddingParts | None = None
    """Features that are there already, of these images and perhaps of many more."""
    progress: bool = False
    clock: StepTimer = field(default_factory=StepTimer)
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    """(N,) what else is known of the images, for their table: from the heads of the files, for one."""
    long_tail: bool = False
    """Whether categories of very different sizes are expected."""
    sizes: str = ""
    """Why, in a sentence."""

    @property
    def config(self) -> DiscoverConfig:
        return self.plan.config

    @property
    def folder(self) -> Path:
        """Of the discovery: embeddings and the estimate of the number of categories serve all rounds."""
        return self.plan.folder

    @property
    def own(self) -> Path:
        """Folder of the round."""
        return round_folder(self.folder, self.number)

    @property
    def given(self) -> Constraints:
        """What edits say; the labels are in the table already."""
        return self.plan.given

    @property
    def before(self) -> Discovery | None:
        """The round before, as corrected."""
        return self.plan.history.discovery

    @cached_property
    def out(self) -> np.ndarray:
        """(N,) bool: images that people have rejected."""
        return self.given.out(self.table)

    @property
    def corrected(self) -> bool:
        """Have people corrected what was known before, so that its categories are as many as they left?"""
        return self.before is not None and self.given.binds

    @property
    def active(self) -> Table:
        """The table in which only those images are usable that the round is made of."""
        problem = np.where(self.out & self.table.usable, REJECTED_NOTE, self.table.problem)
        return self.table.with_problems(problem)

    @property
    def drawn(self) -> Table:
        """`active` less the labels from edits: people picked those where something was wrong, and what is estimated
        from labels supposes that they were drawn."""
        return sampled_count(self.active, self.plan.table.label) if self.given.labels else self.active


def plan_round(
    folder: Path, table: Table, config: DiscoverConfig, edits: Path | None = None, progress: bool = False
) -> RoundPlan:
    """Compare images, labels, settings and edits with the last round. edits: a file. Nothing is written."""
    last, known = last_round(folder), read_collection(folder)
    new = edits_in(folder, edits) if edits is not None else []
    check_run(folder, new)
    now = index_images(table, known, progress)
    before = seen_images(folder, last) if last else Collection(table.root)
    difference = diff_collections(before, now)
    relocation = None
    if last:
        check_same_images(folder, table, before, now, difference)
        if difference.moves or before.root != now.root:
            files = dict(zip(now.images, map(str, table.path), strict=True))
            relocation = Relocation(now.root, difference.moves, files)
            new = with_old_paths(new, round_folder(folder, last), relocation, difference)
    means = known.means if known else {}

    def replay(labels: Mapping[str, str]) -> EditHistory:
        return replay_edits(folder, new, {then: labels[path] for path, then in difference.then.items()})

    history = replay(now.labels(means))
    edits_line = f"{edits}: {count_edits(len(new), len(new_edits(read_log(folder), new)))}." if edits else ""
    aliases = resolve_aliases(now, before, difference.then, means, history.discovery)
    table = aliases.spoken(table)
    labels = dict(zip(now.images, table.label, strict=True))
    if aliases.names:
        new = [*new, *rename_edits(folder, history, aliases)]
        history = replay(labels)
    compare_labels(difference, before, with_digests(now, labels, frozenset()))
    gone = before.moved(difference.moves, now.root)
    seen = with_digests(now, labels, difference.relabelled).with_gone(gone)
    history = history.moved(difference.moves)
    overruled = history.overruled(difference.relabelled, labels)
    edited = history.given.labels.keys() | history.given.rejected
    history = history.without(overruled)
    groups = stated_groups(table, [entry.digest for entry in now.images.values()])
    round_config = RoundConfig.of(config, table.name, groups)
    then = read_round_config(round_folder(folder, last))
    inputs = read_constraints(round_folder(folder, last)) if last else Constraints()
    here = seen.here.keys()
    return RoundPlan(
        folder,
        config,
        table,
        dataclasses.replace(seen, means=aliases.means),
        round_config,
        history,
        last,
        difference,
        aliases,
        edits=new,
        relocation=relocation,
        old_root=before.root,
        settings=round_config.others(then) if then else [],
        has_new_edits=inputs.moved(difference.moves).of_images(here) != history.given.of_images(here),
        overruled=sorted(overruled & edited),
        edits_line=edits_line,
    )


def apply_plan(plan: RoundPlan) -> None:
    """Write edits, the paths of today and the images as they are into the folder of the discovery."""
    folder = plan.folder
    if plan.edits:
        append_edits(folder, plan.edits)
    if plan.relocation is not None:
        rounds = [round_folder(folder, number) for number in finished_rounds(folder)]
        rewrite_paths(folder, [*rounds, *corrected_rounds(folder)], plan.old_root, plan.relocation)
        labels = plan.seen.labels({})
        history = replay_edits(folder, labels=labels)
        plan.history = history.without(history.overruled(plan.difference.relabelled, labels))
    stored = read_collection(folder)
    if plan.seen != stored or list(plan.seen.means) != list(
        stored.means
    ):  # the newest label of a class is last
        plan.seen.save(folder)


def with_old_paths(
    edits: Sequence[Edit], last: Path, where: Relocation, difference: CollectionDiff
) -> list[Edit]:
    """Edits that name images by their paths of today, with the paths that the last round knows. last: its folder."""
    if not edits:
        return []
    found = Discovery.load(last)
    paths = [str(path) for path in found.images["path"]]
    place = dict(zip(relative(paths, found.facts.root), paths, strict=True))
    old = {where.files[now]: place[then] for now, then in difference.then.items() if then in place}
    known = set(paths)
    return [
        edit if edit.image in known else dataclasses.replace(edit, image=old.get(edit.image, edit.image))
        for edit in edits
    ]


def rename_edits(folder: Path, history: EditHistory, aliases: LabelAliases) -> list[Edit]:
    """Edits that give classes the names of their labels."""
    run, *_ = (*run_ids(folder), *history.runs[-1:])  # a kill may have left what people see a round behind
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return [Edit(run, at, "rename", "", id, name) for id, name in aliases.names.items()]


def _trained_images(seen: Collection) -> list[tuple[str, str, str]]:
    """What training sees of the images, in their order."""
    return [(path, entry.digest or entry.stamp, entry.label) for path, entry in seen.here.items()]


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


def seen_images(folder: Path, number: int) -> Collection:
    """The images as a round saw them."""
    own = round_folder(folder, number)
    if (seen := read_collection(own)) is not None:
        return seen
    raise InputError(
        f"{own} does not say which images it was begun with (no collection.parquet); restore it from a copy, or run "
        "holotype discover with another --out."
    )
