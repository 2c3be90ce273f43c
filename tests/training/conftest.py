"""A tiny world to train in: coloured squares, a random two-block transformer, a table with a split."""

import dataclasses
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from holotype.config.schema import TrainConfig
from holotype.data.image_store import ImageStore
from holotype.data.table import Table
from holotype.errors import Stopped
from holotype.methods import Task, Views, find_method
from holotype.models.backbone import Backbone
from holotype.models.token_cache import CacheViews
from holotype.training.build_token_cache import open_cache
from holotype.training.loop import Loop
from holotype.utils.device import Device
from holotype.utils.memory import MemoryConfig

N_CLASSES, PER_CLASS, N_KNOWN = 4, 12, 2
SMALL = {
    **{key: {"proj_out": 64, "n_init": 3} for key in ("gcd", "promptcal", "dccl", "selex")},
    "sptnet": {"prompt_epochs": 2.0, "turn": 2},
    "uno": {"heads": 2},
}
"""Settings of which the published values only cost time here."""


def draw_squares(folder: Path) -> Table:
    """4 colours x 12 images of 40 x 36 pixels; half of the images of 2 colours are labelled."""
    rng = np.random.default_rng(0)
    colours = np.array([[220, 40, 40], [40, 200, 60], [50, 60, 220], [220, 210, 40]])
    path, label, truth = [], [], []
    for c in range(N_CLASSES):
        for i in range(PER_CLASS):
            image = np.clip(colours[c] + rng.normal(0, 25, (40, 36, 3)), 0, 255).astype(np.uint8)
            path.append(str(folder / f"{c}-{i}.png"))
            Image.fromarray(image).save(path[-1])
            truth.append(f"colour {c}")
            label.append(truth[-1] if c < N_KNOWN and i % 2 == 0 else "")
    path, label, truth = (np.array(x, dtype=object) for x in (path, label, truth))
    known, blank = tuple(f"colour {c}" for c in range(N_KNOWN)), np.full(len(path), "", dtype=object)
    return Table(path=path, label=label, known=known, truth=truth, problem=blank, name="squares")


def decoded(folder: Path) -> "World":
    table = draw_squares(folder)
    return World(table, ImageStore.decode(list(table.path), 32, progress=False))


def whole_network() -> torch.nn.Module:
    """A random ViT of 2 blocks, 32 pixels, 32 features."""
    from holotype.models.zoo import patch_torchvision

    patch_torchvision()
    import timm

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        sizes = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 0}
        return timm.create_model("vit_tiny_patch16_224", **sizes).eval()


def tiny_backbone(train_blocks: int = 1, patches: bool = False) -> Backbone:
    """The same in two parts."""
    from holotype.models.tail import split_backbone

    trunk, tail = split_backbone(whole_network(), train_blocks, patches)
    return Backbone(trunk, tail, 32, 32, (0.5,) * 3, (0.5,) * 3, "tiny", "0" * 64, "")


@dataclass
class World:
    table: Table
    store: ImageStore

    def cache(self, folder: Path, views: str = "4+2", compute=None, shards=0, patches=False):
        """A token cache of every image, for the tiny backbone."""
        compute = compute or Device.on("cpu", "fp32")
        rows, memory = torch.arange(len(self.table)), MemoryConfig(cache_dir=str(folder))
        needs = Views(weak=2, strong=1)
        parts = (CacheViews.parse(views), needs, self.store, tiny_backbone(patches=patches))
        parts += (compute, rows, memory)
        return open_cache(*parts, shards=shards)

    def loop(self, method="simgcd", *, k=4, seed=0, table=None, compute=None, settings=None, **given):
        """out, cache: those of Loop; blocks: that are trained; the rest of `given` is the configuration of training."""
        more = {"folder": given.pop("out", None), "cache": given.pop("cache", None), "seed": seed}
        torch.manual_seed(seed)
        blocks, table = given.pop("blocks", 1), table or self.table
        kind = find_method(method) if isinstance(method, str) else method
        backbone = tiny_backbone(blocks, patches=kind.patches)
        defaults = {"epochs": 2, "batch_size": 16, "lr": 0.05, "save_seconds": 1e9, "precision": "fp32"}
        train, compute = TrainConfig(**{**defaults, **given}), compute or Device.on("cpu", "fp32")
        task = Task(len(table.known), k, 32, len(table), int(table.labelled.sum()), train.epochs)
        if table.side is not None:
            task = dataclasses.replace(task, side=table.side.shape[1])
        method = make_method(method, task, settings)
        return Loop(train, method, backbone, self.store, table, compute, **more)


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    return decoded(tmp_path_factory.mktemp("squares"))


def make_method(method, task: Task, settings=None):
    """A method, by name or class, with small heads."""
    cls = find_method(method) if isinstance(method, str) else method
    small = next((SMALL[name] for name in SMALL if find_method(name) is cls), {})
    return cls(cls.Config(**{**small, **(settings or {})}), task)


def fit_and_watch(loop: Loop) -> dict[str, bool]:
    """Train to the end; name of each stage -> whether its steps were captured."""
    loop.fit()
    return loop.captured


def interrupt_after(loop: Loop, steps: int) -> Loop:
    """Press Ctrl-C after so many steps."""
    after_step, taken = loop.method.after_step, []

    def counted():
        after_step()
        taken.append(None)
        if len(taken) == steps:
            os.kill(os.getpid(), signal.SIGINT)

    loop.method.after_step = counted
    return loop


def stop_and_resume(make, out: Path, steps: int) -> Loop:
    """Stop the run that `make(out=out)` is after so many steps, and train another one from there to its end."""
    with pytest.raises(Stopped):
        interrupt_after(make(out=out), steps).fit()
    resumed = make(out=out)
    resumed.fit()
    return resumed


def metrics(folder: Path, kind: str | None = None) -> list[dict]:
    """Lines of the log without times; of one kind."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    chosen = [line for line in lines if kind in (None, line["kind"])]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in chosen]


def weights(loop: Loop) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in loop.model_tensors().items()}


def assert_equal_weights(
    mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], atol: float = 0.0
) -> None:
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert torch.allclose(mine[name], theirs[name], rtol=0, atol=atol), name
