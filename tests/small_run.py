"""A trained model in a folder, on coloured squares with a tiny network: what assign, export and the estimator load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from holotype.categories.found import COLUMNS, Category, Discovery, category_name
from holotype.runs.experiment import Experiment
from holotype.runs.prepared import Shelf
from holotype.runs.run import Run, begin
from holotype.runs.settings import default_experiment
from holotype.runs.trained import save_trained
from holotype.train.sources import table_features

RUN_ID = "small-1"


def set_dotted(experiment: Experiment, key: str, value: Any) -> None:
    """Set `train.epochs`, `method.ova.arch`, ... of an experiment that is there, unchecked."""
    *parents, last = key.split(".")
    target: Any = experiment
    for parent in parents:
        target = getattr(target, parent)
    assert hasattr(target, last), key
    setattr(target, last, value)


def train_small(
    folder: Path, squares: Path, backbone: Path, method: str = "rpc", k: int = 4, epochs: int = 8
) -> tuple[Run, np.ndarray, np.ndarray]:
    """Train and save; returns the run, its features (N, D) and the category (N,) of each image."""
    experiment = default_experiment(method, str(squares / "squares.csv"))
    experiment.k, experiment.out = k, str(folder / "training")
    experiment.device, experiment.progress = "cpu", False
    experiment.backbone.name = str(backbone)
    experiment.train.epochs, experiment.train.batch_size = epochs, 16
    run = begin(experiment, Shelf())
    assert isinstance(run, Run)
    prediction = run.loop.fit()
    with torch.no_grad():
        features = table_features(run.loop.source, run.loop.rows.usable, len(run.loop.table)).numpy()
    known, category = run.loop.table.known, prediction.category.numpy()
    save_trained(
        folder,
        experiment=experiment,
        backbone=run.prepared.backbone,
        method=run.loop.method,
        tensors=run.loop.model_tensors(),
        known=known,
        ids=[category_name(i, known, k) for i in range(k)],
        features=features,
        category=category,
        run_id=RUN_ID,
    )
    return run, features, category


def small_discovery(known: tuple[str, ...], ids: list[str], run_id: str = RUN_ID) -> Discovery:
    """A discovery of one image per category."""
    frame = pd.DataFrame({name: [""] * len(ids) for name in COLUMNS})
    frame["path"] = [f"{i}.png" for i in range(len(ids))]
    for name in ("probability", "known_score", "typicality", "x", "y"):
        frame[name] = 0.5
    frame["doubtful"], frame["category_id"], frame["category"] = False, ids, ids
    frame["kind"] = ["known" if id in known else "novel" for id in ids]
    categories = [Category(id, id, "known" if id in known else "novel", 1) for id in ids]
    return Discovery(run_id, known, frame, categories)
