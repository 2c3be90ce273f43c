"""Edits applied to a discovery: names, merges, moves and rejections at once, confirmed labels for the next round.

Pure, and safe to repeat: facts.edits of a discovery says which edits it holds already. Where two edits
contradict each other the later one counts, and both are told; what cannot be applied is told and stays in the log.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from holotype.categories.edits import Applied, Edit
from holotype.categories.facts import Edited

if TYPE_CHECKING:
    from holotype.categories.found import Category, Discovery

MOST_EXEMPLARS = 12
"""How many of the most typical images a merged category keeps to show itself."""


UNNAMED = re.compile(r"new-\d+")


class CannotApply(Exception):
    """Why an edit is left alone: the end of a sentence that begins with what it wanted."""


def correct(discovery: Discovery, edits: Sequence[Edit]) -> Applied:
    """Apply the edits in their order. The given discovery is not changed."""
    work = _Work(discovery)
    own, problems = _of_this_run(discovery, edits)
    count = 0
    for edit in own:
        if edit.digest in work.applied:
            continue
        try:
            remark = work.actions[edit.action](edit)
        except CannotApply as reason:
            problems.append(f"{said(edit)} was not applied: {reason}.")
            continue
        work.applied[edit.digest] = None
        count += 1
        if remark:
            problems.append(f"{said(edit)} was applied, but {remark}.")
    confirmed = {**_of_earlier_rounds(discovery, edits), **work.labels()}
    return Applied(work.result(), confirmed, problems, count)


def _of_this_run(discovery: Discovery, edits: Sequence[Edit]) -> tuple[list[Edit], list[str]]:
    """The edits that speak of this run's categories, and a sentence for every run unheard of."""
    earlier = set(discovery.facts.earlier_runs)
    foreign = Counter(edit.run_id for edit in edits if edit.run_id not in {discovery.run_id, *earlier})
    problems = [
        f"{n} {'edit' if n == 1 else 'edits'} of run {run!r} cannot be applied to run {discovery.run_id!r}."
        for run, n in foreign.items()
    ]
    return [edit for edit in edits if edit.run_id == discovery.run_id], problems


def _of_earlier_rounds(discovery: Discovery, edits: Sequence[Edit]) -> dict[str, str]:
    """Labels confirmed before the model was trained anew, as they stand in the table since then."""
    earlier = set(discovery.facts.earlier_runs)
    told = {e.image: e.value for e in edits if e.action == "confirm" and e.run_id in earlier}
    if not told:
        return {}
    label = dict(zip(discovery.images["path"], discovery.images["label"], strict=True))
    return {path: label[path] or value for path, value in told.items() if path in label}


def said(edit: Edit) -> str:
    """An edit as the beginning of a sentence."""
    what = f"{edit.action.capitalize()} of {edit.image or edit.category!r}"
    joint = {"rename": "to", "merge": "into", "move": "to", "confirm": "as"}.get(edit.action)
    return f"{what} {joint} {edit.value!r}" if joint else what


class _Work:
    """The discovery while it is being corrected: columns as lists, categories by id."""

    def __init__(self, discovery: Discovery) -> None:
        self.given = discovery
        self.path = [str(path) for path in discovery.images["path"]]
        self.row = {path: i for i, path in enumerate(self.path)}
        self.id = [str(id) for id in discovery.images["category_id"]]
        self.note = [str(note or "") for note in discovery.images["note"]]
        self.doubtful = [bool(doubtful) for doubtful in discovery.images["doubtful"]]
        self.categories: dict[str, Category] = {c.id: copy.deepcopy(c) for c in discovery.categories}
        held = discovery.facts.edits
        self.applied: dict[str, None] = dict.fromkeys(held.applied)
        self.merged: dict[str, str] = dict(held.merged)
        self.rejected: list[str] = list(held.rejected)
        self.confirmed: dict[str, str] = dict(held.confirmed)
        self.touched: set[str] = set()
        self.actions: dict[str, Callable[[Edit], str]] = {
            "rename": self.rename,
            "merge": self.merge,
            "move": self.move,
            "reject": self.reject,
            "confirm": self.confirm,
        }

    # -- looking up -------------------------------------------------------------------------------

    def find(self, id: str) -> Category | None:
        """The category with this id, or the one it was merged into, or the one of this name."""
        seen: set[str] = set()
        while id in self.merged and id not in self.categories and id not in seen:
            seen.add(id)
            id = self.merged[id]
        named = (category for category in self.categories.values() if category.name == id)
        return self.categories.get(id) or next(named, None)

    def existing(self, id: str) -> Category:
        category = self.find(id)
        if category is None:
            why = "was rejected" if id in self.rejected else "is not in this run"
            raise CannotApply(f"the category {id!r} {why}")
        return category

    def index(self, edit: Edit) -> int:
        if edit.image not in self.row:
            raise CannotApply("there is no such image in this run")
        return self.row[edit.image]

    def elsewhere(self, edit: Edit, row: int) -> str:
        """A remark where the image is no longer in the category in which the person saw it."""
        seen = self.find(edit.category) if edit.category else None
        if not edit.category or (seen is not None and seen.id == self.id[row]):
            return ""
        where = self.categories[self.id[row]].name if self.id[row] else "nowhere"
        return f"the image was in {where!r} by then, not in {edit.category!r}"

    # -- the actions: each returns a remark ("" = nothing to say) ---------------------------------

    def rename(self, edit: Edit) -> str:
        category, name = self.existing(edit.category), edit.value.strip()
        if not name:
            raise CannotApply("the new name is empty")
        other = next(
            (c for c in self.categories.values() if name in (c.name, c.id) and c is not category), None
        )
        if other is not None:
            raise CannotApply(
                f"another category is called so; merge {edit.category!r} into {other.id!r} instead"
            )
        category.name = name
        return ""

    def merge(self, edit: Edit) -> str:
        source, target = self.existing(edit.category), self.existing(edit.value)
        if source is target:
            raise CannotApply("the two are one category already")
        if source.kind == "known":
            raise CannotApply(f"a known class stays; merge {edit.value!r} into it instead")
        _join(target, source)
        self.id = [target.id if id == source.id else id for id in self.id]
        self.merged[source.id] = target.id
        self.touched.add(target.id)
        del self.categories[source.id]
        return ""

    def move(self, edit: Edit) -> str:
        row, name = self.index(edit), edit.value.strip()
        if not name:
            raise CannotApply("it does not say where to")
        remark = self.elsewhere(edit, row)
        self.put(row, self.find(name) or self.create(name), "moved by hand")
        return remark

    def create(self, name: str) -> Category:
        from holotype.categories.found import Category

        category = Category(id=name, name=name, kind="novel", n=0, words="split off by hand")
        self.categories[name] = category
        return category

    def put(self, row: int, category: Category, note: str) -> None:
        self.touched |= {self.id[row], category.id}
        self.id[row], self.note[row], self.doubtful[row] = category.id, note, False

    def reject(self, edit: Edit) -> str:
        if edit.image:
            row = self.index(edit)
            remark = self.elsewhere(edit, row)
            self.leave(row)
            return remark
        category = self.existing(edit.category)
        for row in [i for i, id in enumerate(self.id) if id == category.id]:
            self.leave(row)
        del self.categories[category.id]
        self.rejected.append(category.id)
        return ""

    def leave(self, row: int) -> None:
        self.touched.add(self.id[row])
        self.id[row], self.note[row], self.doubtful[row] = "", "rejected", False
        self.confirmed.pop(self.path[row], None)

    def confirm(self, edit: Edit) -> str:
        row, value = self.index(edit), edit.value.strip()
        if not value:
            raise CannotApply("it does not say which label")
        before = self.confirmed.get(edit.image)
        self.confirmed[edit.image] = value
        category = self.find(value)
        if category is not None:
            self.put(row, category, "confirmed by hand")
        if before is not None and before != value:
            return f"the image had been confirmed as {before!r} before; the later one counts"
        given = str(self.given.images["label"].iloc[row] or "")
        if given and given not in (value, category.name if category else value):
            return f"the image came with the label {given!r}; the confirmed one counts in the next round"
        return ""

    # -- the outcome ------------------------------------------------------------------------------

    def labels(self) -> dict[str, str]:
        """Confirmed labels: a category's name as it stands at the end, else the word as it was given."""
        return {path: self.label(self.find(value), value) for path, value in self.confirmed.items()}

    @staticmethod
    def label(category: Category | None, value: str) -> str:
        if category is None:
            return value
        if category.kind == "novel" and UNNAMED.fullmatch(category.name):
            return (
                category.suggested or f"{category.name} (confirmed)"
            )  # the next round has a new-01 of its own
        return category.name

    def result(self) -> Discovery:
        """Everything put together; categories without images vanish."""
        sizes = Counter(self.id)
        kept = [
            category
            for category in self.categories.values()
            if sizes[category.id] or category.kind == "known"
        ]
        by_id = {category.id: category for category in kept}
        members: dict[str, set[str]] = {id: set() for id in self.touched}
        for path, id in zip(self.path, self.id, strict=True):
            if id in members:
                members[id].add(path)
        for category in kept:
            category.n = sizes[category.id]
            if category.id in members:
                self._refresh(category, members[category.id])
            if category.nearest and category.nearest not in by_id:
                nearest = self.find(category.nearest)
                category.nearest = (
                    nearest.id if nearest and nearest.id in by_id and nearest is not category else ""
                )
        images = self.given.images.copy()
        images["category_id"] = self.id
        images["category"] = [by_id[id].name if id in by_id else "" for id in self.id]
        images["kind"] = [by_id[id].kind if id in by_id else "" for id in self.id]
        images["note"], images["doubtful"] = self.note, self.doubtful
        edits = Edited(
            applied=tuple(self.applied),
            merged=self.merged,
            rejected=tuple(self.rejected),
            confirmed=self.confirmed,
        )
        facts = replace(self.given.facts, edits=edits)
        return replace(self.given, images=images, categories=kept, facts=facts)

    def _refresh(self, category: Category, members: set[str]) -> None:
        """Exemplars and borderline images that left the category do not speak for it any more."""
        category.borderline = [path for path in category.borderline if path in members]
        stayed = [path for path in category.exemplars if path in members]
        if not stayed:
            typical = self.given.images["typicality"].fillna(0).to_numpy()
            stayed = sorted(members, key=lambda path: (-typical[self.row[path]], path))[:MOST_EXEMPLARS]
        category.exemplars = stayed


def _join(target: Category, source: Category) -> None:
    """Let `target` speak for both: exemplars in turn, the signature weighted by the numbers of images."""
    pairs = [path for pair in zip(target.exemplars, source.exemplars, strict=False) for path in pair]
    rest = [*target.exemplars, *source.exemplars]
    target.exemplars = list(dict.fromkeys([*pairs, *rest]))[:MOST_EXEMPLARS]
    target.borderline = list(dict.fromkeys([*target.borderline, *source.borderline]))
    if target.kind == "novel" and len(target.signature) == len(source.signature):
        weight = np.array([target.n, source.n], dtype=float)
        both = np.array([target.signature, source.signature], dtype=float)
        target.signature = [float(v) for v in (weight @ both) / max(weight.sum(), 1.0)]
        target.words = f"{target.words} (before {source.name} was merged into it)" if target.words else ""
    target.cohesion = target.separation = float("nan")
    target.n += source.n
