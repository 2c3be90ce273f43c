"""Training as the field's released code does it, written anew: the yardstick of the speed-ups.

What is faithful: every image is read and decoded by PIL in a loader's worker each time it is drawn, every view
resized, cropped, mirrored and converted by itself; half of the draws are labelled (a weighted sampler); the
whole network runs on all views and all tokens, the last block learns, the loss is read back after every step;
fp32 without TF32, or fp16 under autocast with a gradient scaler.
What is kinder than the original: timm's fused attention, no start of the workers at every epoch, no evaluation.
The losses are ours, so that only the way to them differs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

from holotype.data.image_store import CROP_FRACTION
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods.base import Batch, Images, Method, Progress
from holotype.models.tail import Model
from holotype.training.batches import index_rows
from holotype.training.optim import build_optimiser

Arithmetic = Literal["fp32", "fp16"]
WORKERS = 8
"""Processes of the loader, as in the released code."""
SHARED = "/dev/shm"
"""Where Linux keeps what processes hand to each other."""
GREY = (127, 127, 127)
LR, MOMENTUM, WEIGHT_DECAY = 1e-3, 0.9, 5e-5
"""Of SGD; the rate is small so that a random network trains calmly. It does not change the speed."""

View = Callable[[Image.Image], Tensor]


def weak_view(size: int) -> View:
    """Resize, random crop, mirror, normalise: the whole of the reference augmentation."""
    return _transforms(size, [])


def strong_view(size: int) -> View:
    """The same with two random operations out of fourteen and a grey square."""
    from torchvision import transforms

    return _transforms(size, [transforms.RandAugment(num_ops=2), cut_out])


def cut_out(image: Image.Image) -> Image.Image:
    """A grey square of half the side, somewhere."""
    width, height = image.size
    side = min(width, height) // 2
    x, y = (int(torch.randint(length, ())) - side // 2 for length in (width, height))
    image = image.copy()
    image.paste(GREY, (x, y, x + side, y + side))
    return image


def _transforms(size: int, operations: list[Callable[[Image.Image], Image.Image]]) -> View:
    from torchvision import transforms

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    view: View = transforms.Compose(
        [
            transforms.Resize(int(size / CROP_FRACTION), transforms.InterpolationMode.BICUBIC),
            transforms.RandomCrop(size),
            transforms.RandomHorizontalFlip(),
            *operations,
            transforms.ToTensor(),
            transforms.Normalize(mean, std),
        ]
    )
    return view


class Photographs(Dataset[tuple[Tensor, int, int]]):
    """Reads, decodes and transforms one image per call: (V, 3, S, S) views, class index or -1, row."""

    def __init__(self, table: Table, views: list[View]) -> None:
        self.paths, self.target, self.views = list(table.path), table.target, views

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[Tensor, int, int]:
        with Image.open(self.paths[row]) as file:
            image = file.convert("RGB")
        return torch.stack([view(image) for view in self.views]), int(self.target[row]), row


class ReferenceStyle:
    """One training in the style of the released code; `step` takes the next batch and learns from it."""

    def __init__(
        self,
        method: Method,
        model: Model,
        table: Table,
        size: int,
        batch: int,
        device: torch.device,
        *,
        arithmetic: Arithmetic,
        steps: int,
        workers: int = WORKERS,
    ) -> None:
        """model: a whole timm network, images -> features; steps: how many will be asked for at most."""
        self.device, self.arithmetic = device, arithmetic
        self.method = method.to(device).train()
        self.model: Model = model.to(device).train()
        self.stage = method.stages()[-1]
        views = [weak_view(size)] * self.stage.views.weak + [strong_view(size)] * self.stage.views.strong
        self.loader = make_loader(table, views, batch, steps, workers, pin=device.type == "cuda")
        self.batches: Iterator[Any] = iter(self.loader)
        self.optimiser = self._optimiser()
        self.scaler = torch.amp.GradScaler(device.type, enabled=arithmetic == "fp16")
        self.now = self._clock()
        with torch.no_grad():  # methods that keep class means want features of all images; any will do here
            features = torch.randn(len(table), method.task.dim, device=device)
            target = torch.from_numpy(table.target.copy()).to(device)
            row, generator = torch.arange(len(table), device=device), torch.Generator()
            images = Images(row, target, len(table), generator, lambda: features)
            self.method.before_epoch(self.stage, 0, images)

    def _optimiser(self) -> torch.optim.Optimizer:
        """SGD over the last block and the heads; everything else is frozen."""
        self.model.requires_grad_(False)
        self.model.blocks[-1].requires_grad_(True)
        named = {f"model.{n}": p for n, p in self.model.named_parameters() if p.requires_grad}
        named |= {f"method.{n}": p for n, p in self.method.named_parameters()}
        return build_optimiser(named, ("model", "method"), LR, MOMENTUM, WEIGHT_DECAY)

    def _clock(self) -> dict[str, Tensor]:
        """As in the middle of training, when every loss has its weight."""
        epochs = self.method.task.epochs
        values = {"epoch": epochs // 2, "progress": 0.5}
        values |= self.method.schedule(self.stage, Progress(epochs // 2, epochs))
        return {name: torch.tensor(float(value), device=self.device) for name, value in values.items()}

    def step(self) -> float:
        """The next batch through the whole network and back; returns the loss, as the released code logs it."""
        views, target, rows = (x.to(self.device, non_blocking=True) for x in next(self.batches))
        low = torch.autocast(self.device.type, torch.float16) if self.arithmetic == "fp16" else nullcontext()
        with low:
            features = self.model(views.transpose(0, 1).flatten(0, 1)).float()
            shapes = self.method.draws(self.stage, len(rows))
            batch = Batch(
                features=features.unflatten(0, (views.shape[1], -1)),
                label=target.clamp_min(0),
                labelled=target >= 0,
                image=rows,
                random={name: torch.rand(shape, device=self.device) for name, shape in shapes.items()},
            )
            loss = torch.stack(list(self.method.loss(batch, self.now).values())).sum()
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        with torch.no_grad():
            self.method.after_step()
        return float(loss.detach())

    def close(self) -> None:
        """End the workers."""
        del self.batches, self.loader


def make_loader(
    table: Table, views: list[View], batch: int, steps: int, workers: int, *, pin: bool
) -> DataLoader[Any]:
    """Batches of weighted draws: a labelled image is as likely as not, as often as `steps` batches need."""
    rows = index_rows(table, batch)
    weight = torch.ones(len(table), dtype=torch.float64)
    weight[rows.unlabelled] = len(rows.labelled) / max(len(rows.unlabelled), 1)
    sampler = WeightedRandomSampler(weight.tolist(), batch * steps)
    photographs = Photographs(table, views)
    ahead = batches_ahead(batch * photographs[0][0].nbytes, workers)
    return DataLoader(
        photographs,
        batch,
        sampler=sampler,
        num_workers=workers,
        prefetch_factor=ahead if workers else None,
        pin_memory=pin,
        drop_last=True,
    )


def batches_ahead(batch_bytes: int, workers: int, folder: str = SHARED) -> int:
    """Batches that each worker prepares: 2 as usual, 1 where the memory they are handed over in is short."""
    if not workers or not os.path.isdir(folder):
        return 2
    total, _, free = shutil.disk_usage(folder)
    if total == 0:  # a system that does not count it
        return 2
    # one batch of each worker is being made, and one is being used
    for ahead in (2, 1):
        if (ahead * workers + 1) * batch_bytes <= free:
            return ahead
    raise InputError(
        f"{workers} workers hand over batches of {batch_bytes / 1e6:.0f} MB in {folder}, which has "
        f"{free / 1e6:.0f} MB free; lower --batch, or enlarge it (docker run --shm-size)."
    )
