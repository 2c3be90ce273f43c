"""A model that was trained once, and a run folder of each test's own that holds it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from small_run import train_small


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
