"""Pools of trainings of one collection, many seeds each; benchmarks/stability.py asks how far they agree."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from frozen import embed_views, train_frozen
from twenty import Collection

from holotype.discovery.plan import make_plan
from holotype.machine.device import pick_device
from holotype.models.backbone import BackboneConfig, load_backbone
from holotype.runs.parts import Data
from holotype.runs.prepared import Shelf
from holotype.runs.run import Run, begin
from holotype.runs.settings import default_experiment
from holotype.training.turns import train_in_turns

SIZES = {"equal": False, "different": True}
BACKBONE = "embedded"
AT_ONCE = {"cpu": 3}
"""Whole trainings that take turns."""
AT_ONCE_ELSEWHERE = 9


def pool(of: Collection, way: str, sizes: str, seeds: int, steps: int, work: Path, device: str) -> np.ndarray:
    """(S, N, k) float16 probabilities of the trainings with the seeds 0, 1, ...; read where they are kept."""
    if way == "frozen":
        kept = work / "pools" / f"{of.name}+{sizes}.npz"
        if not kept.is_file() or len(np.load(kept)["p"]) < seeds:
            features = embed_views(of.table, work / "features" / f"{of.name}.npz")
            p, _ = train_frozen(features, of.table.target, of.k, range(seeds), SIZES[sizes], steps)
            keep(kept, p)
        return np.load(kept)["p"][:seeds]
    files = [work / "whole" / f"{of.name}+{sizes}+{steps}+{seed}.npz" for seed in range(seeds)]
    absent = [seed for seed, file in enumerate(files) if not file.is_file()]
    at_once = AT_ONCE.get(pick_device(device), AT_ONCE_ELSEWHERE)
    for first in range(0, len(absent), at_once):
        some = absent[first : first + at_once]
        for seed, p in zip(some, train_whole(of, some, SIZES[sizes], steps, device), strict=True):
            keep(files[seed], p)
    return np.stack([np.load(file)["p"] for file in files])


def keep(file: Path, p: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, p=p.astype(np.float16))


def train_whole(
    of: Collection, seeds: Sequence[int], long_tail: bool, steps: int, device: str
) -> list[np.ndarray]:
    """(N, k) probabilities of each, trained as a discovery on that device is."""
    plan = make_plan(len(of.table), steps, pick_device(device))
    table = dataclasses.replace(of.table, truth=None)
    shelf = Shelf(data=Data(table, of.k), backbone=load_backbone(BackboneConfig(BACKBONE)))
    with tempfile.TemporaryDirectory() as folder:
        runs = {}
        for seed in seeds:
            experiment = default_experiment("rpc", "images")
            experiment.k, experiment.seed, experiment.out = of.k, seed, f"{folder}/{seed}"
            experiment.device, experiment.progress = device, False
            experiment.backbone, experiment.cache_views = BackboneConfig(BACKBONE), plan.cache_views
            experiment.train.epochs, experiment.train.batch_size = plan.epochs, plan.batch_size
            experiment.method.memax_target = "estimated" if long_tail else "uniform"
            run = begin(experiment, shelf, keep_caches=True)
            assert isinstance(run, Run)
            runs[str(seed)] = run
        for end in train_in_turns({name: run.loop for name, run in runs.items()}).values():
            end.prediction()
        with torch.no_grad():
            found = [run.loop.method.logits(run.loop.features).softmax(-1) for run in runs.values()]
        return [p.float().cpu().numpy() for p in found]
