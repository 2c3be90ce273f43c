"""Hierarchy of categories: merges and splits at other numbers of categories, and cutting there.

Upwards, the two categories whose joining costs least become one, again and again. Downwards, the category that gains
most from it is parted in two. Cost and gain are the same quantity, that of Ward: by how much the squared distance of
the images to their centres grows,

    cost(a, b) = n_a n_b / (n_a + n_b) |m_a - m_b|^2,

m: mean of the trained features at length 1, n: number of images. Known classes never join each other, and the images
that people have labelled, moved or confirmed stay where they are: a known class is parted only where hardly any
of its labelled images would have to leave. RUN/tree.json keeps it; `holotype cut` cuts it.

They are edits like those of people: names stay, a known class keeps its id, and `holotype report RUN --edits` takes
them over for good. Until then the run itself is as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holotype.errors import InputError
from holotype.results.discovery import DISCOVERY_FILE, Category, Discovery, category_name
from holotype.results.edits import CONFIRMED_NOTE, MOVED_NOTE, Edit, apply_edits, read_log
from holotype.results.lda import category_means, finite_rows, placed_chunks, unit_rows
from holotype.utils.atomic import write_text
from holotype.utils.serialization import FileSchema, dump_json, read_json, to_dict

TREE_FILE = "tree.json"
TREE_SCHEMA = FileSchema(1, "delete it, and holotype report makes it anew")
SMALLEST = 5
"""Images of the smaller part of a category that is parted."""
MAX_LEAVING = 0.1
"""Share of the images that stay where they are that may lie on the side that leaves."""
ITERATIONS = 20
"""Of the search for two centres."""
SPLIT_SAMPLE = 20_000
"""Images of a category that the two centres are found from, at most."""


@dataclass(frozen=True)
class Merge:
    """Two categories that become one."""

    source: str
    """Id of the one that is gone then."""
    target: str
    """Id of the one that has the images of both."""
    cost: float


@dataclass(frozen=True)
class Split:
    """A category of which a part leaves."""

    source: str
    """Id of the category, or of a part that has left before."""
    part: str
    """Id of what leaves."""
    gain: float
    rows: tuple[int, ...]
    """Of the table of images: those that leave, some of which may leave further on."""


@dataclass(frozen=True)
class Tree:
    """Steps from the categories as they are, upwards and downwards, in their order."""

    run_id: str
    edits: tuple[str, ...]
    """Ids of the edits that the categories hold."""
    k: int
    """Categories with an image."""
    merges: tuple[Merge, ...] = ()
    splits: tuple[Split, ...] = ()

    @property
    def lowest(self) -> int:
        return self.k - len(self.merges)

    @property
    def highest(self) -> int:
        return self.k + len(self.splits)

    def is_of(self, found: Discovery) -> bool:
        """Is it the tree of these very categories?"""
        return (self.run_id, list(self.edits)) == (found.run_id, found.facts.edits.applied)


def save_tree(folder: Path, found: Discovery, features: np.ndarray | None) -> Tree | None:
    """The tree of a discovery as it stands, which the folder keeps; None where there are no features."""
    file = folder / TREE_FILE
    try:
        stored = TREE_SCHEMA.make(file, Tree) if file.is_file() else None
    except InputError:  # it is made anew
        stored = None
    if stored is not None and stored.is_of(found):
        return stored
    if features is None or len(features) != len(found.images):
        return None
    tree = build_tree(found, features, used_ids(folder))
    write_text(file, dump_json({"format": TREE_SCHEMA.format, **to_dict(tree)}, indent=None))
    return tree


def used_ids(folder: Path) -> set[str]:
    """Ids and names of the categories of all rounds in a run folder, and those that edits speak of: no other category
    gets one of them. Nothing of what cannot be read; whoever goes on with that round says so."""
    words = {word for edit in read_log(folder) for word in (edit.category, edit.value)}
    for file in (folder / "rounds").glob(f"*/{DISCOVERY_FILE}"):
        try:
            categories = read_json(file)["categories"]
            words |= {str(category[key]) for category in categories for key in ("id", "name")}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return words


def build_tree(found: Discovery, features: np.ndarray, used: Set[str] = frozenset()) -> Tree:
    """The tree of a discovery as it stands. features: (N, D) trained, NaN rows for images that were not read. used: ids
    and names of earlier categories, which mean no part."""
    position = {category.id: i for i, category in enumerate(found.categories)}
    index = np.array([position.get(id, -1) for id in found.images["category_id"]])
    index[~finite_rows(features)] = -1
    mean, n = category_means(features, index, len(position))
    present = [category for category, size in zip(found.categories, n, strict=True) if size]
    rows = {category.id: np.flatnonzero(index == position[category.id]) for category in present}
    return Tree(
        found.run_id,
        tuple(found.facts.edits.applied),
        len(present),
        tuple(_merge_all(present, n[n > 0].astype(float), mean[n > 0])),
        tuple(_split_all(rows, features, found, used)),
    )


def _mean(features: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return category_means(features[rows], np.zeros(len(rows), dtype=int), 1)[0][0]


def _merge_all(categories: Sequence[Category], n: np.ndarray, mean: np.ndarray) -> list[Merge]:
    """Join the cheapest pair until no pair may be joined. n: (G,) images of each, mean: (G, D)."""
    ids = [category.id for category in categories]
    known = np.array([category.kind == "known" for category in categories], dtype=bool)
    named = np.array([category.name != category.id for category in categories], dtype=bool)
    square = ((mean[:, None] - mean[None]) ** 2).sum(axis=2)
    cost = n[:, None] * n[None] / np.maximum(n[:, None] + n[None], 1) * square
    np.fill_diagonal(cost, np.inf)
    cost[np.ix_(known, known)] = np.inf
    merges = []
    while np.isfinite(cost).any():
        a, b = (int(i) for i in np.unravel_index(cost.argmin(), cost.shape))
        # a known class stays, then what people have named, then the larger one
        if (known[b], named[b], n[b]) > (known[a], named[a], n[a]):
            a, b = b, a
        merges.append(Merge(ids[b], ids[a], float(cost[a, b])))
        mean[a] = (n[a] * mean[a] + n[b] * mean[b]) / (n[a] + n[b])
        n[a] += n[b]
        named[a] |= named[b]
        cost[b, :] = cost[:, b] = np.inf
        n[b] = 0
        row = n * n[a] / np.maximum(n + n[a], 1) * ((mean - mean[a]) ** 2).sum(axis=1)
        row[(n == 0) | (known & known[a])] = np.inf
        row[a] = np.inf
        cost[a, :] = cost[:, a] = row
    return merges


def _split_all(
    rows: dict[str, np.ndarray], features: np.ndarray, found: Discovery, used: Set[str]
) -> list[Split]:
    """Part the category that gains most until there are twice as many, or none can be parted. rows: by id."""
    edits, note = found.facts.edits, found.images["note"].fillna("")
    labelled = found.images["label"].fillna("") != ""
    held = (labelled | note.isin((MOVED_NOTE, CONFIRMED_NOTE))).to_numpy(bool)
    taken = {word for c in found.categories for word in (c.id, c.name)}
    taken |= {*edits.merged, *edits.rejected, *edits.asleep, *used}
    known = {category.id for category in found.categories if category.kind == "known"}
    ready = {id: _split_group(features, own, held, id in known) for id, own in rows.items()}
    splits: list[Split] = []
    for _ in range(len(rows)):
        gains = {id: parted[0] for id, parted in ready.items() if parted is not None}
        if not gains:
            break
        source = max(gains, key=lambda id: gains[id])
        gain, leaving = ready[source]  # type: ignore[misc]
        part = category_name(len(found.known), found.known, len(found.known) + 1, taken)
        taken.add(part)
        splits.append(Split(source, part, gain, tuple(int(row) for row in leaving)))
        rows[source], rows[part] = np.setdiff1d(rows[source], leaving), leaving
        ready |= {id: _split_group(features, rows[id], held, id in known) for id in (source, part)}
    return splits


def _split_group(
    features: np.ndarray, rows: np.ndarray, held: np.ndarray, known: bool
) -> tuple[float, np.ndarray] | None:
    """The gain of parting some images in two, and the rows that leave; None where they cannot be parted."""
    if len(rows) < 2 * SMALLEST:
        return None
    sample = rows[np.linspace(0, len(rows) - 1, min(len(rows), SPLIT_SAMPLE)).astype(int)]
    x = unit_rows(np.asarray(features[sample], np.float64))
    centres = _two_centres(x - x.mean(axis=0)) + x.mean(axis=0)
    chunks = placed_chunks(features[rows], np.zeros(len(rows), dtype=int))
    side = np.concatenate([_assign_nearer(u, centres) for _, u in chunks])
    stay = held[rows]
    leaves = side if (side & stay).sum() <= (~side & stay).sum() else ~side
    if not stay.any():
        leaves = side if side.sum() <= len(side) / 2 else ~side
    if (leaves & stay).sum() > MAX_LEAVING * stay.sum():
        return None
    leaves = leaves & ~stay
    n = int(leaves.sum())
    if min(n, len(rows) - n) < SMALLEST or (known and not (stay & ~leaves).any()):
        return None
    apart = _mean(features, rows[leaves]) - _mean(features, rows[~leaves])
    return n * (len(rows) - n) / len(rows) * float((apart**2).sum()), rows[leaves]


def _two_centres(x: np.ndarray) -> np.ndarray:
    """(2, D) by Lloyd's algorithm from the two sides of the main axis. x: (n, D), centred."""
    side = x @ np.linalg.eigh(x.T @ x)[1][:, -1] > 0
    for _ in range(ITERATIONS + 1):
        if side.all() or not side.any():
            return np.zeros((2, x.shape[1]))
        centres = np.stack([x[~side].mean(axis=0), x[side].mean(axis=0)])
        before, side = side, _assign_nearer(x, centres)
        if (side == before).all():
            break
    return centres


def _assign_nearer(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """(n,) bool: nearer to the second centre than to the first."""
    distance = (centres**2).sum(axis=1) - 2 * x @ centres.T
    return np.asarray(distance[:, 1] < distance[:, 0])


PARTED_NOTE = "parted by the tree"
"""Note of an image that left its category in a cut."""
STEPS_SHOWN = 3
"""Steps to either side that a report foresees."""


@dataclass(frozen=True)
class CutResult:
    """What a cut comes to."""

    discovery: Discovery
    """Under an id of its own: what people correct in it does not speak of the run."""
    edits: list[Edit]
    """Those that bring the run there."""
    lines: list[str]
    """What became of the categories, a sentence each."""


def cut_tree(found: Discovery, tree: Tree, k: int, at: str) -> CutResult:
    """The discovery with k categories. at: time of the edits, ISO 8601."""
    merges, splits = steps_to(tree, k)
    names = {category.id: category.name for category in found.categories}
    edits = [Edit(found.run_id, at, "merge", "", merge.source, merge.target) for merge in merges]
    edits += cut_moves(found, splits, at)
    applied = apply_edits(found, edits)
    discovery = applied.discovery
    if splits:
        left = {row for split in splits for row in split.rows}
        note = [
            PARTED_NOTE if row in left and note == MOVED_NOTE else note
            for row, note in enumerate(discovery.images["note"].fillna(""))
        ]
        discovery = dataclasses.replace(discovery, images=discovery.images.assign(note=note))
    steps: list[Merge | Split] = [*merges, *splits]
    title = f"{found.facts.title}, cut at {k}".lstrip(", ")
    facts = dataclasses.replace(discovery.facts, k=k, in_use=k, title=title)
    own = dataclasses.replace(discovery, run_id=f"{found.run_id}-at-{k}", facts=facts)
    return CutResult(own, edits, [cut_text(step, names) for step in steps])


def reachable_counts(tree: Tree) -> str:
    """What can be done with the categories of a tree."""
    if tree.lowest == tree.highest:  # a new one could join another
        return "are all known classes, and can be cut at no other number"
    return f"can be cut at {tree.lowest} to {tree.highest}"


def steps_to(tree: Tree, k: int) -> tuple[Sequence[Merge], Sequence[Split]]:
    """What happens on the way to k categories; raises InputError where the tree does not reach so far."""
    if not tree.lowest <= k <= tree.highest:
        why = "there cannot be fewer, because known classes stay"
        if k > tree.highest:
            why = f"for {k} of them run holotype discover again with --k {k}"
        raise InputError(f"The {tree.k} categories of this run {reachable_counts(tree)}; {why}.")
    return tree.merges[: max(0, tree.k - k)], tree.splits[: max(0, k - tree.k)]


def cut_moves(found: Discovery, splits: Sequence[Split], at: str) -> list[Edit]:
    """Every image that leaves, straight to where it ends."""
    end = {row: split.part for split in splits for row in split.rows}
    path, id, digest = found.images["path"], found.images["category_id"], found.digests
    return [
        Edit(found.run_id, at, "move", str(path.iloc[row]), str(id.iloc[row]), part, digest[row])
        for row, part in sorted(end.items())
    ]


def cut_text(step: Merge | Split, names: Mapping[str, str]) -> str:
    """A step as a sentence. names: of categories, by id; parts have none but their id."""
    source = names.get(step.source, step.source)
    if isinstance(step, Merge):
        return f"{source} joins {names.get(step.target, step.target)}."
    return f"{len(step.rows):,} images of {source} become {step.part}."


def preview_cut(tree: Tree, names: Mapping[str, str]) -> list[tuple[int, str]]:
    """(number of categories, what happens on the way there from the number before), from low to high."""
    fewer = [(tree.k - i - 1, cut_text(step, names)) for i, step in enumerate(tree.merges[:STEPS_SHOWN])]
    more = [(tree.k + i + 1, cut_text(step, names)) for i, step in enumerate(tree.splits[:STEPS_SHOWN])]
    return [*reversed(fewer), *more]
