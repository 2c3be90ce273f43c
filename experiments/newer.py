"""The methods of 2024 to 2026 on one engine, and RPC's text read once more.

    newer.py --root DATA --backbone W --out A --share B --only scars-8137 --parts screen newer reading pairs peers
    newer.py --root DATA --backbone W --out B --share A --only cub cifar100-200 --parts screen newer reading pairs
    newer.py --adopt A B

DATA holds CUB_200_2011, stanford_cars and cifar100-200, W is vit_small_patch14_224.safetensors. The first two commands
may run side by side: `newer` and `reading` wait for the runs that choose. A command stops by itself after
--minutes, before a batch of runs that would not fit, and writes OUT/newer.jsonl after each batch: a cut leaves what is
decided. --adopt takes the records into experiments/results, writes the studies newer and newer-cifar of the rows that
were run, and the page docs/studies/newer.md with their tables; it may be called again. --rehearse runs the parts on the
embedded sample, an epoch each.

Rules, written before the runs.

Readings of RPC (part screen, seeds 0 and 1, half the epochs, CUB, Cars and the CIFAR-100 sample together). Each row
changes one thing of today's RPC: L_align as a mean over all labelled images (`labelled`), one-vs-all heads on g(f(x))
(`projections`), both, which is the text (`printed`), an entropy weight of 1 (`memax1`), a debiased loss of half its
weight (`debias`). The gain of a row is the mean over the three sets of the mean over seeds of All minus that of today's
RPC. The row with the largest gain is chosen if that is at least 0.3 points and it loses more than 1.0 on no set;
otherwise today's values stay. What is chosen is one set of values for all data.

Confirmed (part reading) on seeds 22 to 25, which chose nothing here, at full length, on CUB, Cars and the sample. The
chosen reading becomes the default only if its gain on today's RPC by the same mean is above 0 there.

RPC against DebGCD (part pairs): seeds 20 to 29 on Cars, which chose nothing, as on CUB and the sample before. DebGCD
has its published values there, and in the row debgcd-one RPC's set of values, on seeds 20 to 24.

Newer methods are screened on CUB with one block and seeds 20 and 21 (part screen). The four with the highest mean All
go on to seed 22, and to Cars and the sample with seeds 20 to 22 (part newer); of one method in two settings only the
better goes on. What EAGC leaves of RPC's parts is asked on CUB, with the same seeds.

The methods of RPC's paper on Cars (part peers): experiments/peers-cars.yaml, one seed after the other.

Runs that experiments/results has already are not made again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import exhibits
from harness import RESULTS, compact, one_sentence, script_parser
from holotype.errors import InputError
from holotype.runs.experiment import Experiment
from holotype.runs.record import Record, Records, read_lines
from holotype.runs.resources import ResourceCache
from holotype.runs.study import (
    SettingChange,
    Study,
    SweepRequest,
    experiments,
    read_study,
    select_records,
)
from holotype.runs.sweep import RunsFailed, ScheduledRun, plan_runs, run_scheduled
from holotype.utils.atomic import write_text

Rows = dict[str, dict[str, Any]]
READINGS: dict[str, dict[str, Any]] = {
    "labelled": {"method.align_over": "labelled"},
    "projections": {"method.ova.reads": "projections"},
    "printed": {"method.align_over": "labelled", "method.ova.reads": "projections"},
    "memax1": {"method.memax_weight": 1},
    "debias": {"method.debias.adl": None},
}
"""Changes of RPC's settings by row; the halved weight of the debiased loss differs between studies."""
TODAY = "today"
NEWER = {
    "selex": ("selex", "smoothed targets as published on CUB", {}),
    "eagc+rpc": ("eagc+rpc", "", {}),
    "eagc+selex": ("eagc+selex", "", {}),
    "eagc+simgcd": ("eagc+simgcd", "", {}),
    "hyp+simgcd": ("hyp+simgcd", "", {}),
    "selex-half": ("selex", "targets half smoothed", {"method.smoothing": 0.5}),
    "hyp+rpc": ("hyp+rpc", "", {}),
    "bia+rpc": ("bia+rpc", "", {}),
}
"""Row: method, what it asks, its settings."""
OVER_EAGC = {
    "eagc+debgcd": ("eagc+debgcd", "", {}),
    "eagc+rpc-no-align": ("eagc+rpc", "without L_align", {"method.lambda_1": 0}),
    "eagc+rpc-no-new": ("eagc+rpc", "without L_new", {"method.lambda_2": 0}),
}
CHOOSE, SCREEN, FINAL, CONFIRM = (0, 1), (20, 21), (20, 21, 22), (22, 23, 24, 25)
ONE_SET, PAIRS = range(20, 25), range(20, 30)
CUB, CARS, CIFAR = "cub", "scars-8137", "cifar100-200"
IMAGES = {CUB: 5994, CARS: 8137, CIFAR: 20_000}
PARTS = ("screen", "newer", "reading", "pairs", "peers")
LEAST_GAIN, MOST_LOSS, GO_ON = 0.3, 1.0, 4


def study_of(name: str) -> dict[str, Any]:
    """A study with all its rows. name: newer (CUB and Cars) or newer-cifar."""
    cifar = name == "newer-cifar"
    adl, half = (2, 30) if cifar else (4, 100)
    rpc = {"method.debias.adl": adl} | ({"method.debias.threshold": 0.8} if cifar else {})
    readings = READINGS | {"debias": {"method.debias.adl": adl / 2}}
    rows: Rows = {
        "kmeans": {"method": "kmeans"},
        "simgcd": {"method": "simgcd"},
        "debgcd": {"method": "debgcd"},
    }
    one_set = {"memax_weight": 2, "threshold": 0.8 if cifar else 0.67, "adl": adl, "sdl": 0.005}
    rows["debgcd-one"] = {
        "method": "debgcd",
        "asks": "RPC's values",
        "settings": {f"method.{key}": value for key, value in one_set.items()},
    }
    rows["rpc"] = {"method": "rpc", "asks": "as it is", "settings": rpc}
    for row, (method, asks, own) in (NEWER | OVER_EAGC).items():
        rows[row] = {
            "method": method,
            "asks": asks,
            "settings": (rpc if method.endswith("rpc") else {}) | own,
        }
    seeds = {"seeds": [*PAIRS]}
    rows = {row: content | seeds for row, content in rows.items()}
    for row, changed in readings.items():
        rows[f"rpc-{row}"] = {"method": "rpc", "settings": rpc | changed, "seeds": [*CONFIRM]}
    for row, changed in {TODAY: {}, **readings}.items():
        rows[row] = {
            "method": "rpc",
            "settings": {**rpc, **changed, "train.epochs": half},
            "seeds": [*CHOOSE],
        }
    settings = {"backbone.name": "vit_small_patch14_224", "train.eval_every": 50, "backbone.train_blocks": 1}
    settings |= {"train.epochs": 60 if cifar else 200, "train.warmup": 0.05}
    settings |= (
        {"train.batch_size": 256, "train.lr": 0.2} if cifar else {"train.batch_size": 128, "train.lr": 0.1}
    )
    return {
        "question": f"What do newer methods give, and RPC's other readings? {'Sample' if cifar else 'CUB and Cars'}.",
        "datasets": [CIFAR] if cifar else [CUB, CARS],
        "seeds": [*FINAL],
        "cache_views": "8+4" if cifar else "32+8",
        "reference": "rpc",
        "settings": settings,
        "rows": rows,
    }


def study_name(dataset: str) -> str:
    return "newer-cifar" if dataset == CIFAR else "newer"


STUDIES = {name: read_study(study_of(name)) for name in ("newer", "newer-cifar")}
PEERS = "peers-cars"
STUDIES[PEERS] = read_study(exhibits.TOP / "experiments" / f"{PEERS}.yaml")


@dataclass(frozen=True)
class Wave:
    """Rows on one data set, the first seeds of all rows before the second ones."""

    dataset: str
    rows: Sequence[str]
    seeds: Sequence[int]
    study: str = ""

    def __post_init__(self) -> None:
        if not self.study:
            object.__setattr__(self, "study", study_name(self.dataset))


def screen() -> list[Wave]:
    readings = [TODAY, *READINGS]
    return [Wave(CUB, list(NEWER), SCREEN), *(Wave(one, readings, CHOOSE) for one in (CUB, CARS, CIFAR))]


def pairs() -> list[Wave]:
    return [
        Wave(CARS, ["rpc", "debgcd"], PAIRS),
        *(Wave(one, ["debgcd-one"], ONE_SET) for one in (CIFAR, CARS)),
    ]


def peers() -> list[Wave]:
    return [
        Wave(CARS, [row for row in STUDIES[PEERS].rows if row != "dccl"], FINAL, PEERS),
        Wave(CARS, ["dccl"], FINAL, PEERS),  # its communities stop the runs beside it
    ]


def bases() -> list[Wave]:
    """What newer methods are compared with."""
    return [Wave(one, ["rpc", "debgcd", "simgcd", "kmeans"], FINAL) for one in (CIFAR, CUB, CARS)]


def newer(rows: Sequence[str]) -> list[Wave]:
    """The rows that go on, and on CUB what EAGC leaves of RPC's parts."""
    return [*(Wave(one, rows, FINAL) for one in (CIFAR, CUB, CARS)), Wave(CUB, list(OVER_EAGC), SCREEN)]


def confirm(reading: str) -> list[Wave]:
    """The chosen reading beside today's; nothing where today's values stay."""
    return [Wave(one, ["rpc", f"rpc-{reading}"], CONFIRM) for one in (CIFAR, CUB, CARS) if reading]


class Bench:
    """Makes runs, and keeps their records in a folder and in one file of lines."""

    def __init__(self, options: Any) -> None:
        self.options, self.started, self.rate = options, time.monotonic(), 0.0
        self.records = Records(options.out)
        self.before = Records(RESULTS)
        self.resources, self.dataset = ResourceCache(), ""

    def every(self) -> list[Record]:
        """All records, with those that a command beside this one has written by now."""
        shared = [one for folder in self.options.share for one in read_lines(folder / "newer.jsonl")]
        return list((self.before.by_key | {one.key: one for one in shared} | self.records.by_key).values())

    def changes(self) -> list[SettingChange]:
        options = self.options
        changes = {"device": options.device}
        if options.rehearse:
            changes |= {"train.epochs": "1", "train.batch_size": "256", "backbone.name": "embedded"}
        elif options.backbone:
            changes |= {"backbone.name": str(options.backbone)}
        if options.device_gb:
            changes |= {"memory.device_gb": str(options.device_gb)}
        return [SettingChange(key, value) for key, value in changes.items()]

    def ask(self, rows: Sequence[str] | None, seeds: Sequence[int] | None) -> SweepRequest:
        views = "2+1" if self.options.rehearse else None
        root = str(self.options.root) if self.options.root else None
        return SweepRequest(rows, seeds, self.changes(), views, root, progress=False)

    def study(self, name: str) -> Study:
        study = STUDIES[name]
        if self.options.rehearse:
            rows = {row.name: replace(row, datasets=("fashion-sample",)) for row in study.rows.values()}
            study = replace(study, rows=rows)
        return study

    def experiments(self, wave: Wave) -> list[Experiment]:
        here = "fashion-sample" if self.options.rehearse else wave.dataset
        every = experiments(self.study(wave.study), self.ask(wave.rows, wave.seeds))
        return sorted(
            (one for one in every if one.dataset == here), key=lambda one: wave.seeds.index(one.seed)
        )

    def scores(self, dataset: str, row: str, name: str = "") -> dict[int, float]:
        """All in per cent by seed. name: of the study, by default that of the data set."""
        study = self.study(name or study_name(dataset))
        dataset = "fashion-sample" if self.options.rehearse else dataset
        changes = {change.setting: change.value for change in self.changes()}
        records = select_records(
            study, study.rows[row], dataset, self.every(), self.ask([row], None), changes
        )
        return {one.identity.seed: 100 * one.scores.all for one in records if one.scores.all is not None}

    def run(self, wave: Wave) -> bool:
        """Run a wave as far as there is time; False where there was not."""
        if all(set(wave.seeds) <= self.scores(wave.dataset, row, wave.study).keys() for row in wave.rows):
            return True
        if wave.dataset != self.dataset:  # the room of another data set's images and tokens
            self.resources, self.dataset = ResourceCache(), wave.dataset
        planned = plan_runs(self.experiments(wave), self.records, self.options.work, self.resources)
        due = [run for run in planned if not run.done and run.key not in self.before.by_key]
        due.sort(key=lambda run: wave.seeds.index(run.experiment.seed))
        for first in range(0, len(due), self.options.parallel):
            batch = due[first : first + self.options.parallel]
            work = sum(map(steps_of, batch))
            left = 60 * self.options.minutes - (time.monotonic() - self.started)
            if self.rate * work > left:
                print(f"{wave.dataset}: {left:.0f} s are too few for {len(batch)} runs; stopped.", flush=True)
                return False
            begin = time.monotonic()
            try:
                run_scheduled(batch, print, self.resources, parallel=self.options.parallel)
            except RunsFailed as error:
                print(error, flush=True)
            seconds = time.monotonic() - begin
            self.rate = max(0.7 * self.rate, seconds / work)
            print(
                f"{wave.dataset}: {len(batch)} runs, {seconds:.0f} s, {1e3 * seconds / work:.2f} ms",
                flush=True,
            )
            self.write()
        return True

    def wait(self, decided: Callable[[Bench], bool]) -> None:
        """Wait for the runs that choose, as long as there is time."""
        while time.monotonic() - self.started < 60 * self.options.minutes and not decided(self):
            time.sleep(3)

    def write(self) -> None:
        lines = [compact(one.as_dict()) for one in self.records.by_key.values()]
        write_text(self.options.out / "newer.jsonl", "".join(f"{line}\n" for line in sorted(lines)))


def steps_of(run: ScheduledRun) -> float:
    """About how many steps a run takes."""
    train = run.experiment.train
    return max(train.epochs * IMAGES.get(run.experiment.dataset, 1000) / train.batch_size, 1)


def ranking(bench: Bench) -> list[str]:
    """The newer rows by their mean All on CUB over the screening seeds, best first; only those with all of them."""
    means = {}
    for row in NEWER:
        scores = bench.scores(CUB, row)
        if set(SCREEN) <= scores.keys():
            means[row] = float(np.mean([scores[seed] for seed in SCREEN]))
    return sorted(means, key=lambda row: -means[row])


def chosen_rows(bench: Bench) -> list[str]:
    """The rows that go on: the best, each method once."""
    methods: dict[str, str] = {}
    for row in ranking(bench):
        methods.setdefault(NEWER[row][0], row)
    return list(methods.values())[:GO_ON]


def gains(bench: Bench) -> dict[str, list[float]]:
    """Of each reading, the gain on today's RPC on CUB, Cars and the sample, as far as they were run."""
    found: dict[str, list[float]] = {}
    for dataset in (CUB, CARS, CIFAR):
        base = bench.scores(dataset, TODAY)
        for row in READINGS:
            own = bench.scores(dataset, row)
            if set(CHOOSE) <= own.keys() & base.keys():
                found.setdefault(row, []).append(float(np.mean([own[seed] - base[seed] for seed in CHOOSE])))
    return found


def is_ranked(bench: Bench) -> bool:
    """Whether the newer rows were screened."""
    return len(ranking(bench)) == len(NEWER)


def is_read(bench: Bench) -> bool:
    """Whether all readings were run."""
    return sum(map(len, gains(bench).values())) == 3 * len(READINGS)


def chosen_reading(bench: Bench) -> str:
    """By the rule; "" where today's values stay, or a set is missing."""
    fit = {row: one for row, one in gains(bench).items() if len(one) == 3 and min(one) >= -MOST_LOSS}
    best = max(fit, key=lambda row: float(np.mean(fit[row])), default="")
    return best if best and np.mean(fit[best]) >= LEAST_GAIN else ""


def summary(bench: Bench) -> Iterator[str]:
    for dataset in (CUB, CARS, CIFAR):
        for row in STUDIES[study_name(dataset)].rows:
            if scores := bench.scores(dataset, row):
                each = ", ".join(f"{seed}: {value:.1f}" for seed, value in scores.items())
                yield f"{dataset:13} {row:18} {np.mean([*scores.values()]):5.1f}   {each}"
    yield f"newer, best first: {', '.join(ranking(bench)) or 'not all were run'}"
    every = (
        f"{row} {np.mean(one):+.2f} ({' '.join(f'{x:+.1f}' for x in one)})"
        for row, one in gains(bench).items()
    )
    yield f"readings, gain on CUB, Cars, sample: {'; '.join(every) or 'not run'}"
    yield f"chosen reading: {chosen_reading(bench) or 'none, today stays'}"


# -- taken into the documents -----------------------------------------------------------------------------------

PAGE = """# The methods of 2024 to 2026

SelEx, EAGC, HypCD and BIA on the network, images and seeds of RPC, last epoch, by rules written before the runs
(`experiments/newer.py`).

Published with DINO ViT-B/16, All on CUB and Cars, and p: SelEx 73.6 (1.51), 58.5 (1.11); EAGC + SimGCD 66.5 (1.24),
62.9 (1.22); EAGC + SelEx 83.2 (1.88), 65.7 (1.29), both the best epoch by hidden labels; HypCD + SimGCD 64.8 (1.17),
62.8 (1.22).

## CUB

{cub}
## Stanford Cars

{cars}
## The CIFAR-100 sample

{cifar}
## RPC's readings

Half the epochs, seeds 0 and 1; then what was chosen, at full length on seeds that chose nothing.

{readings}"""
MARK = "<!-- table: {study} {dataset} rows={rows}{more} -->\n<!-- end of table -->\n\n"
README_AT = "Over ten seeds RPC gains"
LISTS = (
    (
        "mkdocs.yml",
        "          - Cached views:",
        "          - The methods of 2024 to 2026: studies/newer.md\n",
    ),
    (
        "docs/studies/index.md",
        "| [What do cached views cost?]",
        "| [What do the methods of 2024 to 2026 give?](newer.md) | the tables | all three | 0, 1, 20 to 25 |\n",
    ),
)
"""Document, what stands behind the new line, the line."""


def adopt(folders: Sequence[Path], top: Path) -> None:
    """Take records into experiments/results, and write studies, page and tables of what was run."""
    files = [folder / "newer.jsonl" for folder in (top / RESULTS, *folders)]
    records = {one.key: one for file in files if file.exists() for one in read_lines(file)}
    lines = sorted(compact(one.as_dict()) for one in records.values())
    write_text(top / RESULTS / "newer.jsonl", "".join(f"{line}\n" for line in lines))
    every = list(Records(top / RESULTS).by_key.values())
    shown: dict[str, list[str]] = {}
    whole: list[str] = []
    for name in ("newer", "newer-cifar"):
        study, content = STUDIES[name], study_of(name)
        for row in list(content["rows"]):
            own = content["rows"][row]
            places = {one: select_records(study, study.rows[row], one, every) for one in content["datasets"]}
            if not any(places.values()):
                del content["rows"][row]
                continue
            if set(FINAL) <= {one.identity.seed for one in places.get(CUB, ())} and row in NEWER:
                whole.append(row)
            own["datasets"] = [one for one, found in places.items() if found]
            own["seeds"] = sorted({one.identity.seed for found in places.values() for one in found})
            for one in own["datasets"]:
                shown.setdefault(one, []).append(row)
        if content["reference"] not in content["rows"]:
            del content["reference"]
        if content["rows"]:
            content["datasets"] = sorted({one for row in content["rows"].values() for one in row["datasets"]})
            head = "# Written by experiments/newer.py --adopt; the rules stand there.\n"
            text = yaml.safe_dump(content, sort_keys=False, width=140, default_flow_style=None)
            write_text(top / "experiments" / f"{name}.yaml", head + text)
    page(shown, whole or list(NEWER), top)
    exhibits.main([])


def page(shown: Mapping[str, Sequence[str]], whole: Sequence[str], top: Path) -> None:
    """The page, and the table on the README's second screen, of the newer rows with all seeds on CUB."""
    half = {TODAY, *READINGS}

    def mark(dataset: str, rows: Sequence[str], more: str = "") -> str:
        there = [row for row in shown.get(dataset, ()) if row in rows]
        if not there:
            return "Not run.\n\n"
        return MARK.format(study=study_name(dataset), dataset=dataset, rows=",".join(there), more=more)

    full = ["kmeans", "simgcd", "debgcd", "rpc", *NEWER]
    parts, more = {}, {}
    for key, dataset in (("cub", CUB), ("cars", CARS), ("cifar", CIFAR)):
        ends = {"kmeans", "simgcd"} <= set(shown.get(dataset, ()))
        more[dataset] = f" seeds={FINAL[0]}-{FINAL[-1]}{' kind=progress' * ends}"
        parts[key] = mark(dataset, full, more[dataset])
    readings = [mark(one, [*half]) for one in (CUB, CARS, CIFAR)]
    later = ["rpc", "debgcd", *(f"rpc-{row}" for row in READINGS)]
    readings += [mark(one, later, f" seeds={CONFIRM[0]}-{CONFIRM[-1]}") for one in (CARS, CUB, CIFAR)]
    write_text(
        top / "docs/studies/newer.md", PAGE.format(**parts, readings="".join(readings)).rstrip() + "\n"
    )
    readme = top / "README.md"
    text = readme.read_text(encoding="utf-8")
    head = "Newer methods on CUB ([all of it](docs/studies/newer.md)):\n\n"
    before, _, after = text.partition(README_AT)
    rows = ["kmeans", "simgcd", "debgcd", "rpc", *whole]
    table = mark(CUB, rows, more[CUB])
    write_text(readme, before.partition(head)[0] + head + table + README_AT + after)
    for name, at, line in LISTS:
        text = (top / name).read_text(encoding="utf-8")
        if line not in text:
            write_text(top / name, text.replace(at, line + at, 1))


def waves_of(part: str, bench: Bench) -> Iterator[Wave]:
    """Of a part, those on the data sets that are asked for."""
    if part == "newer":
        yield from bases()
        bench.wait(is_ranked)
        yield from newer(chosen_rows(bench))
    elif part == "reading":
        bench.wait(is_read)
        yield from confirm(chosen_reading(bench))
    else:
        yield from {"screen": screen, "pairs": pairs, "peers": peers}[part]()


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__, device="auto", work="runs/newer")
    add = parser.add_argument
    add(
        "--parts",
        nargs="*",
        choices=PARTS,
        default=[],
        help="in this order",
    )
    add("--only", nargs="*", choices=tuple(IMAGES), default=list(IMAGES), help="data sets")
    add("--root", type=Path, help="folder of the three data sets")
    add("--backbone", type=Path, help="weights of vit_small_patch14_224")
    add("--out", type=Path, default=Path("runs/newer-records"), help="where records go")
    add("--share", type=Path, nargs="*", default=[], help="--out of commands beside or before this one")
    add("--minutes", type=float, default=9.0)
    add("--parallel", type=int, default=8)
    add("--device-gb", type=float, help="GB of GPU memory for images and tokens, where commands share it")
    add("--adopt", type=Path, nargs="+", help="folders whose records go into the documents")
    add("--rehearse", action="store_true", help="on the embedded sample, an epoch each")
    options = parser.parse_args(words)
    if options.adopt:
        adopt(options.adopt, exhibits.TOP)
        return 0
    if not options.rehearse and options.parts and not (options.root and options.backbone):
        raise InputError("The runs need --root and --backbone.")
    bench = Bench(options)
    waves = (wave for part in options.parts for wave in waves_of(part, bench) if wave.dataset in options.only)
    if all(map(bench.run, waves)):
        print("all waves done", flush=True)
    for line in summary(bench):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
