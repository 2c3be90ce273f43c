"""Rounds of a discovery: what each found, what it was given, and the edits that lead to the next one.

RUN/rounds/1/       the first round: a run folder like any other, before any edit, with labels.json, rejected.json,
                    collection.parquet and begun.json, which say what it was begun with; in corrected/ what it found as
                    people had corrected it when the next one began
RUN/edits.csv       the log of edits of all rounds, append-only
RUN/discovery.json  what the last round found with the edits of that round applied

A round that was begun with other labels, images or settings than there are now is left as it is, and another one is
begun.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from holotype.data.paths import relative
from holotype.discovery.asked import Asked, read_asked
from holotype.discovery.collection import FILE as SEEN
from holotype.discovery.collection import Collection, read_collection
from holotype.discovery.constraints import Constraints
from holotype.discovery.given import read_given, write_given
from holotype.discovery.moved import at_home, read_earlier
from holotype.discovery.taking_part import Account, not_told_yet
from holotype.errors import InputError
from holotype.results.apply_edits import AppliedEdits, apply_edits
from holotype.results.describe import renamed_categories
from holotype.results.discovery import DISCOVERY_FILE as DISCOVERY
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, append_edits, new_edits, read_edits, read_log
from holotype.runs.run_folder import SCORES_FILE
from holotype.utils.atomic import OWN_SUFFIX

LABELS = "labels.json"
"""Of a round: the labels that edits had given before it was trained, by path from the root."""
REJECTED = "rejected.json"
"""Of a round: the images that edits keep out of it, by path from the root."""
CORRECTED = "corrected"
"""Folder in that of a round: what it found with the edits that there were when the next one began."""

log = logging.getLogger(__name__)


# -- their folders ----------------------------------------------------------------------------------------


def round_folder(folder: Path, number: int) -> Path:
    return folder / "rounds" / str(number)


def begun_rounds(folder: Path) -> list[int]:
    """Numbers of all rounds, finished or not, in their order."""
    there = (folder / "rounds").iterdir() if (folder / "rounds").is_dir() else ()
    return sorted(int(path.name) for path in there if path.is_dir() and path.name.isdecimal())


def finished_rounds(folder: Path) -> list[int]:
    """Numbers of the rounds that have come to their end."""
    return [n for n in begun_rounds(folder) if (round_folder(folder, n) / SCORES_FILE).is_file()]


def corrected_rounds(folder: Path) -> list[Path]:
    """Folders with what rounds found as it was corrected when the next one began."""
    kept = [round_folder(folder, number) / CORRECTED for number in finished_rounds(folder)]
    return [path for path in kept if (path / DISCOVERY).is_file()]


def last_round(folder: Path) -> int:
    """Number of the last finished round, 0 where there is none."""
    return max(finished_rounds(folder), default=0)


@dataclass(frozen=True)
class Begun:
    """All that a round is begun with."""

    given: Constraints
    seen: Collection
    asked: Asked

    def save(self, to: Path) -> None:
        """begun.json comes last: what has none was stopped on its way."""
        for name, content in ((LABELS, self.given.labels), (REJECTED, sorted(self.given.rejected))):
            write_given(to / name, content)
        self.seen.save(to)
        self.asked.save(to)

    def is_that_of(self, own: Path) -> bool:
        """Does the round in the folder `own` train on the very same? The name of a category changes nothing."""
        try:
            given, seen, asked = _given_in(own), read_collection(own), read_asked(own)
        except InputError:  # stopped before all of it was written
            return False
        same = (given.labels, given.rejected) == (self.given.labels, self.given.rejected)
        if not same or asked is None or seen is None:
            return False
        return self.asked == asked and _trained(seen) == _trained(self.seen)


def _trained(seen: Collection) -> list[tuple[str, str, str]]:
    """What training sees of the images, in their order."""
    return [(path, one.digest or one.stamp, one.label) for path, one in seen.here.items()]


def next_number(folder: Path, begun: Begun) -> int:
    """Of a round that would be begun with this: that of the last one where it was stopped, or else a new one."""
    number = max(begun_rounds(folder), default=0)
    own, stopped = round_folder(folder, number), number > last_round(folder)
    if stopped and (begun.is_that_of(own) or _was_being_begun(own)):
        return number
    return number + 1


def _was_being_begun(own: Path) -> bool:
    """Was a round stopped before all was written that it was begun with? Nothing was trained, and it is begun anew."""
    return {path.name for path in own.iterdir() if not OWN_SUFFIX.fullmatch(path.name)} <= {
        LABELS,
        REJECTED,
        SEEN,
    }


def begin_round(folder: Path, begun: Begun) -> int:
    """Begin a round with this, or go on with the one that was; its number."""
    number = next_number(folder, begun)
    own = round_folder(folder, number)
    if not begun.is_that_of(own):
        begun.save(own)
    return number


def given_to(folder: Path, number: int) -> Constraints:
    """Labels and rejected images that a round was begun with."""
    return _given_in(round_folder(folder, number))


def _given_in(own: Path) -> Constraints:
    labels, rejected = read_given(own / LABELS, dict[str, str]), read_given(own / REJECTED, list[str])
    return Constraints(labels=labels, rejected=frozenset(rejected))


# -- what is known before a round ---------------------------------------------------------------------------


def take_edits(folder: Path, file: Path) -> None:
    """Add a file of edits to the log; edits of another run are refused."""
    edits = edits_in(folder, file)
    new = append_edits(folder, edits)
    log.info(f"{file}: {how_many(len(edits), len(new))}.")


def edits_in(folder: Path, file: Path) -> list[Edit]:
    """A file of edits for the discovery in a folder; InputError where there is none that it could correct."""
    edits = read_edits(file)
    if not last_round(folder):
        raise InputError(
            f"{folder} holds no discovery that {file} could correct; run holotype discover without --edits first."
        )
    return edits_at_home(folder, edits)


def edits_at_home(folder: Path, edits: Sequence[Edit]) -> list[Edit]:
    """Edits with the paths that their images have today."""
    rounds = [Discovery.load(round_folder(folder, number)) for number in finished_rounds(folder)]
    return at_home(edits, rounds or [Discovery.load(folder)], read_earlier(folder))


def how_many(edits: int, new: int) -> str:
    """Of a file of edits: how many it holds, and whether they are in the log already."""
    words = f"{edits:,} {'edit' if edits == 1 else 'edits'}"
    if edits and not new:
        return f"{words}, applied already"
    return words if edits == new else f"{words}, {new:,} of them new and the others applied already"


# -- all rounds, one after the other ------------------------------------------------------------------------


@dataclass
class Played:
    """What all finished rounds and the edits of each come to."""

    given: Constraints = field(default_factory=Constraints)
    """For the next round."""
    before: Constraints = field(default_factory=Constraints)
    """The same without the edits of the last round."""
    account: Account = field(default_factory=Account)
    applied: AppliedEdits | None = None
    """The last round with its edits; None where no round has come to its end."""
    runs: tuple[str, ...] = ()
    """Ids of the rounds."""
    taken: frozenset[str] = frozenset()
    """Ids and names of their categories, which the next round does not give to others."""
    label_then: dict[str, str] = field(default_factory=dict)
    """Image to the label that it came with when an edit last spoke of it."""

    def told(self, number: int, here: Set[str], folder: Path) -> list[str]:
        """Before round `number` of the images `here`: which edits take part, which do not and why, and where they
        contradict each other. folder: of the discovery; what it has told before is counted."""
        left = self.account.left
        account = replace(self.account, left=not_told_yet(folder, left))
        remarks = (
            [problem for problem in self.applied.problems if problem not in left] if self.applied else []
        )
        return [*account.told(number, self.given, here), *remarks]

    def told_by(self, seen: Collection | None, labels: Mapping[str, str]) -> Played:
        """With what the images of a round came with. labels: of today."""
        other = {path for path, one in seen.images.items() if one.relabelled} if seen else set()
        return self.without(self.overruled(other, labels))

    def overruled(self, other: Set[str], labels: Mapping[str, str]) -> set[str]:
        """Of the images `other`, which came with another label after edits of them: those whose label is newer still.
        It is not where it was taken away since, or is again what it was then: a list was forgotten once."""
        return {path for path in other if labels.get(path) not in ("", self.label_then.get(path, ""))}

    def moved(self, moves: Mapping[str, str]) -> Played:
        """With the paths that images have now. moves: path then to path now, from the root, where these differ."""
        label = {moves.get(path, path): label for path, label in self.label_then.items()}
        given, account = self.given.moved(moves), self.account.moved(moves)
        return replace(self, given=given, account=account, label_then=label)

    def without(self, later: Set[str]) -> Played:
        """Less what edits have said of the images `later`."""
        labels = {path: label for path, label in self.given.labels.items() if path not in later}
        told = replace(self.given, labels=labels, rejected=self.given.rejected - later)
        return replace(self, given=told, account=self.account.without(later))

    def next(self, found: Discovery, edits: Sequence[Edit], seen: Collection | None) -> Played:
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
        return Played(
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


def play(folder: Path, more: Sequence[Edit] = (), labels: Mapping[str, str] | None = None) -> Played:
    """Read every finished round with the edits of its own; what is said later counts. more: than the log holds. labels:
    the classes that images come with today, by path from the root; where nobody says, as they were seen last."""
    if labels is None:
        labels = (read_collection(folder) or Collection()).labels({})
    held, numbers, played = read_log(folder), finished_rounds(folder), Played()
    edits = [*held, *new_edits(held, more)]
    for number in numbers:
        found = Discovery.load(round_folder(folder, number))
        seen = read_collection(round_folder(folder, number))
        played = played.told_by(seen, labels)
        own = [edit for edit in edits if edit.run_id == found.run_id]
        if number == numbers[-1]:  # it answers for edits of runs that nobody has heard of
            own = [edit for edit in edits if edit.run_id not in played.runs]
        played = played.next(found, own, seen)
    return played


def keep_corrected(folder: Path, played: Played) -> None:
    """Before another round is begun: what the last one found, as people have corrected it."""
    if played.applied is not None:
        played.applied.discovery.save(round_folder(folder, last_round(folder)) / CORRECTED)


def waiting(folder: Path) -> tuple[int, int]:
    """How many labels, and how many images that stay out or come back, the next round would be given and the last
    one was not."""
    number = last_round(folder)
    if not number:
        return 0, 0
    now, last = play(folder).given, given_to(folder, number)
    labels = now.labels.items() ^ last.labels.items()
    return len({path for path, _ in labels} - (now.rejected ^ last.rejected)), len(
        now.rejected ^ last.rejected
    )
