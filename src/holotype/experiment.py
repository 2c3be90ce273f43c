"""One training run from settings to scores: the way of the data, wired once.

`holotype train`, `holotype bench` and the demo all go through `run_experiment`.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from lightning_fabric import Fabric

from holotype.data.benchmarks import BENCHMARKS, load_benchmark
from holotype.data.protocol import gcd_split, held_out
from holotype.data.sources import check_trainable, load_table
from holotype.data.store import ImageStore
from holotype.data.table import Table
from holotype.device import PRECISIONS, pick_device, pick_precision
from holotype.errors import InputError
from holotype.evaluate import has_truth
from holotype.methods import Prediction, Task, find_method
from holotype.models.backbone import Backbone, BackboneConfig, load_backbone
from holotype.provenance import describe
from holotype.recipes import recipe
from holotype.record import headline, identify, make_record, score_held_out, score_table
from holotype.run import RunFolder
from holotype.train.gather import rank
from holotype.train.loop import Loop, TrainConfig


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
    k: int | None = None
    """Number of categories, known and novel; a benchmark knows its own."""
    seed: int = 0
    """Seed of everything random in training; the split into labelled and unlabelled images is not affected."""
    out: str | None = None
    """Run folder; a run found there is continued. Default: runs/DATASET-METHOD-PRESET-sSEED."""
    preset: str = "default"
    """Named settings of the method; rpc has default and reading."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes CUDA where there is a GPU."""
    devices: int = 1
    """Number of processes, one per GPU (or CPU processes); the result is the same for any number."""
    progress: bool = True
    """Show progress bars."""
    method: Any = None
    """Settings of the method."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Settings of training."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    """The network that turns images into features."""

    @property
    def folder(self) -> Path:
        if self.out:
            return Path(self.out)
        dataset = self.dataset if self.dataset in BENCHMARKS else Path(self.dataset).resolve().name
        method = self.method_name.replace(":", ".")
        return Path("runs") / f"{dataset}-{method}-{self.preset}-s{self.seed}"

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
    """Set `train.epochs`, `method.ova.mode`, ... by name."""
    *parents, last = key.split(".")
    target: Any = experiment
    for parent in parents:
        target = getattr(target, parent, None)
    if not dataclasses.is_dataclass(target) or last not in {f.name for f in dataclasses.fields(target)}:
        raise InputError(
            f"there is no setting called {key!r}; `holotype train METHOD DATASET --help` lists them."
        )
    setattr(target, last, value)


@dataclass
class Data:
    """What a run is trained and scored on."""

    table: Table
    k: int
    test: Table | None = None


def load_data(experiment: Experiment) -> Data:
    """The table under the GCD protocol for a benchmark, or as it stands for a collection of one's own."""
    if experiment.dataset in BENCHMARKS:
        benchmark = load_benchmark(experiment.dataset, Path(experiment.root) if experiment.root else None)
        table = gcd_split(benchmark)
        data = Data(table, len(benchmark.known) + len(benchmark.novel), held_out(benchmark))
    else:
        labels = Path(experiment.labels) if experiment.labels else None
        data = Data(load_table(Path(experiment.dataset), labels), 0)
    data.k = experiment.k or data.k
    check_trainable(data.table)
    n_known = len(data.table.known)
    if not data.k:
        raise InputError(
            f"{experiment.dataset} does not say how many categories there are; give their number, known and novel "
            "together, with --k."
        )
    if data.k < n_known:
        raise InputError(
            f"--k {data.k} is smaller than the {n_known} known classes of {experiment.dataset}; "
            "it counts known and novel categories together."
        )
    return data


def run_experiment(experiment: Experiment) -> dict[str, Any]:
    """Train (or continue, or find finished), score, write the run folder; returns the record of the run."""
    started = time.monotonic()
    torch.set_float32_matmul_precision(experiment.train.matmul)
    fabric = make_fabric(experiment)
    fabric.launch()
    torch.manual_seed(experiment.seed)
    data = load_data(experiment)
    backbone = load_backbone(experiment.backbone)
    folder = RunFolder(experiment.folder)
    identity = identify(experiment, data, backbone)
    folder.claim(identity)
    if record := folder.finished():
        return record
    store = ImageStore.decode(list(data.table.path), backbone.image_size, progress=experiment.progress)
    data.table = data.table.with_problems(store.problem)
    check_trainable(data.table)
    facts = describe(backbone, data.table, fabric)
    if rank() == 0:
        folder.write_json("identity.json", identity)
        folder.write_config(experiment.as_dict())
        folder.write_json("provenance.json", facts)
    loop = make_loop(experiment, data, backbone, store, fabric, folder)
    prediction = loop.fit()
    record = make_record(experiment, data, backbone, loop, prediction, facts, identity)
    if data.test is not None:
        record["test"] = score_held_out(loop, data.test, experiment.progress)
    record["wall_seconds"] = round(time.monotonic() - started, 1)
    if rank() == 0:
        folder.write_model(loop.model_tensors())
        folder.write_assignments(
            data.table,
            prediction.category.numpy(),
            prediction.probability.numpy(),
            prediction.known_score.numpy(),
            store.note,
        )
        folder.write_json("scores.json", record)
    return record


def make_fabric(experiment: Experiment) -> Fabric:
    device = pick_device(experiment.device)
    if device == "cuda" and experiment.devices > torch.cuda.device_count():
        raise InputError(
            f"--devices {experiment.devices} asks for more GPUs than the {torch.cuda.device_count()} here; "
            "lower it, or use --device cpu."
        )
    strategy = "ddp" if experiment.devices > 1 else "auto"
    # its notices (precision, process group) stand in provenance.json, where they can be found again
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    return Fabric(
        accelerator=device,
        devices=experiment.devices,
        strategy=strategy,
        precision=PRECISIONS[pick_precision(experiment)],
    )


def make_loop(
    experiment: Experiment,
    data: Data,
    backbone: Backbone,
    store: ImageStore,
    fabric: Fabric,
    folder: RunFolder | None = None,
) -> Loop:
    table = data.table
    task = Task(
        n_known=len(table.known),
        k=data.k,
        dim=backbone.dim,
        n_images=len(table),
        n_labelled=int(table.labelled.sum()),
        epochs=experiment.train.epochs,
    )
    method = find_method(experiment.method_name)(experiment.method, task)

    def score_now(prediction: Prediction) -> dict[str, Any]:
        return headline(score_table(table, prediction))

    return Loop(
        experiment.train,
        method,
        backbone,
        store,
        table,
        fabric,
        seed=experiment.seed,
        folder=folder,
        score=score_now if has_truth(table) else None,
        progress=experiment.progress,
    )
