"""The methods of 2024 to 2026 on one engine, and RPC's text read once more.

    python experiments/newer.py --root DATA --backbone vit_small_patch14_224.safetensors --out OUT --part screen
    python experiments/newer.py --adopt OUT
    python experiments/newer.py --root DATA --backbone vit_small_patch14_224.safetensors --out OUT2 --part confirm
    python experiments/newer.py --adopt OUT2

DATA holds CUB_200_2011, stanford_cars and cifar100-200. A part stops by itself after --minutes, before a batch of runs
that would not fit, and writes OUT/newer.jsonl after each batch: a cut leaves what is decided. --adopt takes the records
into experiments/results, writes the studies newer and newer-cifar of the rows that were run, and the page
docs/studies/newer.md with their tables; it may be called again. --rehearse runs a part on the embedded sample, an epoch
each.

Rules, written before the runs.

Readings of RPC (part screen, seeds 0 and 1, half the epochs, CUB, Cars and the CIFAR-100 sample together). Each row
changes one thing of today's RPC: L_align as a mean over all labelled images (`labelled`), one-vs-all heads on g(f(x))
(`projections`), both, which is the text (`printed`), an entropy weight of 1 (`memax1`), a debiased loss of half its
weight (`debias`). The gain of a row is the mean over the three sets of the mean over seeds of All minus that of today's
RPC. The row with the largest gain is chosen if that is at least 0.3 points and it loses more than 1.0 on no set;
otherwise today's values stay. What is chosen is one set of values for all data.

Confirmed (part confirm) on seeds 22 to 25, which chose nothing here, at full length: today's RPC, the chosen reading,
and DebGCD, on Cars, CUB and the sample. The chosen reading becomes the default only if its gain by the same mean is
above 0 there; its gain on DebGCD is told with its interval, whatever it is.

Newer methods are screened on CUB with one block and seeds 20 and 21 (part screen). The two with the highest mean All go
on to seed 22, and to Cars and the sample with seeds 20 to 22 (part confirm).

Runs that experiments/results has already are not made again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
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
CHOOSE, SCREEN, FINAL, CONFIRM = (0, 1), (20, 21), (20, 21, 22), (22, 23, 24, 25)
CUB, CARS, CIFAR = "cub", "scars-8137", "cifar100-200"
IMAGES = {CUB: 5994, CARS: 8137, CIFAR: 20_000}
LEAST_GAIN, MOST_LOSS, GO_ON = 0.3, 1.0, 2


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
    rows["rpc"] = {"method": "rpc", "asks": "as it is", "settings": rpc}
    for row, (method, asks, own) in NEWER.items():
        rows[row] = {
            "method": method,
            "asks": asks,
            "settings": (rpc if method.endswith("rpc") else {}) | own,
        }
    seeds = {"seeds": [*FINAL, *CONFIRM[1:]]}
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


@dataclass(frozen=True)
class Wave:
    """Rows on one data set, the first seeds of all rows before the second ones."""

    dataset: str
    rows: Sequence[str]
    seeds: Sequence[int]


def screen() -> list[Wave]:
    readings = [TODAY, *READINGS]
    return [Wave(CUB, list(NEWER), SCREEN), *(Wave(one, readings, CHOOSE) for one in (CUB, CARS, CIFAR))]


def confirm(ranked: Sequence[str], reading: str) -> list[Wave]:
    """What comes after the screening. ranked: newer rows, best first. reading: the chosen one, "" for today's."""
    mine = [f"rpc-{reading}"] if reading else []
    best = list(ranked[:GO_ON])
    waves = [
        Wave(CARS, ["rpc", "debgcd", *mine], CONFIRM),
        Wave(CARS, ["rpc", *best, "simgcd", "kmeans"], FINAL),
    ]
    for one in (CIFAR, CUB):
        waves += [Wave(one, ["rpc", *best], FINAL), Wave(one, ["rpc", "debgcd", *mine], CONFIRM)]
    return waves


class Bench:
    """Makes runs, and keeps their records in a folder and in one file of lines."""

    def __init__(self, given: Any) -> None:
        self.given, self.started, self.rate = given, time.monotonic(), 0.0
        self.records = Records(given.out)
        self.before = Records(RESULTS)
        self.shelf, self.at = ResourceCache(), ""

    def every(self) -> list[Record]:
        return list((self.before.by_key | self.records.by_key).values())

    def changes(self) -> list[SettingChange]:
        told = {"device": self.given.device}
        if self.given.rehearse:
            told |= {"train.epochs": "1", "train.batch_size": "256", "backbone.name": "embedded"}
        elif self.given.backbone:
            told |= {"backbone.name": str(self.given.backbone)}
        return [SettingChange(key, value) for key, value in told.items()]

    def ask(self, rows: Sequence[str] | None, seeds: Sequence[int] | None) -> SweepRequest:
        views = "2+1" if self.given.rehearse else None
        root = str(self.given.root) if self.given.root else None
        return SweepRequest(rows, seeds, self.changes(), views, root, progress=False)

    def study(self, dataset: str) -> Study:
        study = STUDIES[study_name(dataset)]
        if self.given.rehearse:
            return replace(
                study, rows={n: replace(r, datasets=("fashion-sample",)) for n, r in study.rows.items()}
            )
        return study

    def experiments(self, wave: Wave) -> list[Experiment]:
        here = "fashion-sample" if self.given.rehearse else wave.dataset
        made = experiments(self.study(wave.dataset), self.ask(wave.rows, wave.seeds))
        return sorted(
            (one for one in made if one.dataset == here), key=lambda one: wave.seeds.index(one.seed)
        )

    def scores(self, dataset: str, row: str) -> dict[int, float]:
        """All in per cent by seed."""
        study = self.study(dataset)
        name = "fashion-sample" if self.given.rehearse else dataset
        changes = {change.setting: change.value for change in self.changes()}
        found = select_records(study, study.rows[row], name, self.every(), self.ask([row], None), changes)
        return {one.identity.seed: 100 * one.scores.all for one in found if one.scores.all is not None}

    def run(self, wave: Wave) -> bool:
        """Run a wave as far as there is time; False where there was not."""
        if wave.dataset != self.at:  # the room of another data set's images and tokens
            self.shelf, self.at = ResourceCache(), wave.dataset
        planned = plan_runs(self.experiments(wave), self.records, self.given.work, self.shelf)
        due = [run for run in planned if not run.done and run.key not in self.before.by_key]
        due.sort(key=lambda run: wave.seeds.index(run.experiment.seed))
        for at in range(0, len(due), self.given.parallel):
            batch = due[at : at + self.given.parallel]
            left, work = (
                60 * self.given.minutes - (time.monotonic() - self.started),
                sum(map(steps_of, batch)),
            )
            if self.rate * work > left:
                print(
                    f"{wave.dataset}: {left:.0f} s are left, too few for {len(batch)} runs; stopped.",
                    flush=True,
                )
                return False
            begun = time.monotonic()
            try:
                run_scheduled(batch, print, self.shelf, parallel=self.given.parallel)
            except RunsFailed as error:
                print(error, flush=True)
            self.rate = max(0.7 * self.rate, (time.monotonic() - begun) / work)
            self.write()
        return True

    def write(self) -> None:
        lines = [compact(one.as_dict()) for one in self.records.by_key.values()]
        write_text(self.given.out / "newer.jsonl", "".join(f"{line}\n" for line in sorted(lines)))


def steps_of(run: ScheduledRun) -> float:
    """About how many steps a run takes."""
    train = run.experiment.train
    return max(train.epochs * IMAGES.get(run.experiment.dataset, 1000) / train.batch_size, 1)


def ranking(bench: Bench) -> list[str]:
    """The newer rows by their mean All on CUB over the screening seeds, best first; only those with all of them."""
    means = {}
    for row in NEWER:
        found = bench.scores(CUB, row)
        if set(SCREEN) <= found.keys():
            means[row] = float(np.mean([found[seed] for seed in SCREEN]))
    return sorted(means, key=lambda row: -means[row])


def gains(bench: Bench) -> dict[str, list[float]]:
    """Of each reading, the gain on today's RPC on CUB, Cars and the sample, as far as they were run."""
    found: dict[str, list[float]] = {}
    for dataset in (CUB, CARS, CIFAR):
        base = bench.scores(dataset, TODAY)
        for row in READINGS:
            own = bench.scores(dataset, row)
            pairs = [own[seed] - base[seed] for seed in CHOOSE if seed in own and seed in base]
            if pairs:
                found.setdefault(row, []).append(float(np.mean(pairs)))
    return found


def chosen_reading(bench: Bench) -> str:
    """By the rule; "" where today's values stay, or a set is missing."""
    fit = {row: one for row, one in gains(bench).items() if len(one) == 3 and min(one) >= -MOST_LOSS}
    best = max(fit, key=lambda row: float(np.mean(fit[row])), default="")
    return best if best and np.mean(fit[best]) >= LEAST_GAIN else ""


def summary(bench: Bench) -> Iterator[str]:
    for dataset in (CUB, CARS, CIFAR):
        for row in STUDIES[study_name(dataset)].rows:
            if found := bench.scores(dataset, row):
                told = ", ".join(f"{seed}: {value:.1f}" for seed, value in found.items())
                yield f"{dataset:13} {row:16} {np.mean([*found.values()]):5.1f}   {told}"
    yield f"newer, best first: {', '.join(ranking(bench)) or 'not all were run'}"
    told = (
        f"{row} {np.mean(one):+.2f} ({' '.join(f'{x:+.1f}' for x in one)})"
        for row, one in gains(bench).items()
    )
    yield f"readings, gain on CUB, Cars, sample: {'; '.join(told) or 'not run'}"
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
    for name, study in STUDIES.items():
        content = study_of(name)
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
        told = {"study": study_name(dataset), "dataset": dataset, "rows": ",".join(there), "more": more}
        return MARK.format(**told) if there else "Not run.\n\n"

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
    text, told = (
        readme.read_text(encoding="utf-8"),
        "Newer methods on CUB ([all of it](docs/studies/newer.md)):\n\n",
    )
    before, _, after = text.partition(README_AT)
    rows = ["kmeans", "simgcd", "debgcd", "rpc", *whole]
    table = mark(CUB, rows, more[CUB])
    write_text(readme, before.partition(told)[0] + told + table + README_AT + after)
    for name, at, line in LISTS:
        text = (top / name).read_text(encoding="utf-8")
        if line not in text:
            write_text(top / name, text.replace(at, line + at, 1))


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__, device="auto", work="runs/newer")
    parser.add_argument("--part", choices=("screen", "confirm", "summary"), default="summary")
    parser.add_argument("--root", type=Path, help="folder of the three data sets")
    parser.add_argument("--backbone", type=Path, help="weights of vit_small_patch14_224")
    parser.add_argument("--out", type=Path, default=Path("runs/newer-records"), help="where records go")
    parser.add_argument(
        "--reuse", type=Path, nargs="*", default=[], help="folders of records of earlier parts"
    )
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--adopt", type=Path, nargs="+", help="folders whose records go into the documents")
    parser.add_argument("--rehearse", action="store_true", help="on the embedded sample, an epoch each")
    given = parser.parse_args(words)
    if given.adopt:
        adopt(given.adopt, exhibits.TOP)
        return 0
    if not given.rehearse and given.part != "summary" and not (given.root and given.backbone):
        raise InputError("The runs need --root and --backbone.")
    bench = Bench(given)
    if given.part != "summary":
        waves = screen() if given.part == "screen" else confirm(ranking(bench), chosen_reading(bench))
        for wave in waves:
            if not bench.run(wave):
                break
    for line in summary(bench):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
