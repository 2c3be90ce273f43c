"""What tests of runs share: a tiny experiment, how often things are made, the bench command."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holotype.runs import resources
from holotype.runs.experiment import Experiment, resolve
from tests.cli.test_bad_input import pressed


@pytest.fixture
def tiny(squares_folder: Path, tiny_backbone_file: Path, tmp_path: Path) -> Callable[..., Experiment]:
    """A run of a second on 64 squares of 4 classes, 2 of them known; settings with two dashes for a dot."""

    def make(method: str = "simgcd", out: str = "run", **settings: Any) -> Experiment:
        dataset = str(settings.pop("dataset", squares_folder / "squares.csv"))
        overrides: dict[str, Any] = {"k": 4, "device": "cpu", "progress": False, "out": str(tmp_path / out)}
        overrides |= {"backbone.name": str(tiny_backbone_file), "train.epochs": 1, "train.batch_size": 16}
        overrides |= {"cache_views": "off", "memory.cache_dir": str(tmp_path / "cache")}
        named = {key.replace("__", "."): value for key, value in settings.items()}
        return resolve(method, dataset, overrides=overrides | named)

    return make


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often data are read, a backbone is loaded, images are decoded, and a cache is built."""
    calls: list[str] = []

    def count(target: Any, name: str, label: str) -> None:
        original = getattr(target, name)

        def counting(*given: Any, **named: Any) -> Any:
            calls.append(label)
            return original(*given, **named)

        monkeypatch.setattr(target, name, counting)

    count(resources, "load_data", "data")
    count(resources, "load_backbone", "backbone")
    count(resources.ImageStore, "decode", "decode")
    count(resources, "open_cache", "cache")
    return calls


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """A context in which Ctrl-C is pressed in the first step."""

    @contextmanager
    def make() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
            yield

    return make


@pytest.fixture
def tiny_settings(tiny_backbone_file: Path) -> dict[str, Any]:
    network = {"backbone.name": str(tiny_backbone_file), "k": 4, "device": "cpu"}
    return {**network, "train.batch_size": 16, "train.epochs": 1}


@pytest.fixture
def bench(holotype, squares_folder: Path, tiny_settings: dict[str, Any], tmp_path: Path) -> Any:
    """`holotype bench` on the coloured squares, tiny."""

    def call(*words: object) -> Any:
        flags = [word for key, value in tiny_settings.items() for word in ("--set", f"{key}={value}")]
        places = ("--results", tmp_path / "results", "--out", tmp_path / "runs")
        data = ("--datasets", squares_folder / "squares.csv")
        return holotype("bench", *data, *places, "--no-progress", *flags, *words)

    return call
