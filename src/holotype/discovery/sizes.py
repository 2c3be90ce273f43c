"""`--long-tail`: whether a round expects categories of equal or of very different sizes, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from holotype.clustering.class_imbalance import measure_imbalance
from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.plan import methods_of
from holotype.errors import InputError
from holotype.methods import METHODS, find_method

OTHER = {True: "no", False: "yes"}
"""What --long-tail takes to have it otherwise."""


def choose_sizes(config: DiscoverConfig, table: Table, features: np.ndarray) -> tuple[bool, str]:
    """Whether different sizes are expected, and a sentence; "" for methods that expect nothing.

    table: with the images that take part and the labels that speak for sizes. features: (N, D) of the frozen backbone.
    """
    if config.long_tail != "auto":
        told = "different" if config.long_tail == "yes" else "equal"
        return config.long_tail == "yes", f"Sizes: {told} ones are expected, as asked for."
    if not any(map(expects_sizes, methods_of(config))):
        return False, ""
    usable = table.usable
    x, label = torch.from_numpy(features[usable]), torch.from_numpy(table.target[usable])
    found = measure_imbalance(x, label, len(table.known), config.seed)
    return found.uneven, f"Sizes: {found.words} (--long-tail {OTHER[found.uneven]} changes this)."


def expects_sizes(method: str) -> bool:
    return hasattr(find_method(method).Config(), "memax_target")


def check_long_tail(methods: Sequence[str]) -> None:
    """Raise InputError where no method can be told to expect categories of very different sizes."""
    able = [name for name in METHODS if expects_sizes(name)]
    if not any(map(expects_sizes, methods)):
        told = " and ".join(methods)
        raise InputError(f"--long-tail is not for {told}; use {', '.join(able[:-1])} or {able[-1]}.")
