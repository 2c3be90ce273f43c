"""`holotype demo`: discover the embedded Fashion-MNIST sample offline, and score it.

Half of the ten classes are known and half of their images labelled. The sample is written as a folder of PNG files
with a labels.csv, as a user would have it; the truth stays out of it and is only used to score what was found.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holotype.cli.common import echo
from holotype.cli.discover import discovery_summary
from holotype.cli.options import DemoOptions
from holotype.cli.train import score_lines
from holotype.clustering.metrics import score
from holotype.config.schema import DiscoverConfig
from holotype.data.datasets.registry import load_benchmark
from holotype.data.decode import encode_image, read_image
from holotype.data.gcd_split import gcd_split
from holotype.data.load import load_table
from holotype.data.samplers import keyed_generator
from holotype.data.table import Table
from holotype.discovery.collection import index_images, read_collection
from holotype.discovery.pipeline import discover_table
from holotype.discovery.source import Source
from holotype.embeddings.store import embed_table
from holotype.methods import Images, Task, find_method
from holotype.models.backbone import load_backbone
from holotype.report import build_report
from holotype.results.discovery import Discovery
from holotype.runs.record import SCORES_FILE, RunFolder, headline_scores
from holotype.training.encoder import predict_table
from holotype.utils.atomic import atomic_folder, write_text
from holotype.utils.device import Device

DEMO_STEPS = 450
"""A taste, not a benchmark: well below a minute of training on two CPU cores."""


@dataclass
class DemoResult:
    """What the demo shows."""

    discovery: Discovery
    scores: dict[str, dict[str, Any]]
    """Of k-means and of RPC, with the same number of categories and on the same images."""
    report: Path


def run_demo(out: Path, config: DiscoverConfig | None = None, *, progress: bool = True) -> DemoResult:
    """Write the sample, discover, and score. config: settings in place of the demo's own."""
    config = config or demo_config()
    benchmark = load_benchmark("fashion-sample")
    table = write_demo_images(gcd_split(benchmark), out)
    source = Source.of(out / "images", labels=out / "labels.csv")
    found = discover_table(table, config, out / "run", progress=progress, source=source)
    judged = dataclasses.replace(table, truth=benchmark.train.label)  # the order is that of the files
    rpc, kmeans = score(judged, *assigned_index(found)), score_kmeans(judged, config, found, out / "run")
    folder, compared = RunFolder(out / "run"), {key: kmeans[key] for key in ("all", "old", "new")}
    told = {"scores": headline_scores(rpc), "compared": {"kmeans": compared}}
    folder.write_json(SCORES_FILE, folder.read_json(SCORES_FILE) | told)
    return DemoResult(
        found, {"kmeans": kmeans, "rpc": rpc}, build_report(found, out / "run", progress=progress)
    )


def demo_config(**settings: Any) -> DiscoverConfig:
    return DiscoverConfig(steps=DEMO_STEPS, backbone="embedded", seeds=1, **settings)


def write_demo_images(split: Table, out: Path) -> Table:
    """Write out/images/*.png and out/labels.csv, as far as they are not there, and read them as a user's own."""
    images = out / "images"
    names = [f"photo-{number:04d}.png" for number in range(len(split))]
    if not images.is_dir():  # a stop leaves no folder that looks complete
        with atomic_folder(images) as part:
            for path, name in zip(split.path, names, strict=True):
                (part / name).write_bytes(encode_image(read_image(path)[0], "PNG"))
    rows = [f"{name},{label}\n" for name, label in zip(names, split.label, strict=True) if label]
    write_text(out / "labels.csv", "".join(["path,label\n", *rows]))
    return load_table(images, out / "labels.csv")


def assigned_index(found: Discovery) -> tuple[np.ndarray, np.ndarray]:
    """(N,) number of each image's category, known classes first, and (N,) its known score."""
    novel = [category.id for category in found.categories if category.kind == "novel"]
    index = {id: i for i, id in enumerate([*found.known, *novel])}
    return np.array([index[id] for id in found.images.category_id]), found.images.known_score.to_numpy()


def score_kmeans(judged: Table, config: DiscoverConfig, found: Discovery, run: Path) -> dict[str, Any]:
    """k-means on the frozen features that the discovery began with, with as many categories as it was trained for."""
    backbone = load_backbone(config.network)
    digest = [seen.digest for seen in index_images(judged, read_collection(run)).images.values()]
    embedded = embed_table(judged, backbone, Device.on(config.device), run / "embeddings", digest=digest)
    features, label = torch.from_numpy(embedded.features), torch.from_numpy(judged.target)
    n_labelled = int(judged.labelled.sum())
    task = Task(len(judged.known), found.facts.k, backbone.dim, len(judged), n_labelled)
    method = find_method("kmeans")
    baseline = method(method.Config(), task)
    rows, generator = torch.arange(len(judged)), keyed_generator(config.seed, "finish")
    baseline.finish(Images(rows, label, len(judged), generator, lambda: features))
    prediction = predict_table(baseline, features, rows)
    return score(judged, prediction.category.numpy())


def demo_command(options: DemoOptions) -> None:
    out = options.out
    echo("Fashion-MNIST sample: 1,000 images, 10 categories of which 5 are known, 250 images labelled.")
    echo(f"Written as a folder of PNG files, {out / 'images'}, with {out / 'labels.csv'}.")
    config = demo_config(seed=options.seed, device=options.device)
    shown = run_demo(out, config, progress=options.progress)
    echo(discovery_summary(shown.discovery, out / "run"))
    table = "\n".join(score_lines(shown.scores))
    echo(
        f"\nAgainst the truth that training never saw, both with {shown.discovery.facts.k} categories:\n\n"
        f"{table}\n\n"
        f"per cent of the {shown.scores['rpc']['n']} unlabelled images, one global assignment of categories to "
        "classes.\nOld: images of the 5 known classes. New: images of the 5 that had to be discovered.\n"
        "kmeans: on the features that the discovery began with.\n\n"
        f"Look at it in a browser: {shown.report}"
    )
