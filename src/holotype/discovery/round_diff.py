"""Difference between two rounds: what became of each category.

A category is kept where its id is there again (runs/predict.py says when). Where it is not, or where another category
has taken more than a quarter of its images, those that have its images are named.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from holotype.discovery.collection import Collection, with_current_paths
from holotype.discovery.rounds import finished_rounds, replay_edits, round_folder
from holotype.results.discovery import Category, Discovery, write_csv
from holotype.utils.atomic import atomic_write
from holotype.utils.text import plural

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
    made += [_is_manual(category, before, now) for category in found.categories if category.id not in stood]
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


def _is_manual(category: Category, before: Discovery, now: dict[str, Category]) -> CategoryChange:
    """The row of a category that edits have made an end of."""
    edits, end = before.facts.edits, category.id
    while end in edits.merged:
        end = edits.merged[end]
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
