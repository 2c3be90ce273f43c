"""The images of a discovery as indexed, and the difference between two states of the collection.

`collection.parquet` in the run folder is the last look, whose sizes and times save reading files again; that of a round
is the look that it was begun with. Paths are as seen from the root.

An image is the same where path and content are the same; else where its content lies at another path (renamed or
moved); else where other content lies at its path (repaired or replaced), or nearly the same box of its picture,
wherever that lies now. What edits said of a repaired image still counts. Where an image went and, later, another one
came to its path, the two are different images.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from holotype.data.boxes import overlap, split_box
from holotype.data.hashing import file_stamps, image_digests
from holotype.data.label_hygiene import nfc
from holotype.data.paths import absolute, relative
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.results.discovery import UNNAMED_PATTERN, Discovery
from holotype.utils.serialization import read_parquet_table, write_parquet
from holotype.utils.text import plural

COLLECTION_FILE = "collection.parquet"
COLLECTION_META = b"holotype"
COLLECTION_COLUMNS = ("path", "stamp", "digest", "label", "here", "relabelled")


@dataclass(frozen=True)
class ImageEntry:
    """An image."""

    stamp: str
    """Size and time of its file (data/hashing.py)."""
    digest: str
    """Of its content (data/hashing.py); "" where that could not be read."""
    label: str = ""
    """The class that it came with; "" = none."""
    here: bool = True
    """Or gone, and known from before."""
    relabelled: bool = False
    """Came with another label than the last time: what edits said of it before does not count while it has one."""


@dataclass(frozen=True)
class Collection:
    """All images that a discovery knows."""

    root: str = ""
    images: dict[str, ImageEntry] = field(default_factory=dict)
    """By path from the root."""
    means: dict[str, str] = field(default_factory=dict)
    """Label to the id of its class, where the two are not the same."""

    @property
    def here(self) -> dict[str, ImageEntry]:
        """Those that are not gone, in the order of the table."""
        return {path: seen for path, seen in self.images.items() if seen.here}

    def labels(self, means: Mapping[str, str]) -> dict[str, str]:
        """The classes that those of them came with, by path, "" = none. means: what labels are known to mean."""
        return {path: means.get(seen.label, seen.label) for path, seen in self.here.items()}

    def moved(self, moves: Mapping[str, str], root: str) -> Collection:
        """With other paths. moves: path then to path now, where these differ."""
        images = {moves.get(path, path): seen for path, seen in self.images.items()}
        return replace(self, root=root, images=images)

    def with_gone(self, before: Collection) -> Collection:
        """With the images that were known before, by the paths of today, and are no longer there."""
        gone = {path: replace(seen, here=False, relabelled=False) for path, seen in before.images.items()}
        return replace(
            self, images={**self.images, **{p: s for p, s in gone.items() if p not in self.images}}
        )

    def save(self, folder: Path) -> None:
        import pyarrow as pa

        told = {"root": self.root, "means": self.means}
        rows = [(path, s.stamp, s.digest, s.label, s.here, s.relabelled) for path, s in self.images.items()]
        columns = zip(COLLECTION_COLUMNS, zip(*rows, strict=True), strict=True) if rows else ()
        table = pa.table({name: pa.array(values) for name, values in columns})
        table = table.replace_schema_metadata({COLLECTION_META: json.dumps(told)})
        write_parquet(folder / COLLECTION_FILE, table)


def read_collection(folder: Path) -> Collection | None:
    """What `save` wrote; None where there is none."""
    file = folder / COLLECTION_FILE
    if not file.is_file():
        return None
    try:
        table = read_parquet_table(file)
        told = json.loads((table.schema.metadata or {})[COLLECTION_META])
        columns = [table[name].to_pylist() for name in COLLECTION_COLUMNS] if table.num_rows else []
        rows = zip(*columns, strict=True)
        return Collection(
            str(told["root"]), {path: ImageEntry(*rest) for path, *rest in rows}, dict(told["means"])
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} cannot be read ({' '.join(str(error).split())[:200]}); restore it from a copy, or run holotype "
            "discover with another --out."
        ) from error


def index_images(table: Table, last: Collection | None = None, progress: bool = False) -> Collection:
    """The images of a table as they are. last: an earlier look; its digests count where size and time are the same."""
    paths, stamp = relative([str(path) for path in table.path], table.root), file_stamps(list(table.path))
    known = last.images if last is not None else {}
    marks = [(known[path].stamp, known[path].digest) if path in known else None for path in paths]
    found = zip(
        paths, stamp, image_digests(list(table.path), stamp, marks, progress), table.label, strict=True
    )
    return Collection(
        table.root, {path: ImageEntry(at, digest, str(label)) for path, at, digest, label in found}
    )


MatchTest = Callable[[ImageEntry, ImageEntry], bool]
"""Whether an image of then and one of now are the same."""
PARKED_FOLDER = " (gone {digest})"
"""Follows the path of an image that is gone, where another one has its path now."""
MAX_PATHS_NAMED = 3
"""Examples of a line."""
SEVERAL_IMAGES = 3
"""Images that had a label, from which it is odd that none keeps it."""
SAME_BOX = 0.5
"""Share of two boxes that makes them boxes of the same thing."""


@dataclass
class CollectionDiff:
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
        return not self.labels_kept and len(self.labels_changed) + len(self.labels_gone) >= SEVERAL_IMAGES

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
        return ", ".join((*_count_phrase(images, "image"), *_count_phrase(labels, "label")))


def _count_phrase(parts: Iterable[tuple[int, str]], what: str) -> list[str]:
    """ "120 images new", "3 gone": the first part says of what; labels are named each time."""
    counts = [(n, end) for n, end in parts if n]
    return [
        f"{plural(n, what)} {end}" if what == "label" or not place else f"{n:,} {end}"
        for place, (n, end) in enumerate(counts)
    ]


def shown_names(paths: Iterable[str]) -> str:
    """A few of them."""
    names = list(paths)
    more = f" and {len(names) - MAX_PATHS_NAMED:,} more" if len(names) > MAX_PATHS_NAMED else ""
    return f"{', '.join(names[:MAX_PATHS_NAMED])}{more}"


# -- images ---------------------------------------------------------------------------------------------


def diff_collections(before: Collection, now: Collection) -> CollectionDiff:
    """Which images are the same ones. Labels are compared later, when it is known what they mean."""
    pairs = _ImagePairs(before, now)
    pairs.by_path(_is_same)
    pairs.by_content()
    changed = [*pairs.by_path(lambda then, _: then.here), *pairs.by_box()]
    found = CollectionDiff(
        then={there: path for path, there in pairs.found.items()}, repaired=sorted(changed)
    )
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
            place = path + PARKED_FOLDER.format(digest=seen.digest[:12])
            found.moves[path] = place
        found.gone += [place] if seen.here else []
    found.new = [path for path in now.images if path not in found.then]
    return found


def _is_same(then: ImageEntry, now: ImageEntry) -> bool:
    return then.digest == now.digest and bool(then.digest or then.stamp == now.stamp)


class _ImagePairs:
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

    def by_path(self, fits: MatchTest) -> list[str]:
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


def compare_labels(difference: CollectionDiff, before: Collection, now: Collection) -> None:
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


def with_digests(now: Collection, labels: Mapping[str, str], relabelled: frozenset[str]) -> Collection:
    """The look with other labels, by path, and with the images marked whose label is a new one."""
    marked = {
        path: replace(seen, label=labels[path], relabelled=path in relabelled)
        for path, seen in now.images.items()
    }
    return replace(now, images=marked)


# -- what labels mean -----------------------------------------------------------------------------------
#
# A label is the id of its class, unless it is the name that somebody has given to a category (then it means that one),
# or all images of a class came with another label at once: then the class was renamed, or has the name again that it
# had. What a label has once meant it means from then on.

MIN_SHARED = 2
"""Images that must have changed their label together to count as a class that was renamed."""


@dataclass(frozen=True)
class LabelAliases:
    """Of labels."""

    means: dict[str, str] = field(default_factory=dict)
    """Label to the id of its class, where the two are not the same or were not. Of the labels of one class, that with
    which all its images came last stands last."""
    names: dict[str, str] = field(default_factory=dict)
    """Id of a class that was renamed since the round before to its new label."""

    def spoken(self, table: Table) -> Table:
        """The table with the ids of classes as its labels."""
        if not self.means.keys() & set(table.known):
            return table
        label = [self.means.get(label, label) for label in table.label]
        known = dict.fromkeys(self.means.get(name, name) for name in table.known)
        return replace(table, label=np.array(label, dtype=object), known=tuple(known))


def resolve_aliases(
    now: Collection,
    before: Collection,
    then: Mapping[str, str],
    means: Mapping[str, str],
    found: Discovery | None,
) -> LabelAliases:
    """What the labels of `now` mean. before: the look of the last round, whose labels are ids; then: path now to path
    then; means: of the last round; found: its outcome as corrected."""
    labels = dict.fromkeys(seen.label for seen in now.images.values() if seen.label)
    ids = {seen.label for seen in before.images.values()}
    categories = found.categories if found is not None else []
    ids |= {category.id for category in categories}
    named = {nfc(category.name): category.id for category in categories if category.name not in ids}
    named |= {nfc(id): id for id in ids if nfc(id) not in ids}  # edits keep letters as they were typed
    known = {label: means[label] for label in labels if label in means}
    known |= {label: named[label] for label in labels if label not in known and label in named}
    unheard = {label for label in labels if label not in known and label not in ids}
    names = _renamed(now, before, then, unheard, {known.get(label, label) for label in labels})
    meant = {**means, **known, **{name: id for id, name in names.items()}}
    spoken = _canonical(now, meant)
    return LabelAliases(_in_order(meant, spoken), names | _renamed_back_to(means, spoken))


def _canonical(now: Collection, means: Mapping[str, str]) -> dict[str, str]:
    """Id of a class to the one label of all its images, where these are several."""
    said: dict[str, list[str]] = {}
    for seen in now.images.values():
        if seen.label:
            said.setdefault(means.get(seen.label, seen.label), []).append(seen.label)
    return {
        id: labels[0] for id, labels in said.items() if len(labels) >= MIN_SHARED and len(set(labels)) == 1
    }


def _renamed_back_to(means: Mapping[str, str], spoken: Mapping[str, str]) -> dict[str, str]:
    """Id of a class to a label that it had before and has again. A number is no name, and takes none away."""
    names = {}
    for id, label in spoken.items():
        last = next((one for one in reversed(list(means)) if means[one] == id), id)
        if label != last and label in (id, *means) and not UNNAMED_PATTERN.fullmatch(label):
            names[id] = label
    return names


def _in_order(means: Mapping[str, str], spoken: Mapping[str, str]) -> dict[str, str]:
    """What labels mean, those that are spoken now last."""
    others = {label: id for label, id in means.items() if spoken.get(id) != label}
    now = {label: id for id, label in spoken.items() if label != id or id in others.values()}
    return {**others, **now}


def _renamed(
    now: Collection, before: Collection, then: Mapping[str, str], unheard: set[str], spoken: set[str]
) -> dict[str, str]:
    """Id of a class to its new name: nobody speaks of the id any more, and all its images came with one new label."""
    became: dict[str, list[str]] = {}
    for path, known in then.items():
        if id := before.images[known].label:
            became.setdefault(id, []).append(now.images[path].label)
    names: dict[str, str] = {}
    for id, labels in became.items():
        one = labels[0]
        together = len(labels) >= MIN_SHARED and set(labels) == {one}
        if together and one in unheard and id not in spoken and one not in names.values():
            names[id] = one
    return names
