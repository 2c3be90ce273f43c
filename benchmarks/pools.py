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

from holotype.discovery.finding import plan_training
from holotype.discovery.several import train_side_by_side
from holotype.machine.device import pick_device
from holotype.models.backbone import BackboneConfig, load_backbone
from holotype.runs.parts import Data
from holotype.runs.prepared import Shelf

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
    network, table = BackboneConfig(BACKBONE), dataclasses.replace(of.table, truth=None)
    shelf = Shelf(data=Data(table, of.k), backbone=load_backbone(network))
    experiment = plan_training("rpc", len(of.table), of.k, steps, pick_device(device), network)
    experiment.method.memax_target = "estimated" if long_tail else "uniform"
    with tempfile.TemporaryDirectory() as folder:
        experiment.out, experiment.progress = folder, False
        runs, _ = train_side_by_side([experiment], seeds, shelf)
        with torch.no_grad():
            found = [run.loop.method.logits(run.loop.features).softmax(-1) for run in runs]
        return [p.float().cpu().numpy() for p in found]
