"""The demo: `discover` on the embedded Fashion-MNIST sample, with the embedded backbone, offline.

Half of the ten classes are known and half of their images labelled. The sample is written as a folder of PNG files
with a labels.csv, as a user would have it; the truth stays out of it and is only used to score what was found.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holotype.clustering.metrics import score
from holotype.config.schema import DiscoverConfig
from holotype.data.arrays import encode_png
from holotype.data.datasets.registry import load_benchmark
from holotype.data.decode import read_image
from holotype.data.gcd_split import gcd_split
from holotype.data.load import load_table
from holotype.data.samplers import keyed_generator
from holotype.data.table import Table
from holotype.discovery.collection import index_images, read_collection
from holotype.discovery.pipeline import discover_table
from holotype.embeddings.store import embed_by_content
from holotype.methods import Images, Task, find_method
from holotype.models.backbone import load_backbone
from holotype.report import build_report
from holotype.results.discovery import Discovery
from holotype.runs.record import headline_scores
from holotype.runs.run_folder import SCORES_FILE, RunFolder
from holotype.training.encoder import to_device_images
from holotype.utils.atomic import atomic_folder, write_text
from holotype.utils.device import Device

STEPS = 450
"""A taste, not a benchmark: well below a minute of training on two CPU cores."""


@dataclass
class Demo:
    """What the demo shows."""

    discovery: Discovery
    scores: dict[str, dict[str, Any]]
    """Of k-means and of RPC, with the same number of categories and on the same images."""
    report: Path


def run_demo(out: Path, config: DiscoverConfig | None = None, *, progress: bool = True) -> Demo:
    """Write the sample, discover, and score. config: settings in place of the demo's own."""
    config = config or DiscoverConfig(steps=STEPS, backbone="embedded", seeds=1)
    benchmark = load_benchmark("fashion-sample")
    table = write_sample(gcd_split(benchmark), out)
    found = discover_table(table, config, out / "run", progress=progress)
    judged = dataclasses.replace(table, truth=benchmark.train.label)  # the order is that of the files
    scores = {
        "kmeans": score_kmeans(judged, config, found, out / "run"),
        "rpc": score(judged, *placed_index(found)),
    }
    write_scores(out / "run", scores)
    return Demo(found, scores, build_report(found, out / "run", progress=progress))


def write_scores(run: Path, scores: dict[str, dict[str, Any]]) -> None:
    """Put what the truth says into scores.json of the run, and k-means beside it."""
    folder = RunFolder(run)
    compared = {key: scores["kmeans"][key] for key in ("all", "old", "new")}
    own = {"scores": headline_scores(scores["rpc"]), "compared": {"kmeans": compared}}
    folder.write_json(SCORES_FILE, folder.read_json(SCORES_FILE) | own)


def write_sample(split: Table, out: Path) -> Table:
    """Write out/images/*.png and out/labels.csv, as far as they are not there, and read them as a user's own."""
    images = out / "images"
    names = [f"photo-{number:04d}.png" for number in range(len(split))]
    if not images.is_dir():  # a stop leaves no folder that looks complete
        with atomic_folder(images) as part:
            for path, name in zip(split.path, names, strict=True):
                (part / name).write_bytes(encode_png(read_image(path)[0], "PNG"))
    text = io.StringIO(newline="")
    rows = [(name, label) for name, label in zip(names, split.label, strict=True) if label]
    csv.writer(text, lineterminator="\n").writerows([("path", "label"), *rows])
    write_text(out / "labels.csv", text.getvalue())
    return load_table(images, out / "labels.csv")


def placed_index(found: Discovery) -> tuple[np.ndarray, np.ndarray]:
    """(N,) number of each image's category, known classes first, and (N,) its known score."""
    novel = [category.id for category in found.categories if category.kind == "novel"]
    index = {id: i for i, id in enumerate([*found.known, *novel])}
    return np.array([index[id] for id in found.images.category_id]), found.images.known_score.to_numpy()


def score_kmeans(judged: Table, config: DiscoverConfig, found: Discovery, run: Path) -> dict[str, Any]:
    """k-means on the frozen features that the discovery began with, with as many categories as it was trained for."""
    backbone = load_backbone(config.network)
    digest = [seen.digest for seen in index_images(judged, read_collection(run)).images.values()]
    embedded = embed_by_content(judged, digest, backbone, Device.on(config.device), run / "embeddings")
    features, label = torch.from_numpy(embedded.features), torch.from_numpy(judged.target)
    n_labelled = int(judged.labelled.sum())
    task = Task(len(judged.known), found.facts.k, backbone.dim, len(judged), n_labelled)
    method = find_method("kmeans")
    baseline = method(method.Config(), task)
    rows, generator = torch.arange(len(judged)), keyed_generator(config.seed, "finish")
    baseline.finish(Images(rows, label, len(judged), generator, lambda: features))
    prediction = to_device_images(baseline, features, rows)
    return score(judged, prediction.category.numpy())


def table(scores: dict[str, dict[str, Any]]) -> str:
    """All, Old and New of each method in per cent."""
    lines = [f"  {'':<8} {'All':>6} {'Old':>6} {'New':>6}"]
    for name, record in scores.items():
        cells = " ".join(f"{100 * record[key]:6.1f}" for key in ("all", "old", "new"))
        lines.append(f"  {name:<8} {cells}")
    return "\n".join(lines)
