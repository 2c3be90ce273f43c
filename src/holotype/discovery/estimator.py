"""`Discoverer`: category discovery with scikit-learn's interface.

    found = Discoverer(k="auto").fit(paths, y)      # y: a label per image, None or "" where there is none
    found.labels_                                   # "Sneaker", "new-01", ...
    found.predict(new_paths)

Images are paths, PIL images or arrays (data/arrays.py). Those in memory are written as PNG files into the run
folder, so that the report can show them. A table of numbers (n, D) holds features of any network, one row each: they
are clustered as they are (`FeatureCategories`), and nothing is trained or written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from PIL import Image
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from holotype.clustering.estimate_k import estimate_count
from holotype.clustering.kmeans import kmeans, semi_supervised_centres
from holotype.config.schema import DiscoverConfig
from holotype.data.arrays import ArrayImage, save_images, to_image_list, to_label_column
from holotype.data.samplers import keyed_generator
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Category, Discovery, category_name
from holotype.results.lda import center_rows, softmax
from holotype.utils.atomic import write_bytes
from holotype.utils.serialization import FileSchema

if TYPE_CHECKING:
    from holotype.export.assign import CorrectedModel
    from holotype.runs.model_io import TrainedModel

TEMPERATURE = 0.1
"""That turns cosines into probabilities, as in the methods."""
STARTS = 10
DOUBTFUL = 0.5


def is_image_list(X: Any) -> bool:
    """Return whether X is a list of images, or else rows of features."""
    if isinstance(X, np.ndarray) and not (X.ndim == 1 and X.dtype.kind in "OUS"):
        return X.ndim in (3, 4)
    if isinstance(X, str | os.PathLike | Image.Image):
        return True  # and refused as such
    if isinstance(X, pd.DataFrame) or hasattr(X, "nnz") or not hasattr(X, "__iter__"):
        return False
    first = next(iter(X), "")
    return isinstance(first, str | os.PathLike | Image.Image) or getattr(first, "ndim", 0) >= 2


@dataclass
class FeatureCategories:
    """K categories of rows of features."""

    known: tuple[str, ...]
    ids: tuple[str, ...]
    """Of the categories, known classes first."""
    middle: np.ndarray
    """(D,) mean of the rows of `fit`."""
    centres: np.ndarray
    """(K, D) at length 1."""

    @classmethod
    def fit(
        cls, x: np.ndarray, label: Sequence[str], k: int | Literal["auto"], seed: int
    ) -> FeatureCategories:
        """Find the categories of the rows x (N, D). label: of each, "" = none."""
        known = tuple(sorted(set(label) - {""}))
        index = {name: number for number, name in enumerate(known)}
        target = torch.tensor([index.get(name, -1) for name in label])
        middle = x.mean(axis=0)
        rows = torch.from_numpy(center_rows(x, middle))
        if k == "auto" and (target >= 0).all():
            k = len(known)
        elif k == "auto":
            k = estimate_count(rows.float(), target, len(known), seed=seed).best
        if not max(len(known), 1) <= k <= len(x):
            raise InputError(f"k is {k}; give a number from {max(len(known), 1)} to {len(x)}, or auto.")
        generator = keyed_generator(seed, "features")
        if (target >= 0).all() and k == len(known):
            centres = torch.stack([rows[target == c].mean(0) for c in range(k)])
        elif known:
            centres = semi_supervised_centres(rows, target, k, n_init=STARTS, generator=generator)
        else:
            centres = kmeans(rows, k, n_init=STARTS, generator=generator).centres
        ids = tuple(category_name(number, known, k) for number in range(k))
        return cls(known, ids, middle, torch.nn.functional.normalize(centres, dim=-1).numpy())

    def rows(self, x: np.ndarray) -> np.ndarray:
        """(n, D) rows as categories are found in them: centred, at length 1."""
        return center_rows(x, self.middle)

    def place(self, x: np.ndarray) -> pd.DataFrame:
        """Return category_id, category, kind, probability and known_score of rows (n, D)."""
        share = softmax(self.rows(x) @ self.centres.T / TEMPERATURE)
        best, names = share.argmax(axis=1), np.array(self.ids, dtype=object)
        return pd.DataFrame(
            {
                "category_id": names[best],
                "category": names[best],
                "kind": np.where(best < len(self.known), "known", "novel"),
                "probability": share.max(axis=1),
                "known_score": share[:, : len(self.known)].sum(axis=1),
            }
        )

    def discovery(self, x: np.ndarray, label: Sequence[str]) -> Discovery:
        """Return the rows of `fit` in their categories, labelled ones in their class."""
        frame, given = self.place(x), np.array([name != "" for name in label])
        for column in ("category", "category_id"):
            frame[column] = np.where(given, np.array(label, dtype=object), frame[column])
        frame["kind"] = np.where(given, "known", frame["kind"])
        rest: dict[str, Any] = {"path": [str(row) for row in range(len(x))], "label": list(label)}
        rest["doubtful"] = ~given & (frame["probability"] < DOUBTFUL)
        frame = frame.assign(**rest)
        frame = frame.assign(**{name: "" for name in IMAGE_TABLE_COLUMNS if name not in frame})
        frame["typicality"] = np.nan
        likeness = self.centres @ self.centres[: len(self.known)].T
        categories = [
            Category(
                id, id, "known" if id in self.known else "novel", int((frame.category == id).sum()),
                signature=[float(value) for value in row],
            )
            for id, row in zip(self.ids, likeness, strict=True)
        ]  # fmt: skip
        return Discovery("features", self.known, frame, categories)


FILE = "estimator.json"
"""Beside a saved model: the parameters of the estimator."""
PARAMETERS = FileSchema(1, "save the model again")
MODEL, WEIGHTS = "model.json", "model.safetensors"
SAVED = (MODEL, WEIGHTS, "discovery.json", "assignments.parquet", "assignments.csv", "features.npy", FILE)
"""What `save` takes along; images, embeddings and the training state stay behind."""
LOADED = ("_model", "_corrected")
"""Attributes that are read from the run folder when they are needed."""
PICTURES = "images"
"""Folder for the images that were given as pixels."""


class Discoverer(ClusterMixin, TransformerMixin, BaseEstimator):
    """Places every image in a known class or in a category found in the data.

    Parameters
    ----------
    method: a name from `holotype methods`, or one of your own as package.module:Class; several, with commas between
        them, take turns where there are several trainings. None is rpc,uno on a CPU and rpc on a GPU.
    k: number of categories, known and novel together, or "auto".
    backbone: "auto", "embedded", a name of timm, hf-hub:org/repo, or the path of a .safetensors file.
    arch: timm's name of the network in a .safetensors file.
    image_size: side of the backbone's input in pixels.
    pool: "token" (CLS), "mean" (of the patches), or "auto": as the makers of the weights do.
    mean: of red, green and blue, as a .safetensors file expects it.
    std: of the same.
    steps: training steps; None is 1,000 on a CPU and 6,000 on a GPU.
    sample: most images to train on; None is 5,000 on a CPU and 200,000 on a GPU.
    effort: how much time to spend: "quick", "normal" or "best".
    bursts: "auto", "no", or the seconds between two frames of a burst, which counts as one image.
    seed: of everything random.
    seeds: number of trainings with different seeds that vote on the images; "auto": by device and number of images.
    device: auto, cpu, cuda or mps.
    out: run folder with report; a run begun there is continued. None: a temporary one, deleted with the object.
    progress: show progress bars.

    Attributes
    ----------
    labels_: (n,) str, name of each image's category in `fit` (its label, if any); "" for one that could not be read.
    categories_: list of Category, known classes first.
    scores_: frame with probability, known_score, typicality and doubtful of each image of `fit`.
    relations_: frame, a row per category and a column per known class: mean cosine with its prototype.
    discovery_: the whole Discovery.
    run_folder_: Path of the run folder, with the report; none of features.
    feature_categories_: centres of the categories, where X was features.
    """

    discovery_: Discovery
    run_folder_: Path
    feature_categories_: FeatureCategories

    def __init__(
        self,
        method: str | None = None,
        k: int | Literal["auto"] = "auto",
        *,
        backbone: str = "auto",
        arch: str | None = None,
        image_size: int | None = None,
        pool: str = "auto",
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        steps: int | None = None,
        sample: int | None = None,
        effort: Literal["quick", "normal", "best"] = "normal",
        bursts: str = "auto",
        seed: int = 0,
        seeds: int | Literal["auto"] = "auto",
        device: str = "auto",
        out: str | Path | None = None,
        progress: bool = False,
    ) -> None:
        self.method, self.k = method, k
        self.backbone, self.arch, self.image_size = backbone, arch, image_size
        self.pool, self.mean, self.std = pool, mean, std
        self.steps, self.sample, self.effort, self.bursts = steps, sample, effort, bursts
        self.seed, self.seeds, self.device = seed, seeds, device
        self.out, self.progress = out, progress

    def fit(self, X: Iterable[ArrayImage] | np.ndarray, y: Iterable[Any] | None = None) -> Discoverer:
        """Find the categories of the images X, or of features (n, D). y: label of each; None, "" and missing values of
        any kind mean none, and so does -1 among whole numbers."""
        if isinstance(X, Iterator):
            X = list(X)
        config = DiscoverConfig(**{one.name: getattr(self, one.name) for one in fields(DiscoverConfig)})
        if not is_image_list(X):
            return self._fit_features(X, y, config)
        self.__dict__.pop("feature_categories_", None)
        from holotype.discovery.pipeline import discover_table

        pictures = to_image_list(X)
        label = to_label_column(y, len(pictures))
        folder = Path(self.out) if self.out is not None else self._make_temporary()
        paths = save_images(pictures, folder / PICTURES)
        table = Table(
            path=np.array(paths, dtype=object),
            label=np.array(label, dtype=object),
            known=tuple(sorted(set(label) - {""})),
            name="images",
            root=common_folder(paths),
        )
        self.discovery_ = discover_table(table, config, folder, progress=self.progress)
        self.run_folder_ = folder
        for name in LOADED:
            self.__dict__.pop(name, None)
        return self

    def _fit_features(self, X: Any, y: Iterable[Any] | None, config: DiscoverConfig) -> Discoverer:
        if y is not None:
            y = np.asarray(column_or_1d(y, dtype=object))
        x = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        label = to_label_column(y, len(x))
        self.feature_categories_ = FeatureCategories.fit(x, label, config.k, config.seed)
        self.discovery_ = self.feature_categories_.discovery(x, label)
        return self

    def _features_of(self, X: Any) -> np.ndarray:
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _make_temporary(self) -> Path:
        """A folder that is kept as long as the object, and removed with it."""
        self._temporary = TemporaryDirectory(prefix="holotype-", ignore_cleanup_errors=True)
        return Path(self._temporary.name)

    def fit_predict(self, X: Iterable[ArrayImage], y: Iterable[Any] | None = None, **_: Any) -> np.ndarray:
        """Categories (n,) of the images X, by their names."""
        return self.fit(X, y).labels_

    def predict(self, X: Iterable[ArrayImage]) -> np.ndarray:
        """Categories (n,) of new images, by their names; "" for one that cannot be read."""
        return self.place(X)["category"].to_numpy(dtype=object)

    def place(self, X: Iterable[ArrayImage]) -> pd.DataFrame:
        """New images with category_id, category, kind, probability, known_score, typicality, fits and problem, in the
        categories as they are corrected. Features have no typicality, fits and problem."""
        check_is_fitted(self)
        if self._on_features:
            return self.feature_categories_.place(self._features_of(X))
        read = self._model.features(X, self.progress)
        return self._corrected.place(read).assign(problem=read.problem)

    def transform(self, X: Iterable[ArrayImage]) -> np.ndarray:
        """Trained features (n, D) float32; NaN for an image that cannot be read. Features come back centred, at length
        1."""
        check_is_fitted(self)
        if self._on_features:
            return self.feature_categories_.rows(self._features_of(X))
        return self._model.alone().features(X, self.progress).features

    @property
    def _on_features(self) -> bool:
        return "feature_categories_" in vars(self)

    @property
    def labels_(self) -> np.ndarray:
        return self._found.images["category"].to_numpy(dtype=object)

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
        name = {category.id: category.name for category in found.categories}
        return pd.DataFrame(rows, index=list(name.values()), columns=[name.get(id, id) for id in found.known])

    @property
    def _found(self) -> Discovery:
        check_is_fitted(self)
        return self.discovery_

    @cached_property
    def _model(self) -> TrainedModel:
        from holotype.runs.model_io import load_model

        check_is_fitted(self)
        return load_model(self.run_folder_, self.device)

    @cached_property
    def _corrected(self) -> CorrectedModel:
        from holotype.export.assign import load_corrected

        return load_corrected(self.run_folder_, self._model)

    def __sklearn_is_fitted__(self) -> bool:
        return "discovery_" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        """With model and results as bytes, so that a copy elsewhere predicts without the run folder."""
        state = dict(super().__getstate__())
        for name in (*LOADED, "_temporary"):
            state.pop(name, None)
        if "discovery_" in state and not self._on_features:
            state["_files"] = self._take_along()
        return state

    def _take_along(self) -> dict[str, bytes]:
        there = (self.run_folder_ / name for name in SAVED)
        files = {file.name: file.read_bytes() for file in there if file.is_file()}
        if not {MODEL, WEIGHTS} <= files.keys():
            raise InputError(
                f"The run folder {self.run_folder_} is gone, and the model with it, so this Discoverer cannot be "
                "saved; fit it again, with out= to keep the folder."
            )
        return files

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            self.run_folder_ = self._make_temporary()
            for name, content in files.items():
                write_bytes(self.run_folder_ / name, content)

    def save(self, folder: str | Path) -> Path:
        """Copy model and results into a folder that `load` reads, now or on another machine."""
        check_is_fitted(self)
        if self._on_features:
            raise InputError("A Discoverer of features has no run folder to save; pickle it, or use joblib.")
        folder = Path(folder)
        parameters = {name: str(v) if isinstance(v, Path) else v for name, v in self.get_params().items()}
        if folder.resolve() != self.run_folder_.resolve():
            for name, content in self._take_along().items():
                write_bytes(folder / name, content)
        PARAMETERS.write(folder / FILE, parameters)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Discoverer:
        """Read what `save` wrote, or the folder of any run of holotype discover or holotype train."""
        folder = Path(folder)
        discovery = Discovery.load(folder)
        if (folder / FILE).is_file():
            try:
                found = cls(**PARAMETERS.read(folder / FILE))
            except TypeError as error:
                raise PARAMETERS.broken(folder / FILE, error) from error
        else:
            found = cls()
        found.discovery_, found.run_folder_ = discovery, folder
        return found


def common_folder(paths: list[str]) -> str:
    """The deepest folder that all images lie in; "" where there is none."""
    try:
        return os.path.commonpath([os.path.dirname(path) for path in paths])
    except ValueError:  # no paths, or several drives
        return ""
