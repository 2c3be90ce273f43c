"""How many categories a round is trained with: as many as were asked for, counted, or left by corrections."""

from __future__ import annotations

import hashlib
import logging

import numpy as np

from holotype.clustering.estimate_k import count_key, estimate_table, pick_k, write_count
from holotype.clustering.k_curve import CountEstimate
from holotype.discovery.corrected_number import with_corrections
from holotype.discovery.round import Round
from holotype.errors import InputError
from holotype.utils.serialization import read_json

COUNT = "count.json"

log = logging.getLogger(__name__)


def choose_k(round: Round, features: np.ndarray) -> tuple[int, CountEstimate | None]:
    """The number of categories to train with, and the estimate that it comes from."""
    config, count = round.config, None
    if config.k == "auto":
        with round.clock.step("counting"):
            count = count_categories(round, features)
        k, why = pick_k(count), f"Training with {pick_k(count)}."
        if round.before and round.corrected:
            k, why = with_corrections(count, round.before, round.table)
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
    path = round.folder / COUNT
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
