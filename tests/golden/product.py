"""All that the golden weights and draws touch of the product: after a rename, mend this file and RENAMED alone."""

import re
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from holotype.config.schema import TrainConfig
from holotype.data.image_store import ImageStore
from holotype.data.samplers import keyed_generator
from holotype.data.table import Table
from holotype.methods import METHODS, Task, Views, find_method
from holotype.models.backbone import Backbone
from holotype.models.tail import split_backbone
from holotype.models.token_cache import CacheViews
from holotype.models.zoo import patch_torchvision
from holotype.training.build_token_cache import open_cache
from holotype.training.loop import Loop
from holotype.utils.device import Device
from holotype.utils.memory import MemoryConfig

__all__ = ["METHODS", "Task", "World", "draw_world", "find_method", "keyed_generator", "now_called"]

RENAMED: dict[str, str] = {}
"""Name of a parameter, a buffer or a part of it in the golden files -> its name now, as in {"tail": "encoder"}.

For the commit that renames; the next regeneration writes the new names, and empties this."""

COLOURS = np.array([[220, 40, 40], [40, 200, 60], [50, 60, 220], [220, 210, 40]])
EACH, KNOWN, SIZE, DIM = 12, 2, 32, 32
EPOCHS, BATCH, SEED = 4, 16, 5
SETTINGS: dict[str, dict[str, Any]] = {
    "kmeans": {"n_init": 1},
    **{name: {"proj_out": 64, "n_init": 1} for name in ("gcd", "dccl", "selex")},
    "promptcal": {"proj_out": 64, "n_init": 1, "momentum": 0.9},
    "sptnet": {"prompt_epochs": 0.5, "turn": 2},
    "debgcd": {"threshold": 0.3},
    "rpc": {"debias": {"threshold": 0.3}},
    "uno": {"heads": 2},
}
"""Where the published settings only cost time, or leave a part of a method idle in so few steps.

One start of k-means: of two that find the same clusters in another order, rounding would choose."""


def now_called(name: str) -> str:
    """The present name of a tensor of the golden files."""
    for old, new in RENAMED.items():
        name = re.sub(rf"(?<![^.]){re.escape(old)}(?![^.])", new, name)
    return name


@contextmanager
def float64_default():
    """Everything that is made has float64 weights, drawn in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def tiny_backbone() -> Backbone:
    """A random ViT of two blocks, of which the last is trained."""
    patch_torchvision()
    import timm

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = timm.create_model(
            "vit_tiny_patch16_224", img_size=SIZE, embed_dim=DIM, depth=2, num_heads=2, num_classes=0
        )
    trunk, tail = split_backbone(model, 1)
    return Backbone(trunk, tail, DIM, SIZE, (0.5,) * 3, (0.5,) * 3, "tiny", "0" * 64, "")


@dataclass
class World:
    """Images and a table with labels of half of the images of two of four classes."""

    table: Table
    store: ImageStore

    def train(self, method: str, cache: Path | None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Train on the CPU in float64, eagerly; returns the first tensors, and the last with what was placed.

        cache: folder of a token cache; None = views are drawn anew.
        """
        table, compute = self.table, Device.on("cpu", "fp64")
        tokens = self._cache(cache, compute) if cache else None
        with float64_default(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            task = Task(KNOWN, len(COLOURS), DIM, len(table), int(table.labelled.sum()), EPOCHS)
            loop = Loop(
                TrainConfig(epochs=EPOCHS, batch_size=BATCH, lr=0.05, save_seconds=1e9, precision="fp64"),
                find_method(method)(configured(method), task),
                tiny_backbone(),
                self.store,
                table,
                compute,
                seed=SEED,
                cache=tokens,
            )
        first = {name: tensor.clone() for name, tensor in loop.model_tensors().items()}
        placed = loop.fit()
        assert loop.position.stage == len(loop.stages)
        last = {"features": loop.features, "category": placed.category}
        return first, loop.model_tensors() | {f"placed.{k}": v for k, v in last.items()}

    def _cache(self, folder: Path, compute: Device):
        with float64_default():
            backbone = tiny_backbone()
        rows, memory = torch.arange(len(self.table)), MemoryConfig(cache_dir=str(folder))
        views = (CacheViews.parse("4+2"), Views(weak=2, strong=1))
        return open_cache(*views, self.store, backbone, compute, rows, memory)


def configured(method: str) -> Any:
    """The settings of a method, small."""
    config = find_method(method).Config()
    for name, value in SETTINGS.get(method, {}).items():
        if isinstance(value, dict):
            for inner, part in value.items():
                setattr(getattr(config, name), inner, part)
        else:
            setattr(config, name, value)
    return config


def draw_world(folder: Path) -> World:
    """Noisy squares of four colours, as large as they are stored, so that nothing is resampled."""
    noise = np.random.default_rng(0)
    path, truth = [], []
    for number, colour in enumerate(COLOURS):
        for i in range(EACH):
            pixels = np.clip(colour + noise.integers(-40, 41, (40, 36, 3)), 0, 255).astype(np.uint8)
            path.append(str(folder / f"{number}-{i}.png"))
            Image.fromarray(pixels).save(path[-1])
            truth.append(f"colour {number}")
    known = tuple(f"colour {number}" for number in range(KNOWN))
    label = [name if name in known and i % 2 == 0 else "" for i, name in enumerate(truth)]
    columns = {"path": path, "label": label, "truth": truth, "problem": [""] * len(path)}
    arrays = {name: np.array(values, dtype=object) for name, values in columns.items()}
    return World(Table(**arrays, known=known, name="squares"), ImageStore.decode(path, SIZE, progress=False))


def watch_keys(patch: pytest.MonkeyPatch, noted: Callable[..., torch.Generator]) -> None:
    """Put `noted` in the place of keyed_generator wherever it was imported."""
    for module in [module for name, module in sys.modules.items() if name.startswith("holotype")]:
        if vars(module).get(keyed_generator.__name__) is keyed_generator:
            patch.setattr(module, keyed_generator.__name__, noted)
