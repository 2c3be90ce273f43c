"""Choose the number of categories of a round, and whether equal sizes are expected.

The count supposes that labels were drawn at random (clustering/class_size.py). Labels from edits are picked: where
images were wrong, and a few in each new category. Counted with them, a collection seems to have many small classes. So
they take no part in the count; and where people have merged, parted and rejected, what they have left is the number,
with what the count has changed by since.
"""

from __future__ import annotations

import hashlib
import logging

import numpy as np
import torch

from holotype.clustering.class_size import measure_imbalance
from holotype.clustering.estimate_k import count_key, estimate_table, pick_k, write_count
from holotype.clustering.k_curve import CountEstimate
from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.plan import Round
from holotype.discovery.training_plan import methods_of, supports_long_tail
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.utils.serialization import read_json


def categories_left(before: Discovery, table: Table) -> int:
    """Categories after the edits of a round: the classes that are known now, and the new categories that are left.

    A class that has labels for the first time is no further category where most of its images lay in one.
    """
    left = {category.id for category in before.categories if category.n} - set(table.known)
    for lay in _previous_category(before, table).values():
        left -= {id for id in set(lay) if id and 2 * lay.count(id) > len(lay)}
    return len(table.known) + len(left)


def categories_added(before: Discovery, table: Table) -> int:
    """Classes among these that have come together with most of their images: the count of today knows of them too."""
    return sum(2 * lay.count(None) > len(lay) for lay in _previous_category(before, table).values())


def _previous_category(before: Discovery, table: Table) -> dict[str, list[str | None]]:
    """Of each class that has labels for the first time: where its labelled images lay, None = they were not there.

    before: with the paths of today."""
    places = before.images["category_id"].fillna("")
    place = dict(zip(before.images["path"], map(str, places), strict=True))
    new = sorted(set(table.known) - set(before.known))
    return {name: [place.get(path) for path in table.path[table.label == name]] for name in new}


def corrected_k(count: CountEstimate, before: Discovery, table: Table) -> tuple[int, str]:
    """The number to train with, and why. before: the round before, as corrected.

    Of the same images the count changes by chance alone, so that it has a say only where images have come or gone, and
    where there is one of the round before to compare it with. Classes that have come with their images are among what
    it has grown by.
    """
    left, grown, change = categories_left(before, table), 0, ""
    if before.count and _has_other_images(before, table):
        grown = pick_k(count) - pick_k(CountEstimate.from_dict(before.count))
        grown -= min(max(grown, 0), categories_added(before, table))
    if grown:
        more = "higher" if grown > 0 else "lower"
        change = f", and with the images that have come or gone the count is {abs(grown)} {more}"
    k = max(left + grown, len(table.known))
    return k, f"Corrections have left {left} categories{change}. Training with {k}."


def expected_k(before: Discovery, table: Table) -> str:
    """What is known of that number before anything is counted. before, table: as in with_corrections."""
    left = max(categories_left(before, table), len(table.known))
    told = f"Corrections have left {left} categories"
    if before.count and _has_other_images(before, table):
        return f"{told}; the images that have come or gone may change that number (--k sets it)."
    return f"{told}, and as many would be trained with (--k sets it)."


def _has_other_images(before: Discovery, table: Table) -> bool:
    """Have images come or gone?"""
    return set(before.images["path"]) != set(table.path)


# -- a round --------------------------------------------------------------------------------------------

COUNT_FILE = "count.json"

log = logging.getLogger(__name__)


def choose_k(round: Round, features: np.ndarray) -> tuple[int, CountEstimate | None]:
    """The number of categories to train with, and the estimate that it comes from."""
    config, count = round.config, None
    if config.k == "auto":
        with round.clock.step("counting"):
            count = count_categories(round, features)
        k, why = pick_k(count), f"Training with {pick_k(count)}."
        if round.before and round.corrected:
            k, why = corrected_k(count, round.before, round.table)
        log.info(f"{count.words} {why}")
    else:
        k = int(config.k)
    if k < len(round.table.known):  # edits have made known what --k did not count
        k = len(round.table.known)
        log.warning(f"With the labels from edits there are {k} known classes, so --k {config.k} becomes {k}.")
    return k, count


def count_categories(round: Round, features: np.ndarray) -> CountEstimate:
    """Estimate k from the embeddings, or read what an earlier call with the same input found."""
    config, table = round.config, round.drawn
    if round.out.any():
        table, features = table.take(~round.out), features[~round.out]
    content = hashlib.sha256(" ".join(round.digests).encode()).hexdigest()  # a repaired image looks otherwise
    key = count_key(table, round.chosen.backbone.digest, config.seed) | {"content": content}
    path = round.folder / COUNT_FILE
    if path.is_file():
        try:
            content = read_json(path)
            if content.get("of") == key:
                return CountEstimate.from_dict(content)
        except (OSError, ValueError, AttributeError, InputError):
            log.warning(f"{path} cannot be read, and is made again.")
    count = estimate_table(table, features, config.device, seed=config.seed, progress=round.progress)
    write_count(path, count, key)
    return count


OTHER_ANSWER = {True: "no", False: "yes"}
"""What --long-tail takes to have it otherwise."""


def choose_long_tail(config: DiscoverConfig, table: Table, features: np.ndarray) -> tuple[bool, str]:
    """Whether different sizes are expected, and a sentence; "" for methods that expect nothing.

    table: with the images that take part and the labels that speak for sizes. features: (N, D) of the frozen backbone.
    """
    if config.long_tail != "auto":
        told = "different" if config.long_tail == "yes" else "equal"
        return config.long_tail == "yes", f"Sizes: {told} ones are expected, as asked for."
    if not any(map(supports_long_tail, methods_of(config))):
        return False, ""
    usable = table.usable
    x, label = torch.from_numpy(features[usable]), torch.from_numpy(table.target[usable])
    found = measure_imbalance(x, label, len(table.known), config.seed)
    return found.uneven, f"Sizes: {found.words} (--long-tail {OTHER_ANSWER[found.uneven]} changes this)."
