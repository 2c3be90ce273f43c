"""A small discovery of the coloured squares."""

import shutil
from pathlib import Path

import pytest

from holotype.config.schema import DiscoverConfig
from holotype.data.load import load_table
from holotype.discovery.backbone_choice import choose_backbone
from holotype.discovery.pipeline import discover_table
from holotype.discovery.plan import Round, plan_round


@pytest.fixture
def small(tiny_backbone_file: Path):
    """Makes settings that turn a discovery into a matter of seconds."""

    def make(**changes) -> DiscoverConfig:
        settings = {"k": 4, "steps": 12, "backbone": str(tiny_backbone_file), "device": "cpu"}
        return DiscoverConfig(**{**settings, **changes})

    return make


@pytest.fixture(scope="session")
def first_run(squares_folder: Path, tiny_backbone_file: Path, tmp_path_factory) -> Path:
    """A finished discovery of the squares; copy it before changing anything."""
    folder = tmp_path_factory.mktemp("first") / "run"
    config = DiscoverConfig(k=4, steps=12, backbone=str(tiny_backbone_file), device="cpu")
    discover_table(load_table(squares_folder / "squares.csv"), config, folder, progress=False)
    return folder


@pytest.fixture
def run(first_run: Path, tmp_path: Path) -> Path:
    """A finished discovery of the squares that a test may change."""
    return Path(shutil.copytree(first_run, tmp_path / "run"))


@pytest.fixture
def round(squares_folder, tiny_backbone_file, tmp_path) -> Round:
    """The first of a discovery on the squares, not begun."""
    config = DiscoverConfig(steps=100, backbone=str(tiny_backbone_file), device="cpu")
    chosen = choose_backbone(config.network, "cpu")
    table = load_table(squares_folder / "squares.csv")
    return Round.of(plan_round(tmp_path, table, config), chosen)
