"""Edits: corrections that a person made, read from CSV, kept in a log, and applied to a discovery.

An edit speaks of category ids, which never change within a run, and of an image by the digest of its content, so that
it holds wherever the file lies and for every copy of it. The path beside it is for people; where there is no digest
(written by hand, an unreadable image) it says which image is meant. The format and what each action means:
docs/formats.md. The report reads and writes the same files (report/corrections.js).

A new category without images is asleep: nobody sees it and its name is free, but its id still means it, so that an
image may come back. What is asleep at the end is left out of the discovery and remembered in facts.edits.

`apply_edits` is pure, and safe to repeat: facts.edits of a discovery says which edits it has dealt with. Where two
edits contradict each other the later one counts, and both are told; what cannot be applied is told and stays in the
log. The report does the same in the browser (report/corrections.js); tests/results/golden_edits.json binds the two.
"""

from __future__ import annotations

import copy
import csv
import hashlib
import io
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from holotype.data.csv import WINDOWS, csv_text, escape_formula, unescape_formula
from holotype.errors import InputError
from holotype.results.describe import rename_in_texts, renamed_note
from holotype.results.discovery import Category, Discovery
from holotype.results.purity import set_purity
from holotype.utils.atomic import write_text
from holotype.utils.locks import check_not_link, wait_for_lock
from holotype.utils.serialization import FileSchema

EDIT_LOG = "edits.csv"
"""The log in a run folder: edits are added and never changed."""
LOG_FORMAT = 2
"""Raised when a column changes its meaning. It stands in the last column."""
READABLE_FORMATS = ("", "1", str(LOG_FORMAT))
"""Files of format 1 have no digests."""
EDIT_COLUMNS = ("run_id", "time", "action", "image", "category", "value")
"""That a file must have; it may also have `digest`, `by` and `format`."""
LOG_HEADER = (*EDIT_COLUMNS, "digest", "by", "format")
SURPLUS = "more cells than columns"
ACTIONS = ("rename", "merge", "move", "reject", "confirm")
UNDO = "undo"
"""A line of the log that takes back what was said of its image, or of its category, at the time that is its value."""
BLANK_ENDS = re.compile(r"\A[\s\ufeff]+|[\s\ufeff]+\Z")
"""Not str.strip, since the report must strip the same signs, and JavaScript has its own idea of a space."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Edit:
    """One correction. What is not needed by the action is empty."""

    run_id: str
    time: str
    """When it was made, ISO 8601."""
    action: str
    """rename, merge, move, reject, confirm or undo."""
    image: str = ""
    """Path of the image, as in the assignments."""
    category: str = ""
    """Id of the category that is renamed, merged away or rejected, or in which the image was seen."""
    value: str = ""
    """The new name, the id of the target, the label, or the time of what is taken back."""
    digest: str = ""
    """Of the content of the image; "" where it is not known, and `image` counts."""
    by: str = ""
    """Who made it, as far as somebody has said so."""

    @cached_property
    def id(self) -> str:
        """Twelve characters that tell this edit from others, wherever its image lies."""
        subject = self.digest or self.image
        parts = (self.run_id, self.time, self.action, subject, self.category, self.value)
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:12]


def read_edits(path: Path | str) -> list[Edit]:
    """Read the edits in a CSV file, in its order; a spreadsheet may have saved it with semicolons and a BOM."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is not a file; export edits.csv from the report and name that file.")
    return _parse_edits(path.read_bytes(), path)


def _parse_edits(content: bytes, path: Path) -> list[Edit]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        try:
            text = content.decode(WINDOWS)
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is neither UTF-8 nor Windows text; save it as CSV UTF-8.") from error
    rows = csv.DictReader(io.StringIO(text, newline=""), restkey=SURPLUS, delimiter=_delimiter(text))
    missing = [name for name in EDIT_COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]!r}; an edits file has the columns {', '.join(EDIT_COLUMNS)}."
        )
    try:
        filled = (row for row in rows if any(row.get(name) for name in EDIT_COLUMNS))
        return [_edit(row, path, rows.line_num) for row in filled]
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num}, is not CSV ({error}); export it again.") from error


def _delimiter(text: str) -> str:
    head = text.split("\n", 1)[0]
    return ";" if head.count(";") > head.count(",") else ","


def _edit(row: dict[str, str | None], path: Path, line: int) -> Edit:
    if any(row.get(SURPLUS) or ()):
        raise InputError(
            f"{path}, line {line}, has more cells than columns; put a text with a comma in quotation marks."
        )
    version = stripped(row.get("format") or "")
    if version not in READABLE_FORMATS:
        raise InputError(
            f"{path}, line {line}, is of format {version!r}, and this version of Holotype reads format {LOG_FORMAT}; "
            "export the edits from a report that this version has built."
        )
    edit = Edit(*(unescape_formula(row.get(name) or "") for name in (*EDIT_COLUMNS, "digest", "by")))
    if edit.action not in (*ACTIONS, UNDO):
        raise InputError(
            f"{path}, line {line}: there is no action {edit.action!r}; the actions are {', '.join(ACTIONS)}."
        )
    return edit


def stripped(text: str) -> str:
    """Return the text without blank signs at its ends."""
    return BLANK_ENDS.sub("", text)


def edits_csv(edits: Iterable[Edit]) -> str:
    """Return the edits as the text of a CSV file."""
    return csv_text([LOG_HEADER]) + _lines(edits)


def _lines(edits: Iterable[Edit]) -> str:
    return csv_text([*map(escape_formula, astuple(edit)), str(LOG_FORMAT)] for edit in edits)


def in_effect(edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits that count: without those that were taken back, and without the lines that say so."""

    def place(edit: Edit, time: str) -> tuple[str, str, str]:
        return edit.run_id, time, edit.digest or edit.image or edit.category

    undone = {place(edit, edit.value) for edit in edits if edit.action == UNDO}
    return [edit for edit in edits if edit.action != UNDO and place(edit, edit.time) not in undone]


class EditLog:
    """The log of a run folder for whoever stays with it: what others add is read alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.edits: list[Edit] = []
        """As they were read last; the same list grows as long as lines are only added."""
        self._content = b""

    def read(self) -> list[Edit]:
        """Return the edits that the folder has accepted so far, oldest first, but for a line that a kill has torn."""
        path = self.folder / EDIT_LOG
        content = path.read_bytes() if path.is_file() else b""
        whole = content[: _whole_length(content)]
        if self._content.endswith(b"\n") and whole.startswith(self._content):
            header, added = whole.partition(b"\n")[0] + b"\n", whole[len(self._content) :]
            self.edits += _parse_edits(header + added, path) if added.strip() else []
        else:
            self.edits = _parse_edits(whole, path) if whole.strip() else []
        self._content = whole
        return self.edits

    def append(self, edits: Sequence[Edit]) -> list[Edit]:
        """Add those that it does not hold yet, and return them; InputError as in `check_run`.

        What a kill has left of a line is cut off first.
        """
        check_run(self.folder, edits)
        with log_locked(self.folder):
            mend_log(self.folder)
            if new := new_edits(self.read(), edits):
                _append(self.folder / EDIT_LOG, self.edits, new)
        return new


def read_log(folder: Path) -> list[Edit]:
    """Read the log of a run folder as `EditLog` does."""
    return EditLog(folder).read()


def append_edits(folder: Path, edits: Sequence[Edit]) -> list[Edit]:
    """Add edits to the log of a run folder as `EditLog` does."""
    return EditLog(folder).append(edits)


def _append(path: Path, held: Sequence[Edit], new: Sequence[Edit]) -> None:
    content = path.read_bytes() if path.is_file() else b""
    ours = content.startswith(csv_text([LOG_HEADER]).encode()) and not path.is_symlink()
    if not ours:  # there is none, or a spreadsheet has saved it
        write_text(path, edits_csv([*held, *new]))
        return
    lines = _lines(new) if content.endswith(b"\n") else "\n" + _lines(new)
    try:
        with open(path, "ab", opener=check_not_link) as stream:
            stream.write(lines.encode())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise InputError(
            f"{path} could not be written ({error.strerror}); free some space, then run the same command again."
        ) from error


def mend_log(folder: Path) -> None:
    """Cut off the end of the log where a kill has torn its last line, and say so."""
    path = folder / EDIT_LOG
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    if (length := _whole_length(content)) < len(content):
        torn = content[length:].decode(errors="replace")
        log.warning(f"{path} ended in the middle of a line, which is dropped: {' '.join(torn.split())[:80]}")
        os.truncate(path, length)


def _whole_length(content: bytes) -> int:
    """Count the bytes of the lines that were written to their end. A line break in quotation marks ends no line; the
    last line may lack one if it has all its cells."""
    if content.endswith((b"\n", b"\r")) and content.count(b'"') % 2 == 0:
        return len(content)
    length = end = 0
    quoted = False
    for line in content.splitlines(keepends=True):
        length += len(line)
        quoted ^= line.count(b'"') % 2 == 1
        if not quoted and line.endswith((b"\n", b"\r")):
            end = length
    if end < length and not quoted and end:
        head, last = (part.decode(errors="replace") for part in (content[:end], content[end:]))
        rows = list(csv.reader([head.splitlines()[0], last], delimiter=_delimiter(head)))
        has_format = rows[0][-1] != "format" or rows[-1][-1]
        end = length if len(rows[0]) == len(rows[-1]) and has_format else end
    return end


def new_edits(log: Sequence[Edit], edits: Sequence[Edit]) -> list[Edit]:
    """Return those that a log does not hold yet, each once."""
    held, new = {edit.id for edit in log}, dict[str, Edit]()
    for edit in edits:
        if edit.id not in held:
            new.setdefault(edit.id, edit)
    return list(new.values())


def check_run(folder: Path, edits: Sequence[Edit]) -> None:
    """Raise InputError where none of the edits belongs to the run in the folder."""
    runs = run_ids(folder)
    if edits and runs and not any(edit.run_id in runs for edit in edits):
        raise InputError(
            f"These edits were made in the report of run {edits[0].run_id!r}, but {folder} holds run {runs[0]!r}; "
            "use the edits.csv that was exported from this run's report."
        )


@contextmanager
def log_locked(folder: Path) -> Iterator[None]:
    """Hold the log of a run folder; whoever has it is named and waited for. A killed process lets go of it."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(
            f"The log of edits in {folder} cannot be written; name a run folder that can be written to."
        )
    with wait_for_lock(folder / EDIT_LOG, "the log of edits"):
        yield


def run_ids(folder: Path) -> list[str]:
    """Of the discovery in a folder, then of its earlier rounds; empty where there is none that can be read."""
    try:
        content = json.loads((folder / "discovery.json").read_bytes())
        return [content["run_id"], *content["facts"].get("earlier_runs", [])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


MOST_EXEMPLARS = 12
"""How many of the most typical images a corrected category keeps to show itself."""


def merge_exemplars(target: Category, source: Category) -> None:
    """Let `target` speak for both: exemplars in turn, the signature weighted by the numbers of images."""
    pairs = [path for pair in zip(target.exemplars, source.exemplars, strict=False) for path in pair]
    rest = [*target.exemplars, *source.exemplars]
    target.exemplars = list(dict.fromkeys([*pairs, *rest]))[:MOST_EXEMPLARS]
    target.borderline = list(dict.fromkeys([*target.borderline, *source.borderline]))
    if source.n and target.kind == "novel" and len(target.signature) == len(source.signature):
        weight = np.array([target.n, source.n], dtype=float)
        both = np.array([target.signature, source.signature], dtype=float)
        target.signature = [float(v) for v in (weight @ both) / weight.sum()]
        target.words = f"{target.words} (before {source.name} was merged into it)" if target.words else ""
    clear_measures(target)
    target.n += source.n


def clear_measures(category: Category) -> None:
    """What was measured on other images than it has now is not known of it any more."""
    category.cohesion = category.separation = category.together = float("nan")
    category.comes_back = 0


def refresh_exemplars(category: Category, members: set[str], typicality: Mapping[str, float]) -> None:
    """Images that left a category do not speak for it any more; where none is left to do so, the most typical do."""
    category.borderline = [path for path in category.borderline if path in members]
    stayed = [path for path in category.exemplars if path in members]
    ranked = sorted(members, key=lambda path: (-typicality[path], path))
    category.exemplars = stayed or ranked[:MOST_EXEMPLARS]


MOVED_NOTE, CONFIRMED_NOTE, REJECTED_NOTE = "moved by hand", "confirmed by hand", "rejected"
"""What the note of an image says after an edit; the next round reads it (discovery/constraints.py)."""
PLACED_NOTE = "placed by the answers about others"
FOLLOWS_NOTE = "its label follows from a merge"
"""Of a typical image of a part, which stands for the others: nobody has said what this one shows."""


def merged_into(id: str, merged: Mapping[str, str], present: Container[str] = ()) -> str:
    """Return the id of what a category has been merged into, by way of others if need be; one that is present stays."""
    seen: set[str] = set()
    while id in merged and id not in present and id not in seen:
        seen.add(id)
        id = merged[id]
    return id


class CannotApply(Exception):
    """Why an edit is left alone: the end of a sentence that begins with what it wanted."""


class EditSession:
    """Columns of the images as lists, categories by id. Merged and rejected categories are no longer among them."""

    def __init__(self, discovery: Discovery) -> None:
        self.given = discovery
        images = discovery.images
        self.path, self.key = [str(path) for path in images["path"]], discovery.keys
        self.rows: dict[str, list[int]] = {}
        """Of the images of each key: copies share one."""
        for row, key in enumerate(self.key):
            self.rows.setdefault(key, []).append(row)
        self.key_at = dict(zip(self.path, self.key, strict=True))
        self.note = [str(note) for note in images["note"].fillna("")]
        self.label_given = [str(label) for label in images["label"].fillna("")]
        self.doubtful = [bool(doubtful) for doubtful in images["doubtful"]]
        self.state = copy.deepcopy(discovery.facts.edits)
        self.merged, self.confirmed = self.state.merged, self.state.confirmed
        self.categories: dict[str, Category] = {c.id: copy.deepcopy(c) for c in discovery.categories}
        self.id = [id if id in self.categories else "" for id in images["category_id"]]
        sizes = Counter(self.id)
        for category in self.categories.values():
            category.n = sizes[category.id]
        for id, names in self.state.asleep.items():
            asleep = Category(id, names["name"], "novel", n=0, suggested=names["suggested"])
            self.categories.setdefault(id, asleep)
        self.touched: set[str] = set()
        self.subject = ""
        """Key of the image that the last edit spoke of."""

    def apply(self, edit: Edit) -> str:
        """Do it and return a remark ("" = nothing to say); raises CannotApply and then has changed nothing."""
        self.subject = ""
        try:
            if edit.action not in ACTIONS:
                raise CannotApply("there is no such action")
            remark: str = getattr(self, edit.action)(edit)
        except CannotApply:
            self.state.refused.append(edit.id)
            raise
        self.state.applied.append(edit.id)
        return remark

    def awake(self, word: str) -> Category | None:
        """The category that people see under this id, or into which it was merged, or which has this name."""
        category = self.categories.get(self.end(word))
        if category is not None and is_visible(category):
            return category
        return next((c for c in self.categories.values() if c.name == word and is_visible(c)), None)

    def end(self, id: str) -> str:
        """The id of what a category has been merged into, by way of others if need be."""
        return merged_into(id, self.merged, self.categories)

    def find(self, word: str) -> Category | None:
        """What a word in an edit means: as it stands or else without blanks, awake or else asleep."""
        words = (word, stripped(word))
        found = [*map(self.awake, words), *(self.categories.get(self.end(word)) for word in words)]
        return next(filter(None, found), None)

    def existing(self, word: str) -> Category:
        category = self.target(word)
        if category is None:
            raise CannotApply(f"the category {word!r} is not in this run")
        return category

    def target(self, word: str) -> Category | None:
        """As `find`; what was rejected is no target."""
        category = self.find(word)
        if category is None and {self.end(word), self.end(stripped(word))} & set(self.state.rejected):
            raise CannotApply(f"the category {word!r} was rejected")
        return category

    def image(self, edit: Edit) -> str:
        """Return the key of the image that an edit speaks of."""
        key = edit.digest or self.key_at.get(edit.image, "")
        if key not in self.rows:
            raise CannotApply("there is no such image in this run")
        self.subject = key
        return key

    def elsewhere(self, edit: Edit, key: str) -> str:
        """A remark where the image is no longer in the category in which the person saw it."""
        ids = [self.id[row] for row in self.rows[key]]
        seen = self.find(edit.category) if edit.category else None
        if not edit.category or (seen is not None and seen.id in ids):
            return ""
        where = self.called(ids[0]) if ids[0] else "no category"
        return f"the image was in {where} by then, not in {edit.category!r}"

    def called(self, word: str) -> str:
        """In quotes: the name of the category that a word means, or the word itself where there is none."""
        category = self.find(word)
        return repr(word if category is None else category.name)

    def rename(self, edit: Edit) -> str:
        category, name = self.existing(edit.category), stripped(edit.value)
        if not name:
            raise CannotApply("the new name is empty")
        other = self.awake(name)
        if other is not None and other is not category:
            gone, to = (category, other) if category.kind == "novel" else (other, category)
            both = "both are known, so move the images of one to the other"
            cure = both if gone.kind == "known" else f"merge {gone.id!r} into {to.id!r} instead"
            raise CannotApply(f"another category is called so; {cure}")
        category.name = name
        return ""

    def merge(self, edit: Edit) -> str:
        source, target = self.existing(edit.category), self.existing(edit.value)
        if source is target:
            raise CannotApply("the two are one category already")
        if source.kind == "known":
            other = f"merge {edit.value!r} into it" if target.kind == "novel" else "move its images"
            raise CannotApply(f"a known class stays; {other} instead")
        del self.categories[source.id]
        self.merged[source.id] = target.id
        if source.n:
            self.wake(target)
        merge_exemplars(target, source)
        self.id = [target.id if id == source.id else id for id in self.id]
        self.touched.add(target.id)
        return ""

    def move(self, edit: Edit) -> str:
        key, name = self.image(edit), stripped(edit.value)
        if not name:
            raise CannotApply("it does not say where to")
        category = self.target(edit.value) or self.create(name)
        remark = self.elsewhere(edit, key)
        before = self.confirmed.get(key)
        self.put(self.rows[key], category, MOVED_NOTE)
        if before is not None and self.find(before) is category:
            self.confirmed[key] = category.id
            return remark
        return self.withdraw(key) or remark

    def reject(self, edit: Edit) -> str:
        if edit.image or edit.digest:
            key = self.image(edit)
            remark = self.elsewhere(edit, key)
            self.put(self.rows[key], None, REJECTED_NOTE)
            return self.withdraw(key) or remark
        category = self.existing(edit.category)
        if category.kind == "known":
            raise CannotApply("a known class stays; reject its images instead")
        rows = [row for row, id in enumerate(self.id) if id == category.id]
        self.put(rows, None, REJECTED_NOTE)
        withdrawn = sum(bool(self.withdraw(self.key[row])) for row in rows)
        del self.categories[category.id]
        self.state.rejected.append(category.id)
        remark = f"{withdrawn} of its images had been confirmed before; the later one counts"
        return remark if withdrawn else ""

    def confirm(self, edit: Edit) -> str:
        key, label = self.image(edit), stripped(edit.value)
        if not label:
            raise CannotApply("it does not say which label")
        category = self.target(edit.value)
        value = category.id if category is not None else label
        before, self.confirmed[key] = self.confirmed.get(key), value
        if category is not None:
            self.put(self.rows[key], category, CONFIRMED_NOTE)
        if before is not None and before != value:
            return f"the image had been confirmed as {self.called(before)} before; the later one counts"
        labels = (self.label_given[row] for row in self.rows[key])
        if had := next((had for had in labels if had not in ("", label, value)), ""):
            return f"the image had the label {self.called(had)}; the confirmed one counts in the next round"
        return ""

    def create(self, name: str) -> Category:
        made = self.categories[name] = Category(name, name, "novel", n=0, words="split off by hand")
        return made

    def put(self, rows: Sequence[int], category: Category | None, note: str) -> None:
        """Let images change their category; None = they are in none."""
        id = category.id if category is not None else ""
        for row in rows:
            if self.id[row]:
                self.categories[self.id[row]].n -= 1
            if category is not None:
                self.wake(category)
                category.n += 1
            if note in (MOVED_NOTE, CONFIRMED_NOTE):
                self.state.came_from.setdefault(self.key[row], self.id[row])
            self.touched |= {self.id[row], id}
            if self.id[row] != id:
                for changed in filter(None, (self.categories.get(self.id[row]), category)):
                    clear_measures(changed)
            self.id[row], self.note[row], self.doubtful[row] = id, note, False

    def wake(self, category: Category) -> None:
        """Before images come to a category that was asleep: somebody else may have its name by now."""
        if is_visible(category):
            return
        numbered = (f"{category.id} ({number})" for number in range(2, len(self.categories) + 3))
        category.name = next(n for n in (category.name, category.id, *numbered) if self.awake(n) is None)

    def withdraw(self, key: str) -> str:
        """Forget what an image was confirmed as; a remark where it was."""
        before = self.confirmed.pop(key, "")
        told = f"it had been confirmed as {self.called(before)} before; the later one counts"
        return told if before else ""

    def labels(self) -> dict[str, str]:
        """Key of an image to label, for the next round of training."""
        labels = {}
        for key, value in self.confirmed.items():
            category = self.find(value)  # ids and names stay from round to round; else it is the word itself
            labels[key] = value if category is None else category.id
        return labels

    def result(self) -> Discovery:
        """Everything put together."""
        kept = [category for category in self.categories.values() if is_visible(category)]
        by_id = {category.id: category for category in kept}
        members: dict[str, set[str]] = {id: set() for id in self.touched}
        for path, id in zip(self.path, self.id, strict=True):
            if id in members:
                members[id].add(path)
        typicality = dict(zip(self.path, self.given.images["typicality"].fillna(0), strict=True))
        rename_in_texts(kept, self.given.categories)
        for category in kept:
            if category.id in members:
                refresh_exemplars(category, members[category.id], typicality)
            if category.nearest and category.nearest not in by_id:
                nearest = self.awake(category.nearest)
                category.nearest = nearest.id if nearest is not None and nearest is not category else ""
        called = {c.name: self.categories.get(self.end(c.id), c).name for c in self.given.categories}
        images = self.given.images.assign(
            category_id=self.id,
            category=[by_id[id].name if id in by_id else "" for id in self.id],
            kind=[by_id[id].kind if id in by_id else "" for id in self.id],
            note=[renamed_note(note, called) for note in self.note],
            doubtful=self.doubtful,
        )
        if self.given.facts.calibration_curve:
            said = zip(self.label_given, self.note, strict=True)
            told = [bool(label) or note in (MOVED_NOTE, CONFIRMED_NOTE) for label, note in said]
            changed = [category for category in kept if category.id in self.touched]
            set_purity(changed, self.id, images["probability"].to_numpy(float), np.array(told, dtype=bool))
        asleep = [category for category in self.categories.values() if not is_visible(category)]
        self.state.asleep = {c.id: {"name": c.name, "suggested": c.suggested} for c in asleep}
        facts = replace(self.given.facts, edits=self.state)
        return replace(self.given, images=images, categories=kept, facts=facts)


def is_visible(category: Category) -> bool:
    """Do people see it? A known class always; a new category while there are images in it."""
    return category.n > 0 or category.kind == "known"


@dataclass
class AppliedEdits:
    """What came of applying edits."""

    discovery: Discovery
    """As corrected. facts.edits says which edits it holds, and what was merged, rejected and confirmed."""
    confirmed: dict[str, str] = field(default_factory=dict)
    """Key of an image to the id of the category, or to the label, that was confirmed."""
    problems: list[str] = field(default_factory=list)
    """A sentence for each edit that could not be applied, or that another one contradicts."""
    left: list[str] = field(default_factory=list)
    """Those of them that say why an edit could not be applied."""
    done: list[tuple[str, Edit]] = field(default_factory=list)
    """Edits that were applied this time, each with the key of its image ("" = none)."""
    refused: list[int] = field(default_factory=list)
    """Positions, in the edits given, of those that could not be applied."""

    @property
    def count(self) -> int:
        """Edits that were applied this time."""
        return len(self.done)


def apply_edits(discovery: Discovery, edits: Sequence[Edit]) -> AppliedEdits:
    """The discovery as corrected by the edits in their order, each only once; the given one is not changed."""
    session = EditSession(discovery)
    done = {*session.state.applied, *session.state.refused}
    earlier = set(discovery.facts.earlier_runs)
    foreign = Counter(edit.run_id for edit in edits if edit.run_id not in {discovery.run_id, *earlier})
    left = [
        f"{n} {'edit' if n == 1 else 'edits'} of run {run!r} cannot be applied: there is no such run here."
        for run, n in foreign.items()
    ]
    outcome = AppliedEdits(discovery, problems=list(left), left=left)
    for position, edit in enumerate(edits):
        if edit.run_id in earlier or edit.id in done:
            continue
        if edit.run_id != discovery.run_id:
            outcome.refused.append(position)
            continue
        done.add(edit.id)
        try:
            remark = session.apply(edit)
        except CannotApply as reason:
            outcome.refused.append(position)
            outcome.left.append(f"{edit_text(edit)} was not applied: {reason}.")
            outcome.problems.append(outcome.left[-1])
            continue
        outcome.done.append((session.subject, edit))
        if remark:
            outcome.problems.append(f"{edit_text(edit)} was applied, but {remark}.")
    outcome.confirmed = session.labels()
    outcome.discovery = session.result()
    return outcome


def edit_text(edit: Edit) -> str:
    """An edit as the beginning of a sentence."""
    what = f"{edit.action.capitalize()} of {edit.image or edit.category!r}"
    joint = {"rename": "to", "merge": "into", "move": "to", "confirm": "as"}.get(edit.action)
    return f"{what} {joint} {edit.value!r}" if joint else what


PLACEMENT_FILE = "placement.json"
PLACEMENT_SCHEMA = FileSchema(1, "delete it; the studio makes it anew")


@dataclass(frozen=True)
class LearnedPlacement:
    """Where images that nobody has answered for lie by the answers about others, after the edits of a round."""

    run_id: str
    """Of the round."""
    edits: int
    """That it was learned from."""
    rows: list[int]
    """(n,) of the images that move."""
    ids: list[str]
    """(n,) of the categories that they move to."""
    probability: list[int | None]
    """(N,) of all images, in thousandths."""
    queue: list[int] = field(default_factory=list)
    """Rows of the images to ask about next."""
    gains: list[float] = field(default_factory=list)
    """Images that each of these answers is expected to put right."""

    def save(self, folder: Path) -> None:
        PLACEMENT_SCHEMA.write(folder / PLACEMENT_FILE, asdict(self))


def read_placement(folder: Path, run_id: str, n: int) -> LearnedPlacement | None:
    """Return the placement in a run folder; None where there is none of this round of n images that can be read."""
    try:
        file = folder / PLACEMENT_FILE
        found = PLACEMENT_SCHEMA.make(file, LearnedPlacement) if file.is_file() else None
    except InputError:  # it can be made anew
        return None
    if found is None or (found.run_id, len(found.probability), len(found.ids)) != (
        run_id,
        n,
        len(found.rows),
    ):
        return None
    return found if all(0 <= row < n for row in found.rows) else None


def can_move(discovery: Discovery, session: EditSession | None = None) -> list[bool]:
    """(N,) of each image: is it in a category, and nobody has said what it shows?"""
    session = session or EditSession(discovery)
    answered = (MOVED_NOTE, CONFIRMED_NOTE, REJECTED_NOTE)
    rows = zip(session.id, session.label_given, session.note, session.key, strict=True)
    return [
        bool(id) and not label and note not in answered and key not in session.confirmed
        for id, label, note, key in rows
    ]


def place_anew(discovery: Discovery, placement: LearnedPlacement) -> Discovery:
    """Return the discovery, which has its edits, with images where a placement says. Answered ones stay."""
    session = EditSession(discovery)
    free = can_move(discovery, session)
    for row, id in zip(placement.rows, placement.ids, strict=True):
        category = session.categories.get(session.end(id))
        if category is not None and free[row] and session.id[row] != category.id:
            session.put([row], category, PLACED_NOTE)
    placed = session.result()
    learned = np.array([np.nan if p is None else p / 1000 for p in placement.probability])
    placed.images["probability"] = np.where(free, learned, placed.images["probability"].to_numpy(float))
    return placed
