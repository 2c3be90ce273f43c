"""Which new images does a model say to fit nothing: a class it never saw, other photographs, noise?

    python benchmarks/strangers.py --leave-out "Ankle boot" [--others FOLDER]

Trains on the embedded Fashion-MNIST sample without one class and without a fifth of the other images, half of the
classes known, and prints the share of each kind of new image that is marked `fits = False`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.benchmarks import SAMPLE
from holotype.data.sources import load_table
from holotype.discovery.estimator import Discoverer

HELD_OUT = 0.2
"""Share of each class that is not trained on."""
MOST_OTHERS, NOISES = 200, 50


def split_sample(leave_out: str, seed: int) -> tuple[list[Any], list[str], dict[str, list[Any]]]:
    """Images to train on, their labels ("" = none), and the new images by kind."""
    rng = np.random.default_rng(seed)
    with np.load(SAMPLE) as sample:
        x, y, names = sample["x"], sample["y"], [str(name) for name in sample["classes"]]
    if leave_out not in names:
        raise SystemExit(f"--leave-out must be one of {', '.join(names)}.")
    images, labels = [], []
    new: dict[str, list[Any]] = {"seen classes": [], f"unseen class {leave_out}": []}
    for c, name in enumerate(names):
        rows = rng.permutation(np.flatnonzero(y == c))
        if name == leave_out:
            new[f"unseen class {leave_out}"] += list(x[rows])
            continue
        n = round(HELD_OUT * len(rows))
        new["seen classes"] += list(x[rows[:n]])
        images += list(x[rows[n:]])
        known = c % 2 == 0
        labels += [name if known and i % 2 == 0 else "" for i in range(len(rows) - n)]
    new["noise"] = list(rng.integers(0, 256, (NOISES, 64, 64, 3), dtype=np.uint8))
    return images, labels, new


def main(words: Sequence[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--leave-out", default="Ankle boot", help="class that training never sees")
    parser.add_argument("--others", help="folder of photographs of other things")
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backbone", default="embedded")
    given = parser.parse_args(words)
    images, labels, new = split_sample(given.leave_out, given.seed)
    if given.others:
        paths = load_table(Path(given.others)).path
        rng = np.random.default_rng(given.seed)
        new[Path(given.others).name] = list(rng.permutation(paths)[:MOST_OTHERS])
    found = Discoverer(
        k=9, steps=given.steps, seed=given.seed, backbone=given.backbone, device="cpu", progress=True
    )
    found.fit(images, labels)
    print(f"{'new images':<28} {'n':>5} {'fit nothing':>12} {'probability':>12}")
    shares = {}
    for kind, pictures in new.items():
        placed = found.place(pictures)
        shares[kind] = float(1 - placed.fits.mean())
        mean = float(placed.probability.mean())
        print(f"{kind:<28} {len(placed):>5} {100 * shares[kind]:>10.1f} % {mean:>12.2f}", flush=True)
    return shares


if __name__ == "__main__":
    main()
