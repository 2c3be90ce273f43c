"""`Discoverer`: category discovery with the face of scikit-learn.

    found = Discoverer(k="auto").fit(paths, y)      # y: a label per image, None or "" where there is none
    found.labels_                                   # "Sneaker", "new-01", ...
    found.predict(new_paths)

Images are paths, PIL images or arrays (data/pictures.py). Those in memory are written as PNG files into the run
folder, so that the report can show them.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.exceptions import NotFittedError

from holotype.categories.found import Category, Discovery
from holotype.data.pictures import Picture, as_list, as_paths
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.machine.files import write_text

if TYPE_CHECKING:
    from holotype.runs.trained import Trained

FILE = "estimator.json"
"""Beside a saved model: the parameters of the estimator."""
SAVED = (
    *("model.json", "model.safetensors", "discovery.json", "assignments.parquet", "assignments.csv"),
    *("features.npy", FILE),
)
"""What `save` takes along; images, embeddings and the training state stay behind."""
PICTURES = "images"
"""Folder for the images that were given as pixels."""


class Discoverer(ClusterMixin, TransformerMixin, BaseEstimator):
    """Places every image in a known class or in a category found in the data.

    Parameters
    ----------
    method: name of the method; rpc, simgcd, debgcd or kmeans.
    k: number of categories, known and novel together, or "auto".
    steps: training steps; None is 1,000 on a CPU and 6,000 on a GPU.
    sample: most images to train on; None is 5,000 on a CPU and 200,000 on a GPU.
    backbone: "auto", "embedded", a name of timm, or the path of a .safetensors file.
    long_tail: expect categories of very different sizes.
    seed: of everything random.
    device: auto, cpu, cuda or mps.
    out: run folder with report; a run that was begun there goes on. None: a temporary one, which goes with the object.
    progress: show progress bars.

    Attributes
    ----------
    labels_: (n,) str, the category id of each image of `fit`; "" for one that could not be read. A labelled image
        has its label.
    categories_: list of Category, known classes first.
    scores_: frame with probability, known_score, typicality and doubtful of each image of `fit`.
    relations_: frame, a row per category and a column per known class: mean cosine with its prototype.
    discovery_: all of it.
    run_folder_: Path of the run folder, with the report.
    """

    discovery_: Discovery
    run_folder_: Path

    def __init__(
        self,
        method: str = "rpc",
        k: int | Literal["auto"] = "auto",
        *,
        steps: int | None = None,
        sample: int | None = None,
        backbone: str = "auto",
        long_tail: bool = False,
        seed: int = 0,
        device: str = "auto",
        out: str | Path | None = None,
        progress: bool = False,
    ) -> None:
        self.method = method
        self.k = k
        self.steps = steps
        self.sample = sample
        self.backbone = backbone
        self.long_tail = long_tail
        self.seed = seed
        self.device = device
        self.out = out
        self.progress = progress

    def fit(self, X: Iterable[Picture], y: Iterable[Any] | None = None) -> Discoverer:
        """Find the categories of the images X. y: label of each, None, "" or NaN for none (in an array of whole
        numbers: -1)."""
        from holotype.discovery.workflow import DiscoverConfig, discover_table
        from holotype.models.backbone import BackboneConfig

        pictures = as_list(X)
        label = as_labels(y, len(pictures))
        folder = self._folder()
        paths = as_paths(pictures, folder / PICTURES)
        table = Table(
            path=np.array(paths, dtype=object),
            label=np.array(label, dtype=object),
            known=tuple(sorted(set(label) - {""})),
            name="images",
        )
        config = DiscoverConfig(
            k=self.k,
            steps=self.steps,
            sample=self.sample,
            method=self.method,
            backbone=BackboneConfig(str(self.backbone)),
            long_tail=self.long_tail,
            seed=self.seed,
            device=self.device,
        )
        self.discovery_ = discover_table(table, config, folder, progress=self.progress)
        self.run_folder_ = folder
        self.__dict__.pop("_trained", None)
        return self

    def _folder(self) -> Path:
        if self.out is not None:
            return Path(self.out)
        # kept as long as the object, and removed with it
        self._temporary = tempfile.TemporaryDirectory(prefix="holotype-")
        return Path(self._temporary.name)

    def fit_predict(self, X: Iterable[Picture], y: Iterable[Any] | None = None, **_: Any) -> np.ndarray:
        """Category ids (n,) of the images X."""
        return self.fit(X, y).labels_

    def predict(self, X: Iterable[Picture]) -> np.ndarray:
        """Category ids (n,) of new images; "" for one that cannot be read."""
        return self.place(X)["category_id"].to_numpy(dtype=object)

    def place(self, X: Iterable[Picture]) -> pd.DataFrame:
        """New images with category_id, kind, probability, known_score, typicality, fits and problem."""
        read = self._model.features(X, self.progress)
        return self._model.place(read.features).assign(problem=read.problem)

    def transform(self, X: Iterable[Picture]) -> np.ndarray:
        """Trained features (n, D) float32; NaN for an image that cannot be read."""
        return self._model.features(X, self.progress).features

    @property
    def labels_(self) -> np.ndarray:
        return self._found.images["category_id"].to_numpy(dtype=object)

    @property
    def categories_(self) -> list[Category]:
        return self._found.categories

    @property
    def scores_(self) -> pd.DataFrame:
        return self._found.images[["probability", "known_score", "typicality", "doubtful"]]

    @property
    def relations_(self) -> pd.DataFrame:
        found = self._found
        rows = [category.signature or [math.nan] * len(found.known) for category in found.categories]
        return pd.DataFrame(rows, index=[c.id for c in found.categories], columns=list(found.known))

    @property
    def _found(self) -> Discovery:
        self._check_fitted()
        return self.discovery_

    def _check_fitted(self) -> None:
        if "discovery_" not in vars(self):
            raise NotFittedError(
                "This Discoverer has found nothing yet; call fit first, or load a saved one."
            )

    @cached_property
    def _trained(self) -> Trained:
        from holotype.runs.trained import load_trained

        return load_trained(self.run_folder_, self.device)

    @property
    def _model(self) -> Trained:
        self._check_fitted()
        return self._trained

    def __sklearn_is_fitted__(self) -> bool:
        return "discovery_" in vars(self)

    # -- on disk ----------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Copy model and results into a folder that `load` reads, now or on another machine."""
        self._check_fitted()
        folder = Path(folder)
        parameters = {name: str(v) if isinstance(v, Path) else v for name, v in self.get_params().items()}
        if folder.resolve() != self.run_folder_.resolve():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                for name in SAVED:
                    if (self.run_folder_ / name).is_file():
                        shutil.copy2(self.run_folder_ / name, folder / name)
            except OSError as error:
                raise InputError(
                    f"{folder} could not be written ({error.strerror}); choose another."
                ) from error
        write_text(folder / FILE, json.dumps(parameters, indent=1) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Discoverer:
        """Read what `save` wrote, or the run folder of a holotype discover."""
        folder = Path(folder)
        discovery = Discovery.load(folder)
        parameters = {}
        if (folder / FILE).is_file():
            try:
                parameters = dict(json.loads((folder / FILE).read_text(encoding="utf-8")))
                found = cls(**parameters)
            except (ValueError, TypeError, OSError) as error:
                raise InputError(
                    f"{folder / FILE} cannot be read ({error}); save the model again."
                ) from error
        else:
            found = cls()
        found.discovery_, found.run_folder_ = discovery, folder
        return found


def as_labels(y: Iterable[Any] | None, n: int) -> list[str]:
    """Labels as text, "" for none. y: None, or n of anything; None, "", NaN mean none, and -1 among whole numbers."""
    if y is None:
        return [""] * n
    whole = getattr(getattr(y, "dtype", None), "kind", "") == "i"
    labels = [_as_label(value, whole) for value in y]
    if len(labels) != n:
        raise InputError(f"There are {n} images but {len(labels)} labels; give one per image, or None.")
    return labels


def _as_label(value: Any, whole: bool) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)) or (whole and value == -1):
        return ""
    if value is pd.NA:
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    return str(value).strip()
