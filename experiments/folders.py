"""Which method suits a folder of photos? Several of them on small collections, trained as `holotype discover` trains.

    python experiments/folders.py cub4 cifar4 --methods simgcd,rpc --cub DIR/CUB_200_2011 --cifar DIR/cifar100-200
    python experiments/folders.py --table

Collections: harness.py. Each method trains every collection with nine seeds and its settings for a folder, and the
images are placed where the nine agree, as a discovery places them. All of them are told the number of categories, or
count it with `--k counted`, as a discovery does. With `--seeds 27` there are more trainings, of which the first nine
agree. The record is written after each method, and what it holds is not trained again. What the trainings say is kept
in --work, and so are the features that were counted by; --mix and votes.py read them.

Rule, written before the runs. `holotype discover` trains with RPC. On cub4 to cub6 and cifar4 to cifar6, the method is
looked for whose nine agree on the highest All in the mean. If that is not RPC and it lies at least a point above RPC,
it is looked at once more, beside RPC alone, on collections that chose nothing: cub7 to cub12, cifar7 to cifar12 and the
parts 0, 2, 4, 6 and 8 of the embedded sample. If its All minus that of RPC has a 95 % interval above 0 there, over
collections and by Student's t, it becomes the method of `holotype discover`. Methods that train on images (PromptCAL,
SPTNet) take too long for such collections on a CPU, and are left out.

Rules for what comes next, written before any of its runs: rpc and uno in turn, weighed (votes.py), on cub32 to cub37
and cifar32 to cifar37 with the number of categories counted. Steps of a GPU: --steps 6000, 1500 and 500 with nine
seeds; it takes the fewest whose All lies at most half a point below the best, in the mean over collections. Many short
trainings in place of few long ones: --steps 250 with 18 seeds; if All of eighteen minus that of nine with 500 steps has
a 95 % interval above 0, steps are halved and trainings doubled on a CPU.

With --mix, do trainings of two methods agree on more than as many trainings of one?

    python experiments/folders.py --mix cub4 cifar4 --cub DIR/CUB_200_2011 --cifar DIR/cifar100-200
    python experiments/folders.py --mix --table

That reads what trainings have said, and trains nothing. For 1, 2, 3, 5 and
9 trainings, six times: as many of RPC, as many of UNO+, or as many of both in turn, drawn at random out of nine each.
At 9, those of one method are always the same nine.

How it came about: the rule above asked for one method. That mixtures may do better was thought of after
the first six collections were trained. Eight mixtures of RPC, UNO+ and ProtoGCD were tried on the six, and again on ten
of the thirteen others, before equal turns of RPC and UNO+ were settled on. So all nineteen took part in the choice. The
record of those that did not is experiments/results/folders.jsonl#confirmed (--out).

Rules, written before their runs, for rpc and uno, nine in turn minus nine of RPC, with its 95 % interval over
collections. With 500 steps, on cub12 to cub17 and cifar12 to cifar17: unless it is above 0, a CPU goes back to RPC
alone. With --steps 6000, on cub12 to cub14 and cifar12 to cifar14 (twelve would take too long): if it is above 0, the
two take turns on a GPU too (discovery/training_plan.py); that was not run to its end. Of these six there are 18
seeds of each
method with 500 steps (27 were planned). A claim, for nine in turn: over divisions of them into
groups, drawn at random, the standard deviation of All (the root of the mean variance) is at most half of that of one
training of RPC, and the mean no lower (votes.py --divisions).
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness import (
    RESULTS,
    Collection,
    Judge,
    find_collection,
    in_words,
    interval_of,
    one_sentence,
    read_rows,
    roots_of,
    run_facts,
    script_parser,
    write_record,
)
from holotype.clustering.estimate_k import estimate_table
from holotype.clustering.metrics import clustering_accuracy
from holotype.config.schema import BackboneConfig
from holotype.discovery.training_plan import plan_training, train_side_by_side
from holotype.embeddings.store import embed_table
from holotype.errors import InputError
from holotype.models.backbone import Backbone, load_backbone
from holotype.results.ensemble import Training, vote_consensus
from holotype.runs.experiment import Experiment
from holotype.runs.resources import ResourceCache, RunData
from holotype.utils.device import Device, pick_device

STEPS = 500
RECORD = RESULTS / "folders.jsonl#methods"
REFERENCE = "rpc"
SEEDS = 9
SCORES = ("all", "old", "new")
Row = dict[str, Any]
"""What a method made of a collection."""


def measure(
    of: Collection, experiment: Experiment, backbone: Backbone, kept: Path, seeds: int = SEEDS
) -> Row:
    """Scores of each training, and of where the first nine agree. kept: file for what they say."""
    started = time.monotonic()
    table = dataclasses.replace(of.table, truth=None)
    with tempfile.TemporaryDirectory() as folder:
        experiment = dataclasses.replace(experiment, out=folder, progress=False)
        shelf = ResourceCache(data=RunData(table, of.k), backbone=backbone)
        _, said, _ = train_side_by_side([experiment], range(seeds), shelf)
    seconds = time.monotonic() - started
    category = np.stack([one.category.numpy() for one in said])
    probability = np.stack([one.probability.float().numpy() for one in said])
    kept.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        kept, category=category.astype(np.int16), probability=probability.astype(np.float16), k=np.array(of.k)
    )
    each = [scores(of, one) for one in category]
    return {
        "collection": of.name,
        "method": experiment.method_name,
        "images": len(of.table),
        "k": of.k,
        "one": {key: [one[key] for one in each] for key in SCORES},
        "nine": scores(of, together(of, category[:SEEDS], probability[:SEEDS])),
        "seconds": round(seconds, 1),
    }


def counted(of: Collection, embedded: np.ndarray, device: str) -> Collection:
    """The collection with as many categories as a discovery would train."""
    table = dataclasses.replace(of.table, truth=None)
    return dataclasses.replace(of, k=estimate_table(table, embedded, device).best)


def embed(of: Collection, backbone: Backbone, device: str, work: Path) -> np.ndarray:
    """(N, D) features of the frozen backbone; read where they are kept."""
    kept = work / "embedded" / f"{of.name}.npz"
    if not kept.is_file():
        table = dataclasses.replace(of.table, truth=None)
        with tempfile.TemporaryDirectory() as folder:
            found = embed_table(table, backbone, Device.on(device), Path(folder), progress=False)
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept, f=found.features.astype(np.float16))
    return np.load(kept)["f"].astype(np.float32)


def read_said(work: Path, collection: str, method: str) -> tuple[np.ndarray, np.ndarray, int]:
    """(S, N) categories, how sure each training is of them, and how many there are. work: of the trainings."""
    file = work / "said" / f"{collection}+{method}.npz"
    if not file.is_file():
        raise InputError(f"{file} is not there; train it with experiments/folders.py --methods {method}.")
    with np.load(file) as kept:
        return kept["category"].astype(np.int64), kept["probability"].astype(np.float32), int(kept["k"])


def together(of: Collection, category: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """(N,) where trainings place the images together. category, probability: (S, N)."""
    voices = [Training(*one) for one in zip(category, probability, strict=True)]
    return vote_consensus(voices, len(of.table.known), of.k).category


def scores(of: Collection, category: np.ndarray) -> dict[str, float]:
    """All, Old and New of the unlabelled images, in per cent."""
    judge = Judge.make(of)
    found = clustering_accuracy(judge.y[judge.free], category[judge.free], judge.n_known)
    return {key: round(100 * getattr(found, key), 2) for key in SCORES}


def summarise(rows: Sequence[Row]) -> dict[str, Row]:
    """For each method: All of one training and of nine in the mean over collections, the deviation of one (the root of
    the mean variance), and nine minus nine of the reference on each of the collections that both have."""
    by = {(row["method"], row["collection"]): row for row in rows}
    told = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        pairs = [
            (row["nine"], by[REFERENCE, row["collection"]]["nine"])
            for row in own
            if (REFERENCE, row["collection"]) in by
        ]
        told[method] = {
            "collections": len(own),
            "one": float(np.mean([np.mean(row["one"]["all"]) for row in own])),
            "deviation": float(np.sqrt(np.mean([np.var(row["one"]["all"], ddof=1) for row in own]))),
            **{key: float(np.mean([row["nine"][key] for row in own])) for key in SCORES},
            "minus": [mine["all"] - theirs["all"] for mine, theirs in pairs],
        }
    return told


def table(rows: Sequence[Row]) -> str:
    """As Markdown, the best first."""
    told = sorted(summarise(rows).items(), key=lambda item: -item[1]["all"])
    lines = [
        f"| method | collections | All, one training | All, ensemble of nine | Old | New | All minus {REFERENCE} |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for method, one in told:
        pairs = one["minus"]
        away = ""
        if method != REFERENCE and len(pairs) > 1:
            low, high = interval_of(pairs)
            above = sum(pair > 0 for pair in pairs)
            away = f"{np.mean(pairs):+.1f} ({low:.1f} to {high:.1f}), above in {above} of {len(pairs)}"
        lines.append(
            f"| {method} | {one['collections']} | {one['one']:.1f} ± {one['deviation']:.1f} | {one['all']:.1f} "
            f"| {one['old']:.1f} | {one['new']:.1f} | {away} |"
        )
    return "\n".join(lines)


def line(row: Row) -> str:
    one, nine = row["one"]["all"], row["nine"]["all"]
    return (
        f"{row['collection']:12} {row['method']:10} one {np.mean(one):5.1f} ± {np.std(one, ddof=1):3.1f}, "
        f"nine {nine:5.1f} ({row['seconds']:.0f} s)"
    )


def make_parser() -> argparse.ArgumentParser:
    parser = script_parser(__doc__, roots=True, device="cpu")
    parser.add_argument("collection", nargs="*", help="cub4, cub4-uneven, cifar4, sample0, ...")
    parser.add_argument("--methods", default=REFERENCE, help="separated by commas (default: rpc)")
    parser.add_argument("--backbone", default="embedded", help="name or file (default: embedded)")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"trainings of each (default: {SEEDS})")
    parser.add_argument(
        "--k", choices=("told", "counted"), default="told", help="the number of categories (default: told)"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("runs/folders"), help="folder of what trainings say"
    )
    parser.add_argument("--mix", action="store_true", help="mixtures of what trainings have said")
    parser.add_argument("--out", type=Path, help=f"the record (default: {RECORD}, with --mix {MIX_RECORD})")
    parser.add_argument(
        "--table", action="store_true", help="print the table of the record, and nothing else"
    )
    return parser


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    given = make_parser().parse_args(words)
    given.out = given.out or (MIX_RECORD if given.mix else RECORD)
    if given.mix:
        return mix(given, words)
    rows: list[Row] = list(read_rows(given.out, "folders.py"))
    if given.table:
        print(table(rows))
        return 0
    if not given.collection:
        raise InputError("Name the collections to train, such as cub4 or sample0, or ask for the --table.")
    roots = roots_of(given)
    network, device = BackboneConfig(given.backbone), pick_device(given.device)
    backbone = load_backbone(network)
    made = run_facts("experiments/folders.py", words, given.device)
    made |= {"backbone": backbone.name, "steps": given.steps, "seeds": given.seeds}
    there = {(row["collection"], row["method"]) for row in rows}
    for word in given.collection:
        of = find_collection(word, roots, given.work)
        absent = [method for method in given.methods.split(",") if (word, method) not in there]
        if absent and given.k == "counted":
            of = counted(of, embed(of, backbone, given.device, given.work), given.device)
        for method in absent:
            experiment = plan_training(method, of.table, of.k, given.steps, device, network)
            kept = given.work / "said" / f"{word}+{method}.npz"
            rows.append(measure(of, experiment, backbone, kept, given.seeds) | {"made": made})
            print(line(rows[-1]), flush=True)
            write_record(given.out, {"rows": rows})
    print(table(rows))
    return 0


MIX_RECORD = RESULTS / "folders.jsonl#mixed"
IN_TURN = ("rpc", "uno")
MIXED = "mixed"
NUMBERS = (1, 2, 3, 5, 9)
DRAWS = 6
FIRST = ("cub4", "cub5", "cub6", "cifar4", "cifar5", "cifar6")
Mixed = dict[str, dict[str, float]]
"""Trainings -> method, or `mixed` -> All in the mean over the draws."""


def measure_mix(of: Collection, work: Path) -> Mixed:
    said = [[part[:SEEDS] for part in read_said(work, of.name, method)[:2]] for method in IN_TURN]

    def all_of(*picks: np.ndarray) -> float:
        """picks: of each method, which trainings take part."""
        some = [(one[0][rows], one[1][rows]) for one, rows in zip(said, picks, strict=True)]
        category, probability = (np.concatenate(parts) for parts in zip(*some, strict=True))
        return scores(of, together(of, category, probability))["all"]

    none, found = np.arange(0), {}
    for n in NUMBERS:
        random = np.random.default_rng(n)
        draws = [(random.permutation(SEEDS), random.permutation(SEEDS)) for _ in range(DRAWS)]
        kinds = {
            IN_TURN[0]: [all_of(first[:n], none) for first, _ in draws],
            IN_TURN[1]: [all_of(none, second[:n]) for _, second in draws],
        }
        if n > 1:
            kinds[MIXED] = [all_of(first[: (n + 1) // 2], second[: n // 2]) for first, second in draws]
        found[str(n)] = {kind: round(float(np.mean(values)), 2) for kind, values in kinds.items()}
    return found


def mix_table(rows: dict[str, Mixed]) -> str:
    """As Markdown. rows: by collection. Where the first six are among them, a last column is of the others."""
    later = [name for name in rows if name not in FIRST]
    groups = {"in turn minus rpc": list(rows)} | (
        {"on the thirteen": later} if len(later) < len(rows) else {}
    )
    lines = [
        f"| trainings | rpc | uno | in turn | {' | '.join(groups)} |",
        f"|---:|---:|---:|---:|{'---|' * len(groups)}",
    ]
    for n in NUMBERS:
        one = {kind: [rows[name][str(n)].get(kind) for name in rows] for kind in (*IN_TURN, MIXED)}
        cells = [f"{np.mean(values):.1f}" if None not in values else "" for values in one.values()]
        away = [in_words(_pairs(rows, names, n)) if n > 1 else "" for names in groups.values()]
        lines.append(f"| {n} | {' | '.join([*cells, *away])} |")
    return "\n".join(lines)


def _pairs(rows: dict[str, Mixed], names: Sequence[str], n: int) -> list[float]:
    return [rows[name][str(n)][MIXED] - rows[name][str(n)][IN_TURN[0]] for name in names]


def mix(given: argparse.Namespace, words: Sequence[str] | None) -> int:
    """Mixtures of what trainings have said."""
    rows: dict[str, Mixed] = read_rows(given.out, "folders.py")
    roots = roots_of(given)
    for word in () if given.table else given.collection:
        rows[word] = measure_mix(find_collection(word, roots, given.work), given.work)
        made = run_facts("experiments/folders.py", words, methods=IN_TURN, draws=DRAWS)
        write_record(given.out, made | {"rows": rows})
    print(mix_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
