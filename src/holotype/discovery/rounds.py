"""Rounds of a discovery: inputs, results and edits of each.

RUN/rounds/1/       the first round: a run folder like any other, before any edit, with collection.parquet and
                    round.json, which say what it was begun with
RUN/edits.csv       the log of edits of all rounds
RUN/discovery.json  what the last round found with the edits of that round applied

A round that was begun with other labels, images or settings than there are now is left as it is, and another one is
begun. Nothing in it is ever written anew: edits know images by their content, and the paths of today are looked up.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from holotype.data.paths import absolute, relative
from holotype.discovery.collection import Collection, read_collection, shown_names, with_current_paths
from holotype.discovery.constraints import Constraints
from holotype.errors import InputError, Stopped, signal_of
from holotype.export.open_assign import with_proposals
from holotype.report.redact import short_names
from holotype.results.annotated import read_corrections
from holotype.results.describe import renamed_categories
from holotype.results.discovery import FEATURES, Category, Discovery, checked_features, write_csv
from holotype.results.edits import (
    ACTIONS,
    AppliedEdits,
    Edit,
    apply_edits,
    check_run,
    in_effect,
    log_locked,
    merged_into,
    new_edits,
    place_anew,
    read_log,
    read_placement,
    run_ids,
)
from holotype.results.names import NAMES_FILE, with_names
from holotype.utils.atomic import atomic_write, write_text
from holotype.utils.heartbeat import update_heartbeat
from holotype.utils.text import plural

SCORES_FILE = "scores.json"
"""As in runs/record.py, which imports torch: the studio looks at rounds without it."""

log = logging.getLogger(__name__)


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


def round_folder(folder: Path, number: int) -> Path:
    return folder / "rounds" / str(number)


def started_rounds(folder: Path) -> list[int]:
    """Numbers of all rounds, finished or not, in their order."""
    return sorted(int(path.name) for path in (folder / "rounds").glob("[1-9]*") if path.name.isdecimal())


def finished_rounds(folder: Path) -> list[int]:
    """Numbers of the rounds that have come to their end."""
    return [n for n in started_rounds(folder) if (round_folder(folder, n) / SCORES_FILE).is_file()]


def last_round(folder: Path) -> int:
    """Number of the last finished round, 0 where there is none."""
    return max(finished_rounds(folder), default=0)


def read_edits_of(folder: Path, file: Path, now: Collection) -> list[Edit]:
    """Read a file of edits for the discovery in a folder; InputError where there is none that it could correct."""
    if not last_round(folder):
        raise InputError(
            f"{folder} holds no discovery that {file} could correct; run holotype discover without --edits first."
        )
    return identify_images(folder, read_corrections(folder, file), now)


def identify_images(folder: Path, edits: Sequence[Edit], now: Collection | None = None) -> list[Edit]:
    """Return edits with the digests of their images, where they name these by path alone.

    An edit speaks of the images of its own round, by the paths of then or by the short names of a report that was
    mailed; else of those of today. now: the index of today, by default the latest one.
    """
    if all(edit.digest or not edit.image for edit in edits):
        return list(edits)
    own = [round_folder(folder, number) for number in finished_rounds(folder)] or [folder]
    names = {found.run_id: _image_names(found) for found in map(Discovery.load, own)}
    last = list(names.values())[-1]
    now = now or read_collection(folder) or Collection()
    today = {path: entry.digest for path, entry in now.images.items()}
    today |= {absolute(path, now.root): digest for path, digest in today.items()}

    def identified(edit: Edit) -> Edit:
        unknown = edit.image, today.get(edit.image, "")
        image, digest = names.get(edit.run_id, last).get(edit.image, unknown)
        return replace(edit, image=image, digest=digest)

    return [identified(edit) if edit.image and not edit.digest else edit for edit in edits]


def _image_names(found: Discovery) -> dict[str, tuple[str, str]]:
    """All that the images of a round may be called: to path and digest."""
    paths, root = [str(path) for path in found.images["path"]], found.facts.root
    images = list(zip(paths, found.digests, strict=True))
    names: dict[str, tuple[str, str]] = {}
    for called in (short_names(paths, root), relative(paths, root), paths):
        names |= zip(called, images, strict=True)
    return names


def count_edits(folder: Path, edits: Sequence[Edit]) -> str:
    """Say how many edits a file holds, and whether they are in the log of the folder already. Raises InputError where
    they are of another run."""
    check_run(folder, edits)
    new, words = len(new_edits(read_log(folder), edits)), plural(len(edits), "edit")
    if edits and not new:
        return f"{words}, applied already"
    return words if len(edits) == new else f"{words}, {new:,} of them new and the others applied already"


@dataclass
class EditHistory:
    """What all finished rounds and the edits of each come to."""

    given: Constraints = field(default_factory=Constraints)
    """For the next round."""
    applied: AppliedEdits | None = None
    """The last round with its edits; None where no round has come to its end."""
    edits: list[tuple[str, Edit]] = field(default_factory=list)
    """Key of the image ("" = none) and the edit, of those that were applied, in their order."""
    left: list[str] = field(default_factory=list)
    """A sentence for each edit that could not be applied."""
    overruled: int = 0
    """Edits of images that later came with another label."""
    runs: tuple[str, ...] = ()
    """Ids of the rounds."""
    taken: frozenset[str] = frozenset()
    """Ids and names of their categories, which the next round does not give to others."""
    label_then: dict[str, str] = field(default_factory=dict)
    """Image to the label that it came with when an edit last spoke of it."""
    paths: dict[str, str] = field(default_factory=dict)
    """Image to the path, from the root, where a round saw it last."""

    @property
    def discovery(self) -> Discovery | None:
        """The last round as corrected."""
        return self.applied.discovery if self.applied else None

    def next(self, found: Discovery, edits: Sequence[Edit], images: Collection) -> EditHistory:
        """With one more round. edits: those made in its report; images: its index."""
        found = renamed_categories(found, self.given.names)
        applied = apply_edits(found, edits)
        given = self.given.after(found, applied)
        spoken = {key for key, _ in applied.done if key} | (given.images - self.given.images)
        categories = (*found.categories, *applied.discovery.categories)
        return EditHistory(
            given=given,
            applied=applied,
            edits=[*self.edits, *applied.done],
            left=[*self.left, *applied.left],
            runs=(*self.runs, found.run_id),
            taken=self.taken | {word for category in categories for word in (category.id, category.name)},
            label_then=self.label_then | {key: images.labels.get(key, "") for key in spoken},
            paths=self.paths | {key: paths[0] for key, paths in images.paths.items()},
        )

    def of_today(self, now: Collection) -> EditHistory:
        """What still counts for the images of today: what was said of an image before it was repaired does; what was
        said before it came with another label does not, while it has that one."""
        given = self.given.of_repaired(now)
        newer = {key for key in given.images & now.paths.keys() if self._has_newer_label(key, now)}
        edits = [(now.present(key), edit) for key, edit in self.edits]
        counting = [(key, edit) for key, edit in edits if not key or not self._has_newer_label(key, now)]
        overruled = self.overruled + len(edits) - len(counting)
        return replace(self, given=given.without(newer), edits=counting, overruled=overruled)

    def _has_newer_label(self, key: str, now: Collection) -> bool:
        """Did an image come with another label after edits spoke of it? Not where that was taken away since, or is
        again what it was then: a list was forgotten once."""
        then = next((self.label_then[k] for k in (key, *now.ancestors(key)) if k in self.label_then), "")
        return now.labels.get(key, "") not in ("", then)

    def lines(self, number: int, now: Collection, folder: Path) -> list[str]:
        """Say before round `number` which edits take part, which do not and why, and where they contradict each other.
        folder: of the discovery; what it has told before is counted."""
        remarks = [p for p in self.applied.problems if p not in self.left] if self.applied else []
        if not self.edits and not self.left and not self.overruled:
            return remarks
        last = {key: place for place, (key, _) in enumerate(self.edits) if key}
        counting = [
            (key, edit)
            for place, (key, edit) in enumerate(self.edits)
            if not key or (last[key] == place and (edit.action == "reject" or key not in self.given.rejected))
        ]
        here = now.paths.keys()
        count = Counter(edit.action for key, edit in counting if not key or key in here)
        words = ", ".join(f"{count[a]:,} {a.removesuffix('e')}ed" for a in ACTIONS if count[a]) or "none"
        overruled = self.overruled + len(self.edits) - len(counting)
        by = "edits or labels" if self.overruled else "ones"
        more = f"; {overruled:,} more {'was' if overruled == 1 else 'were'} overruled by later {by}"
        labels, out = self.given.of_images(here)
        lines = [
            f"Edits that take part in round {number}: {words}{more if overruled else ''}. They give "
            f"{plural(len(labels), 'label')} and keep {plural(len(out), 'image')} out."
        ]
        if missing := [key for key, _ in counting if key and key not in here]:
            names = dict.fromkeys(self.paths.get(key, key) for key in missing)
            lines.append(
                f"{plural(len(missing), 'edit')} of {plural(len(names), 'image')} now gone will count again once the "
                f"images are back: {shown_names(names)}."
            )
        return [*lines, *unreported(folder, self.left), *remarks]


def replay_edits(folder: Path, more: Sequence[Edit] = (), until: int | None = None) -> EditHistory:
    """Read every finished round with the edits of its own; what is said later counts.

    more: than the log holds. until: number of the last round to read."""
    held, numbers, history = read_log(folder), finished_rounds(folder), EditHistory()
    numbers = [number for number in numbers if until is None or number <= until]
    edits = in_effect([*held, *new_edits(held, more)])
    for number in numbers:
        found = Discovery.load(round_folder(folder, number))
        own = [edit for edit in edits if edit.run_id == found.run_id]
        if number == numbers[-1]:  # it answers for edits of runs that nobody has heard of
            own = [edit for edit in edits if edit.run_id not in history.runs]
        images = read_collection(round_folder(folder, number)) or Collection()
        history = history.next(found, own, images)
    return history


def apply_log(folder: Path) -> AppliedEdits:
    """Apply the log of a run folder to what its last round found, and save the outcome in the folder.

    What a round found lies untouched in rounds/N; without that, the discovery in the folder is corrected further.
    """
    with log_locked(folder):  # else the outcome of an older log could be written over that of a newer one
        outcome, now = replay_edits(folder).applied, read_collection(folder)
        if outcome is None or [outcome.discovery.run_id] != run_ids(folder)[:1]:
            outcome = apply_edits(Discovery.load(folder), in_effect(read_log(folder)))
        found = outcome.discovery
        if (placed := read_placement(folder, found.run_id, len(found.images))) is not None:
            outcome.discovery = place_anew(outcome.discovery, placed)
        if now is not None:
            outcome.discovery = with_current_paths(outcome.discovery, now)
        outcome.discovery, _ = with_proposals(folder, with_names(folder, outcome.discovery))
        undone = Discovery.load(folder).facts.edits != outcome.discovery.facts.edits
        named = (folder / NAMES_FILE).is_file()
        if outcome.count or outcome.refused or undone or named or placed is not None:
            outcome.discovery.save(folder)
    return outcome


def next_constraints(folder: Path) -> Constraints:
    """What the edits so far say to the next round."""
    return replay_edits(folder).of_today(read_collection(folder) or Collection()).given


REFUSED_FILE = "refused.txt"
"""In the run folder: a sentence for each edit that cannot take part, as they were told before the last round."""


def read_refused(folder: Path) -> list[str]:
    """The sentences that were told before; none where nothing was refused yet."""
    file = folder / REFUSED_FILE
    return file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []


def store_refused(folder: Path, left: Sequence[str]) -> None:
    """After they were told: the sentences of all edits that cannot take part."""
    if list(left) != read_refused(folder):
        write_text(folder / REFUSED_FILE, "".join(f"{line}\n" for line in left))


def unreported(folder: Path, left: Sequence[str]) -> list[str]:
    """Of the sentences on edits that cannot take part: those that are new, and how many others there are."""
    before = set(read_refused(folder))
    fresh = [line for line in left if line not in before]
    again = len(left) - len(fresh)
    if again:
        still = "is still" if again == 1 else "are still"
        fresh.append(
            f"{plural(again, 'edit')} {still} not applied (reported earlier; see {folder / REFUSED_FILE})."
        )
    return fresh


MODEL, WEIGHTS = "model.json", "model.safetensors"
SHARED_FILES = (WEIGHTS, MODEL, FEATURES, "provenance.json", SCORES_FILE)
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
    from holotype.models.weights_io import weights_digest  # these two bring torch
    from holotype.runs.record import RunFolder

    told = {name: RunFolder(own).read_json(name) for name in (SCORES_FILE, MODEL) if (own / name).is_file()}
    model, weights = told.get(MODEL), own / WEIGHTS
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


#
# A category is kept where its id is there again (runs/predict.py says when). Where it is not, or where another category
# has taken more than a quarter of its images, those that have its images are named.

CHANGES_FILE = "changes.csv"
PART_SHARE = 0.25
"""Share of a category's images that makes another one a part of it."""
MAX_CHANGE_LINES = 12


@dataclass(frozen=True)
class CategoryChange:
    """A category of the round before and one of this round, or one of them alone."""

    category_id: str
    """"" for a category that was not there before."""
    category: str
    """Its name, as it stood when this round began."""
    images: int
    became: str
    """kept, split, merged, rejected, gone or new."""
    by: str
    """edits, or training."""
    now_id: str = ""
    """"" where nothing is left of it."""
    now: str = ""
    now_images: int = 0
    shared: int = 0
    """Images that were in the one and are in the other."""


def write_changes(folder: Path, number: int, now: Collection) -> list[str]:
    """Compare a round with the one before it and write the table; returns sentences, none where that was done.

    now: the index of today."""
    earlier = max((n for n in finished_rounds(folder) if n < number), default=0)
    file = round_folder(folder, number) / CHANGES_FILE
    corrected = None if file.is_file() else replay_edits(folder, until=earlier).discovery
    if corrected is None:
        return []
    found, after = (Discovery.load(round_folder(folder, n)) for n in (earlier, number))
    before, after = (with_current_paths(one, now) for one in (corrected, after))
    made = category_changes(found, before, after)
    import pandas as pd

    frame = pd.DataFrame(
        [asdict(change) for change in made], columns=[one.name for one in fields(CategoryChange)]
    )
    texts = ("category_id", "category", "now_id", "now")
    atomic_write(file, lambda beside: write_csv(frame, texts, beside))
    return changes_text(made, earlier, file)


def category_changes(found: Discovery, before: Discovery, after: Discovery) -> list[CategoryChange]:
    """found: the round before as it ended; before: with its edits; after: this round."""
    now = {category.id: category for category in after.categories}
    place = dict(zip(after.images["path"], after.images["category_id"], strict=True))
    stood = {category.id for category in before.categories}
    made = []
    for category in before.categories:
        mine = before.images["path"][before.images["category_id"] == category.id]
        made += _change_of(category, Counter(place[path] for path in mine if place.get(path)), now)
    made += [
        _change_by_edits(category, before, now) for category in found.categories if category.id not in stood
    ]
    new = [category for category in after.categories if category.id not in stood]
    made += [CategoryChange("", "", 0, "new", "training", c.id, c.name, c.n) for c in new]
    return made


def _change_of(category: Category, where: Counter[str], now: dict[str, Category]) -> list[CategoryChange]:
    """Rows of a category whose images lie `where` now: id to number of images. Those that are gone lie nowhere, and the
    few that are left do not speak for the category."""
    parts = [id for id, n in where.most_common() if n > PART_SHARE * category.n and id != category.id]
    if category.id in now:
        became, parts = "split" if parts else "kept", [category.id, *parts]
    elif len(parts) > 1:
        became = "split"
    elif parts and 2 * where[parts[0]] > category.n:
        became = "merged"
    else:
        became, parts = "gone", []
    told = (category.id, category.name, category.n, became, "training")
    rows = [CategoryChange(*told, id, now[id].name, now[id].n, where[id]) for id in parts]
    return rows or [CategoryChange(*told)]


def _change_by_edits(category: Category, before: Discovery, now: dict[str, Category]) -> CategoryChange:
    """The row of a category that edits have made an end of."""
    edits = before.facts.edits
    end = merged_into(category.id, edits.merged)
    became = "merged" if end != category.id else "rejected" if end in edits.rejected else "gone"
    told = (category.id, category.name, category.n, became, "edits")
    return CategoryChange(*told, end, now[end].name, now[end].n) if end in now else CategoryChange(*told)


def changes_text(made: list[CategoryChange], number: int, file: Path) -> list[str]:
    """A sentence on what was kept, and one for each category that was not."""
    kept = [change.now for change in made if change.became == "kept"]
    names = ", ".join(kept[:MAX_CHANGE_LINES]) + " and others" * (len(kept) > MAX_CHANGE_LINES)
    lines = [
        f"Kept from round {number}: {plural(len(kept), 'category', 'categories')}{f' ({names})' * bool(kept)}."
    ]
    for id in dict.fromkeys(change.category_id for change in made if change.category_id):
        rows = [change for change in made if change.category_id == id]
        into = " and ".join(_joined_names(row.now, row.shared) for row in rows if row.now_id)
        ends = {
            "split": f"was split into {into}",
            "merged": f"was merged into {rows[0].now or 'another'}",
            "rejected": "was rejected",
            "gone": "is gone; its images are in several others or in none",
        }
        if rows[0].became in ends:
            lines.append(f"{rows[0].category} {ends[rows[0].became]}.")
    new = [_joined_names(change.now, change.now_images) for change in made if change.became == "new"]
    lines += [f"New: {', '.join(new)}."] if new else []
    more = len(lines) - MAX_CHANGE_LINES
    return [*lines[:MAX_CHANGE_LINES], *([f"{more} more lines are in {file}."] if more > 0 else [])]


def _joined_names(name: str, images: int) -> str:
    return f"{name} ({plural(images, 'image')})"
