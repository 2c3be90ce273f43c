"""Export the trained model as one ONNX file: pixels in, features and logits out.

The logits are those of the model and the second opinion together, where there is one. Before the file is written it is
run beside the trained model: features are compared, and the softmax of its logits with the category and the probability
that the model gives.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn

from holotype.config.schema import vector_dim
from holotype.data.augment import normalise
from holotype.data.image_store import CROP_FRACTION
from holotype.errors import InputError
from holotype.export.assign import CorrectedModel, load_corrected
from holotype.models.zoo import licence_terms
from holotype.runs.model_io import TrainedModel, load_model
from holotype.runs.predict import has_logits
from holotype.utils.atomic import refuse_existing, write_output

ONNX_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
"""Of the extra onnx; torch's exporter needs the last one."""
OPSET = 18
TRACED_BATCH, CHECKED_IMAGES = 2, (1, 5)
"""Images in a batch: while the graph is recorded, and when it is compared with torch."""
TOLERANCE = 1e-3
"""Largest difference that is only another order of sums: of features as a share of the largest one, of probabilities
as it is."""
TINY_VALUE = 1e-30
"""A probability whose logarithm is still a number."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ParityResult:
    """How far the ONNX file and the trained model are apart on random images."""

    features: float
    """Largest difference of any feature."""
    probability: float
    """Largest difference of the probability of a category; where the file names another category, how much less it
    thinks of the trained model's."""
    size: float
    """Largest absolute value among the features, to compare with."""

    @property
    def sound(self) -> bool:
        return self.features <= TOLERANCE * max(self.size, 1.0) and self.probability <= TOLERANCE


class ParitySample(NamedTuple):
    """Random images and what the trained model predicts for them."""

    images: np.ndarray
    """(n, 3, S, S) uint8."""
    features: np.ndarray
    category: np.ndarray
    probability: np.ndarray


class OnnxModel(nn.Module):
    """images (B, 3, S, S) uint8 RGB -> features (B, D), logits (B, K); softmax(logits) is the probability."""

    mean: Tensor
    std: Tensor
    middle: Tensor
    slope: Tensor
    offset: Tensor

    def __init__(self, trained: TrainedModel) -> None:
        super().__init__()
        backbone, self.stage = trained.backbone, trained.encoder.last
        self.trunk, self.tail, self.method = backbone.trunk, backbone.tail, trained.method
        self.encoder = trained.encoder.module  # the method has it, but not as a part
        self.register_buffer("mean", torch.tensor(backbone.mean))
        self.register_buffer("std", torch.tensor(backbone.std))
        self.frozen = trained.frozen.tail if trained.frozen is not None else None
        if trained.opinion is not None:
            for field in dataclasses.fields(trained.opinion):
                self.register_buffer(field.name, torch.from_numpy(getattr(trained.opinion, field.name)))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        pixels = normalise(images, self.mean, self.std, torch.float32)
        on_tokens = self.stage.needs == "tokens"
        tokens = self.tail.prepare(self.trunk(pixels)) if on_tokens or self.frozen is not None else pixels  # type: ignore[operator]
        features = self.method.embed(self.stage, tokens if on_tokens else pixels)
        logits = self.method.logits(features)
        if self.frozen is not None:
            logits = self.beside(logits, self.frozen(tokens))
        return features, logits

    def beside(self, logits: Tensor, frozen: Tensor) -> Tensor:
        """log q of the model's logits and the second opinion (results/lda.py)."""
        u = nn.functional.normalize(frozen - self.middle, dim=-1)
        p = (u @ self.slope.T + self.offset).softmax(dim=-1)
        return ((logits.softmax(dim=-1) + p) / 2).clamp_min(TINY_VALUE).log()


def export_onnx(run: Path, file: Path, *, overwrite: bool = False) -> ParityResult:
    """Write the model in the folder `run` as ONNX, and compare it with torch.

    The graph takes any number of images; categories with their names of today, crop and normalisation stand in the
    file's metadata. Merged categories share a name, and a rejected one has none.
    """
    onnx, runtime = _packages()
    refuse_existing(file, overwrite, (".onnx",))
    trained = load_model(run, "cpu")
    name = type(trained.method).__name__
    if vector_dim(trained.backbone.name) is not None:
        raise InputError(f"{run} was made of vectors, and the exported model takes images; there is none.")
    if not has_logits(trained.method):
        raise InputError(f"{name} has no logits, by which an exported model would place images.")
    # before the model is cast to single precision
    samples = [parity_sample(trained, n, seed) for seed, n in enumerate(CHECKED_IMAGES)]
    try:
        proto = _trace(OnnxModel(trained).float().eval(), trained.backbone.image_size)
    except RuntimeError as error:  # what torch raises for whatever is no graph
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{name} cannot be written as ONNX, since torch can record no graph of it ({reason}); use holotype assign."
        ) from error
    onnx.helper.set_model_props(proto, model_facts(load_corrected(Path(run), trained)))
    content = proto.SerializeToString()
    parity = compare_outputs(samples, runtime.InferenceSession(content))
    if not parity.sound:
        raise InputError(
            f"The ONNX model differs from the trained one (features by {parity.features:.2g}, probabilities by "
            f"{parity.probability:.2g}), so nothing was written; {name} may not place images by its classifier alone."
        )
    write_output(file, lambda part: part.write_bytes(content), overwrite=overwrite)
    return parity


def _packages() -> tuple[Any, Any]:
    try:
        onnx, runtime, _ = (import_module(name) for name in ONNX_PACKAGES)
    except ImportError as error:
        raise InputError(f"holotype export needs {error.name}: pip install 'holotype[onnx]'.") from error
    return onnx, runtime


def _trace(model: OnnxModel, size: int) -> Any:
    """Return the graph of the model as an onnx.ModelProto, for batches of any size; nothing is printed."""
    example = torch.zeros(TRACED_BATCH, 3, size, size, dtype=torch.uint8)
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
            program = torch.onnx.export(
                model,
                (example,),
                dynamo=True,
                input_names=["images"],
                output_names=["features", "logits"],
                dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
                opset_version=OPSET,
                verbose=False,
            )
    finally:
        logging.disable(before)
    assert program is not None  # it is None only where a file is written
    return program.model_proto


def model_facts(model: CorrectedModel) -> dict[str, str]:
    """Return what a user of the file needs to know, as text; categories, names and kinds in the order of the logits."""
    trained, called = model.trained, [model.names[id] for id in model.trained.ids]
    if model.split_off:
        log.warning(f"The file has no logits for what was split off by hand ({', '.join(model.split_off)}).")
    size = trained.backbone.image_size
    return {
        "run_id": trained.run_id,
        "categories": json.dumps(list(trained.ids), ensure_ascii=False),
        "names": json.dumps([one.name for one in called], ensure_ascii=False),
        "kinds": json.dumps([one.kind for one in called]),
        "known": json.dumps(list(trained.known), ensure_ascii=False),
        "image_size": str(size),
        "resize": f"shorter side to {int(size / CROP_FRACTION)} pixels (bicubic), then the middle {size} x {size}",
        "input": "images: uint8 (batch, 3, height, width), RGB; normalisation is part of the model",
        "backbone": trained.backbone.name,
        "caveat": trained.backbone.caveat,
        "licence": " ".join([trained.backbone.licence, licence_terms(trained.backbone.licence)]).strip(),
    }


@torch.no_grad()
def parity_sample(trained: TrainedModel, n: int, seed: int) -> ParitySample:
    """Return n images, noise and coarse patches in turn, as the trained model itself places them."""
    size, rng = trained.backbone.image_size, np.random.default_rng(seed)
    noise = rng.integers(0, 256, (n, 3, size, size), dtype=np.uint8)
    patches = rng.integers(0, 256, (n, 3, 4, 4), dtype=np.uint8)
    patches = patches.repeat(-(-size // 4), 2).repeat(-(-size // 4), 3)[:, :, :size, :size]
    images = np.where(np.arange(n)[:, None, None, None] % 2, noise, patches)
    features, frozen = trained.look(torch.from_numpy(images).to(trained.encoder.device))
    said = trained.said(features.numpy(), None if frozen is None else frozen.numpy())
    return ParitySample(images, features.numpy(), said.category, said.probability)


def compare_outputs(samples: Sequence[ParitySample], session: Any) -> ParityResult:
    """Return the largest differences between the outputs of ONNX on the samples and those of the trained model."""
    rows = []
    for one in samples:
        features, logits = session.run(["features", "logits"], {"images": one.images})
        p = softmax(logits, axis=1)
        same_category = p[np.arange(len(p)), one.category]
        gaps = np.abs([same_category - one.probability, p.max(1) - one.probability])
        rows.append((np.abs(features - one.features).max(), gaps.max(), np.abs(one.features).max()))
    return ParityResult(*map(float, np.max(rows, axis=0)))
