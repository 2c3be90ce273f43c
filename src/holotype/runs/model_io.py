"""Save and load a trained model: weights, configuration, categories by index.

model.safetensors   tail and method, the centroids of the categories, and the LDA of a discovery (results/lda.py)
model.json          the backbone and the method they belong to, the categories by index

The frozen network is not stored: the backbone is loaded by its name again, and its digest is compared.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from holotype.config.schema import BackboneConfig, resolved_backbone
from holotype.data.arrays import ArrayImage, save_images
from holotype.data.image_store import ImageStore
from holotype.errors import InputError
from holotype.methods import Method, Task, check_code_allowed, find_method
from holotype.models.backbone import Backbone, load_backbone
from holotype.results.lda import Centroids, LinearHead
from holotype.runs.experiment import Experiment
from holotype.runs.predict import Predictions, predict_new
from holotype.training.encoder import Encoder
from holotype.training.loop import Loop
from holotype.training.views import FreshViews
from holotype.utils.atomic import write_bytes
from holotype.utils.console import progress_bar
from holotype.utils.device import Device, run_ahead
from holotype.utils.serialization import FileSchema, from_dict, to_dict
from holotype.utils.text import suggest_path

if TYPE_CHECKING:
    import pandas as pd

MODEL_SCHEMA = FileSchema(1, "restore it from a copy, or make the run again in another folder")
MODEL_CONFIG_FILE, MODEL_WEIGHTS_FILE = "model.json", "model.safetensors"
READ_BATCH = 512
"""Images that are decoded and lie in memory at a time."""


@dataclass(frozen=True)
class ModelConfig:
    """The content of model.json."""

    run_id: str
    known: tuple[str, ...]
    ids: tuple[str, ...]
    """Of the method's categories by index, all task.k of them."""
    method_name: str
    method: dict[str, Any]
    """Settings of the method."""
    task: Task
    backbone: BackboneConfig
    digest: str
    """Of the backbone's weights."""
    double: bool
    """Whether it was trained in fp64."""
    weights: str
    """sha256 of model.safetensors; a kill between the two files leaves a pair that does not match."""
    licence: str = ""
    """Of the backbone's weights, which the trained ones come from."""

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """Read that of a run folder."""
        if not folder.is_dir():
            raise InputError(f"There is no folder {folder}{suggest_path(folder)}; give the folder of a run.")
        if not all((folder / name).is_file() for name in (MODEL_CONFIG_FILE, MODEL_WEIGHTS_FILE)):
            raise InputError(
                f"{folder} holds no trained model (no {MODEL_CONFIG_FILE}); name a finished run."
            )
        return MODEL_SCHEMA.make(folder / MODEL_CONFIG_FILE, cls, every=False)


class ModelReader(NamedTuple):
    """Images on their way through the network."""

    features: np.ndarray
    """(n, D) float32; NaN for an image that could not be read."""
    problem: np.ndarray
    """(n,) object str: why an image could not be read; "" if it could."""
    note: np.ndarray
    """(n,) object str: what was done to an unusual one."""
    frozen: np.ndarray | None = None
    """(n, D) features of the backbone as it was before training; None where nobody asks for them."""


@dataclass
class TrainedModel:
    """A model that places images."""

    run_id: str
    known: tuple[str, ...]
    """Names of the known classes."""
    ids: tuple[str, ...]
    """Category ids in the order of the method's indices, known classes first."""
    backbone: Backbone
    """The network; what was trained of it is in `encoder`."""
    method: Method
    centres: Centroids
    compute: Device
    encoder: Encoder
    opinion: LinearHead | None = None
    """The LDA of a discovery; a run of `holotype train` has none."""
    frozen: Encoder | None = None
    """The backbone as it was, where there is an LDA, which looks through it."""

    def features(self, images: Iterable[ArrayImage], progress: bool = False) -> ModelReader:
        """Return features of the centre crops of paths, PIL images or arrays (data/arrays.py)."""
        with TemporaryDirectory(prefix="holotype-", ignore_cleanup_errors=True) as folder:
            parts = list(self.stream(save_images(images, folder), progress)) or [
                self._look_at(self._decode([]))
            ]
        frozen = [part.frozen for part in parts if part.frozen is not None]
        columns = zip(*(part[:3] for part in parts), strict=True)
        joined = ModelReader(*map(np.concatenate, columns))
        return joined._replace(frozen=np.concatenate(frozen)) if frozen else joined

    def stream(self, paths: Sequence[str], progress: bool = False) -> Iterator[ModelReader]:
        """Yield the same in parts of READ_BATCH images, so that any number of images takes the same memory."""
        with progress_bar("Placing images", len(paths), progress) as advance:
            batches = (list(paths[first : first + READ_BATCH]) for first in range(0, len(paths), READ_BATCH))
            stores = map(self._decode, batches)
            # a GPU need not wait for the next images while it computes; on a CPU reading takes what computing needs
            for store in stores if self.compute.device.type == "cpu" else run_ahead(stores):
                part = self._look_at(store)
                del store
                yield part
                advance(len(part.problem))

    @torch.no_grad()
    def read_vectors(self, vectors: np.ndarray) -> ModelReader:
        """Return features of vectors (n, D), for a run that was made of such."""
        parts = torch.from_numpy(np.array(vectors, np.float32)).split(READ_BATCH)
        features = [self.encoder.embed(part.to(self.encoder.device)).float().cpu().numpy() for part in parts]
        problem, note = np.full((2, len(vectors)), "", dtype=object)
        frozen = None if self.opinion is None else vectors
        return ModelReader(np.concatenate(features), problem, note, frozen)

    def _decode(self, paths: list[str]) -> ImageStore:
        return ImageStore.decode(paths, self.backbone.image_size, progress=False)

    def _look_at(self, store: ImageStore) -> ModelReader:
        features = np.full((len(store), self.backbone.dim), np.nan, dtype=np.float32)
        frozen = features.copy() if self.frozen is not None else None
        views, usable = FreshViews(store, self.encoder), (store.height > 0).nonzero().flatten()
        for rows in usable.split(self.encoder.chunk) if len(usable) else ():
            trained, as_it_was = self.look(views.centre_images(rows))
            features[rows.numpy()] = trained.float().cpu().numpy()
            if frozen is not None and as_it_was is not None:
                frozen[rows.numpy()] = as_it_was.float().cpu().numpy()
        return ModelReader(features, store.problem, store.note, frozen)

    @torch.no_grad()
    def look(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Encode (n, 3, S, S) uint8 on the device: (n, D) features, and those of the backbone as it was where there is
        an LDA; both take the same tokens."""
        stage = self.encoder.last
        inputs = self.encoder.inputs(images, stage.needs)
        features = self.encoder.embed(inputs, stage)
        if self.frozen is None:
            return features, None
        tokens = inputs if stage.needs == "tokens" else self.frozen.inputs(images)
        return features, self.frozen.embed(tokens)

    def said(self, features: np.ndarray, frozen: np.ndarray | None) -> Predictions:
        """Predict images by the model, together with the LDA where there is one."""
        return predict_new(self.method, features, frozen, self.opinion)

    def alone(self) -> TrainedModel:
        """Return it without the LDA, for whoever wants features and nothing else."""
        return dataclasses.replace(self, opinion=None, frozen=None)

    def place(self, read: ModelReader) -> pd.DataFrame:
        """Return category_id, kind, probability, known_score, typicality, fits; "" and NaN for unread images.

        fits: False where an image fits nothing (results/lda.py states the rule); its category is still the best guess.
        """
        import pandas as pd

        n, there = len(read.features), np.isfinite(read.features).all(axis=1)
        said = self.said(read.features, read.frozen)
        category, typicality, fits = np.full(n, -1), np.full(n, np.nan, np.float32), np.zeros(n, dtype=bool)
        judged = self.centres.judge(read.features[there], said.category[there])
        category[there], typicality[there], fits[there] = judged
        kind = np.where(category < len(self.known), "known", "novel")
        return pd.DataFrame(
            {
                "category_id": np.array([*self.ids, ""], dtype=object)[category],  # -1 is the last one
                "kind": np.where(there, kind, "").astype(object),
                "probability": said.probability,
                "known_score": said.known_score,
                "typicality": typicality,
                "fits": fits,
            }
        )


def save_model(
    folder: Path,
    experiment: Experiment,
    backbone: Backbone,
    loop: Loop,
    run_id: str,
    ids: Sequence[str],
    centres: Centroids,
    opinion: LinearHead | None = None,
) -> None:
    """Write the model of a run; a kill between its two files is noticed when they are read.

    ids: of the method's categories by index, all task.k of them.
    """
    stored = _as_tensors("centres", centres) | (_as_tensors("opinion", opinion) if opinion else {})
    stored |= {name: tensor.detach().cpu().contiguous() for name, tensor in loop.model_tensors().items()}
    weights = save(stored)
    config = resolved_backbone(experiment.backbone)
    name = backbone.name if config.name == "auto" else config.name
    sheet = ModelConfig(
        run_id=run_id,
        known=loop.table.known,
        ids=tuple(ids),
        method_name=experiment.method_name,
        method=dataclasses.asdict(loop.method.config),
        task=loop.method.task,
        backbone=dataclasses.replace(config, name=name, image_size=backbone.image_size),
        digest=backbone.digest,
        licence=backbone.licence,
        double=experiment.train.precision == "fp64",
        weights=hashlib.sha256(weights).hexdigest(),
    )
    write_bytes(folder / MODEL_WEIGHTS_FILE, weights)
    MODEL_SCHEMA.write(folder / MODEL_CONFIG_FILE, to_dict(sheet))


def load_model(folder: Path | str, device: str = "auto") -> TrainedModel:
    """Load the model of a run folder, ready on `device`."""
    folder = Path(folder)
    sheet = ModelConfig.read(folder)
    try:
        weights = (folder / MODEL_WEIGHTS_FILE).read_bytes()
        if hashlib.sha256(weights).hexdigest() != sheet.weights:
            raise ValueError(f"{MODEL_WEIGHTS_FILE} is not the one that {MODEL_CONFIG_FILE} was written with")
        tensors = load(weights)
        method_class = find_method(check_code_allowed(sheet.method_name, folder / MODEL_CONFIG_FILE))
        settings = from_dict(method_class.Config, sheet.method, every=False)
        compute = Device.on(device, "fp64" if sheet.double else None)
        opinion = _from_tensors("opinion", LinearHead, tensors) if "opinion.slope" in tensors else None
        with torch.random.fork_rng(devices=[]):  # fresh heads are drawn, and overwritten at once
            method = method_class(settings, sheet.task)
            backbone = _find_backbone(folder, sheet.backbone, sheet.digest, method_class.patches)
            frozen = None
            if opinion:  # a tail of its own, before that of the run gets the trained weights
                tail = copy.deepcopy(backbone.tail).requires_grad_(False).eval()
                frozen = Encoder(dataclasses.replace(backbone, tail=tail), compute)
            encoder = Encoder(backbone, compute, method)
        method = method.to(compute.device, encoder.dtype)
        modules = nn.ModuleDict({"tail": encoder.module, "method": method})
        modules.load_state_dict({name: tensors[name] for name in modules.state_dict()})
        centres = _from_tensors("centres", Centroids, tensors)
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, SafetensorError) as error:
        raise MODEL_SCHEMA.broken(folder / MODEL_WEIGHTS_FILE, f"{type(error).__name__}: {error}") from error
    modules.eval().requires_grad_(False)
    ids = sheet.run_id, sheet.known, sheet.ids
    return TrainedModel(*ids, backbone, method, centres, compute, encoder, opinion, frozen)


def _as_tensors(name: str, arrays: Any) -> dict[str, Tensor]:
    """Return the arrays of a dataclass, as they are stored."""
    return {f"{name}.{key}": torch.from_numpy(array) for key, array in vars(arrays).items()}


def _from_tensors(name: str, kind: Any, tensors: dict[str, Tensor]) -> Any:
    fields = dataclasses.fields(kind)
    return kind(**{field.name: tensors[f"{name}.{field.name}"].numpy() for field in fields})


def _find_backbone(folder: Path, config: BackboneConfig, digest: str, patches: bool) -> Backbone:
    file, beside = Path(config.name), folder / Path(config.name).name
    if file.is_absolute() and not file.exists():  # the model was carried to another machine
        if not beside.is_file():
            raise InputError(f"There is no backbone file {file}; put it back, or a copy of it into {folder}.")
        config = dataclasses.replace(config, name=str(beside))
    backbone = load_backbone(config, patches=patches)
    if backbone.digest != digest:
        what = f"The backbone {config.name} is not the one that the model in {folder} was trained on"
        raise InputError(f"{what}; put the old file back, or make the run again in another folder.")
    return backbone
