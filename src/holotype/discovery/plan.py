"""Plan a round, then apply the plan.

`plan_round` compares folder, table, settings and edits with the last round, and writes nothing: `--dry-run` prints what
it returns. `apply_plan` writes to the run folder what was planned. Nothing is trained here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from holotype.config.schema import NO, DiscoverConfig
from holotype.data.boxes import split_box
from holotype.data.decode import DecodedImages
from holotype.data.load import check_trainable
from holotype.data.table import Table
from holotype.discovery.backbone_choice import BackboneChoice
from holotype.discovery.collection import (
    Collection,
    CollectionDiff,
    compare_labels,
    diff_collections,
    index_images,
    read_collection,
    resolve_aliases,
    shown_names,
    with_current_paths,
    with_labels,
)
from holotype.discovery.constraints import Constraints, check_images_left, without_edit_labels
from holotype.discovery.groups import LEAST_CLASSES, round_config
from holotype.discovery.rounds import (
    EditHistory,
    StepTimer,
    count_edits,
    last_round,
    read_edits_of,
    replay_edits,
    round_folder,
    started_rounds,
)
from holotype.discovery.training_plan import default_trainings, resolve_settings
from holotype.embeddings.store import EmbeddingParts
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import EDIT_LOG, REJECTED_NOTE, Edit, append_edits, run_ids
from holotype.runs.record import IDENTITY_FILE
from holotype.utils.device import pick_device
from holotype.utils.serialization import FileSchema, to_dict

ROUND_FILE = "round.json"
ROUND_SCHEMA = FileSchema(3, "restore it from a copy, or run holotype discover with another --out")


@dataclass(frozen=True)
class RoundConfig:
    """Settings of a round, and what edits said to it."""

    settings: dict[str, Any]
    """As a person gave them; None where the device decides."""
    taken: dict[str, Any]
    """The same with what the device decides."""
    device: str = ""
    title: str = ""
    """What the collection is called."""
    groups: str = ""
    """Digest of the bursts that people have told (`stated_groups`), "" = none."""
    seeds: list[int] = field(default_factory=list)
    """Of its trainings."""
    labels: dict[str, str] = field(default_factory=dict)
    """That edits had given, by the keys of the images."""
    rejected: list[str] = field(default_factory=list)
    """Keys of the images that edits keep out."""

    @classmethod
    def of(cls, config: DiscoverConfig, title: str, **inputs: Any) -> RoundConfig:
        taken = resolve_settings(config)
        settings = {name: getattr(config, name) for name in taken}
        return cls(settings, taken, pick_device(config.device), title, **inputs)

    @property
    def given(self) -> Constraints:
        """What edits said."""
        return Constraints(self.labels, frozenset(self.rejected))

    def others(self, before: RoundConfig) -> list[str]:
        """What was asked for otherwise than before: --k 12 (was 10). Where only the device has changed: nothing."""
        settings = [
            f"--{name.replace('_', '-')} {_shown(value)} (was {_shown(before.settings.get(name))})"
            for name, value in self.settings.items()
            if value != before.settings.get(name) and self.taken[name] != before.taken.get(name)
        ]
        if self.taken["bursts"] == NO or before.taken.get("bursts") == NO:
            return settings  # nobody has asked for groups, or that is said already
        return [*settings, *(["other groups"] if self.groups != before.groups else [])]

    def save(self, folder: Path) -> None:
        ROUND_SCHEMA.write(folder / ROUND_FILE, to_dict(self))


def _shown(value: Any) -> str:
    return "as usual" if value is None else str(value)


def read_round_config(folder: Path) -> RoundConfig | None:
    """Of the round in `folder`; None where it was stopped before that was written."""
    file = folder / ROUND_FILE
    return ROUND_SCHEMA.make(file, RoundConfig) if file.is_file() else None


def stated_groups(table: Table, images: Collection) -> str:
    """A digest of which images people have put into groups, "" where there are none; whatever the groups and the files
    are called."""
    frames: dict[str, list[str]] = {}
    for name, key in zip(() if table.group is None else table.group, images.keys, strict=False):
        frames.setdefault(name, []).append(key)
    groups = sorted(sorted(group) for name, group in frames.items() if name and len(group) > 1)
    return hashlib.sha256(repr(groups).encode()).hexdigest()[:16] if groups else ""


SAME = ("seeds", "steps", "method", "sample")
"""Settings with which a later round has as many trainings as the one before it, if the device is the same too."""


def choose_seeds(folder: Path, config: DiscoverConfig, images: int) -> list[int]:
    """Return the seeds of the trainings of the next round: as many as --seeds says, or as the round before had where
    the settings are the same, or else those of the table. images: of the collection."""
    n = config.seeds
    if n == "auto":
        configs = (read_round_config(round_folder(folder, n)) for n in reversed(started_rounds(folder)))
        last = next((found for found in configs if found is not None), None)
        taken, device = resolve_settings(config), pick_device(config.device)
        same = last is not None and last.device == device
        if last is not None and same and all(last.taken.get(name) == taken[name] for name in SAME):
            n = len(last.seeds)
        else:
            n = default_trainings(config, images)
    return list(range(config.seed, config.seed + n))


@dataclass
class RoundPlan:
    """All that decides the next round of a discovery, and what has changed since the last one."""

    folder: Path
    """Of the discovery."""
    config: DiscoverConfig
    source: Table
    """With the ids of classes as labels, before edits."""
    images: Collection
    """Its images, with the same labels."""
    inputs: RoundConfig
    """What the round is begun with."""
    history: EditHistory = field(default_factory=EditHistory)
    """What people have said, less what newer labels overrule."""
    last: int = 0
    """Number of the last finished round, 0 where there is none."""
    difference: CollectionDiff = field(default_factory=CollectionDiff)
    """From what the last round saw."""
    edits: list[Edit] = field(default_factory=list)
    """That the log does not hold yet: those of a file, and renames that follow from labels."""
    changes: list[str] = field(default_factory=list)
    """Since the last round, a sentence each."""
    trains: bool = True
    """Is there something that the last round was not given?"""
    edits_line: str = ""
    """On the file of edits."""

    @property
    def given(self) -> Constraints:
        """What edits say to the round."""
        return self.history.given

    @cached_property
    def before(self) -> Discovery | None:
        """The round before, as corrected, with the paths of today."""
        found = self.history.discovery
        return with_current_paths(found, self.images) if found is not None else None

    @property
    def least_classes(self) -> int:
        """Known classes that the round needs: none before the first training: groups can be proposed."""
        return 0 if self.before is None or len(self.before.known) < LEAST_CLASSES else LEAST_CLASSES

    @cached_property
    def labelled(self) -> Table:
        """The table with the labels of edits."""
        return self.given.apply(self.source, self.images.keys)

    @cached_property
    def out(self) -> np.ndarray:
        """(N,) bool: images that people have rejected."""
        return self.given.out(self.images.keys)

    @property
    def to_embed(self) -> int | None:
        """Images that the rounds before have not embedded; None = all."""
        return len(self.difference.new) + len(self.difference.repaired) if self.last else None

    @cached_property
    def digests(self) -> tuple[str, ...]:
        """(N,) contents of the images, in the order of the table."""
        return tuple(entry.digest for entry in self.images.images.values())

    @property
    def next_number(self) -> int:
        """Number of the round: that of the last one where it was stopped, or else a new one."""
        number = max(started_rounds(self.folder), default=0)
        own, stopped = round_folder(self.folder, number), number > last_round(self.folder)
        begun = (own / ROUND_FILE).is_file() or (own / IDENTITY_FILE).is_file()  # else nothing was trained
        return number if stopped and (self.is_that_of(own) or not begun) else number + 1

    def is_that_of(self, own: Path) -> bool:
        """Does the round in the folder `own` train on the very same? The name of a category changes nothing."""
        try:
            images, inputs = read_collection(own), read_round_config(own)
        except InputError:  # stopped before all of it was written
            return False
        return images is not None and inputs == self.inputs and _trained(images) == _trained(self.images)

    def check(self) -> None:
        """Raise InputError where a round would find no classes to learn, or nothing to place."""
        if not self.trains:
            return
        if (self.source.usable & ~self.source.labelled).any():  # else it is not edits that have labelled all
            check_images_left(self.labelled, self.given, self.images.keys, self.folder)
        check_trainable(self.labelled.take(~self.out), self.least_classes)

    def start(self) -> int:
        """Begin the round, or resume the one that was stopped; returns its number."""
        number = self.next_number
        own = round_folder(self.folder, number)
        if not self.is_that_of(own):
            self.images.save(own)
            self.inputs.save(own)  # last: a round without it was stopped on its way
        return number

    def lines(self) -> list[str]:
        """What has changed, and whether another round follows; nothing before the first round."""
        if not self.last:
            return []
        lines = [self.edits_line] if self.edits_line else []
        if self.trains:
            return [*lines, *self.changes, "Another round is needed."]
        nothing = "Nothing else has changed" if self.changes else "Nothing has changed"
        return [*lines, *self.changes, f"{nothing} since round {self.last}: its result stands."]

    def edit_lines(self) -> list[str]:
        """Which edits take part in the round, which do not and why."""
        return self.history.lines(self.next_number, self.images, self.folder)


@dataclass(kw_only=True)
class Round(RoundPlan):
    """A round on its way from plan to categories."""

    chosen: BackboneChoice
    table: Table
    """With the labels of edits; as the round goes on, with problems, bursts and the labels that they spread."""
    number: int = 1
    embedded: EmbeddingParts | None = None
    """Features that are there already, of these images and perhaps of many more."""
    progress: bool = False
    clock: StepTimer = field(default_factory=StepTimer)
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    """(N,) what else is known of the images, for their table: from the heads of the files, for one."""
    decoded: DecodedImages | None = None
    """Images that embedding has read, for training."""

    @classmethod
    def of(cls, plan: RoundPlan, chosen: BackboneChoice, **more: Any) -> Round:
        """Return the round that was planned."""
        planned = {one.name: getattr(plan, one.name) for one in fields(RoundPlan)}
        return cls(**planned, chosen=chosen, table=plan.labelled, **more).fitted()

    def fitted(self) -> Round:
        """Return the round with the settings that its labels allow."""
        config, seeds = round_config(self.active, self.config), self.inputs.seeds
        self.inputs = replace(self.inputs, seeds=seeds if config == self.config else seeds[:1])
        self.config = config
        return self

    @property
    def own(self) -> Path:
        """Folder of the round."""
        return round_folder(self.folder, self.number)

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
        return without_edit_labels(self.active, self.source.label) if self.given.labels else self.active


def plan_round(
    folder: Path,
    table: Table,
    config: DiscoverConfig,
    edits: Path | None = None,
    progress: bool = False,
    now: Collection | None = None,
) -> RoundPlan:
    """Compare images, labels, settings and edits with the last round. Nothing is written.

    edits: a file. now: the index of the table, where it was made already.
    """
    last, stored = last_round(folder), read_collection(folder) or Collection()
    now = now or index_images(table, stored, progress)
    before = (last and read_collection(round_folder(folder, last))) or Collection(table.root)
    difference = diff_collections(before, now)
    if last:
        check_same_images(folder, table, before, now, difference)
    new = read_edits_of(folder, edits, now) if edits is not None else []
    edits_line = f"{edits}: {count_edits(folder, new)}." if edits else ""
    history = replay_edits(folder, new)
    labels = resolve_aliases(now, before, difference.then, stored, history.discovery)
    if labels.names:
        new = [*new, *rename_edits(folder, history, labels.names)]
        history = replay_edits(folder, new)
    table, aliases = labels.apply(table), {**stored.aliases, **difference.aliases}
    now = with_labels(now, table.label, means=labels.means, spoken=labels.spoken, aliases=aliases)
    compare_labels(difference, before, now)
    said, history = history.given.of_repaired(now), history.of_today(now)
    inputs = RoundConfig.of(
        config,
        table.name,
        groups="" if config.bursts == NO else stated_groups(table, now),
        seeds=choose_seeds(folder, config, len(table)),
        labels=history.given.labels,
        rejected=sorted(history.given.rejected),
    )
    then = read_round_config(round_folder(folder, last))
    settings = inputs.others(then) if then else []
    has_new_edits = then is not None and then.given.differs(history.given, now)
    changes = [f"The images are in {now.root} now."] if before.root != now.root else []
    changes += [f"Since round {last}: {difference.words}."] if difference.words else []
    changes += _repaired(difference, now, history.given)
    for id, name in labels.names.items():
        again = "again" if id == name else "now"
        changes.append(f"The class {id} is labelled {name} {again}; it stays the same class under that name.")
    changes += _labels(difference, now, said.images - history.given.images, last)
    changes += [f"Settings that differ from round {last}: {', '.join(settings)}."] if settings else []
    if has_new_edits and not difference.trains:
        changes.append(f"There are edits that round {last} did not have.")
    trains = not last or difference.trains or bool(settings) or has_new_edits
    return RoundPlan(
        folder, config, table, now, inputs, history, last, difference, new, changes, trains, edits_line
    )


def _repaired(difference: CollectionDiff, now: Collection, given: Constraints) -> list[str]:
    if not difference.repaired:
        return []
    lines = [f"Repaired or replaced, and read again: {shown_names(difference.repaired)}."]
    if edited := [path for path in difference.repaired if now.key(path) in given.images]:
        lines.append(
            f"What edits say of {shown_names(edited)} still counts; correct it in the report if it shows something "
            "else now."
        )
    return lines


def _labels(difference: CollectionDiff, now: Collection, overruled: Set[str], last: int) -> list[str]:
    """overruled: images of which edits no longer count, since their labels are newer."""
    lines = []
    if difference.labels_are_others:
        lines.append(
            f"None of the images that had a label in round {last} keeps it. If a list of labels was forgotten, stop "
            "now and name it with --labels."
        )
    changed = sorted((*difference.labels_new, *difference.labels_changed))
    if paths := [path for path in changed if now.key(path) in overruled]:
        lines.append(
            f"Labels that are newer than edits of the same images count instead: {shown_names(paths)}."
        )
    return lines


def apply_plan(plan: RoundPlan) -> None:
    """Write edits and the images as they are into the folder of the discovery; edits also where no round can follow,
    which raises InputError."""
    if plan.edits or (plan.folder / EDIT_LOG).is_file():
        append_edits(plan.folder, plan.edits)
    plan.check()
    if plan.images != read_collection(plan.folder):
        plan.images.save(plan.folder)


def rename_edits(folder: Path, history: EditHistory, names: Mapping[str, str]) -> list[Edit]:
    """Edits that give classes the names of their labels."""
    run, *_ = (*run_ids(folder), *history.runs[-1:])  # a kill may have left what people see a round behind
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    return [Edit(run, at, "rename", "", id, name) for id, name in names.items()]


def _trained(images: Collection) -> list[tuple[str, str, str]]:
    """What training sees of the images, in their order."""
    return [(path, entry.digest or entry.stamp, entry.label) for path, entry in images.images.items()]


def check_same_images(
    folder: Path, table: Table, before: Collection, now: Collection, found: CollectionDiff
) -> None:
    """Raise InputError for a collection that has nothing in common with that of the discovery."""
    same = len(found.then) - len(found.repaired)
    if not same and (not found.then or before.root != now.root):
        then, today = (any(split_box(path)[1] for path in seen.images) for seen in (before, now))
        cure = "choose another folder with --out"
        if then != today:
            cure = f"{'give its boxes again with --boxes' if then else 'leave the boxes out'}, or {cure}"
        raise InputError(
            f"{folder} holds a discovery of other images: none of its {len(before.images):,}{' boxes' if then else ''} "
            f"is among those of {table.name}; {cure}."
        )


def pending_edits(folder: Path, given: Constraints) -> tuple[int, int]:
    """How many labels, and how many images that stay out or come back, the next round would be given and the last
    one was not."""
    config = read_round_config(round_folder(folder, last_round(folder)))
    before = config.given if config else Constraints()
    inputs = before.of_repaired(read_collection(folder) or Collection())
    labels, rejected = given.labels.items() ^ inputs.labels.items(), given.rejected ^ inputs.rejected
    return len({key for key, _ in labels} - rejected), len(rejected)
