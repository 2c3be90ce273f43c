"""The benchmark's modules import each other by name, as they do when the script is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "benchmarks"))

N, BATCH, K, SIZE, ARCH = 24, 8, 4, 32, "test_vit"


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """24 files of at most 60 pixels."""
    from jpegs import make_photographs

    folder = tmp_path_factory.mktemp("photographs")
    return make_photographs(folder, N, threads=2, longer=60).paths


@pytest.fixture
def world(photographs: list[str]):
    """Four categories, a network of 0.4 M random weights at 32 pixels, on the CPU."""
    import torch
    from world import World

    return World(photographs, ARCH, SIZE, BATCH, K, torch.device("cpu"), epochs=4)
