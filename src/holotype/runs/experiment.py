"""`Experiment`: everything that decides a run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from holotype.config.schema import BackboneConfig, TrainConfig
from holotype.config.types import Constraint, Count, DeviceName, Seed
from holotype.data.datasets.registry import BENCHMARKS
from holotype.data.load import folder_name
from holotype.errors import InputError
from holotype.models.token_cache import CacheViews
from holotype.utils.device import Precision, default_precision, pick_device
from holotype.utils.memory import MemoryConfig


def is_cache_views(text: str) -> bool:
    try:
        return text in ("auto", "off") or CacheViews.parse(text) is not None
    except InputError:
        return False


CacheViewsText = Annotated[
    str,
    Constraint(
        "auto, off, or weak + strong views of each image, at least 2 weak ones, as in 16+8", is_cache_views
    ),
]


@dataclass
class Experiment:
    """Everything that decides a run."""

    method_name: str
    """Method: a name from `holotype methods`, or one of your own as package.module:Class."""
    dataset: str
    """Data set: the name of a benchmark, or the path of a folder of images or of a CSV or Parquet file."""
    root: str | None = None
    """Folder in which the benchmark lies, in its official layout."""
    labels: str | None = None
    """CSV or Parquet file with the labels of the images, where DATASET is a folder of your own."""
    k: Count | Literal["auto"] | None = None
    """Number of categories, known and novel; a benchmark knows its own. auto estimates it."""
    seed: Seed = 0
    """Seed of everything random in training; the split into labelled and unlabelled images is not affected."""
    out: str | None = None
    """Run folder; a run found there is continued. Default: runs/DATASET-METHOD-PRESET-sSEED."""
    preset: str = "default"
    """Named settings of the method; `holotype methods NAME` lists them."""
    label: str | None = None
    """Name of these settings in tables; default: the preset."""
    device: DeviceName = "auto"
    """Where to compute: cpu, mps, cuda, or cuda:1 for the second GPU; auto takes CUDA where there is a GPU."""
    devices: Count = 1
    """Number of processes, one per GPU (or CPU processes); the result is the same for any number."""
    progress: bool = True
    """Show progress bars."""
    store: Literal["auto", "device", "host", "disk"] = "auto"
    """Where the decoded images lie: in GPU memory, in host memory, or in a memory-mapped file; auto takes the
    fastest place they fit into."""
    cache_views: CacheViewsText = "auto"
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
        dataset = self.dataset if self.dataset in BENCHMARKS else folder_name(self.dataset)
        method = self.method_name.replace(":", ".")
        return Path("runs") / f"{dataset}-{method}-{self.preset}-s{self.seed}"

    @property
    def variant(self) -> str:
        """What tables call these settings."""
        return self.label or self.preset

    @property
    def precision(self) -> Precision:
        """auto: the usual one of the device."""
        if self.train.precision != "auto":
            return self.train.precision
        return default_precision(pick_device(self.device))

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
