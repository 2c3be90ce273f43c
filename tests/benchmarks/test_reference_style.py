"""The reference style really does what it is said to do: reads anew, trains the last block and the heads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import reference_style
import torch
from PIL import Image
from reference_style import Photographs, ReferenceStyle, batches_ahead, make_loader, strong_view, weak_view

from holotype.errors import InputError

SIZE, BATCH = 32, 8
"""Those of the fixture `world`."""


@pytest.fixture
def train(world):
    def build(method: str, steps: int = 4, workers: int = 0) -> ReferenceStyle:
        model = world.model()
        learner = world.method(method, int(model.num_features))
        return ReferenceStyle(
            learner,
            model,
            world.table(),
            SIZE,
            BATCH,
            world.device,
            arithmetic="fp32",
            steps=steps,
            workers=workers,
        )

    return build


@pytest.mark.parametrize("method", ["simgcd", "rpc"])
def test_the_last_block_and_the_heads_learn_and_nothing_else(train, method: str) -> None:
    training = train(method)
    before = {n: p.detach().clone() for n, p in training.model.named_parameters()}
    heads = {n: p.detach().clone() for n, p in training.method.named_parameters()}
    losses = [training.step() for _ in range(4)]
    assert np.isfinite(losses).all()
    moved = {n for n, p in training.model.named_parameters() if not torch.equal(p, before[n])}
    last = f"blocks.{len(training.model.blocks) - 1}."
    assert moved
    assert all(name.startswith(last) for name in moved)
    assert all(
        not torch.equal(p, heads[n]) for n, p in training.method.named_parameters() if p.grad is not None
    )


def test_a_step_equals_one_written_by_hand(train) -> None:
    """The loss of the first batch is the method's on the whole network's features."""
    from holotype.methods.base import Batch

    torch.manual_seed(3)
    training = train("simgcd")
    torch.manual_seed(5)
    views, target, rows = next(iter(training.loader))
    assert views.shape == (BATCH, 2, 3, SIZE, SIZE)
    with torch.no_grad():
        features = torch.stack([training.model(views[:, v]) for v in range(2)])
        batch = Batch(features, target.clamp_min(0), target >= 0, rows, {})
        expected = float(sum(training.method.loss(batch, training.now).values()))
    torch.manual_seed(5)
    training.batches = iter(training.loader)
    assert training.step() == pytest.approx(expected, rel=1e-5)


def test_workers_hand_over_the_same_kind_of_batch(train) -> None:
    training = train("rpc", steps=1, workers=1)
    views, target, rows = next(training.batches)
    assert views.shape == (BATCH, 3, 3, SIZE, SIZE)  # two weak views and a strong one
    assert target.shape == rows.shape == (BATCH,)
    training.close()


def test_every_draw_reads_the_file_again(world, monkeypatch) -> None:
    opened = Counter()
    real = Image.open
    monkeypatch.setattr(reference_style.Image, "open", lambda path: opened.update([path]) or real(path))
    data = Photographs(world.table(), [weak_view(SIZE)] * 2)
    first, second = data[3][0], data[3][0]
    assert opened[world.paths[3]] == 2  # one decoding for both views of a draw
    assert not torch.equal(first, second)


def test_the_weak_view_is_the_reference_transform(world) -> None:
    """A weak view is a crop of the image resized to the size over 0.875, mirrored or not."""
    image = Image.open(world.paths[0]).convert("RGB")
    short, (width, height) = int(SIZE / 0.875), image.size
    to = (short, short * height // width) if width < height else (short * width // height, short)
    whole = np.asarray(image.resize(to, Image.Resampling.BICUBIC), dtype=float)
    view = weak_view(SIZE)(image)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    pixels = (view * std[:, None, None] + mean[:, None, None]).mul(255).round().permute(1, 2, 0).numpy()
    found = [
        (top, left, flip)
        for top in range(whole.shape[0] - SIZE + 1)
        for left in range(whole.shape[1] - SIZE + 1)
        for flip in (False, True)
        if np.array_equal(whole[top : top + SIZE, left : left + SIZE][:, :: -1 if flip else 1], pixels)
    ]
    assert found


def test_the_strong_view_has_a_grey_square(world) -> None:
    image = Image.open(world.paths[0]).convert("RGB")
    grey = torch.tensor([127 / 255]).sub(torch.tensor([0.485, 0.456, 0.406])) / torch.tensor(
        [0.229, 0.224, 0.225]
    )
    view = strong_view(SIZE)(image)
    share = (view - grey[:, None, None]).abs().amax(0).lt(1e-4).float().mean()
    assert 1 / 16 <= share <= 0.9  # half the side squared, less what lies outside


def test_half_of_the_draws_are_labelled(world) -> None:
    table = world.table()
    assert table.labelled.mean() == 0.25
    torch.manual_seed(0)
    loader = make_loader(table, [lambda image: torch.zeros(1)], BATCH, 250, 0, pin=False)
    rows = torch.tensor(list(loader.sampler))
    assert len(rows) == 250 * BATCH
    share = torch.from_numpy(table.labelled)[rows].float().mean()
    assert share == pytest.approx(0.5, abs=0.05)


def test_little_memory_between_processes_is_respected(tmp_path: Path, monkeypatch) -> None:
    total = free = 1000
    monkeypatch.setattr(reference_style.shutil, "disk_usage", lambda folder: (total, 0, free))
    assert batches_ahead(10, 8, str(tmp_path)) == 2
    assert batches_ahead(100, 8, str(tmp_path)) == 1
    with pytest.raises(InputError, match="shm-size"):
        batches_ahead(200, 8, str(tmp_path))
    assert batches_ahead(10**9, 0, str(tmp_path)) == 2
    total = free = 0
    assert batches_ahead(10**9, 8, str(tmp_path)) == 2
    assert batches_ahead(10**9, 8, str(tmp_path / "nowhere")) == 2
