"""How much of a discovery is the seed? One training against several that agree, and sizes from the labels.

    python experiments/stability.py cub0 cub1 --cub DIR/CUB_200_2011
    python experiments/stability.py cub0 --cub DIR/CUB_200_2011 --way whole --seeds 9 --together 3

Collections: harness.py. Ways of training: `frozen`, a quick stand-in: a classifier on the
features of the frozen backbone, and `whole`, as holotype discover
trains (RPC on the token cache). Every collection is trained with as many seeds, for equal and for different sizes.
`together` of them, each used once, make a consensus (results/ensemble.py); what the labels say of sizes chooses one
of the two (clustering/class_size.py). All is that of one training, and of each consensus. Pools are kept in
--work.

Rules, as they were fixed before cub0 to cub3 (equal and uneven), cifar2, cifar3 and their uneven forms were looked at:
- Chosen on sample1, 3, 5, 7, 9, cifar0, cifar1 and the uneven and tail forms of these two, by the frozen way.
- Votes weigh as much as a training is sure of them. Sums of all probabilities came to the same (All 61.9 and 50.6
  against 61.9 and 50.5 in the mean over samples and CIFAR), unweighted votes to 0.3 less; k-means on the
  concatenated votes and average linkage on the co-association to 0.3 to 0.8 more on the samples, with a larger
  deviation (2.3 and 2.6 against 1.9); the training that agrees best with the others to 0.3 to 0.8 less. Weights by how
  sure a training is in the mean, by its agreement with the others, and a vote of k-means moved All by less than 0.3.
- More trainings are better: All was 53.5 ± 3.0 with one and equal sizes, 55.0 ± 2.4 with three and the chosen sizes,
  55.5 ± 2.4 with five, 56.2 ± 1.5 with eight. So as many are taken as time allows, nine at most.
- Different sizes are expected from s = 1/3 on, with b below 1/2 (unevenness.py): with true sizes of 2.4 to 1 equal
  sizes were better by 0.3 to 3.6, from 3.4 to 1 on different ones by 0.4 to 3.5.
- The claim, by the frozen way: over the collections that chose nothing, the standard deviation of All over seeds (the
  root of the mean variance) with eight trainings and the chosen sizes is at most half of that with one training and
  equal sizes, and the mean All no lower. Five trainings are told beside it.
- The claim, by whole trainings, written before cub4 to cub6 and cifar4 to cifar6 were looked at: the same with nine
  trainings, as many as `holotype discover` made where one took less than 30 seconds; 27 seeds of each collection.
- After these six were looked at, and chosen on them: every training is tried as the start of the consensus (three
  groups of nine: 58.7 ± 1.9, from the nearest one alone 58.3 ± 2.2; one training 54.5 ± 3.1), and there are fifteen
  trainings where one takes ten seconds at most.

Prototypes that begin at the centres of a k-means, the same for every seed, were tried and decided against. The flag
`--start centres` went with them; it can be run at commit a7efc5b6c5cf. The rules, each written before its runs:
- Chosen on sample1, 3, 5, 7, 9, cifar0 and cifar1, by the frozen way: the best of 100 starts of the k-means, the same
  for every seed. The others looked at were a random start, and the best of one and of ten, others for each seed.
- By the frozen way, on the second half, five trainings from centres should have no lower mean All than five from
  anywhere, and at most half the deviation of one from anywhere. The mean rose from 54.95 to 55.26. The deviation was
  1.22, and half of that of one training was 1.08. The whole trainings of the samples that were to follow were stopped
  after two of five.
- By whole trainings of cub4 to cub6 and cifar4 to cifar6, nine together should have All of 58.41 at least, as from
  anywhere, and over 12 divisions a deviation of at most 1.53. Four of the six were trained. Each fell, by 0.6 to 5.9
  points in the same three groups, and the rule was out of reach (docs/studies/ensembles.md).
- After the frozen ones, and no part of the rules: four starts from a k-means in a space whitened by the labelled
  classes, on the first seven; and how good such a k-means is by itself, on the second half too. For a start of that
  kind these collections have chosen, and others must confirm it.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness import (
    RESULTS,
    Collection,
    Judge,
    find_collection,
    one_sentence,
    roots_of,
    run_facts,
    script_parser,
    write_record,
)
from holotype.clustering.class_size import measure_imbalance
from holotype.config.schema import BackboneConfig
from holotype.data.image_store import ImageStore
from holotype.data.table import Table
from holotype.discovery.training_plan import plan_training, train_side_by_side
from holotype.errors import InputError
from holotype.methods.simgcd import SHARE_MOMENTUM, SHARE_POWER, SimGCDConfig
from holotype.models.backbone import load_backbone
from holotype.models.token_cache import CacheViews
from holotype.results.ensemble import Training, category_stability, vote_consensus
from holotype.runs.resources import ResourceCache, RunData
from holotype.training.build_token_cache import draw_view
from holotype.training.encoder import Encoder
from holotype.utils.device import Device, pick_device

VIEWS = CacheViews(4, 2)
STEPS, BATCH, RATE, WARMUP = 500, 64, 0.1, 0.05
TEACHER = 0.3
"""Share of the steps in which the teacher's temperature falls."""


@torch.no_grad()
def embed_views(table: Table, kept: Path) -> np.ndarray:
    """(N, 5, D) features of the centre and of four weak views of every image; read where they are kept."""
    if kept.is_file():
        return np.load(kept)["f"]
    backbone = load_backbone(BackboneConfig("embedded"))
    encoder = Encoder(backbone, Device.on("cpu"))
    store = ImageStore.decode([str(path) for path in table.path], backbone.image_size, progress=False)
    rows = torch.arange(len(table))
    found = torch.zeros(len(table), 1 + VIEWS.weak, backbone.dim)
    for place, view in enumerate((VIEWS.centre, *range(VIEWS.weak))):
        crops = draw_view(store, rows, VIEWS, view)
        for part in rows.split(BATCH):
            tokens = encoder.inputs(store.crop(part, crops.take(part)))
            found[part, place] = encoder.tail(tokens).float()
    kept.parent.mkdir(parents=True, exist_ok=True)
    np.savez(kept, f=found.numpy())
    return found.numpy()


def train_frozen(
    features: np.ndarray,
    target: np.ndarray,
    k: int,
    seeds: Sequence[int],
    long_tail: bool,
    steps: int = STEPS,
) -> tuple[np.ndarray, np.ndarray]:
    """(S, N, k) probabilities, and (S, D, D) the linear layers. features: of embed_views. target: (N,), -1: none."""
    x, label = torch.from_numpy(features), torch.from_numpy(target)
    draws = [torch.Generator().manual_seed(1000 + seed) for seed in seeds]
    dim, bound = x.shape[2], 1 / math.sqrt(x.shape[2])
    heads = torch.stack([torch.empty(k, dim).uniform_(-bound, bound, generator=g) for g in draws])
    layers = torch.eye(dim).repeat(len(seeds), 1, 1)
    learn = [heads.requires_grad_(), layers.requires_grad_()]
    optimiser = torch.optim.SGD(learn, lr=RATE, momentum=0.9, weight_decay=5e-5)
    share = torch.full((len(seeds), k), 1 / k)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate(step, steps)
        rows = torch.stack([torch.randint(len(x), (BATCH,), generator=g) for g in draws])
        view = torch.stack([torch.randint(1, x.shape[1], (2, BATCH), generator=g) for g in draws])
        seen = torch.cat([x[rows, view[:, 0]], x[rows, view[:, 1]]], dim=1)
        q = cosines(seen, layers, heads)
        loss, share = terms(q, label[rows], share, step / steps, long_tail)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        q = cosines(x[:, 0].expand(len(seeds), -1, -1), layers, heads)
        return (q / SimGCDConfig.tau).softmax(-1).numpy(), layers.detach().numpy()


def rate(step: int, steps: int) -> float:
    cosine = 1e-3 + (1 - 1e-3) * 0.5 * (1 + math.cos(math.pi * step / steps))
    return RATE * min(1, (step + 1) / (WARMUP * steps)) * cosine


def cosines(x: Tensor, layers: Tensor, heads: Tensor) -> Tensor:
    """(S, n, D) -> (S, n, k)."""
    return torch.bmm(unit(torch.bmm(x, layers)), unit(heads).transpose(1, 2))


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6)


def terms(q: Tensor, label: Tensor, share: Tensor, done: float, long_tail: bool) -> tuple[Tensor, Tensor]:
    """The loss, summed over seeds, and the running shares of the categories. q: (S, 2 B, k), label: (S, B)."""
    c, k = SimGCDConfig(), q.shape[-1]
    heat = c.teacher_temp_start + (c.teacher_temp - c.teacher_temp_start) * min(1, done / TEACHER)
    log_p = (q / c.tau).log_softmax(-1)
    with torch.no_grad():
        sharp = (q / heat).softmax(-1)
        teacher = torch.cat([sharp[:, BATCH:], sharp[:, :BATCH]], dim=1)
    distilled = -(teacher * log_p).sum(-1).mean(-1)
    mean = log_p.exp().mean(1)
    if long_tail:
        prior = share.clamp_min(1e-3 / k) ** SHARE_POWER
        prior = prior / prior.sum(-1, keepdim=True)
        balance = (mean * (mean.clamp_min(1e-30).log() - prior.log())).sum(-1)
        share = SHARE_MOMENTUM * share + (1 - SHARE_MOMENTUM) * sharp.mean(1)
    else:
        balance = (mean * mean.clamp_min(1e-30).log()).sum(-1) + math.log(k)
    labelled = (label >= 0).float().repeat(1, 2)
    own = -log_p.gather(-1, label.clamp_min(0).repeat(1, 2)[..., None])[..., 0]
    supervised = (own * labelled).sum(1) / labelled.sum(1).clamp_min(1)
    return ((1 - c.lam) * (distilled + c.memax_weight * balance) + c.lam * supervised).sum(), share


SIZES = {"equal": False, "different": True}
BACKBONE = "embedded"
AT_ONCE = {"cpu": 3}
"""Whole trainings that take turns."""
AT_ONCE_ELSEWHERE = 9


def pool(of: Collection, way: str, sizes: str, seeds: int, steps: int, work: Path, device: str) -> np.ndarray:
    """(S, N, k) float16 probabilities of the trainings with the seeds 0, 1, ...; read where they are kept."""
    if way == "frozen":
        kept = work / "pools" / f"{of.name}+{sizes}.npz"
        if not kept.is_file() or len(np.load(kept)["p"]) < seeds:
            features = embed_views(of.table, work / "features" / f"{of.name}.npz")
            p, _ = train_frozen(features, of.table.target, of.k, range(seeds), SIZES[sizes], steps)
            keep(kept, p)
        return np.load(kept)["p"][:seeds]
    files = [work / "whole" / f"{of.name}+{sizes}+{steps}+{seed}.npz" for seed in range(seeds)]
    absent = [seed for seed, file in enumerate(files) if not file.is_file()]
    at_once = AT_ONCE.get(pick_device(device), AT_ONCE_ELSEWHERE)
    for first in range(0, len(absent), at_once):
        some = absent[first : first + at_once]
        for seed, p in zip(some, train_whole(of, some, SIZES[sizes], steps, device), strict=True):
            keep(files[seed], p)
    return np.stack([np.load(file)["p"] for file in files])


def keep(file: Path, p: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, p=p.astype(np.float16))


def train_whole(
    of: Collection, seeds: Sequence[int], long_tail: bool, steps: int, device: str
) -> list[np.ndarray]:
    """(N, k) probabilities of each, trained as a discovery on that device is."""
    network, table = BackboneConfig(BACKBONE), dataclasses.replace(of.table, truth=None)
    shelf = ResourceCache(data=RunData(table, of.k), backbone=load_backbone(network))
    experiment = plan_training("rpc", len(of.table), of.k, steps, pick_device(device), network)
    experiment.method.memax_target = "estimated" if long_tail else "uniform"
    with tempfile.TemporaryDirectory() as folder:
        experiment.out, experiment.progress = folder, False
        runs, _ = train_side_by_side([experiment], seeds, shelf)
        with torch.no_grad():
            found = [run.loop.method.logits(run.loop.features).softmax(-1) for run in runs]
        return [p.float().cpu().numpy() for p in found]


def voices(p: np.ndarray) -> list[Training]:
    """p: (S, N, k)."""
    return [Training(one.argmax(1), one.max(1).astype(np.float32)) for one in p]


def judge(
    of: Collection,
    way: str,
    trained: Sequence[str],
    seeds: int,
    together: int,
    steps: int,
    work: Path,
    device: str = "cpu",
    redrawn: int = 0,
) -> dict[str, Any]:
    """All figures of a collection. trained: sizes that were expected, of SIZES. redrawn: further divisions of the seeds
    into groups, at random."""
    judge, table = Judge.make(of), of.table
    embedded = embed_views(table, work / "features" / f"{of.name}.npz")[:, 0]
    sizes = measure_imbalance(torch.from_numpy(embedded), torch.from_numpy(table.target), len(table.known))
    chosen = "different" if sizes.uneven else "equal"
    row: dict[str, Any] = {
        "collection": of.name,
        "images": len(table),
        "k": of.k,
        "ratio": round(of.ratio, 1),
    }
    row |= {"spread": plain(sizes.spread), "bias": plain(sizes.bias), "chosen": chosen, "all": {}}
    if chosen not in trained:
        raise InputError(
            f"The labels of {of.name} choose {chosen} sizes, which were not trained; name them in --sizes."
        )
    for name in trained:
        p = pool(of, way, name, seeds, steps, work, device)
        groups = [p[first : first + together] for first in range(0, seeds - together + 1, together)]
        found = [vote_consensus(voices(group), judge.n_known, of.k) for group in groups]
        row["all"][name] = {
            "one": [round(judge.score(one.argmax(1)), 2) for one in p],
            "several": [round(judge.score(one.category), 2) for one in found],
        }
        draws = [np.random.default_rng(number).permutation(seeds) for number in range(redrawn)]
        if draws:
            row["all"][name]["redrawn"] = [
                [
                    round(judge.score(vote_consensus(voices(p[some]), judge.n_known, of.k).category), 2)
                    for some in np.split(draw, range(together, seeds, together))
                    if len(some) == together
                ]
                for draw in draws
            ]
        if name == chosen:
            row["error"] = {
                "one": round(judge.error(p[0].argmax(1), embedded), 4),
                "several": round(judge.error(found[0].category, embedded), 4),
            }
            row["returns"] = [pair for one in found for pair in fates(judge, one.category, one.trainings)]
    return row


def plain(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 3)


def fates(judge: Judge, category: np.ndarray, trainings: np.ndarray) -> list[list[float]]:
    """Of each new category: in how many trainings it comes back, and how pure it is."""
    free = np.where(judge.free, category, -1)
    found = category_stability(free, trainings, judge.of.k)
    pairs = [(found[c].times, judge.purity(category, c)) for c in range(judge.n_known, judge.of.k)]
    return [[times, round(purity, 3)] for times, purity in pairs if not np.isnan(purity)]


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over collections; deviations as the root of the mean variance (ddof 1)."""
    told = {}
    for name, pick in {
        "before": lambda row: row["all"]["equal"]["one"],
        "several, equal sizes": lambda row: row["all"]["equal"]["several"],
        "one, chosen sizes": lambda row: row["all"][row["chosen"]]["one"],
        "now": lambda row: row["all"][row["chosen"]]["several"],
    }.items():
        values = [pick(row) for row in rows]
        several = [one for one in values if len(one) > 1]
        told[name] = {
            "mean": round(float(np.mean([np.mean(one) for one in values])), 2),
            "deviation": round(float(np.sqrt(np.mean([np.var(one, ddof=1) for one in several]))), 2)
            if several
            else None,
            "n": sum(len(one) for one in values),
        }
    divisions = [one for row in rows for one in row["all"][row["chosen"]].get("redrawn", [])]
    if divisions:
        told["now, redrawn"] = {
            "mean": round(float(np.mean(divisions)), 2),
            "deviation": round(float(np.sqrt(np.mean(np.var(divisions, axis=1, ddof=1)))), 2),
            "n": len(divisions),
        }
    return told


def line(row: dict[str, Any]) -> str:
    def cell(values: Sequence[float]) -> str:
        return (
            f"{np.mean(values):5.1f} ± {np.std(values, ddof=1):3.1f}"
            if len(values) > 1
            else f"{values[0]:5.1f}"
        )

    parts = [f"{row['collection']:14}", f"s {row['spread']}", f"{row['chosen']:9}"]
    parts += [f"{size} {cell(one['one'])} -> {cell(one['several'])}" for size, one in row["all"].items()]
    return " | ".join([*parts, f"error {row['error']['one']:.3f} -> {row['error']['several']:.3f}"])


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__, roots=True, work="runs/stability")
    parser.add_argument("collection", nargs="+", help="cub0, cub0-uneven, cifar0, cifar0-tail, sample1, ...")
    parser.add_argument("--way", choices=("frozen", "whole"), default="frozen")
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), default=list(SIZES))
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--together", type=int, default=5, help="trainings of a consensus")
    parser.add_argument(
        "--redrawn",
        type=int,
        default=0,
        help="further divisions of the seeds into groups, at random: with few groups the deviation is known badly",
    )
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument(
        "--device", default="cpu", help="of whole trainings: cpu, cuda or auto (default: cpu)"
    )
    parser.add_argument("--out", type=Path, help="record (default: experiments/results/stability.jsonl#WAY)")
    given = parser.parse_args(words)
    if given.together < 2 or given.seeds < given.together:
        raise InputError("A consensus is of at least 2 trainings, and there must be as many seeds.")
    roots = roots_of(given)
    torch.set_num_threads(1)
    rows = []
    for word in given.collection:
        of = find_collection(word, roots, given.work)
        wanted = (given.way, given.sizes, given.seeds, given.together, given.steps, given.work, given.device)
        rows.append(judge(of, *wanted, redrawn=given.redrawn))
        print(line(rows[-1]), flush=True)
    told = summarise(rows)
    for name, one in told.items():
        print(f"{name}: {one['mean']} ± {one['deviation']} (n = {one['n']})")
    out = given.out or RESULTS / f"stability.jsonl#{given.way}"
    made = run_facts("experiments/stability.py", words, given.device) | {
        "way": given.way,
        "seeds": given.seeds,
        "together": given.together,
        "steps": given.steps,
        "summary": told,
        "collections": rows,
    }
    write_record(out, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
