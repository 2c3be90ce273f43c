"""Features for the study of how many categories there are: frozen, and trained with half of the known classes hidden.

    python benchmarks/count_features.py --root DATA --backbone FILE --dataset cub --out FOLDER

Writes one .npz for each problem of count_problems.py. The trained networks never see a hidden class's labels, so that
hidden known classes look to them as novel ones do.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from count_problems import Problem, hide_half, random_problems, whole

from holotype.data.table import Table
from holotype.methods.base import Views
from holotype.models.cache import CacheViews
from holotype.runs.parts import Data, make_method
from holotype.runs.prepared import Shelf, make_compute
from holotype.runs.settings import resolve
from holotype.training.caching import open_cache
from holotype.training.encode import Encoder
from holotype.training.loop import Loop
from holotype.training.sources import FreshViews, evaluation_features
from holotype.training.turns import train_in_turns

MORE = 1.5
"""Categories that a method with a classifier is given, times the true number."""


def packed(features: np.ndarray) -> dict[str, np.ndarray]:
    """Eight bits a number, with a scale for each dimension."""
    scale = np.abs(features).max(0).clip(1e-8) / 127
    return {"q": np.round(features / scale).astype(np.int8), "scale": scale.astype(np.float32)}


class Gather:
    """One data set with one backbone."""

    def __init__(self, given: argparse.Namespace) -> None:
        settings = {
            "root": given.root,
            "backbone.name": given.backbone,
            "train.epochs": given.epochs,
            "train.eval_every": 10_000,
            "progress": False,
            "device": given.device,
        }
        self.given = given
        self.experiments = {
            "gcd": resolve("gcd", given.dataset, "light", settings),
            "simgcd": resolve("simgcd", given.dataset, overrides=settings),
        }
        first = self.experiments["gcd"]
        self.compute = make_compute(first)
        torch.set_float32_matmul_precision(first.train.matmul)
        self.prepared = Shelf().get(first, self.compute)
        self.store = self.prepared.images
        self.table: Table = self.prepared.data.table
        encoder = Encoder(self.prepared.backbone, self.compute)
        usable = torch.from_numpy(self.table.usable.copy()).nonzero().flatten()
        with torch.no_grad():
            self.frozen = evaluation_features(FreshViews(self.store, encoder), usable).float().cpu().numpy()
        assert len(self.frozen) == len(self.table), "every image of a benchmark can be read"
        self.cache = open_cache(
            CacheViews(given.views, 0),
            Views(weak=2, strong=0),
            self.store,
            self.prepared.backbone,
            self.compute,
            usable,
            first.memory,
        )

    def loop(self, problem: Problem, name: str, half: int | None, seed: int) -> Loop:
        label, known = (problem.label, problem.known) if half is None else hide_half(problem, half)
        everywhere, left_out = (
            np.full(len(self.table), "", object),
            np.full(len(self.table), "left out", object),
        )
        everywhere[problem.rows], left_out[problem.rows] = label, ""
        table = Table(
            path=self.table.path, label=everywhere, known=tuple(known), problem=left_out, name=problem.name
        )
        torch.manual_seed(seed)
        experiment = self.experiments[name]
        data = Data(table, int(MORE * problem.k))
        method = make_method(experiment, data, self.prepared.backbone)
        return Loop(
            experiment.train,
            method,
            self.prepared.network(),
            self.store,
            table,
            self.compute,
            seed=seed,
            cache=self.cache,
        )

    def run(self, jobs: Sequence[tuple[Problem, str, int | None]]) -> None:
        """Train a group of networks at once and write what they see."""
        names = [f"{p.name}.{name}.{'all' if half is None else half}" for p, name, half in jobs]
        loops = {name: self.loop(*job, seed=0) for name, job in zip(names, jobs, strict=True)}
        started = time.monotonic()
        ends = train_in_turns(loops)
        for name, (problem, _, _) in zip(names, jobs, strict=True):
            loop, end = loops[name], ends[name]
            features = loop.features
            if features is None:
                print(name, "failed:", end.outcome, flush=True)
                continue
            part = features[torch.from_numpy(problem.rows).to(features.device)]
            part = torch.nn.functional.normalize(part.float(), dim=-1).cpu().numpy()
            placed = end.prediction().category[torch.from_numpy(problem.rows)]
            np.savez(self.given.out / f"{name}.npz", **packed(part), placed=placed.short().cpu().numpy())
        print(f"{len(jobs)} networks in {time.monotonic() - started:.0f} s: {names[0]} ..", flush=True)

    def describe(self, problems: Sequence[Problem]) -> None:
        """Rows, labels and truth of each problem, and the frozen features of the whole table."""
        truth = np.asarray(self.table.truth)
        unit = self.frozen / np.linalg.norm(self.frozen, axis=1, keepdims=True)
        np.savez(self.given.out / f"{self.table.name}.frozen.npz", **packed(unit))
        for p in problems:
            np.savez_compressed(
                self.given.out / f"{p.name}.problem.npz",
                rows=p.rows,
                label=p.label.astype(str),
                truth=truth[p.rows].astype(str),
                k=p.k,
                tail=p.tail,
            )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", required=True)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--dataset", default="cub")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--views", type=int, default=8)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--problems", type=int, default=20, help="random problems to judge by")
    parser.add_argument(
        "--trials", type=int, default=6, help="random problems to choose by, numbered from 1000"
    )
    parser.add_argument("--parallel", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "count")
    given = parser.parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    given.out.mkdir(parents=True, exist_ok=True)
    gather = Gather(given)
    main_one = whole(gather.table)
    trials = list(random_problems(gather.table, range(1000, 1000 + given.trials)))
    judged = list(random_problems(gather.table, range(given.first, given.first + given.problems)))
    gather.describe([main_one, *trials, *judged])
    jobs: list[tuple[Problem, str, int | None]] = [
        (main_one, name, half) for name in ("gcd", "simgcd") for half in (0, 1, None)
    ]
    jobs += [(p, name, half) for p in trials for name, half in (("gcd", 0), ("gcd", 1), ("simgcd", 0))]
    jobs += [(p, name, half) for p in judged for name, half in (("gcd", 0), ("gcd", 1), ("simgcd", 0))]
    for at in range(0, len(jobs), given.parallel):
        gather.run(jobs[at : at + given.parallel])
    return 0


if __name__ == "__main__":
    sys.exit(main())
