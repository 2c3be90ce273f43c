"""Label aliases: which class a label means after renames.

A label is the id of its class, unless it is the name that somebody has given to a category (then it means that one), or
all images of a class came with another label at once: then the class was renamed, or has the name again that it had.
What a label has once meant it means from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from holotype.data.label_hygiene import nfc
from holotype.data.table import Table
from holotype.discovery.collection import Collection
from holotype.results.discovery import UNNAMED_PATTERN, Discovery

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
