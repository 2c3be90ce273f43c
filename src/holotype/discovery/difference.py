"""What has changed in a collection: which images are the same, and what came, went, was renamed, repaired, labelled.

An image is the same where path and content are the same; else where its content lies at another path (renamed or
moved); else where other content lies at its path (repaired or replaced), or nearly the same box of its picture,
wherever that lies now. What edits said of a repaired image still counts. Where an image went and, later, another one
came to its path, the two are different images.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from holotype.data.boxes import overlap, split_box
from holotype.data.paths import absolute, relative
from holotype.discovery.collection import Collection, Seen

Fits = Callable[[Seen, Seen], bool]
"""Whether an image of then and one of now are the same."""
PARKED = " (gone {digest})"
"""Follows the path of an image that is gone, where another one has its path now."""
NAMED = 3
"""Examples of a line."""
SEVERAL = 3
"""Images that had a label, from which it is odd that none keeps it."""
SAME_BOX = 0.5
"""Share of two boxes that makes them boxes of the same thing."""


@dataclass
class Difference:
    """Between a look at a collection and an earlier one. Lists hold paths as seen from the root of today."""

    then: dict[str, str] = field(default_factory=dict)
    """Path now to path then, of every image that was known."""
    moves: dict[str, str] = field(default_factory=dict)
    """Path then to path now where these differ, of images that are gone too."""
    new: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    """Gone the last time."""
    gone: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    renamed: list[str] = field(default_factory=list)
    labels_new: list[str] = field(default_factory=list)
    labels_changed: list[str] = field(default_factory=list)
    labels_gone: list[str] = field(default_factory=list)
    labels_kept: int = 0
    """Images with the label that they had."""
    classes_gone: frozenset[str] = frozenset()
    """Classes that no image is labelled with any more, and of which labels were taken away."""

    @property
    def trains(self) -> bool:
        """Is there something that the last round has not seen? A name is nothing."""
        images = (self.new, self.back, self.gone, self.repaired)
        return any((*images, self.labels_new, self.labels_changed, self.labels_gone))

    @property
    def relabelled(self) -> frozenset[str]:
        """Images that were known and came with another label than then: what edits said of them before is older."""
        return frozenset((*self.labels_new, *self.labels_changed)) & self.then.keys()

    @property
    def labels_are_others(self) -> bool:
        """Does no image keep its label, of several that had one? Mostly a list was forgotten."""
        return not self.labels_kept and len(self.labels_changed) + len(self.labels_gone) >= SEVERAL

    @property
    def words(self) -> str:
        """All in one line, "" where nothing has changed: 120 images new, 3 gone, 14 labels new."""
        images = [
            (len(self.new), "new"),
            (len(self.back), "back"),
            (len(self.gone), "gone"),
            (len(self.repaired), "repaired"),
            (len(self.renamed), "renamed"),
        ]
        labels = [
            (len(self.labels_new), "new"),
            (len(self.labels_changed), "changed"),
            (len(self.labels_gone), "taken away"),
        ]
        return ", ".join((*_counted(images, "image"), *_counted(labels, "label")))


def _counted(parts: Iterable[tuple[int, str]], what: str) -> list[str]:
    """ "120 images new", "3 gone": the first part says of what; labels are named each time."""
    told = [(n, end) for n, end in parts if n]
    every = what == "label"
    return [
        f"{n:,} {what if n == 1 else what + 's'} {end}" if every or not place else f"{n:,} {end}"
        for place, (n, end) in enumerate(told)
    ]


def shown(paths: Iterable[str]) -> str:
    """A few of them."""
    names = list(paths)
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


# -- images ---------------------------------------------------------------------------------------------


def compare(before: Collection, now: Collection) -> Difference:
    """Which images are the same ones. Labels are compared later, when it is known what they mean."""
    pairs = _Pairs(before, now)
    pairs.by_path(_is_same)
    pairs.by_content()
    changed = [*pairs.by_path(lambda then, _: then.here), *pairs.by_box()]
    found = Difference(then={there: path for path, there in pairs.found.items()}, repaired=sorted(changed))
    for path, there in pairs.found.items():
        if not before.images[path].here:
            found.back.append(there)
        elif there in pairs.by_name:
            found.renamed.append(there)
        if path != there:
            found.moves[path] = there
    for path in pairs.left:
        seen, place = before.images[path], path
        if path in now.images:  # somebody else's by now
            place = path + PARKED.format(digest=seen.digest[:12])
            found.moves[path] = place
        found.gone += [place] if seen.here else []
    found.new = [path for path in now.images if path not in found.then]
    return found


def _is_same(then: Seen, now: Seen) -> bool:
    return then.digest == now.digest and bool(then.digest or then.stamp == now.stamp)


class _Pairs:
    """Images of then and of now that are found to be the same, one after the other."""

    def __init__(self, before: Collection, now: Collection) -> None:
        self.before, self.now = before, now
        self.left, self.free = dict.fromkeys(before.images), dict.fromkeys(now.images)
        """Paths then and now that have no partner yet."""
        self.found: dict[str, str] = {}
        """Path then to path now."""
        self.by_name: set[str] = set()
        """Paths now of those that have another name."""

    def join(self, path: str, there: str) -> None:
        self.found[path] = there
        del self.left[path], self.free[there]

    def places(self, path: str) -> tuple[str, ...]:
        """Where an image of then would lie now: the very file, or the same path below another root."""
        if self.before.root == self.now.root or not self.before.root or not self.now.root:
            return (path,)
        return *relative([absolute(path, self.before.root)], self.now.root), path

    def by_path(self, fits: Fits) -> list[str]:
        """Join what lies at the same path and fits; returns the paths now."""
        joined = []
        for path in list(self.left):
            for there in self.places(path):
                if there in self.free and fits(self.before.images[path], self.now.images[there]):
                    self.join(path, there)
                    joined.append(there)
                    break
        return joined

    def by_box(self) -> list[str]:
        """Join boxes of one picture that are nearly the same: a detector that is run again moves them a little. Returns
        the paths now."""
        free: dict[str, list[str]] = {}
        files: dict[str, set[str]] = {}  # by size and time: boxes have digests, and their pictures have none
        for there in self.free:
            file, box = split_box(there)
            if box is not None:
                free.setdefault(file, []).append(there)
                files.setdefault(self.now.images[there].stamp, set()).add(file)

        def homes(path: str, file: str) -> Iterable[str]:
            """Where the picture of a box lies now: at its place, or else where no other has its size and time."""
            same = files.get(self.before.images[path].stamp, set())
            return [place for place in self.places(file) if place in free] or (same if len(same) == 1 else ())

        shares = [
            (overlap(box, other), path, there)
            for path, (file, box) in ((path, split_box(path)) for path in self.left)
            if box is not None and self.before.images[path].here
            for place in homes(path, file)
            for there, (_, other) in ((there, split_box(there)) for there in free[place])
            if other is not None
        ]
        joined = []
        for share, path, there in sorted(shares, reverse=True):
            if share >= SAME_BOX and path in self.left and there in self.free:
                self.join(path, there)
                joined.append(there)
        return joined

    def by_content(self) -> None:
        """Join what has the same content: those with the same file name first, and what was there before what was
        gone."""
        homes: dict[str, list[str]] = {}
        for there in self.free:
            if digest := self.now.images[there].digest:
                homes.setdefault(digest, []).append(there)
        order = sorted(self.left, key=lambda path: not self.before.images[path].here)
        for same_name in (True, False):
            for path in [path for path in order if path in self.left]:
                able = homes.get(self.before.images[path].digest, [])
                fits = [a for a in able if not same_name or os.path.basename(a) == os.path.basename(path)]
                if fits:
                    able.remove(fits[0])
                    self.join(path, fits[0])
                    self.by_name.add(fits[0])


# -- labels ---------------------------------------------------------------------------------------------


def compare_labels(difference: Difference, before: Collection, now: Collection) -> None:
    """Put into the difference which labels are new, changed or taken away. now: with the labels as ids of classes."""
    taken = set()
    for path, seen in now.here.items():
        known = difference.then.get(path)
        then = before.images[known].label if known is not None else ""
        if seen.label and not then:
            difference.labels_new.append(path)
        elif seen.label and seen.label != then:
            difference.labels_changed.append(path)
        elif then and not seen.label:
            difference.labels_gone.append(path)
            taken.add(then)
        elif then:
            difference.labels_kept += 1
    difference.classes_gone = frozenset(taken - {seen.label for seen in now.here.values()})


def with_marks(now: Collection, labels: Mapping[str, str], relabelled: frozenset[str]) -> Collection:
    """The look with other labels, by path, and with the images marked whose label is a new one."""
    marked = {
        path: replace(seen, label=labels[path], relabelled=path in relabelled)
        for path, seen in now.images.items()
    }
    return replace(now, images=marked)
