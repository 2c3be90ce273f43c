"""What `holotype discover` chooses by itself, on collections that chose nothing.

    python experiments/defaults.py --root DATA --small FILE.safetensors --out experiments/results/defaults.jsonl
    python experiments/defaults.py --table --out experiments/results/defaults.jsonl

Classes of CUB, Cars (`scars-8137`) and the CIFAR-100 sample are split in two by `class_halves` (counting.py): half 0
chooses, half 1 confirms, and no class is in both. Each half has 24 collections (`specs`): twelve for the embedded
backbone with the effort of a CPU, twelve for ViT-S/14 with that of a GPU; 6 to 98 classes, equal sizes to 10 : 1,
known classes half as large as new ones, as large, or twice as large, 5, 10 or 50 % of a known class labelled. Each is
discovered as it comes, with the number of categories counted, and scored against its truth by one matching; on a GPU
the first twelve have the effort of a CPU, too.

Beside it stand, at the same number of categories: k-means on the frozen features; LDA on the labels with k-means for
what it rejects (beyond nine tenths of the labelled images, each left out of its own class); and, from the same
trainings, six settings named before the runs: all votes alike, trainings alone, partitions by frozen features alone,
RPC alone, UNO+ alone, and one training of RPC.

Without any label, on the first six collections of the embedded backbone: the groups that a discovery proposes against
k-means at the true number of categories, which only this script knows.

    python experiments/defaults.py --blank --root DATA --out experiments/results/unlabelled.jsonl
    python experiments/defaults.py --blank --table --out experiments/results/unlabelled.jsonl

What half 0 chose, on four of its collections with two seeds (RPC, SimGCD's target `collection`, UNO+, 2,000 steps): the
target of the entropy term (RPC's leak 82 to 89 % with `uniform`, 22 to 47 % with `collection`); partitions by frozen
features among the votes (All of what the ensemble said before 64, 49, 57 and 68, with both 78, 64, 62 and 77); no start
at k-means centres and no slack for sizes (half of the categories died). The steps: three times as many gained nothing.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from counting import class_halves
from harness import calibration_error, one_sentence, run_facts, script_parser, stand_for
from holotype.clustering.kmeans import kmeans
from holotype.clustering.metrics import class_index, clustering_accuracy
from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.data.datasets.registry import load_benchmark
from holotype.data.table import Table
from holotype.discovery import round_runner, training_plan
from holotype.discovery.pipeline import discover_table
from holotype.embeddings.store import EmbeddingParts
from holotype.methods import Prediction
from holotype.results.discovery import Discovery
from holotype.results.ensemble import Training, pool_with_lda, vote_consensus
from holotype.results.frozen import BLENDS, frozen_votes, weigh_votes
from holotype.results.lda import unit_rows, whitening
from holotype.runs.experiment import Experiment
from holotype.utils.device import pick_device

DATASETS = ("cub", "scars-8137", "cifar100-200")
DATASET_NAMES = dict(zip(DATASETS, ("CUB", "Cars", "CIFAR-100 sample"), strict=True))
K = {
    "embedded": (6, 8, 10, 12, 14, 16, 18, 20, 24, 30, 40, 50),
    "small": (20, 25, 30, 36, 40, 50, 50, 60, 70, 80, 90, 98),
}
"""Classes of the twelve collections of each backbone."""
SHARES, RATIOS, TIMES = (0.05, 0.1, 0.5), (1.0, 1.0, 3.0, 10.0), (0.5, 1.0, 1.0, 2.0)
KNOWN, SIZES = (0.35, 0.5, 0.5, 0.65), (60, 120, 200)
SETTINGS = {
    "together": (0, 1, 2, 3),
    "trainings": (0, 1, 2, 3),
    "frozen": (0, 1, 2, 3),
    "rpc": (0, 2),
    "uno": (1, 3),
    "one": (0,),
}
"""Which trainings take part; RPC and UNO+ take turns."""
NORMAL = "normal"
BLANK = 6
"""Collections that are discovered without labels."""
REJECTED = 0.1
"""Share of the labelled images beyond whose distance an image is rejected by the LDA."""


@dataclass(frozen=True)
class Spec:
    """A collection as it is drawn."""

    name: str
    backbone: str
    dataset: str
    k: int
    known: int
    share: float
    ratio: float
    """The largest class to the smallest."""
    times: float
    """Known classes to novel ones in size."""
    size: int
    number: int


def specs(backbone: str, half: int) -> list[Spec]:
    """The twelve collections of a backbone and a half."""
    rng = np.random.default_rng([half, len(backbone), 2026])

    def spread(values: Sequence[Any]) -> list[Any]:
        return [values[i % len(values)] for i in rng.permutation(12)]

    share, ratio, times, known, size = (spread(values) for values in (SHARES, RATIOS, TIMES, KNOWN, SIZES))
    found = []
    for i, k in enumerate(K[backbone]):
        # a half of the CIFAR-100 sample has fifty classes
        dataset = DATASETS[(i + half) % (3 if k <= 50 else 2)]
        n_known = max(3, round(k * known[i]))
        name = f"{backbone}{i}"
        found.append(Spec(name, backbone, dataset, k, n_known, share[i], ratio[i], times[i], size[i], i))
    return found


def draw(spec: Spec, half: int, root: Path) -> Table:
    """The images of a collection with their truth."""
    benchmark = load_benchmark(spec.dataset, root).train
    truth = np.asarray(benchmark.label, dtype=object)
    names = class_halves(truth)[half]
    rng = np.random.default_rng([spec.number, half, len(names)])
    rows, label = [], []
    for i, one in enumerate(rng.permutation(names)[: spec.k]):
        known = i < spec.known
        of_kind, place = (spec.known, i) if known else (spec.k - spec.known, i - spec.known)
        scale = min(spec.times, 1.0) if known else min(1 / spec.times, 1.0)
        own = rng.permutation(np.flatnonzero(truth == one))
        largest = min(spec.size, len(own)) * scale
        own = own[: max(4, round(largest * spec.ratio ** -(place / max(of_kind - 1, 1))))]
        mine = np.full(len(own), "", dtype=object)
        if known:
            mine[: max(2, round(spec.share * len(own)))] = str(one)
        rows.append(own)
        label.append(mine)
    row, said = np.concatenate(rows), np.concatenate(label)
    order = np.argsort(row)
    known_names = tuple(sorted(set(said) - {""}))
    return Table(
        benchmark.path[row[order]],
        said[order],
        known_names,
        truth[row[order]],
        name=spec.name,
        root=benchmark.root,
    )


def plain_kmeans(embedded: np.ndarray, target: np.ndarray, k: int) -> np.ndarray:
    """(N,) k-means on the frozen features of the unlabelled images; known classes are not told."""
    x, free = F.normalize(torch.from_numpy(embedded), dim=-1), target < 0
    category = np.full(len(target), -1)
    generator = torch.Generator().manual_seed(0)
    category[free] = kmeans(x[torch.from_numpy(free)], k, generator=generator).label.numpy()
    return category


def lda_kmeans(embedded: np.ndarray, target: np.ndarray, k: int, n_known: int) -> np.ndarray:
    """(N,) LDA on the labels, and k-means for what lies beyond nine tenths of the labelled images."""
    u, labelled = unit_rows(embedded - embedded.mean(0)), target >= 0
    own, size = target[labelled], np.bincount(target[labelled], minlength=n_known)
    mean = np.stack([u[target == c].mean(0) for c in range(n_known)])
    rest = u[labelled] - mean[own]
    whiten = whitening(rest.T @ rest / len(rest), max(len(rest) - n_known, 1))
    z, centre = u @ whiten, mean @ whiten
    distance = (z**2).sum(1)[:, None] - 2 * z @ centre.T + (centre**2).sum(1)
    n, m = size[own], np.maximum(size[own] - 1, 1)
    left_out = distance[labelled, own] * (n / m) ** 2 / (1 + 1 / m)
    near = distance / (1 + 1 / size)
    category = np.where(labelled, target, near.argmin(1))
    rejected = ~labelled & (near.min(1) > np.quantile(left_out, 1 - REJECTED))
    if rejected.sum() >= k - n_known > 0:
        x = F.normalize(torch.from_numpy(embedded[rejected]), dim=-1)
        found = kmeans(x, k - n_known, generator=torch.Generator().manual_seed(0))
        category[rejected] = n_known + found.label.numpy()
    return category


def scores(table: Table, y: np.ndarray, category: np.ndarray, known_first: bool = True) -> dict[str, float]:
    """All, Old, New, and the share of unlabelled images of known classes in new categories, in per cent."""
    n_known, free = len(table.known), ~table.labelled
    found = clustering_accuracy(y[free], category[free], n_known)
    own = free & (y < n_known)
    told = {"all": found.all, "old": found.old, "new": found.new}
    if known_first:
        told["leak"] = float((category[own] >= n_known).mean())
    return {name: round(100 * value, 1) for name, value in told.items()}


@contextmanager
def budget(spec: Spec) -> Iterator[None]:
    """Train as on a CPU with the embedded backbone, and as on a GPU with ViT-S/14."""
    kind = "cpu" if spec.backbone == "embedded" else "cuda"
    of_device, plan = training_plan.device_defaults, training_plan.plan_training

    def plan_training(
        method: str, table: Table, k: int, steps: int, device: str, network: BackboneConfig
    ) -> Experiment:
        planned = plan(method, table, k, steps, kind, network)
        return dataclasses.replace(planned, device=device)

    training_plan.device_defaults, round_runner.plan_training = lambda _: of_device(kind), plan_training
    try:
        yield
    finally:
        training_plan.device_defaults, round_runner.plan_training = of_device, plan


def discover(
    spec: Spec,
    half: int,
    root: Path,
    backbone: str,
    device: str,
    seed: int,
    work: Path,
    effort: str = NORMAL,
    method: str | None = None,
) -> dict[str, Any]:
    """Discover a collection as it comes; one row of the record."""
    table, started = draw(spec, half, root), time.monotonic()
    n_known, _, y = class_index(table.known, np.asarray(table.truth, dtype=str))
    said: list[Prediction] = []
    seen: list[np.ndarray] = []
    train, place = training_plan.train_side_by_side, training_plan.train_ensemble

    def train_side_by_side(*words: Any) -> Any:
        result = train(*words)
        said.extend(result[1])
        return result

    def train_ensemble(*words: Any) -> Any:
        seen.append(words[-1])
        return place(*words)

    config = DiscoverConfig(backbone=backbone, device=device, seed=100 * seed, effort=effort, method=method)
    folder, bare = work / f"{spec.name}-{half}-{seed}{method or ''}", dataclasses.replace(table, truth=None)
    training_plan.train_side_by_side, round_runner.train_ensemble = train_side_by_side, train_ensemble
    try:
        with budget(spec):
            found = discover_table(bare, config, folder, progress=False)
    finally:
        training_plan.train_side_by_side, round_runner.train_ensemble = train, place
    seconds, embedded = time.monotonic() - started, np.asarray(seen[0], np.float32)
    index = {name: i for i, name in enumerate(table.known)}
    index |= {c.id: n_known + i for i, c in enumerate(c for c in found.categories if c.kind == "novel")}
    category = found.images["category_id"].map(index).fillna(-1).to_numpy(int)
    k, count, target = found.facts.k, found.count or {}, table.target
    return {
        "half": half,
        "seed": seed,
        "effort": effort,
        **({"method": method} if method else {}),
        **dataclasses.asdict(spec),
        "images": len(table),
        "labelled": int(table.labelled.sum()),
        "estimate": count.get("best"),
        "low": count.get("low"),
        "high": count.get("high"),
        "used": len(found.categories),
        **scores(table, y, category),
        "kmeans": scores(table, y, plain_kmeans(embedded, target, k), False)["all"],
        "lda_kmeans": scores(table, y, lda_kmeans(embedded, target, k, n_known))["all"],
        "settings": settings(table, y, said, embedded, k, 100 * seed),
        **trust(found, table, y, category, index),
        "blend": found.facts.blend,
        "seconds": round(seconds, 1),
    }


def discover_blank(
    spec: Spec, half: int, root: Path, backbone: str, device: str, seed: int, work: Path
) -> dict[str, Any]:
    """Discover a collection without its labels; one row of the record."""
    table, started = draw(spec, half, root), time.monotonic()
    y = np.unique(np.asarray(table.truth, dtype=str), return_inverse=True)[1]
    bare = dataclasses.replace(table, label=np.full(len(table), "", dtype=object), known=(), truth=None)
    config = DiscoverConfig(backbone=backbone, device=device, seed=100 * seed)
    folder = work / f"{spec.name}-{half}-{seed}-blank"
    found = discover_table(bare, config, folder, progress=False)
    seconds, at = time.monotonic() - started, {}
    for part in EmbeddingParts(folder / "embeddings"):
        at |= dict(zip(part.digest, part.features, strict=True))
    embedded = np.stack([at[digest] for digest in found.digests]).astype(np.float32)
    category = np.unique(found.images["category_id"].to_numpy(str), return_inverse=True)[1]

    def right(category: np.ndarray) -> float:
        return round(100 * clustering_accuracy(y, category, 0).all, 1)

    count, free = found.count or {}, np.full(len(table), -1)
    return {
        "half": half,
        "seed": seed,
        **dataclasses.asdict(spec),
        "images": len(table),
        "estimate": count.get("best"),
        "low": count.get("low"),
        "high": count.get("high"),
        "all": right(category),
        "kmeans": right(plain_kmeans(embedded, free, spec.k)),
        "kmeans_counted": right(plain_kmeans(embedded, free, found.facts.k)),
        "seconds": round(seconds, 1),
    }


def blank_table(rows: Sequence[dict[str, Any]]) -> str:
    """As Markdown: each collection, and the mean."""
    lines = [
        "| of | classes | sizes | images | K (range) | All | k-means, true K | k-means, counted K |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['dataset']} | {row['k']} | {row['ratio']:g}:1, ×{row['times']:g} | {row['images']:,} "
            f"| {row['estimate']} ({row['low']}–{row['high']}) | {row['all']} | {row['kmeans']} "
            f"| {row['kmeans_counted']} |"
        )
    mean = {key: np.mean([row[key] for row in rows]) for key in ("all", "kmeans", "kmeans_counted")}
    off = 100 * np.mean([abs(row["estimate"] / row["k"] - 1) for row in rows])
    away = _gap(np.array([row["all"] - row["kmeans"] for row in rows]))
    cells = [f"{value:.1f}" for value in mean.values()]
    return "\n".join([*lines, f"| mean | | | | {off:.0f} % off | {' | '.join(cells)} |", "", away])


def settings(
    table: Table, y: np.ndarray, said: Sequence[Prediction], embedded: np.ndarray, k: int, seed: int
) -> dict[str, float]:
    """All of each of SETTINGS, from the same trainings."""
    votes, n_known, target = [Training.of(one) for one in said], len(table.known), table.target
    frozen, found = frozen_votes(embedded, target, k, len(votes), seed=seed), {}
    for name, some in SETTINGS.items():
        part = [votes[i] for i in some if i < len(votes)] or votes
        every = weigh_votes(part, frozen, BLENDS[name]) if name in BLENDS else part
        together = vote_consensus(every, n_known, k, carriers=len(part))
        found[name] = scores(table, y, pool_with_lda(together, embedded, target, k).category)["all"]
    return found


def trust(
    found: Discovery, table: Table, y: np.ndarray, category: np.ndarray, index: dict[str, int]
) -> dict[str, Any]:
    """The error of the probabilities, and how many of the intervals of purity hold, of how many."""
    free, probability = ~table.labelled, found.images["probability"].to_numpy(float)
    matched = clustering_accuracy(y[free], category[free], len(table.known)).assignment
    right, held = stand_for(matched, category, y), []
    for c in found.categories:
        rows = category == index[c.id]
        if (rows & free).any() and np.isfinite(c.purity_low):
            own = (
                (y[rows] == index[c.id]).mean()
                if c.kind == "known"
                else np.bincount(y[rows]).max() / rows.sum()
            )
            held.append(bool(c.purity_low <= own <= c.purity_high))
    judged = free & np.isfinite(probability)
    error = calibration_error(probability[judged], right[judged])
    return {"error": round(error, 4), "purity": [sum(held), len(held)]}


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """As Markdown, for each backbone and for both."""
    lines = [
        "| backbone | collections | All / Old / New | k-means | LDA and k-means | best of six | leak, worst | K off | "
        "range holds, its width | in use | calibration | purity holds |",
        f"|---|---:|{'---:|' * 10}",
    ]
    for name in ("embedded", "small", "both"):
        own = [row for row in rows if name in (row["backbone"], "both")]
        if not own:
            continue
        each = {row["name"]: [r for r in own if r["name"] == row["name"]] for row in own}

        def mean(key: str, each: dict[str, list[dict[str, Any]]] = each) -> np.ndarray:
            return np.array([np.mean([r[key] for r in some]) for some in each.values()])

        best = np.array(
            [max(np.mean([r["settings"][s] for r in some]) for s in SETTINGS) for some in each.values()]
        )
        k, estimate, low, high = (
            np.array([r[key] for r in own], float) for key in ("k", "estimate", "low", "high")
        )
        held, shown = np.array([r["purity"] for r in own]).sum(0)
        used = np.array([r["used"] / min(r["k"], r["estimate"]) for r in own])
        leak = mean("leak")
        cells = (
            name,
            str(len(each)),
            " / ".join(f"{mean(key).mean():.1f}" for key in ("all", "old", "new")),
            _gap(mean("all") - mean("kmeans")),
            _gap(mean("all") - mean("lda_kmeans")),
            _gap(mean("all") - best),
            f"{leak.mean():.0f} %, {leak.max():.0f} %",
            f"{100 * np.abs(estimate / k - 1).mean():.0f} %",
            f"{100 * ((low <= k) & (k <= high)).mean():.0f} %, {100 * np.median((high - low) / k):.0f} %",
            f"{100 * np.minimum(used, 1).mean():.0f} %",
            f"{mean('error').mean():.3f}",
            f"{100 * held / max(shown, 1):.0f} %",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def collection_table(rows: Sequence[dict[str, Any]]) -> str:
    """As Markdown, a line for each collection: means over its seeds."""
    lines = [
        "| collection | of | classes, known | labelled | sizes | images | seeds | K (range) | All | k-means "
        "| LDA and k-means | best of six | leak |",
        f"|---|---|{'---:|' * 11}",
    ]
    for backbone, number in sorted(
        {(r["backbone"], r["number"]) for r in rows}, key=lambda c: (c[0] != "small", c[1])
    ):
        own = [row for row in rows if (row["backbone"], row["number"]) == (backbone, number)]
        one = own[0]
        best = max(np.mean([row["settings"][s] for row in own]) for s in SETTINGS)
        means = [np.mean([row[key] for row in own]) for key in ("all", "kmeans", "lda_kmeans")]
        k, low, high = (round(np.mean([row[key] for row in own])) for key in ("estimate", "low", "high"))
        cells = (
            one["name"],
            DATASET_NAMES[one["dataset"]],
            f"{one['k']}, {one['known']}",
            f"{one['share']:.0%}".replace("%", " %"),
            f"{one['ratio']:g}:1, ×{one['times']:g}",
            f"{one['images']:,}",
            str(len(own)),
            f"{k} ({low}–{high})",
            *(f"{value:.1f}" for value in (*means, best)),
            f"{np.mean([row['leak'] for row in own]):.0f} %",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _gap(away: np.ndarray) -> str:
    """The mean difference, the lowest, and on how many collections it is above -1."""
    return f"{away.mean():+.1f} (lowest {away.min():+.1f}; above -1 on {(away > -1).sum()} of {len(away)})"


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__, device="auto", work="runs/defaults")
    parser.add_argument("--root", type=Path, help="folder of the data sets")
    parser.add_argument("--half", type=int, default=1, choices=(0, 1), help="0 for the half that chose")
    parser.add_argument("--small", help="weights of ViT-S/14; without them the embedded backbone alone")
    parser.add_argument("--only", nargs="+", help="names of collections, such as embedded0")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--effort", default=NORMAL, help="as in holotype discover; in a record of its own")
    parser.add_argument("--method", help="as in holotype discover; in a record of its own")
    parser.add_argument("--blank", action="store_true", help="take all labels away")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/defaults.jsonl"))
    parser.add_argument(
        "--table", action="store_true", help="print the table of the record, and nothing else"
    )
    given = parser.parse_args(words)
    lines = given.out.read_text(encoding="utf-8").splitlines() if given.out.is_file() else []
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    if not given.table:
        device = pick_device(given.device)
        made = run_facts("experiments/defaults.py", words, device)
        there = {(row["name"], row["half"], row["seed"], row.get("method")) for row in rows}
        given.out.parent.mkdir(parents=True, exist_ok=True)
        networks = {"embedded": "embedded"} | ({"small": given.small} if given.small else {})
        chosen = [s for kind in networks for s in specs(kind, given.half)]
        chosen, one = (
            (chosen[:BLANK], discover_blank)
            if given.blank
            else (chosen, partial(discover, effort=given.effort, method=given.method))
        )
        for seed in range(given.seeds):
            for spec in chosen:
                key = (spec.name, given.half, seed, given.method)
                if (given.only and spec.name not in given.only) or key in there:
                    continue
                row = one(spec, given.half, given.root, networks[spec.backbone], device, seed, given.work)
                rows.append(row | {"made": made})
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(
                    json.dumps(
                        {key: row.get(key) for key in ("name", "seed", "all", "kmeans", "leak", "seconds")}
                    ),
                    flush=True,
                )
    rows = [row for row in rows if row["half"] == given.half]
    print(blank_table(rows) if given.blank else f"{summary(rows)}\n\n{collection_table(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
