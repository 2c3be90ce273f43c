"""A model that was trained once, and a run folder of each test's own that holds it."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from export.made_results import made_run
from small_run import train_small


def draw_new(folder: Path, names: Sequence[str]) -> Path:
    """New red and green squares under these names, and a file that is no image."""
    rng = np.random.default_rng(5)
    for number, name in enumerate(names):
        colour = [(200, 40, 40), (40, 180, 60)][number % 2]
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(colour + rng.integers(-30, 30, (40, 40, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path)
    (folder / "broken.jpg").write_bytes(b"not an image")
    return folder


@pytest.fixture(scope="package")
def model(tmp_path_factory, squares_folder, tiny_backbone_file) -> Path:
    folder = tmp_path_factory.mktemp("run")
    train_small(folder, squares_folder, tiny_backbone_file)
    return folder


@pytest.fixture
def run(model, tmp_path) -> Path:
    """The run folder, to be written to; its weights are links."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("model.json", "model.safetensors"):
        os.link(model / name, folder / name)
    return folder


@pytest.fixture
def made(tmp_path) -> Path:
    """A finished run that nothing was trained for."""
    return made_run(tmp_path)
