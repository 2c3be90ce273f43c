"""The images of a collection as indexed, and the difference between two states of it.

An image is known by the digest of its content, so that nothing has to be rewritten where files are moved or renamed:
`with_current_paths` looks up where the images of an earlier round lie now. `collection.parquet` in the run folder is
the latest index, whose sizes and times save reading files again; that of a round is the index that it was begun with.

Where other content lies at the path of an image (repaired or replaced), or nearly the same box of its picture,
`aliases` leads from the new content to the old one: what was said of that still counts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from holotype.data.boxes import overlap, split_box
from holotype.data.detections import box_columns
from holotype.data.hashing import file_stamps, image_digests
from holotype.data.paths import absolute, relative
from holotype.data.readers.vectors import vector_digests
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.results.discovery import UNNAMED_PATTERN, Discovery
from holotype.utils.serialization import read_parquet_table, write_parquet
from holotype.utils.text import nfc, plural

COLLECTION_FILE = "collection.parquet"
COLLECTION_META = b"holotype"
COLLECTION_COLUMNS = ("path", "stamp", "digest", "label")
COLLECTION_FACTS = ("root", "means", "spoken", "aliases")
MAX_PATHS_NAMED = 3
"""Examples of a line."""
SEVERAL_IMAGES = 3
"""Images that had a label, from which it is odd that none keeps it."""
SAME_BOX = 0.5
"""Share of two boxes that makes them boxes of the same thing."""


@dataclass(frozen=True)
class ImageEntry:
    """An image."""

    stamp: str
    """Size and time of its file (data/hashing.py)."""
    digest: str
    """Of its content (data/hashing.py); "" where that could not be read, or is empty."""
    label: str = ""
    """The class that it came with; "" = none."""


@dataclass(frozen=True)
class Collection:
    """All images of a table, in its order."""

    root: str = ""
    images: dict[str, ImageEntry] = field(default_factory=dict)
    """By path from the root."""
    means: dict[str, str] = field(default_factory=dict)
    """Label to the id of its class, where the two are not the same."""
    spoken: dict[str, str] = field(default_factory=dict)
    """Id of a class to the label with which all its images came last, where they were several."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Key of a repaired image, or of a box that was shifted, to the key that it had before."""

    @cached_property
    def keys(self) -> list[str]:
        """(N,) what each image is known by: its digest, or else its path."""
        return [self.key(path) for path in self.images]

    def key(self, path: str) -> str:
        """Return what the image at a path is known by."""
        return self.images[path].digest or path

    @cached_property
    def paths(self) -> dict[str, list[str]]:
        """Key to the paths of its copies."""
        found = defaultdict(list)
        for path, key in zip(self.images, self.keys, strict=True):
            found[key].append(path)
        return dict(found)

    @cached_property
    def labels(self) -> dict[str, str]:
        """Key to the class that the image came with, "" = none; of copies that contradict each other, the first by
        the alphabet."""
        found: dict[str, str] = dict.fromkeys(self.paths, "")
        for key, entry in zip(self.keys, self.images.values(), strict=True):
            found[key] = min(filter(None, (found[key], entry.label)), default="")
        return found

    def ancestors(self, key: str) -> Iterator[str]:
        """Yield the keys that an image had before, the latest first."""
        seen = {key}
        while (key := self.aliases.get(key, "")) and key not in seen:
            seen.add(key)
            yield key

    @cached_property
    def heirs(self) -> dict[str, list[str]]:
        """Key of then to the keys now of the images that were repaired since."""
        found = defaultdict(list)
        for key in self.aliases.keys() & self.paths.keys():
            for old in self.ancestors(key):
                found[old].append(key)
        return dict(found)

    def present(self, key: str) -> str:
        """Return the key that an image of then has now; the same where it is gone."""
        return key if key in self.paths else min(self.heirs.get(key, [key]))

    def save(self, folder: Path) -> None:
        import pyarrow as pa

        facts = {name: getattr(self, name) for name in COLLECTION_FACTS}
        rows = [(path, e.stamp, e.digest, e.label) for path, e in self.images.items()]
        columns = zip(COLLECTION_COLUMNS, zip(*rows, strict=True), strict=True) if rows else ()
        table = pa.table({name: pa.array(values) for name, values in columns})
        write_parquet(
            folder / COLLECTION_FILE, table.replace_schema_metadata({COLLECTION_META: json.dumps(facts)})
        )


def read_collection(folder: Path) -> Collection | None:
    """Read what `save` wrote; None where there is none."""
    file = folder / COLLECTION_FILE
    if not file.is_file():
        return None
    try:
        table = read_parquet_table(file)
        facts = json.loads((table.schema.metadata or {})[COLLECTION_META])
        columns = [table[name].to_pylist() for name in COLLECTION_COLUMNS] if table.num_rows else []
        images = {path: ImageEntry(*rest) for path, *rest in zip(*columns, strict=True)}
        return Collection(images=images, **{name: facts[name] for name in COLLECTION_FACTS})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} cannot be read ({' '.join(str(error).split())[:200]}); restore it from a copy, or run holotype "
            "discover with another --out."
        ) from error


def index_images(table: Table, last: Collection | None = None, progress: bool = False) -> Collection:
    """Hash the images of a table. last: an earlier index, whose digests count where size and time are the same."""
    files = [str(path) for path in table.path]
    paths = relative(files, table.root)
    if table.features is not None:
        stamps, digests = [""] * len(table), vector_digests(table.features)
    else:
        stamps, known = file_stamps(files), last.images if last is not None else {}
        marks = [(known[path].stamp, known[path].digest) if path in known else None for path in paths]
        digests = image_digests(files, stamps, marks, progress)
    entries = (
        ImageEntry(stamp, "" if stamp.startswith("0-") else digest, str(label))
        for stamp, digest, label in zip(stamps, digests, table.label, strict=True)
    )
    return Collection(table.root, dict(zip(paths, entries, strict=True)))


def with_current_paths(found: Discovery, now: Collection) -> Discovery:
    """Return a discovery with the paths that its images have now; those that are gone keep theirs."""
    files = [str(path) for path in found.images["path"]]
    before = relative(files, found.facts.root)
    places = _current_places(before, found.keys, now)
    moves = {path: place for path, place in zip(before, places, strict=True) if place not in ("", path)}
    if found.facts.root == now.root and not moves:
        return found
    taken = {absolute(path, now.root) for path in now.images}
    current = {
        file: absolute(place, now.root) if place else f"{file} (gone)" if file in taken else file
        for file, place in zip(files, places, strict=True)
    }
    images = found.images.assign(path=[current[file] for file in files])
    if "group" in images:  # bursts are called after a frame unless people have named them
        images = images.assign(group=[moves.get(group, group) for group in images["group"].fillna("")])
    if "file" in images:
        images = images.assign(**box_columns(list(images["path"])))
    categories = [
        replace(
            category,
            exemplars=[current.get(path, path) for path in category.exemplars],
            borderline=[current.get(path, path) for path in category.borderline],
        )
        for category in found.categories
    ]
    return replace(found, images=images, categories=categories, facts=replace(found.facts, root=now.root))


def _current_places(before: list[str], keys: list[str], now: Collection) -> list[str]:
    """(N,) path of each image now, from the root, "" = gone. Copies keep their own paths as far as they can."""
    key_at = dict(zip(now.images, now.keys, strict=True))
    stayed = {
        path
        for path, key in zip(before, keys, strict=True)
        if path in key_at and (key_at[path] == key or key in now.ancestors(key_at[path]))
    }
    free = {key: [path for path in paths if path not in stayed] for key, paths in now.paths.items()}
    places = []
    for path, key in zip(before, keys, strict=True):
        others = [] if path in stayed else free.get(now.present(key), [])
        places.append(path if path in stayed else others.pop(0) if others else "")
    return places


@dataclass
class CollectionDiff:
    """Between an index of a collection and an earlier one. Lists hold paths as seen from the root of today."""

    then: dict[str, str] = field(default_factory=dict)
    """Path now to path then, of every image that was known."""
    aliases: dict[str, str] = field(default_factory=dict)
    """As in Collection, of the images that were repaired since."""
    new: list[str] = field(default_factory=list)
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
        images = (self.new, self.gone, self.repaired)
        return any((*images, self.labels_new, self.labels_changed, self.labels_gone))

    @property
    def labels_are_others(self) -> bool:
        """Does no image keep its label, of several that had one? Mostly a list was forgotten."""
        return not self.labels_kept and len(self.labels_changed) + len(self.labels_gone) >= SEVERAL_IMAGES

    @property
    def words(self) -> str:
        """All in one line, "" where nothing has changed: 120 images new, 3 gone, 14 labels new."""
        images = {"new": self.new, "gone": self.gone, "repaired": self.repaired, "renamed": self.renamed}
        labels = {"new": self.labels_new, "changed": self.labels_changed, "taken away": self.labels_gone}
        counts = [(len(paths), end) for end, paths in images.items() if paths]
        words = [
            f"{n:,} {end}" if place else f"{plural(n, 'image')} {end}"
            for place, (n, end) in enumerate(counts)
        ]
        return ", ".join([*words, *(f"{plural(len(p), 'label')} {end}" for end, p in labels.items() if p)])


def shown_names(paths: Iterable[str]) -> str:
    """A few of them."""
    names = list(paths)
    more = f" and {len(names) - MAX_PATHS_NAMED:,} more" if len(names) > MAX_PATHS_NAMED else ""
    return f"{', '.join(names[:MAX_PATHS_NAMED])}{more}"


def diff_collections(before: Collection, now: Collection) -> CollectionDiff:
    """Pair the images of two indices. Labels are compared later, when it is known what they mean.

    An image is the same where path and content are the same; else where its content lies at another path; else where
    other content lies at its path, or nearly the same box of its picture, wherever that lies now.
    """
    found = CollectionDiff()
    left, free = dict.fromkeys(before.images), dict.fromkeys(now.images)  # no partner yet

    def join(path: str, current: str, paths: list[str] | None = None) -> None:
        found.then[current] = path
        del left[path], free[current]
        if paths is not None:
            paths.append(current)

    def at_its_place(path: str) -> list[str]:
        return [place for place in _places(path, before, now) if place in free]

    for path, entry in before.images.items():
        if same := [place for place in at_its_place(path) if _is_same(entry, now.images[place])]:
            join(path, same[0])
    by_content = defaultdict(list)
    for current in free:
        by_content[now.images[current].digest].append(current)
    # of copies, those first whose place is empty: at that of another something was repaired
    for path in sorted(left, key=lambda path: bool(at_its_place(path))):
        digest = before.images[path].digest
        if digest and by_content[digest]:
            join(path, by_content[digest].pop(0), found.renamed)
    for path in list(left):
        if place := at_its_place(path):
            join(path, place[0], found.repaired)
    for path, current in _similar_boxes(left, free, before, now):
        join(path, current, found.repaired)
    found.repaired.sort()
    for current in found.repaired:
        path = found.then[current]
        if (new := now.key(current)) != (old := before.key(path)):
            found.aliases[new] = old
    found.new, found.gone = list(free), list(left)
    return found


def _is_same(then: ImageEntry, now: ImageEntry) -> bool:
    return then.digest == now.digest and bool(then.digest or then.stamp == now.stamp)


def _places(path: str, before: Collection, now: Collection) -> tuple[str, ...]:
    """Where an image of then would lie now: the very file, or the same path below another root."""
    if before.root == now.root or not before.root or not now.root:
        return (path,)
    return *relative([absolute(path, before.root)], now.root), path


def _similar_boxes(
    left: Mapping[str, None], free: Mapping[str, None], before: Collection, now: Collection
) -> Iterator[tuple[str, str]]:
    """Yield boxes of one picture that are nearly the same: a detector that is run again moves them a little. A picture
    that was renamed is found where no other has its size and time: boxes have digests, and their pictures have none."""
    boxes, files = defaultdict(list), defaultdict(set)
    for current in free:
        file, box = split_box(current)
        if box is not None:
            boxes[file].append((current, box))
            files[now.images[current].stamp].add(file)
    shares = []
    for path in left:
        file, box = split_box(path)
        if box is None:
            continue
        same = files.get(before.images[path].stamp, set())
        pictures = [place for place in _places(file, before, now) if place in boxes]
        for place in pictures or (same if len(same) == 1 else ()):
            shares += [(overlap(box, other), path, current) for current, other in boxes[place]]
    for share, path, current in sorted(shares, reverse=True):
        if share >= SAME_BOX and path in left and current in free:
            yield path, current


def with_labels(now: Collection, labels: Iterable[str], **facts: dict[str, str]) -> Collection:
    """Return the index with other labels, and what else is known. labels: (N,)."""
    pairs = zip(now.images.items(), labels, strict=True)
    images = {path: replace(entry, label=label) for (path, entry), label in pairs}
    return Collection(now.root, images, **facts)


def compare_labels(difference: CollectionDiff, before: Collection, now: Collection) -> None:
    """Put into the difference which labels are new, changed or taken away. now: with the labels as ids of classes."""
    taken = set()
    for path, entry in now.images.items():
        known = difference.then.get(path)
        then = before.images[known].label if known is not None else ""
        if entry.label and not then:
            difference.labels_new.append(path)
        elif entry.label and entry.label != then:
            difference.labels_changed.append(path)
        elif then and not entry.label:
            difference.labels_gone.append(path)
            taken.add(then)
        elif then:
            difference.labels_kept += 1
    difference.classes_gone = frozenset(taken - {entry.label for entry in now.images.values()})


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
    """Label to the id of its class, where the two are not the same."""
    spoken: dict[str, str] = field(default_factory=dict)
    """Id of a class to the label with which all its images came last."""
    names: dict[str, str] = field(default_factory=dict)
    """Id of a class that was renamed since the round before to its new label."""

    def apply(self, table: Table) -> Table:
        """The table with the ids of classes as its labels."""
        label = [self.means.get(label, label) for label in table.label]
        known = dict.fromkeys(self.means.get(name, name) for name in table.known)
        return replace(table, label=np.array(label, dtype=object), known=tuple(known))


def resolve_aliases(
    now: Collection, before: Collection, then: Mapping[str, str], last: Collection, found: Discovery | None
) -> LabelAliases:
    """What the labels of `now` mean. before: the index of the last round, whose labels are ids; then: path now to path
    then; last: the latest index, which knows what labels have meant; found: the last round as corrected."""
    labels = {entry.label for entry in now.images.values()} - {""}
    called = {category.id: category.name for category in (found.categories if found is not None else ())}
    ids = {entry.label for entry in before.images.values()} | called.keys()
    named = {nfc(name): id for id, name in called.items() if name not in ids}
    named |= {nfc(id): id for id in ids if nfc(id) not in ids}  # edits keep letters as they were typed
    means = {**{label: named[label] for label in labels & named.keys()}, **last.means}
    speaks_of = {means.get(label, label) for label in labels}
    pairs = ((before.images[known].label, now.images[path].label) for path, known in then.items())
    for id, label in _unanimous(pairs).items():
        if label in labels - means.keys() - ids and id not in speaks_of:
            means[label] = id
    pairs = ((means.get(entry.label, entry.label), entry.label) for entry in now.images.values())
    spoken = {**last.spoken, **_unanimous(pairs)}
    names = {
        id: label
        for id, label in spoken.items()
        if label not in (last.spoken.get(id, id), called.get(id)) and not UNNAMED_PATTERN.fullmatch(label)
    }  # a number is no name, and takes none away
    return LabelAliases(means, spoken, names)


def _unanimous(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Id of a class to the one label of all its images, where these are several. pairs: of id and label."""
    labels = defaultdict(list)
    for id, label in pairs:
        labels[id].append(label)
    return {
        id: each[0]
        for id, each in labels.items()
        if id and each[0] and len(each) >= MIN_SHARED and len(set(each)) == 1
    }
