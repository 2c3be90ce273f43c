"""A finished run as its folder holds it: what it found, and features, logits, scores and curves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from holotype.errors import InputError
from holotype.results.discovery import Discovery, read_features
from holotype.runs.model_io import TrainedModel, load_model
from holotype.runs.record import CONFUSION_FILE, PER_CLASS_FILE, SCORES_FILE, Record, read_record

if TYPE_CHECKING:
    import pandas as pd

LOGITS_AT_ONCE = 4096


@dataclass
class RunResult(Discovery):
    """What a run found, with its model."""

    folder: Path = Path()

    @cached_property
    def model(self) -> TrainedModel:
        """The trained model; its features(images) and place(...) take new images."""
        return load_model(self.folder)

    @cached_property
    def features(self) -> np.ndarray:
        """(N, D) float32 trained features in the order of `images`; NaN for an image that cannot be read."""
        stored = read_features(self.folder, len(self.images))
        if stored is not None:
            return np.asarray(stored, np.float32)
        return self.model.alone().features(list(self.images["path"])).features

    @property
    def logits(self) -> np.ndarray:
        """(N, K) float32 of the method, by category index; NaN for an image that cannot be read."""
        method, device = self.model.method, self.model.compute.device
        dtype = next(iter(self.model.method.state_dict().values())).dtype
        parts = torch.from_numpy(self.features).split(LOGITS_AT_ONCE)
        try:
            with torch.no_grad():
                found = [method.logits(part.to(device, dtype)).float().cpu() for part in parts]
        except NotImplementedError as error:
            raise InputError(
                f"The method of {self.folder} has no logits: it places images by predict."
            ) from error
        return torch.cat(found).numpy()

    @property
    def record(self) -> Record:
        """Identity, scores, and how the run was made."""
        return read_record(self.folder / SCORES_FILE)

    @property
    def per_class(self) -> pd.DataFrame | None:
        """class, kind, n, correct, accuracy and category of each class; None where the truth is not known."""
        return self._csv(PER_CLASS_FILE)

    @property
    def confusion(self) -> pd.DataFrame | None:
        """Images of each class (row) by category (column); None where the truth is not known."""
        counts = self._csv(CONFUSION_FILE)
        if counts is None:
            return None
        return counts.pivot(index="class", columns="category", values="n").fillna(0).astype(int)

    @property
    def curves(self) -> pd.DataFrame:
        """A row for each line of metrics.jsonl: losses and rate by epoch, and scores where some were taken."""
        import pandas as pd

        return pd.DataFrame(read_metrics(self.folder))

    def _csv(self, name: str) -> pd.DataFrame | None:
        import pandas as pd

        file = self.folder / name
        return pd.read_csv(file, keep_default_na=False) if file.is_file() else None


def read_metrics(folder: Path) -> list[Mapping[str, Any]]:
    """Return the lines of metrics.jsonl; none where there is no such file."""
    file = folder / "metrics.jsonl"
    return (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    )


def load(folder: Path | str) -> RunResult:
    """Return a finished run from its folder, with the edits that were applied.

    Its `images` and `categories` say what was found; `features`, `logits`, `per_class`, `confusion`, `curves` and
    `record` are read or computed when they are asked for.
    """
    run = RunResult.load(Path(folder))
    assert isinstance(run, RunResult)
    run.folder = Path(folder)
    return run
