"""Rounds of a discovery: inputs, results and edits of each.

RUN/rounds/1/       the first round: a run folder like any other, before any edit, with labels.json, rejected.json,
                    collection.parquet and round.json, which say what it was begun with; in corrected/ what it found as
                    people had corrected it when the next one began
RUN/edits.csv       the log of edits of all rounds, append-only
RUN/discovery.json  what the last round found with the edits of that round applied

A round that was begun with other labels, images or settings than there are now is left as it is, and another one is
begun.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from holotype.data.paths import relative
from holotype.discovery.collection import COLLECTION_FILE as SEEN
from holotype.discovery.collection import Collection, read_collection
from holotype.discovery.constraints import (
    LABELS_FILE,
    REJECTED_FILE,
    Constraints,
    EditSummary,
    read_constraints,
    unreported,
)
from holotype.discovery.relocate import read_previous_paths, resolve_edit_paths
from holotype.errors import InputError, Stopped, signal_of
from holotype.models.weights_io import weights_digest
from holotype.results.apply_edits import AppliedEdits, apply_edits
from holotype.results.describe import renamed_categories
from holotype.results.discovery import DISCOVERY_FILE as DISCOVERY
from holotype.results.discovery import FEATURES, Discovery, checked_features
from holotype.results.edits import Edit, new_edits, read_edits, read_log
from holotype.runs.model_io import MODEL_CONFIG_FILE as MODEL
from holotype.runs.model_io import MODEL_WEIGHTS_FILE
from holotype.runs.record import SCORES_FILE, RunFolder
from holotype.utils.atomic import OWN_SUFFIX, atomic_write
from holotype.utils.heartbeat import update_heartbeat
from holotype.utils.text import plural


class StepTimer:
    """Seconds by step. Ctrl-C or another signal within a step becomes a stop that can be gone on from."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: of the discovery, whose heartbeat names the step."""
        self.folder = folder
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        if self.folder is not None:
            update_heartbeat(self.folder, phase=name)
        try:
            yield
        except KeyboardInterrupt as stop:
            raise Stopped(name, signal_of(stop)) from stop
        self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - started, 1)


CORRECTED_FOLDER = "corrected"
"""Folder in that of a round: what it found with the edits that there were when the next one began."""

log = logging.getLogger(__name__)


# -- their folders ----------------------------------------------------------------------------------------


def round_folder(folder: Path, number: int) -> Path:
    return folder / "rounds" / str(number)


def started_rounds(folder: Path) -> list[int]:
    """Numbers of all rounds, finished or not, in their order."""
    there = (folder / "rounds").iterdir() if (folder / "rounds").is_dir() else ()
    return sorted(int(path.name) for path in there if path.is_dir() and path.name.isdecimal())


def finished_rounds(folder: Path) -> list[int]:
    """Numbers of the rounds that have come to their end."""
    return [n for n in started_rounds(folder) if (round_folder(folder, n) / SCORES_FILE).is_file()]


def corrected_rounds(folder: Path) -> list[Path]:
    """Folders with what rounds found as it was corrected when the next one began."""
    kept = [round_folder(folder, number) / CORRECTED_FOLDER for number in finished_rounds(folder)]
    return [path for path in kept if (path / DISCOVERY).is_file()]


def last_round(folder: Path) -> int:
    """Number of the last finished round, 0 where there is none."""
    return max(finished_rounds(folder), default=0)


def is_incomplete(own: Path) -> bool:
    """Was a round stopped before all was written that it was begun with? Nothing was trained, and it is begun anew."""
    names = {path.name for path in own.iterdir() if not OWN_SUFFIX.fullmatch(path.name)}
    return names <= {LABELS_FILE, REJECTED_FILE, SEEN}


# -- what is known before a round ---------------------------------------------------------------------------


def edits_in(folder: Path, file: Path) -> list[Edit]:
    """A file of edits for the discovery in a folder; InputError where there is none that it could correct."""
    edits = read_edits(file)
    if not last_round(folder):
        raise InputError(
            f"{folder} holds no discovery that {file} could correct; run holotype discover without --edits first."
        )
    return resolved_edits(folder, edits)


def resolved_edits(folder: Path, edits: Sequence[Edit]) -> list[Edit]:
    """Edits with the paths that their images have today."""
    rounds = [Discovery.load(round_folder(folder, number)) for number in finished_rounds(folder)]
    return resolve_edit_paths(edits, rounds or [Discovery.load(folder)], read_previous_paths(folder))


def count_edits(edits: int, new: int) -> str:
    """Of a file of edits: how many it holds, and whether they are in the log already."""
    words = plural(edits, "edit")
    if edits and not new:
        return f"{words}, applied already"
    return words if edits == new else f"{words}, {new:,} of them new and the others applied already"


# -- all rounds, one after the other ------------------------------------------------------------------------


@dataclass
class EditHistory:
    """What all finished rounds and the edits of each come to."""

    given: Constraints = field(default_factory=Constraints)
    """For the next round."""
    before: Constraints = field(default_factory=Constraints)
    """The same without the edits of the last round."""
    account: EditSummary = field(default_factory=EditSummary)
    applied: AppliedEdits | None = None
    """The last round with its edits; None where no round has come to its end."""
    runs: tuple[str, ...] = ()
    """Ids of the rounds."""
    taken: frozenset[str] = frozenset()
    """Ids and names of their categories, which the next round does not give to others."""
    label_then: dict[str, str] = field(default_factory=dict)
    """Image to the label that it came with when an edit last spoke of it."""

    @property
    def discovery(self) -> Discovery | None:
        """The last round as corrected."""
        return self.applied.discovery if self.applied else None

    def told(self, number: int, here: Set[str], folder: Path) -> list[str]:
        """Before round `number` of the images `here`: which edits take part, which do not and why, and where they
        contradict each other. folder: of the discovery; what it has told before is counted."""
        left = self.account.left
        account = replace(self.account, left=unreported(folder, left))
        remarks = (
            [problem for problem in self.applied.problems if problem not in left] if self.applied else []
        )
        return [*account.told(number, self.given, here), *remarks]

    def overruled(self, other: Set[str], labels: Mapping[str, str]) -> set[str]:
        """Of the images `other`, which came with another label after edits of them: those whose label is newer still.
        It is not where it was taken away since, or is again what it was then: a list was forgotten once."""
        return {path for path in other if labels.get(path) not in ("", self.label_then.get(path, ""))}

    def moved(self, moves: Mapping[str, str]) -> EditHistory:
        """With the paths that images have now. moves: path then to path now, from the root, where these differ."""
        label = {moves.get(path, path): label for path, label in self.label_then.items()}
        given, account = self.given.moved(moves), self.account.moved(moves)
        return replace(self, given=given, account=account, label_then=label)

    def without(self, later: Set[str]) -> EditHistory:
        """Less what edits have said of the images `later`."""
        labels = {path: label for path, label in self.given.labels.items() if path not in later}
        told = replace(self.given, labels=labels, rejected=self.given.rejected - later)
        return replace(self, given=told, account=self.account.without(later))

    def next(self, found: Discovery, edits: Sequence[Edit], seen: Collection | None) -> EditHistory:
        """With one more round. edits: those made in its report; seen: its images."""
        found = renamed_categories(found, self.given.names)
        applied = apply_edits(found, edits)
        held, root = set(applied.discovery.facts.edits.applied), found.facts.root
        done = [
            (relative([edit.image], root)[0] if edit.image else "", edit)
            for edit in edits
            if edit.digest in held
        ]
        categories = (*found.categories, *applied.discovery.categories)
        return EditHistory(
            given=self.given.after(found, applied, seen),
            before=self.given,
            account=replace(
                self.account,
                applied=[*self.account.applied, *done],
                left=[*self.account.left, *applied.left],
            ),
            applied=applied,
            runs=(*self.runs, found.run_id),
            taken=self.taken | {word for category in categories for word in (category.id, category.name)},
            label_then=self.label_then
            | {path: seen.images[path].label for path, _ in done if seen and path in seen.images},
        )


def replay_edits(
    folder: Path, more: Sequence[Edit] = (), labels: Mapping[str, str] | None = None
) -> EditHistory:
    """Read every finished round with the edits of its own; what is said later counts. more: than the log holds. labels:
    the classes that images come with today, by path from the root; where nobody says, as they were seen last."""
    if labels is None:
        labels = (read_collection(folder) or Collection()).labels({})
    held, numbers, played = read_log(folder), finished_rounds(folder), EditHistory()
    edits = [*held, *new_edits(held, more)]
    for number in numbers:
        found = Discovery.load(round_folder(folder, number))
        seen = read_collection(round_folder(folder, number))
        relabelled = {path for path, entry in seen.images.items() if entry.relabelled} if seen else set()
        played = played.without(played.overruled(relabelled, labels))
        own = [edit for edit in edits if edit.run_id == found.run_id]
        if number == numbers[-1]:  # it answers for edits of runs that nobody has heard of
            own = [edit for edit in edits if edit.run_id not in played.runs]
        played = played.next(found, own, seen)
    return played


def save_corrected(folder: Path, played: EditHistory) -> None:
    """Before another round is begun: what the last one found, as people have corrected it."""
    if played.applied is not None:
        played.applied.discovery.save(round_folder(folder, last_round(folder)) / CORRECTED_FOLDER)


def pending_edits(folder: Path) -> tuple[int, int]:
    """How many labels, and how many images that stay out or come back, the next round would be given and the last
    one was not."""
    number = last_round(folder)
    if not number:
        return 0, 0
    now, last = replay_edits(folder).given, read_constraints(round_folder(folder, number))
    labels, rejected = now.labels.items() ^ last.labels.items(), now.rejected ^ last.rejected
    return len({path for path, _ in labels} - rejected), len(rejected)


SHARED_FILES = (MODEL_WEIGHTS_FILE, MODEL, FEATURES, "provenance.json", SCORES_FILE)
"""What the run folder has of its last round."""


def link_round(folder: Path, number: int) -> None:
    """Let the run folder have the model and the features of a round: as hard links, or else as copies.

    They are looked at before, since nothing else of a discovery reads all of them: damage is not to spread. Features
    can be done without, so that damaged ones are told and stay where they are.
    """
    check_complete(round_folder(folder, number))
    for name in SHARED_FILES:
        source, target = round_folder(folder, number) / name, folder / name
        if not source.is_file() or (target.is_file() and os.path.samefile(source, target)):
            continue
        if name != FEATURES or checked_features(source) is not None:
            _link(source, target)


def check_complete(own: Path) -> None:
    """Raise InputError where scores or model of a round were changed since they were written."""
    told = {name: RunFolder(own).read_json(name) for name in (SCORES_FILE, MODEL) if (own / name).is_file()}
    model, weights = told.get(MODEL), own / MODEL_WEIGHTS_FILE
    wanted = model.get("weights") if isinstance(model, dict) else None
    if wanted and weights.is_file() and weights_digest(weights) != wanted:
        raise InputError(
            f"{weights} is not the one that {MODEL} was written with; restore both from a copy, or choose another "
            "--out."
        )


def _link(source: Path, target: Path) -> None:
    beside = target.with_name(f".{target.name}.link")
    try:
        beside.unlink(missing_ok=True)
        os.link(source, beside)
    except OSError:  # another disk, or one without hard links

        def copy(part: Path) -> None:
            shutil.copyfile(source, part)

        atomic_write(target, copy)
    else:
        os.replace(beside, target)
