"""What RPC's weights do to known and novel images over the epochs.

    python benchmarks/mechanism.py experiments/mechanism.yaml --root data --set backbone.name=W

Trains the rows of a study (seed by seed, all at once) and, every few epochs, looks at every unlabelled image with
its true class: evaluation only, nothing of it reaches the training. One JSON file per run:
{"name", "seed", "epochs": [...], "series": {name: [...]}, "commit", "hardware"}.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from script import one_sentence
from torch import Tensor

from holotype.cli.bench import experiments_of, make_parser, read_studies
from holotype.cluster.evaluate import class_index, has_truth, score
from holotype.errors import InputError
from holotype.losses.ova import known_score
from holotype.losses.precision import unit
from holotype.losses.relational import pair_weights, relational_consistency, signature
from holotype.machine.files import write_text
from holotype.methods.rpc import RPC
from holotype.runs.experiment import Experiment
from holotype.runs.prepared import Shelf
from holotype.runs.run import Run, begin
from holotype.training.encode import place
from holotype.training.turns import train_in_turns

BATCHES, BATCH = 40, 64
"""Random batches of unlabelled images, as many as a training step has, over which pairs are counted."""


class Watch:
    """Looks at a run after its first epoch and after every few."""

    def __init__(self, run: Run, every: int) -> None:
        self.run, self.every = run, every
        self.epochs: list[int] = []
        self.series: dict[str, list[float]] = {}
        run.loop.on_epoch = self.after

    def after(self, epoch: int) -> None:
        if epoch % self.every == 0 or epoch == 1:
            self.look(epoch)

    @torch.no_grad()
    def look(self, epoch: int) -> None:
        loop, table = self.run.loop, self.run.prepared.data.table
        loop.modules.eval()
        features = loop.gallery.features(loop.source)
        placed = place(loop.method, features, loop.rows.usable)
        values = headline_values(score(table, placed.category.numpy(), placed.known_score.numpy()))
        _, _, true = class_index(table.known, np.asarray(table.truth).astype(str))
        values |= weight_values(placed.known_score.numpy(), true, table.labelled, len(table.known))
        values |= collapse_values(features, true, table.labelled, len(table.known))
        if isinstance(loop.method, RPC):
            values["rho"] = float(loop.method.rho)
            values |= pair_values(loop.method, features, true, table.labelled)
        self.epochs.append(epoch)
        for name, value in values.items():
            self.series.setdefault(name, []).append(value)


# -- what is measured -------------------------------------------------------------------------------------


def headline_values(scores: dict[str, Any]) -> dict[str, float]:
    return {key: float(scores[key]) for key in ("all", "old", "new", "auroc") if scores[key] is not None}


def weight_values(
    w_old: np.ndarray, true: np.ndarray, labelled: np.ndarray, n_known: int
) -> dict[str, float]:
    """Mean w_old of labelled, unlabelled known and unlabelled novel images, and its calibration."""
    known = true < n_known
    free = ~labelled
    values = {
        "w_old/labelled": w_old[labelled].mean(),
        "w_old/known": w_old[free & known].mean(),
        "w_old/novel": w_old[free & ~known].mean(),
        "w_old/unlabelled": w_old[free].mean(),
        "calibration": calibration_error(w_old[free], known[free]),
        "known taken for novel": (w_old[free & known] < 0.5).mean(),
        "novel taken for known": (w_old[free & ~known] >= 0.5).mean(),
    }
    return {name: float(value) for name, value in values.items()}


def calibration_error(w: np.ndarray, known: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error of w as the probability of being known: sum_b n_b/n |mean w - share known|."""
    place = np.minimum((w * bins).astype(int), bins - 1)
    gaps = [
        (place == b).mean() * abs(w[place == b].mean() - known[place == b].mean()) for b in np.unique(place)
    ]
    return float(np.sum(gaps))


def collapse_values(f: Tensor, true: np.ndarray, labelled: np.ndarray, n_known: int) -> dict[str, float]:
    """Mean cosine of two images of one class and of different classes, and the number of directions in use."""
    rows = torch.from_numpy(np.flatnonzero(~labelled & (true >= n_known))).to(f.device)
    novel = unit(f[rows])
    y = torch.from_numpy(true).to(f.device)[rows]
    cosine, same = novel @ novel.T, y[:, None] == y[None, :]
    off = ~torch.eye(len(rows), dtype=torch.bool, device=f.device)
    variance = torch.linalg.svdvals(novel - novel.mean(0)).square()
    share = variance / variance.sum()
    return {
        "cosine/same novel class": float(cosine[same & off].mean()),
        "cosine/other novel class": float(cosine[~same].mean()),
        "directions": float((-(share * share.clamp_min(1e-12).log()).sum()).exp()),
    }


def pair_values(method: RPC, features: Tensor, true: np.ndarray, labelled: np.ndarray) -> dict[str, float]:
    """Which pairs carry L_new's weight, and where its gradient moves unlabelled images of known classes."""
    n_known = method.task.n_known
    free = np.flatnonzero(~labelled)
    chance = np.random.default_rng(0)
    classes = torch.from_numpy(true).to(features.device)
    sums: dict[str, float] = {}
    for _ in range(BATCHES):
        drawn = chance.choice(free, min(BATCH, len(free)), replace=False)
        rows = torch.from_numpy(drawn).to(features.device)
        y = classes[rows]
        found = batch_values(method, features[rows], y, y < n_known)
        for name, value in found.items():
            sums[name] = sums.get(name, 0.0) + value
    total = sum(value for name, value in sums.items() if name.startswith("weight/"))
    share = {n: v / max(total, 1e-12) for n, v in sums.items() if n.startswith("weight/")}
    return share | {"L_new": sums["L_new"] / BATCHES, "pull to own prototype": sums["pull"] / BATCHES}


def batch_values(method: RPC, f: Tensor, y: Tensor, known: Tensor) -> dict[str, float]:
    """The weight of each kind of pair in one batch, and the pull on known images.

    The pull is the mean cosine between an image's descent direction of L_new on the unit sphere and its own
    prototype: negative where L_new leads away from it.
    """
    w_new = method.novel_weight(known_score(method.ova(f).sigmoid()))
    image, valid = torch.arange(len(f), device=f.device), torch.ones_like(known)
    tau = method.config.new.tau
    weight = pair_weights(f, w_new, image, valid, tau)
    same = y[:, None] == y[None, :]
    both = known[:, None] & known[None, :]
    neither = ~known[:, None] & ~known[None, :]
    with torch.enable_grad():
        u = unit(f).detach().requires_grad_()
        r = signature(u, method.prototypes)
        loss = relational_consistency(r, f, w_new, image, valid, tau)
        (gradient,) = torch.autograd.grad(loss, u)
    own = unit(method.prototypes)[y.clamp_max(method.task.n_known - 1)]
    pull = -(gradient * own).sum(-1) / gradient.norm(dim=-1).clamp_min(1e-12)
    return {
        "weight/known-known, same class": float(weight[both & same].sum()),
        "weight/known-known, other class": float(weight[both & ~same].sum()),
        "weight/known-novel": float(weight[~both & ~neither].sum()),
        "weight/novel-novel, same class": float(weight[neither & same].sum()),
        "weight/novel-novel, other class": float(weight[neither & ~same].sum()),
        "L_new": float(loss),
        "pull": float(pull[known].mean()) if known.any() else 0.0,
    }


# -- the runs ---------------------------------------------------------------------------------------------


def watch(experiments: list[Experiment], every: int, out: Path) -> None:
    """Train all at once; write one file per run."""
    shelf = Shelf()
    shelf.planned = experiments
    watches: dict[str, Watch] = {}
    for experiment in experiments:
        run = begin(experiment, shelf, keep_caches=bool(watches))
        if not isinstance(run, Run):
            raise InputError(f"{experiment.folder} holds a finished run; delete it to watch it anew.")
        if not has_truth(run.prepared.data.table):
            raise InputError(f"{experiment.dataset} has no true classes to look at; take a benchmark.")
        watches[f"{experiment.label}-s{experiment.seed}"] = Watch(run, every)
    for name, end in train_in_turns({name: watch.run.loop for name, watch in watches.items()}).items():
        end.prediction()
        watched = watches[name]
        facts = {key: watched.run.facts[key] for key in ("commit", "hardware")}
        label, seed = watched.run.experiment.label, watched.run.experiment.seed
        content = {"name": label, "seed": seed, **facts, "epochs": watched.epochs, "series": watched.series}
        write_text(out / f"{name}.json", json.dumps(content, indent=1) + "\n")


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0], epilog="Other flags are those of holotype bench."
    )
    parser.add_argument("study")
    parser.add_argument("--every", type=int, default=10, help="epochs between two looks")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/mechanism"))
    given, others = parser.parse_known_args(words)
    asked = make_parser().parse_args(["--study", given.study, *others])
    experiments = [made for study in read_studies(asked) for made in experiments_of(study, asked)]
    for experiment in experiments:
        experiment.out = f"runs/mechanism/{experiment.label}-s{experiment.seed}"
    watch(experiments, given.every, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
