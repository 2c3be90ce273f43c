"""Choose the number of categories of a round, and whether equal sizes are expected."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from holotype.clustering.class_imbalance import measure_imbalance
from holotype.clustering.estimate_k import count_key, estimate_table, pick_k, write_count
from holotype.clustering.k_curve import CountEstimate
from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.corrected_k import corrected_k
from holotype.discovery.training_plan import methods_of
from holotype.errors import InputError
from holotype.methods import METHODS, find_method
from holotype.utils.serialization import read_json

if TYPE_CHECKING:
    from holotype.discovery.round_runner import Round

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
    content = hashlib.sha256(
        " ".join(round.plan.digests).encode()
    ).hexdigest()  # a repaired image looks otherwise
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


def supports_long_tail(method: str) -> bool:
    return hasattr(find_method(method).Config(), "memax_target")


def check_long_tail(methods: Sequence[str]) -> None:
    """Raise InputError where no method can be told to expect categories of very different sizes."""
    able = [name for name in METHODS if supports_long_tail(name)]
    if not any(map(supports_long_tail, methods)):
        told = " and ".join(methods)
        raise InputError(f"--long-tail is not for {told}; use {', '.join(able[:-1])} or {able[-1]}.")
