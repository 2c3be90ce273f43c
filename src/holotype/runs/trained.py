"""A trained model as it lies in the folder of a run: all that is needed to place images it never saw.

model.safetensors   tail and method, and the centres of the categories (centres.py)
model.json          the backbone and the method they belong to, the categories by index

The frozen trunk is not stored: the backbone is loaded by its name again, and its digest is compared.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from holotype.categories.centres import Centres
from holotype.data.pictures import Picture, as_paths
from holotype.data.store import ImageStore
from holotype.errors import InputError
from holotype.machine.bars import counting
from holotype.machine.device import Compute
from holotype.machine.files import TemporaryFolder, write_bytes, write_text
from holotype.machine.plain import from_plain
from holotype.machine.regular import read_bytes
from holotype.machine.sealed import sealed
from holotype.methods import Method, check_named, find_method
from holotype.models.backbone import Backbone, BackboneConfig, load_backbone
from holotype.models.config import lasting
from holotype.runs.experiment import Experiment
from holotype.runs.sheet import FILE, WEIGHTS, Sheet
from holotype.training.encode import PREDICTED_AT_ONCE, Encoder
from holotype.training.sources import FreshViews, evaluation_features

if TYPE_CHECKING:  # pandas takes half a second to import
    import pandas as pd

READ_AT_ONCE = 512
"""Images that are decoded and lie in memory at a time."""


class Read(NamedTuple):
    """Images on their way through the network."""

    features: np.ndarray
    """(n, D) float32; NaN for an image that could not be read."""
    problem: np.ndarray
    """(n,) object str: why an image could not be read; "" if it could."""
    note: np.ndarray
    """(n,) object str: what was done to an unusual one."""


@dataclass
class Trained:
    """A model that places images."""

    run_id: str
    known: tuple[str, ...]
    """Names of the known classes."""
    ids: tuple[str, ...]
    """Category ids in the order of the method's indices, known classes first."""
    backbone: Backbone
    """The network; what was trained of it is in `encoder`."""
    method: Method
    centres: Centres
    compute: Compute
    encoder: Encoder

    def features(self, images: Iterable[Picture], progress: bool = False) -> Read:
        """Features of the centre crops of paths, PIL images or arrays (data/pictures.py)."""
        with TemporaryFolder() as folder:
            parts = list(self.stream(as_paths(images, folder), progress))
        if not parts:
            nothing = np.empty(0, dtype=object)
            return Read(np.empty((0, self.backbone.dim), dtype=np.float32), nothing, nothing)
        return Read(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def stream(self, paths: Sequence[str], progress: bool = False) -> Iterator[Read]:
        """The same in parts of READ_AT_ONCE images, so that any number of images takes the same memory."""
        with counting("Placing images", len(paths), progress) as advance:
            for first in range(0, len(paths), READ_AT_ONCE):
                part = self._read(list(paths[first : first + READ_AT_ONCE]))
                yield part
                advance(len(part.problem))

    def _read(self, paths: list[str]) -> Read:
        store = ImageStore.decode(paths, self.backbone.image_size, progress=False)
        features = np.full((len(paths), self.backbone.dim), np.nan, dtype=np.float32)
        usable = (store.height > 0).nonzero().flatten()
        if len(usable):
            found = evaluation_features(FreshViews(store, self.encoder), usable)
            features[usable.numpy()] = found.float().cpu().numpy()
        return Read(features, store.problem, store.note)

    @torch.no_grad()
    def place(self, features: np.ndarray) -> pd.DataFrame:
        """(n, D) -> category_id, kind, probability, known_score, typicality, fits; "" and NaN for unread images.

        fits: False where an image fits nothing (centres.py states the rule); its category is still the best guess.
        """
        read = np.isfinite(features).all(axis=1)
        category, probability, known_score = predict(self.method, features[read])
        category, typicality, fits = self.centres.judge(features[read], category)
        kind = np.where(category < len(self.known), "known", "novel")
        columns = {
            "category_id": _spread(np.array(self.ids, dtype=object)[category], read, ""),
            "kind": _spread(kind.astype(object), read, ""),
            "probability": _spread(probability, read, np.nan),
            "known_score": _spread(known_score, read, np.nan),
            "typicality": _spread(typicality, read, np.nan),
            "fits": _spread(fits, read, False),
        }
        import pandas as pd

        return pd.DataFrame(columns)


@torch.no_grad()
def predict(method: Method, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """category, probability, known_score (n,) of features (n, D), where the method is."""
    like = next(t for t in (*method.parameters(), *method.buffers()) if t.is_floating_point())
    parts = [
        method.predict(part.to(like.device, like.dtype))
        for part in torch.from_numpy(np.ascontiguousarray(features)).split(PREDICTED_AT_ONCE)
        if len(part)
    ]
    if not parts:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32), np.empty(0, dtype=np.float32)
    category = torch.cat([part.category for part in parts]).cpu().numpy()
    probability = torch.cat([part.probability for part in parts]).float().cpu().numpy()
    return category, probability, torch.cat([part.known_score for part in parts]).float().cpu().numpy()


# -- on disk ------------------------------------------------------------------------------------------


def save_trained(
    folder: Path,
    *,
    experiment: Experiment,
    backbone: Backbone,
    method: Method,
    tensors: dict[str, Tensor],
    known: Sequence[str],
    ids: Sequence[str],
    centres: Centres,
    run_id: str,
) -> None:
    """Write the model of a run; a kill between its two files is noticed when they are read.

    tensors: Loop.model_tensors(). ids: of the method's categories by index, all task.k of them.
    """
    stored = {
        f"centres.{f.name}": torch.from_numpy(getattr(centres, f.name)) for f in dataclasses.fields(centres)
    }
    stored |= {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    weights = save(stored)
    config = lasting(experiment.backbone)
    name = backbone.name if config.name == "auto" else config.name
    sheet = Sheet(
        run_id=run_id,
        known=tuple(known),
        ids=tuple(ids),
        method_name=experiment.method_name,
        method=dataclasses.asdict(method.config),
        task=method.task,
        backbone=dataclasses.replace(config, name=name, image_size=backbone.image_size),
        digest=backbone.digest,
        licence=backbone.licence,
        double=experiment.train.precision == "fp64",
        weights=hashlib.sha256(weights).hexdigest(),
    )
    write_bytes(folder / WEIGHTS, weights)
    write_text(folder / FILE, sealed(sheet.as_dict()))


def load_trained(folder: Path | str, device: str = "auto") -> Trained:
    """The model of a run folder, ready on `device`."""
    folder = Path(folder)
    sheet = Sheet.read(folder)
    try:
        tensors = _read_weights(folder, sheet.weights)
        method_class = find_method(check_named(sheet.method_name, folder / FILE))
        settings = from_plain(method_class.Config, sheet.method, every=False)
        with torch.random.fork_rng(devices=[]):  # fresh heads are drawn, and overwritten at once
            method = method_class(settings, sheet.task)
            backbone = _find_backbone(folder, sheet.backbone, sheet.digest)
            compute = Compute.on(device, "fp64" if sheet.double else None)
            encoder = Encoder(backbone, compute, method)
        method = method.to(compute.device, encoder.dtype)
        modules = nn.ModuleDict({"tail": encoder.module, "method": method})
        names = modules.state_dict().keys()
        modules.load_state_dict({name: tensors[name] for name in names})
        found = {f.name: tensors[f"centres.{f.name}"].numpy() for f in dataclasses.fields(Centres)}
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"The model in {folder} cannot be read ({type(error).__name__}: {reason}); restore it from a copy, or "
            "make the run again in another folder."
        ) from error
    modules.eval().requires_grad_(False)
    return Trained(sheet.run_id, sheet.known, sheet.ids, backbone, method, Centres(**found), compute, encoder)


def _read_weights(folder: Path, digest: str) -> dict[str, Tensor]:
    content = read_bytes(folder / WEIGHTS)
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"{WEIGHTS} is not the one that {FILE} was written with")
    return dict(load(content))


def _find_backbone(folder: Path, config: BackboneConfig, digest: str) -> Backbone:
    file, beside = Path(config.name), folder / Path(config.name).name
    if file.is_absolute() and not file.exists():  # the model was carried to another machine
        if not beside.is_file():
            raise InputError(
                f"There is no backbone file {file}, which the model in {folder} was trained on; put it back, or a copy "
                f"of it into {folder}."
            )
        config = dataclasses.replace(config, name=str(beside))
    backbone = load_backbone(config)
    if backbone.digest != digest:
        raise InputError(
            f"The backbone {config.name} is not the one that the model in {folder} was trained on (its weights "
            "differ); put the old file back, or make the run again in another folder."
        )
    return backbone


def _spread(values: np.ndarray, where: np.ndarray, nothing: Any) -> np.ndarray:
    """(n,) values of the rows `where` in a column that holds `nothing` elsewhere."""
    column = np.full(len(where), nothing, dtype=values.dtype)
    column[where] = values
    return column
