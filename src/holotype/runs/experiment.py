"""The settings of a run, and the run itself: from an Experiment to its record.

`holotype train`, `holotype bench` and the demo all go through here.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from holotype.data.benchmarks import BENCHMARKS
from holotype.errors import InputError
from holotype.machine.memory import MemoryConfig
from holotype.methods import find_method
from holotype.models.backbone import BackboneConfig
from holotype.runs.prepared import Shelf
from holotype.runs.recipes import recipe
from holotype.runs.together import run_alone
from holotype.train.loop import TrainConfig


@dataclass
class Experiment:
    """Everything that decides a run."""

    method_name: str
    """Method: kmeans, simgcd, debgcd, rpc, or one of your own as package.module:Class."""
    dataset: str
    """Data set: the name of a benchmark, or the path of a folder of images or of a CSV or Parquet file."""
    root: str | None = None
    """Folder in which the benchmark lies, in its official layout."""
    labels: str | None = None
    """CSV or Parquet file with the labels of the images, where DATASET is a folder of your own."""
    k: int | Literal["auto"] | None = None
    """Number of categories, known and novel; a benchmark knows its own. auto estimates it."""
    seed: int = 0
    """Seed of everything random in training; the split into labelled and unlabelled images is not affected."""
    out: str | None = None
    """Run folder; a run found there is continued. Default: runs/DATASET-METHOD-PRESET-sSEED."""
    preset: str = "default"
    """Named settings of the method; rpc has default and reading."""
    label: str | None = None
    """Name of these settings in tables; default: the preset."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes CUDA where there is a GPU."""
    devices: int = 1
    """Number of processes, one per GPU (or CPU processes); the result is the same for any number."""
    progress: bool = True
    """Show progress bars."""
    store: Literal["auto", "device", "host", "disk"] = "auto"
    """Where the decoded images lie: in GPU memory, in host memory, or in a memory-mapped file; auto takes the
    fastest place they fit into."""
    cache_views: str = "auto"
    """Token cache: so many fixed views per image, weak + strong, go through the frozen blocks once, as in 16+8.
    off computes every view anew (exact mode); auto is 4+2 on a CPU and off on a GPU."""
    method: Any = None
    """Settings of the method."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Settings of training."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    """The network that turns images into features."""
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    """What images and cached tokens may take."""

    @property
    def folder(self) -> Path:
        if self.out:
            return Path(self.out)
        dataset = self.dataset if self.dataset in BENCHMARKS else Path(self.dataset).resolve().name
        method = self.method_name.replace(":", ".")
        return Path("runs") / f"{dataset}-{method}-{self.preset}-s{self.seed}"

    @property
    def variant(self) -> str:
        """What tables call these settings."""
        return self.label or self.preset

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def default_experiment(method_name: str, dataset: str, preset: str = "default") -> Experiment:
    """The experiment with the method's preset and the data set's recipe filled in."""
    method = find_method(method_name)
    if preset not in method.presets:
        raise InputError(
            f"{method_name} has no preset {preset!r}; its presets are {', '.join(method.presets)}."
        )
    experiment = Experiment(method_name, dataset, preset=preset, method=method.Config())
    for key, value in recipe(method_name, dataset).items():
        set_dotted(experiment, key, value)
    for key, value in method.presets[preset].items():
        set_dotted(experiment, f"method.{key}", value)
    return experiment


def set_dotted(experiment: Experiment, key: str, value: Any) -> None:
    """Set `train.epochs`, `method.ova.arch`, ... by name."""
    *parents, last = key.split(".")
    target: Any = experiment
    for parent in parents:
        target = getattr(target, parent, None)
    if not dataclasses.is_dataclass(target) or last not in {f.name for f in dataclasses.fields(target)}:
        raise InputError(
            f"there is no setting called {key!r}; `holotype train METHOD DATASET --help` lists them."
        )
    setattr(target, last, value)


def run_experiment(experiment: Experiment, shelf: Shelf | None = None) -> dict[str, Any]:
    """Train (or continue, or find finished), score, write the run folder; returns the record of the run.

    shelf: keeps what the run is made of for the next one on the same data.
    """
    return run_alone(experiment, shelf or Shelf())
