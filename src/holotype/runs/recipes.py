"""The values that the published methods change from one data set to the next, as dotted settings.

Everything else is the same everywhere. Sources: SimGCD's released scripts (memax_weight), DebGCD's
released scripts (threshold, adl, sdl, trained blocks, batch size).
"""

from __future__ import annotations

from typing import Any

MEMAX_WEIGHT = {"cub": 2.0, "cifar100": 4.0, "cifar100-200": 4.0}

DEBGCD = {  # data set: (trained blocks, batch size, threshold, adl, sdl)
    "cub": (2, 128, 0.65, 4.0, 0.005),
    "scars": (2, 128, 0.70, 2.0, 0.005),
    "scars-8137": (2, 128, 0.70, 2.0, 0.005),
    "aircraft": (2, 128, 0.85, 2.0, 0.01),
    "cifar10": (1, 128, 0.90, 2.0, 0.01),
    "cifar100": (1, 256, 0.55, 0.5, 0.001),
    "cifar100-200": (1, 256, 0.55, 0.5, 0.001),
    "imagenet100": (1, 128, 0.85, 2.0, 0.005),
}


def recipe(method_name: str, dataset: str) -> dict[str, Any]:
    """Dotted settings of `method_name` on `dataset`; empty where the general defaults hold."""
    settings: dict[str, Any] = {}
    if method_name in ("simgcd", "debgcd", "rpc") and dataset in MEMAX_WEIGHT:
        settings["method.memax_weight"] = MEMAX_WEIGHT[dataset]
    if dataset in DEBGCD:
        blocks, batch, threshold, adl, sdl = DEBGCD[dataset]
        if method_name == "debgcd":
            settings |= {"method.threshold": threshold, "method.adl": adl, "method.sdl": sdl}
            settings |= {"backbone.train_blocks": blocks}
            settings |= {"train.batch_size": batch, "train.lr": 0.1 * batch / 128}
        if method_name == "rpc":
            # without values made for the data, the debiased classifier does more harm than good (docs/experiments.md)
            settings |= {"method.base": "debgcd"}
            settings |= {"method.debias.threshold": threshold, "method.debias.adl": adl}
            settings |= {"method.ova.weight": sdl}
    return settings
