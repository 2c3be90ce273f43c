"""Discoveries on the embedded sample and on parts of it, with the truth that only a benchmark has.

`full3` is the whole sample trained with seed 3, as `holotype demo` does it. `part3` is a collection drawn with seed 3:
six to ten of the classes, half of them known, of equal or uneven sizes, with a half to a tenth of the known images
labelled; parts with an odd number are told how many categories there are. Run folders are kept, so that a second script
finds them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holotype.categories.features import read_features
from holotype.cluster.evaluate import clustering_accuracy
from holotype.data.benchmarks import load_benchmark
from holotype.data.protocol import gcd_split
from holotype.data.table import Table
from holotype.discovery.config import DiscoverConfig
from holotype.discovery.demo import STEPS, write_sample
from holotype.discovery.workflow import discover_table
from holotype.errors import InputError
from holotype.machine.device import Compute
from holotype.machine.files import write_text
from holotype.models.backbone import load_backbone
from holotype.runs.embed import embed_table
from holotype.runs.provenance import commit, hardware
from holotype.runs.said import predict
from holotype.runs.trained import load_trained

CASE = re.compile(r"(full|part)(\d+)")


@dataclass(frozen=True)
class Case:
    """A collection with its truth, and how it is discovered."""

    name: str
    table: Table
    truth: np.ndarray
    """(N,) str."""
    k: int | Literal["auto"]
    seed: int


@dataclass(frozen=True)
class Found:
    """What a discovery made of a case."""

    case: Case
    k: int
    said: np.ndarray
    """(N,) the method's category of each image, labelled or not."""
    score: np.ndarray
    """(N,) the method's own score of it."""
    features: np.ndarray
    """(N, D) trained."""
    embedded: np.ndarray
    """(N, D) of the frozen backbone."""

    @property
    def category(self) -> np.ndarray:
        """(N,) as it is placed: a label has the last word."""
        table = self.case.table
        return np.where(table.labelled, table.target, self.said)


def find_case(word: str, work: Path) -> Case:
    """The case of a name such as full0 or part3. The sample is written into `work`."""
    named = CASE.fullmatch(word)
    if named is None:
        raise InputError(f"{word!r} is no collection; name it full0, full1, ... or part0, part1, ...")
    benchmark = load_benchmark("fashion-sample")
    whole = write_sample(gcd_split(benchmark), work / "sample")
    truth, seed = np.asarray(benchmark.train.label, dtype=object), int(named[2])
    return Case(word, whole, truth, "auto", seed) if named[1] == "full" else draw_part(whole, truth, seed)


def draw_part(whole: Table, truth: np.ndarray, seed: int) -> Case:
    """Some of the classes of a table. truth: (N,)."""
    random = np.random.default_rng(1000 + seed)
    n, share = int(random.choice([6, 8, 10])), float(random.choice([0.5, 0.5, 0.25, 0.1]))
    chosen = random.permutation(np.array(sorted(set(truth))))[:n]
    rows = np.flatnonzero(np.isin(truth, chosen))
    if random.random() < 0.5:  # of uneven sizes
        each = [np.flatnonzero(truth == name) for name in chosen]
        rows = np.sort(
            np.concatenate([random.permutation(one)[: int(random.integers(35, 101))] for one in each])
        )
    known, own = sorted(str(name) for name in chosen[: n // 2]), truth[rows]
    label = np.full(len(rows), "", dtype=object)
    for name in known:
        there = np.flatnonzero(own == name)
        label[random.permutation(there)[: max(2, int(share * len(there)))]] = name
    table = Table(path=whole.path[rows], label=label, known=tuple(known), name="images", root=whole.root)
    return Case(f"part{seed}", table, own, n if seed % 2 else "auto", seed)


def discovered(case: Case, work: Path, device: str = "cpu") -> Found:
    """Train, or read what was trained before."""
    folder = work / "runs" / case.name
    one = {"seed": case.seed, "seeds": 1, "long_tail": "no"}
    config = DiscoverConfig(k=case.k, steps=STEPS, backbone="embedded", device=device, **one)
    discover_table(case.table, config, folder, progress=False)
    trained = load_trained(folder, "cpu")
    features = read_features(folder, len(case.table))
    assert features is not None  # a discovery keeps them
    features = np.asarray(features, np.float32)
    said, score, _ = predict(trained.method, features)
    embedded = embed_table(
        case.table, load_backbone(config.network), Compute.on(device), work / "embedded" / case.name
    )
    return Found(case, len(trained.ids), said, score, features, embedded.features)


def is_right(case: Case, category: np.ndarray) -> np.ndarray:
    """(N,) bool: is the image in the category that stands for its class? One category stands for each class, so that
    the share of right ones among the unlabelled images is All."""
    classes = [*case.table.known, *sorted(set(case.truth) - set(case.table.known))]
    index = {name: i for i, name in enumerate(classes)}
    y, free = np.array([index[name] for name in case.truth]), ~case.table.labelled
    found = clustering_accuracy(y[free], category[free], len(case.table.known))
    return stand_for(found.assignment, category, y)


def stand_for(assignment: Mapping[int, int], category: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(N,) bool: does the category of an image stand for its class y? assignment: category to class."""
    return np.array([assignment.get(int(c), -1) == own for c, own in zip(category, y, strict=True)])


def write_record(
    path: Path, script: str, words: Sequence[str], content: dict[str, Any], device: str = "cpu"
) -> None:
    """A record with the command, the commit and the machine that made it."""
    made = {
        "command": " ".join(["python", f"benchmarks/{script}", *words]),
        "commit": commit(),
        "hardware": hardware(Compute.on(device).device),
        "backbone": "embedded",
        "steps": STEPS,
    }
    write_text(path, json.dumps(made | content, indent=1) + "\n")


def given_words(words: Sequence[str] | None) -> list[str]:
    """The words of a command line for its record, without the folders of whoever ran it."""
    given = list(sys.argv[1:] if words is None else words)
    for name in ("--work", "--out", "--cub", "--cifar"):
        if name in given:
            at = given.index(name)
            del given[at : at + 2]
    return given
