"""How well are images placed that come after a discovery, and would the second opinion help there?

    python benchmarks/new_images.py cub40 sample20 --cub DIR/CUB_200_2011
    python benchmarks/new_images.py --table

Collections: twenty.py. A third of the unlabelled images is kept aside; the others are discovered with four trainings,
RPC and UNO+ in turn, 300 steps, the number of categories told. Then those that were kept aside come. A category stands
for the class that it stands for among the images that were there. Ways to place them:

model      by the model that is kept, as `holotype assign` does
frozen     by a discriminant that has learned the categories from the features of the frozen backbone (opinion.py)
trained    the same on the features of the model
both       where (m + 0.1) (p + 0.1) is largest: m of the model, p of the frozen features

Rule, written after a first look at cub40 and sample20: `both` is to be built into `holotype assign`, `Discoverer` and
`holotype export` if, over cub43 to cub48, cifar43 to cifar48 and sample23 to sample28, `both` minus `model` has a 95 %
interval above 0; `frozen` alone if it is no more than half a point below `both`, since it is simpler.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from folder_methods import embed
from samples import given_words, stand_for
from script import add_record, add_roots, one_sentence, read_rows, roots_of
from twenty import Collection, find_collection

from holotype.categories.features import read_features
from holotype.categories.opinion import FLOOR, shares, teach
from holotype.categories.relations import unit
from holotype.cluster.evaluate import class_index, clustering_accuracy
from holotype.discovery.config import DiscoverConfig
from holotype.discovery.workflow import discover_table
from holotype.machine.device import Compute
from holotype.machine.files import write_text
from holotype.models.backbone import BackboneConfig, load_backbone
from holotype.runs.provenance import commit, hardware
from holotype.runs.trained import load_trained, predict

RECORD = Path("experiments/results/folders/new-images.json")
STEPS, SEEDS = 300, 4
ASIDE = 0.35
"""Share of the unlabelled images that come later."""
WAYS = ("model", "frozen", "trained", "both")
Row = dict[str, Any]


def divide(of: Collection) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the images that are there, and of those that come later."""
    free = np.flatnonzero(~of.table.labelled)
    later = np.sort(np.random.default_rng(1).permutation(free)[: int(ASIDE * len(free))])
    return np.setdiff1d(np.arange(len(of.table)), later), later


def judge(there: np.ndarray, category: np.ndarray, later: np.ndarray, k: int) -> np.ndarray:
    """(m, k) what a discriminant says of later images. there: (n, D) features of images in their categories (n,)."""
    middle = there.mean(axis=0)
    taught = teach(unit(there - middle), category, np.ones(len(there)), k)
    return shares(taught.scores(unit(later - middle)))


def measure(of: Collection, run: Path, embedded: np.ndarray, device: str) -> Row:
    """The share of later images that each way places right, in per cent. embedded: (N, D)."""
    started = time.monotonic()
    there, later = divide(of)
    table = dataclasses.replace(of.table.take(there), truth=None)
    config = DiscoverConfig(
        k=of.k,
        steps=STEPS,
        seeds=SEEDS,
        method="rpc,uno",
        backbone="embedded",
        long_tail="no",
        device=device,
    )
    found = discover_table(table, config, run, progress=False)
    model = load_trained(run, device)
    index = {id: number for number, id in enumerate(model.ids)}
    places = found.images.set_index("path").category_id
    category = np.array([index[places[str(path)]] for path in table.path])
    features = read_features(run, len(table))
    assert features is not None  # a discovery keeps them
    new = model.features([str(path) for path in of.table.path[later]]).features
    said, sure, _ = predict(model.method, new)
    m, k = np.zeros((len(later), len(index))), len(index)
    m[np.arange(len(later)), said] = sure
    frozen = judge(embedded[there].astype(float), category, embedded[later].astype(float), k)
    trained = judge(np.asarray(features, float), category, new.astype(float), k)
    ways = {"model": m, "frozen": frozen, "trained": trained, "both": (m + FLOOR) * (frozen + FLOOR)}
    return scored(of, there, later, category, {way: p.argmax(axis=1) for way, p in ways.items()}) | {
        "images": len(of.table),
        "later": len(later),
        "k": of.k,
        "seconds": round(time.monotonic() - started),
    }


def scored(
    of: Collection,
    there: np.ndarray,
    later: np.ndarray,
    category: np.ndarray,
    placed: dict[str, np.ndarray],
) -> Row:
    """Those that are right among the unlabelled images that were there, and among later ones by each way. category: of
    the images `there`; placed: of those that come later."""
    assert of.table.truth is not None
    n_known, _, y = class_index(of.table.known, of.table.truth.astype(str))
    free = ~of.table.labelled[there]
    own = clustering_accuracy(y[there][free], category[free], n_known)
    row = {"there": round(100 * own.all, 2)}
    for way, categories in placed.items():
        row[way] = round(100 * float(stand_for(own.assignment, categories, y[later]).mean()), 2)
    return row


def table(rows: dict[str, Row]) -> str:
    """As Markdown."""
    names = ("there", *WAYS)
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for name, row in rows.items():
        lines.append(f"| {name} | {' | '.join(f'{row[way]:.1f}' for way in names)} |")
    means = [f"{np.mean([row[way] for row in rows.values()]):.1f}" for way in names]
    return "\n".join([*lines, f"| mean | {' | '.join(means)} |"])


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collection", nargs="*", help="cub4, cifar4, sample0, ...")
    add_roots(parser)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto (default: cpu)")
    parser.add_argument("--work", type=Path, default=Path("runs/new-images"), help="folder of features and runs")
    add_record(parser, RECORD)
    given = parser.parse_args(words)
    rows: dict[str, Row] = read_rows(given.out, "new_images.py")
    roots = roots_of(given)
    made = {
        "command": " ".join(["python", "benchmarks/new_images.py", *given_words(words)]),
        "commit": commit(),
        "hardware": hardware(Compute.on(given.device).device),
    }
    for word in () if given.table else given.collection:
        of = find_collection(word, roots, given.work)
        embedded = embed(of, load_backbone(BackboneConfig("embedded")), given.device, given.work)
        rows[word] = measure(of, given.work / word, embedded, given.device) | {"made": made}
        print(word, rows[word], flush=True)
        write_text(given.out, json.dumps({"rows": rows}, indent=1) + "\n")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
