"""What the scripts of experiments/ and benchmarks/ share: arguments, collections with their truth, records, intervals.

Collections of twenty classes, and parts of the embedded sample:

`cub3`           twenty classes of CUB-200-2011 drawn with seed 3: ten known and ten novel ones, thirty images of each
`cifar3`         the same of the CIFAR-100 sample, fifty images of each
`cub3-uneven`    the same classes with sizes that fall from the largest to the smallest in equal ratios, 3.4 to 1
`cifar3-tail`    the same, 20 to 1
`sample3`        part 3 of the embedded sample: six to ten classes
`full`           the whole embedded sample

Half of the images of each known class are labelled, or, in the parts of the sample, a half to a tenth.

Cases: `full3` is the whole sample trained with seed 3, as `holotype demo` does it; `part3` is part 3 of the sample, and
parts with an odd number are told how many categories there are. Run folders are kept, so that a
second script finds them.

A record lies in FILE.json, or on the line NAME of a JSON-lines file, FILE.jsonl#NAME.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal, ParamSpec

import numpy as np
import torch

from holotype.cli.demo import DEMO_STEPS, write_demo_images
from holotype.clustering.metrics import class_index, clustering_accuracy
from holotype.config.schema import DiscoverConfig
from holotype.data.datasets.registry import load_benchmark
from holotype.data.gcd_split import gcd_split
from holotype.data.table import Table
from holotype.discovery.pipeline import discover_table
from holotype.embeddings.store import embed_table
from holotype.errors import InputError
from holotype.methods import METHODS
from holotype.methods.registry import allow_code
from holotype.models.backbone import load_backbone
from holotype.results.calibration import calibrate
from holotype.results.discovery import read_features
from holotype.runs.model_io import load_model
from holotype.runs.predict import predict
from holotype.runs.record import commit, hardware
from holotype.utils.atomic import write_text
from holotype.utils.device import Device, cpu_count

P = ParamSpec("P")


def one_sentence(main: Callable[P, int]) -> Callable[P, int]:
    """Of a script's main: bad input is told on stderr and ends it with 2."""

    @functools.wraps(main)
    def called(*words: P.args, **settings: P.kwargs) -> int:
        try:
            with allow_code():  # runs and studies of one's own
                return main(*words, **settings)
        except InputError as error:
            print(error, file=sys.stderr)
            return 2

    return called


def script_parser(
    about: str | None, *, roots: bool = False, device: str = "", work: str = "", out: Path | None = None
) -> argparse.ArgumentParser:
    """Return the parser of a script, with the flags that several have.

    Args:
        about: Its docstring.
        roots: Folders of images that collections are drawn from.
        device: Where it computes by default; "" where nobody may choose.
        work: The default folder of what it trains; "" where it trains nothing.
        out: The default record.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if roots:
        parser.add_argument("--cub", type=Path, help="folder of CUB-200-2011")
        parser.add_argument("--cifar", type=Path, help="folder of the CIFAR-100 sample")
    if device:
        parser.add_argument("--device", default=device, help=f"cpu, cuda or auto (default: {device})")
    if work:
        parser.add_argument(
            "--work", type=Path, default=Path(work), help=f"of what is trained (default: {work})"
        )
    if out:
        parser.add_argument("--out", type=Path, default=out, help=f"the record (default: {out})")
    return parser


def roots_of(given: argparse.Namespace) -> dict[str, Path]:
    """Those that were given."""
    return {name: getattr(given, name) for name in ("cub", "cifar") if getattr(given, name)}


# -- cells of tables ------------------------------------------------------------------------------------------


Record = dict[str, Any]
NAMES = {name: found.card.title for name, found in METHODS.items() if found.card is not None}


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 2) -> str:
    """Markdown; the first columns, as many as `words`, are words, the others numbers."""
    rule = "|".join("---" if i < words else "---:" for i in range(len(head)))
    first, *others = ("| " + " | ".join(cells) + " |" for cells in (head, *rows))
    return "\n".join((first, f"|{rule}|", *others))


def pipeline(row: Record) -> str:
    """`reference style, fp16, 8 workers`, or `cached 16+8, bf16, captured`."""
    words = [row["pipeline"], row["arithmetic"]]
    if "workers" in row:
        words.append(f"{row['workers']} workers")
    if row.get("captured"):
        words.append("captured")
    return ", ".join(words)


def method(row: Record) -> str:
    name = str(row["method"])
    return NAMES.get(name, name)


def short(value: float) -> str:
    """Three figures that mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(n: int) -> str:
    return f"{n / 1e9:.2f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"


# -- collections ----------------------------------------------------------------------------------------------


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
    whole = write_demo_images(gcd_split(benchmark), work / "sample")
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
    one = {"seed": case.seed, "seeds": 1}
    config = DiscoverConfig(k=case.k, steps=DEMO_STEPS, backbone="embedded", device=device, **one)
    discover_table(case.table, config, folder, progress=False)
    trained = load_model(folder, "cpu")
    features = read_features(folder, len(case.table))
    assert features is not None  # a discovery keeps them
    features = np.asarray(features, np.float32)
    said, score, _ = predict(trained.method, features)
    embedded = embed_table(
        case.table, load_backbone(config.network), Device.on(device), work / "embedded" / case.name
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


def given_words(words: Sequence[str] | None) -> list[str]:
    """The words of a command line for its record, without the folders of whoever ran it."""
    given = list(sys.argv[1:] if words is None else words)
    for name in ("--work", "--out", "--cub", "--cifar"):
        if name in given:
            at = given.index(name)
            del given[at : at + 2]
    return given


NAME = re.compile(r"(cub|cifar|sample)(\d+)(?:-(uneven|tail))?")
WHOLE = "full"
CLASSES = 20
EQUAL = {"cub": 30, "cifar": 50}
"""Images of a class."""
LARGEST = {
    ("cub", "uneven"): 30,
    ("cifar", "uneven"): 85,
    ("cub", "tail"): 30,
    ("cifar", "tail"): 200,
}
RATIO = {"uneven": 3.4, "tail": 20.0}
BENCHMARK = {"cub": "cub", "cifar": "cifar100-200"}


@dataclass(frozen=True)
class Collection:
    """Images with their truth."""

    name: str
    table: Table
    """With the truth, which training is not given."""
    k: int

    @property
    def ratio(self) -> float:
        """The largest class to the smallest."""
        assert self.table.truth is not None
        sizes = np.unique(self.table.truth.astype(str), return_counts=True)[1]
        return float(sizes.max() / sizes.min())


def find_collection(word: str, roots: dict[str, Path], work: Path) -> Collection:
    """The collection of a name. roots: folder of cub and of cifar. The sample is written into `work`."""
    named = NAME.fullmatch(word)
    if named is None and word != WHOLE:
        raise InputError(
            f"{word!r} is no collection; name it cub0, cifar0, cifar0-uneven, cub0-tail, sample0 or full."
        )
    if named is None or named[1] == "sample":
        benchmark = load_benchmark("fashion-sample")
        whole = write_demo_images(gcd_split(benchmark), work / "sample")
        truth = np.asarray(benchmark.train.label, dtype=object)
        if named is None:
            return Collection(word, with_truth(whole, truth), len(set(truth)))
        case = draw_part(whole, truth, int(named[2]))
        return Collection(word, with_truth(case.table, case.truth), len(set(case.truth)))
    kind, seed, shape = named[1], int(named[2]), named[3]
    if kind not in roots:
        raise InputError(f"{word} needs the folder of its images; give it with --{kind}.")
    table = gcd_split(load_benchmark(BENCHMARK[kind], roots[kind]))
    names = choose_classes(table, CLASSES, seed)
    return Collection(word, thin(table, names, sizes(kind, shape), seed), CLASSES)


def sizes(kind: str, shape: str | None) -> np.ndarray:
    """(10,) images of each known class, and of each novel one."""
    if shape is None:
        return np.full(CLASSES // 2, EQUAL[kind])
    largest, share = LARGEST[kind, shape], np.linspace(0, 1, CLASSES // 2)
    return np.maximum(2, np.round(largest * RATIO[shape] ** -share)).astype(int)


def with_truth(table: Table, truth: np.ndarray) -> Table:
    return dataclasses.replace(table, truth=truth)


# -- records ------------------------------------------------------------------------------------------------


RESULTS = Path("experiments/results")


def find_line(path: Path) -> tuple[Path, str | None]:
    """Split FILE.jsonl#NAME into the file and the name of its line; a plain path has no name."""
    file, _, name = str(path).partition("#")
    return Path(file), name or None


def read_lines(file: Path) -> dict[str, dict[str, Any]]:
    """Read the lines of a JSON-lines file by their names; none where there is no file."""
    if not file.is_file():
        return {}
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {line["name"]: line for line in lines}


def read_records(path: Path, keys: Sequence[str], script: str) -> list[dict[str, Any]]:
    """Read a record, or every line of a JSON-lines file; figures of a GPU come first."""
    named = [path] if path.suffix != ".jsonl" else [Path(f"{path}#{name}") for name in read_lines(path)]
    records = [read_record(one, keys, script) for one in named]
    return sorted(records, key=lambda record: record.get("device") != "cuda")


def has_record(path: Path) -> bool:
    file, name = find_line(path)
    return file.is_file() and (name is None or name in read_lines(file))


def read_record(path: Path, keys: Sequence[str], script: str) -> dict[str, Any]:
    """Read the JSON object that `script` wrote, which holds at least `keys`. path: FILE.json, or FILE.jsonl#NAME."""
    file, name = find_line(path)
    try:
        text = file.read_text(encoding="utf-8")
        record: dict[str, Any] = json.loads(text) if name is None else read_lines(file)[name]
        absent = [key for key in keys if key not in record]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} cannot be read ({error}); measure again.") from error
    if absent:
        raise InputError(f"{path} is no record of {script}: it lacks {', '.join(absent)}.")
    return record


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON object to FILE.json, or as the line NAME of FILE.jsonl#NAME."""
    file, name = find_line(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    if name is None:
        write_text(file, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        return
    lines = read_lines(file) | {name: {"name": name, **record}}
    write_text(file, "".join(compact(lines[one]) + "\n" for one in sorted(lines)))


def compact(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def read_rows(path: Path, script: str) -> dict[str, Any]:
    """Read the rows of a record by collection; none where there is no record yet."""
    return read_record(path, ["rows"], script)["rows"] if has_record(path) else {}


# -- intervals and errors -----------------------------------------------------------------------------------


def interval_of(values: Sequence[float]) -> tuple[float, float]:
    """Where the mean lies with 95 %, by Student's t; of two values or more."""
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return mean(values) - half, mean(values) + half


def in_words(pairs: Sequence[float]) -> str:
    """Differences: their mean, its interval, and how many are above 0."""
    low, high = interval_of(pairs)
    above = sum(pair > 0 for pair in pairs)
    return f"{np.mean(pairs):+.1f} ({low:.1f} to {high:.1f}), {above} of {len(pairs)}"


def calibration_error(probability: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """Mean difference between what was promised and what came true, over bins of equal width."""
    part = np.minimum((bins * probability).astype(int), bins - 1)
    differences = [
        abs(probability[part == one].mean() - right[part == one].mean()) * (part == one).mean()
        for one in np.unique(part)
    ]
    return float(sum(differences))


# -- what stands beside every figure -------------------------------------------------------------------------


def facts(device: torch.device) -> dict[str, Any]:
    """What stands beside every figure."""
    return {
        "hardware": hardware(device),
        "device": device.type,
        "cores": cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "timm": version("timm"),
        "torchvision": version("torchvision"),
        "commit": commit(),
        "load": _load(),
    }


def _load() -> float | None:
    """Programs that kept processors busy in the last minute, this one included; None where nobody counts."""
    try:
        return round(os.getloadavg()[0], 1)
    except (OSError, AttributeError):
        return None


def command(script: str, words: Sequence[str] | None) -> str:
    """Return the command line for a record: paths shortened to names, folders of whoever ran it left out."""
    told = [Path(word).name if Path(word).is_absolute() else word for word in given_words(words)]
    return shlex.join(["python", script, *told])


def run_facts(script: str, words: Sequence[str] | None, device: str = "cpu", **more: Any) -> dict[str, Any]:
    """Return what stands beside every figure of a study: command, commit and machine."""
    machine = hardware(Device.on(device).device)
    return {"command": command(script, words), "commit": commit(), "hardware": machine, **more}


@dataclasses.dataclass(frozen=True)
class Judge:
    """Knows the truth of a collection."""

    of: Collection
    y: np.ndarray
    n_known: int

    @classmethod
    def make(cls, of: Collection) -> Judge:
        assert of.table.truth is not None
        n_known, _, y = class_index(of.table.known, of.table.truth.astype(str))
        return cls(of, y, n_known)

    @property
    def free(self) -> np.ndarray:
        return ~self.of.table.labelled

    def score(self, category: np.ndarray) -> float:
        """All, in per cent."""
        return 100 * clustering_accuracy(self.y[self.free], category[self.free], self.n_known).all

    def error(self, category: np.ndarray, embedded: np.ndarray) -> float:
        """Calibration error of the probabilities that a discovery gives its images."""
        target = self.of.table.target
        placed = np.where(target >= 0, target, category)
        opinion = calibrate(embedded, placed, target, self.of.k)
        return calibration_error(opinion.probability[self.free], self.right(placed)[self.free])

    def right(self, placed: np.ndarray) -> np.ndarray:
        """(N,) bool: is the image in the category that stands for its class?"""
        found = clustering_accuracy(self.y[self.free], placed[self.free], self.n_known)
        return stand_for(found.assignment, placed, self.y)

    def purity(self, category: np.ndarray, c: int) -> float:
        """Share of the largest class among the unlabelled images of a category; NaN without any."""
        rows = np.flatnonzero((category == c) & self.free)
        return float(np.bincount(self.y[rows]).max() / len(rows)) if len(rows) else float("nan")


def choose_classes(table: Table, classes: int, seed: int) -> tuple[list[str], list[str]]:
    """The known and the novel classes that take part, half of each, in an order drawn with the seed."""
    assert table.truth is not None
    random, each = np.random.default_rng(seed), classes // 2
    known, novel = list(table.known), sorted(set(table.truth) - set(table.known))
    return [known[i] for i in random.permutation(len(known))[:each]], [
        novel[i] for i in random.permutation(len(novel))[:each]
    ]


def thin(table: Table, names: Sequence[Sequence[str]], sizes: np.ndarray, seed: int) -> Table:
    """The table with sizes[i] images of the i-th known and of the i-th novel class; half of the known are labelled.

    names: known classes, novel classes, as many of each as there are sizes.
    """
    assert table.truth is not None
    random = np.random.default_rng(seed)
    rows: list[int] = []
    label = np.full(len(table), "", dtype=object)
    for known, group in zip((True, False), names, strict=True):
        for name, size in zip(group, sizes, strict=True):
            drawn = random.permutation(np.flatnonzero(table.truth == name))[:size]
            rows.extend(drawn)
            if known:
                label[drawn[: max(1, size // 2)]] = name
    order = np.sort(rows)
    return Table(
        path=table.path[order],
        label=label[order],
        known=tuple(sorted(names[0])),
        truth=table.truth[order],
        name=table.name,
        root=table.root,
    )
