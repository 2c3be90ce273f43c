"""A finished run on coloured squares with a tiny network: what assign, export, report and the estimator load."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from holotype.embeddings.store import embed_table
from holotype.models.backbone import load_backbone
from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Category, Discovery, RunFacts
from holotype.runs.experiment import Experiment, default_experiment
from holotype.runs.model_io import ModelReader
from holotype.runs.predict import RoundContext
from holotype.runs.resources import ResourceCache
from holotype.runs.run import Run, begin_run, finish_run
from holotype.utils.device import Device

RUN_ID = "small-1"


def set_dotted(experiment: Experiment, key: str, value: Any) -> None:
    """Set `train.epochs`, `method.pairing.filter`, ... of an experiment that is there, unchecked."""
    *parents, last = key.split(".")
    target: Any = experiment
    for parent in parents:
        target = getattr(target, parent)
    assert hasattr(target, last), key
    setattr(target, last, value)


def train_small(
    folder: Path,
    squares: Path,
    backbone: Path,
    method: str = "rpc",
    k: int = 4,
    epochs: int = 8,
    opinion=False,
) -> tuple[Run, np.ndarray, np.ndarray]:
    """Train and finish; returns the run, its features (N, D) and the category (N,) that it says of each image.

    opinion: keep a second opinion, as a discovery does.
    """
    experiment = default_experiment(method, str(squares / "squares.csv"))
    experiment.k, experiment.out = k, str(folder)
    experiment.device, experiment.progress = "cpu", False
    experiment.backbone.name = str(backbone)
    experiment.train.epochs, experiment.train.batch_size = epochs, 16
    run = begin_run(experiment, ResourceCache())
    assert isinstance(run, Run)
    embedded = frozen_features(run, folder / "embedded") if opinion else None
    prediction = run.loop.fit()
    finish_run(run, prediction, 1.0, 1, RoundContext(RUN_ID, RunFacts(title="squares"), embedded=embedded))
    assert run.loop.features is not None
    return run, run.loop.features.numpy(), prediction.category.numpy()


def frozen_features(run: Run, folder: Path) -> np.ndarray:
    """(N, D) of the images of a run, by its backbone before training."""
    backbone = load_backbone(run.experiment.backbone)
    return embed_table(run.loop.table, backbone, Device.on("cpu"), folder).features


def seen(features: np.ndarray, frozen: np.ndarray | None = None) -> ModelReader:
    """Images by their features (n, D); NaN = it could not be read."""
    nothing = np.full(len(features), "", dtype=object)
    return ModelReader(np.asarray(features, np.float32), nothing, nothing, frozen)


def small_discovery(known: tuple[str, ...], ids: list[str], run_id: str = RUN_ID) -> Discovery:
    """A discovery of one image per category."""
    frame = pd.DataFrame({name: [""] * len(ids) for name in IMAGE_TABLE_COLUMNS})
    frame["path"] = [f"{i}.png" for i in range(len(ids))]
    for name in ("probability", "known_score", "typicality", "x", "y"):
        frame[name] = 0.5
    frame["doubtful"], frame["category_id"], frame["category"] = False, ids, ids
    frame["kind"] = ["known" if id in known else "novel" for id in ids]
    categories = [Category(id, id, "known" if id in known else "novel", 1) for id in ids]
    return Discovery(run_id, known, frame, categories)
