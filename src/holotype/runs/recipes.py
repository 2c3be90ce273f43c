"""The values that a method changes from one data set to the next, as the method itself holds them."""

from __future__ import annotations

from typing import Any

from holotype.methods import find_method

ALL = "*"
"""Key of what holds for all data sets."""
PART_OF = {"scars-8137": "scars", "cifar100-200": "cifar100"}
"""Parts of a data set, which take its values."""


def recipe(method_name: str, dataset: str) -> dict[str, Any]:
    """Dotted settings of `method_name` on `dataset`; empty where the general defaults hold."""
    own = vars(find_method(method_name)).get("recipes", {})  # not those of a method that it is built on
    return {**own.get(ALL, {}), **own.get(PART_OF.get(dataset, dataset), {})}
