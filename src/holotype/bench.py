"""Methods x data sets x seeds: every run once, each with a result file of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.errors import InputError
from holotype.experiment import Data, Experiment, load_data, run_experiment
from holotype.models.backbone import load_backbone
from holotype.record import config_hash, identify
from holotype.results import read_results, result_name, write_result
from holotype.train.gather import rank

if TYPE_CHECKING:
    from holotype.models.backbone import Backbone


@dataclass(frozen=True)
class Planned:
    """A run to be made, or one that is done."""

    experiment: Experiment
    name: str
    """Of its result file and of its run folder."""
    done: Path | None
    """The result that is there already."""


def plan_runs(experiments: Sequence[Experiment], results: Path, out: Path) -> list[Planned]:
    """Find out before anything is trained that all inputs are there, and which runs are done.

    A run is done when `results` holds one with the same config_hash (all that decides the weights but the
    seed) and seed. The others get run folders in `out`.
    """
    done = {(r["config_hash"], r["seed"]): path for path, r in read_results(results).items()}
    data: dict[str, Data] = {}
    backbones: dict[str, Backbone] = {}
    planned: dict[str, Planned] = {}
    for experiment in experiments:
        source = json.dumps([experiment.dataset, experiment.root, experiment.labels, experiment.k])
        if source not in data:
            data[source] = load_data(experiment)
        network = json.dumps(asdict(experiment.backbone), sort_keys=True)
        if network not in backbones:
            backbones[network] = load_backbone(experiment.backbone)
        identity = identify(experiment, data[source], backbones[network])
        facts = {
            "method": experiment.method_name,
            "dataset": data[source].table.name,
            "variant": experiment.preset,
        }
        name = result_name({**facts, "seed": experiment.seed, "config_hash": config_hash(identity)})
        experiment.out = str(out / name)
        planned[name] = Planned(experiment, name, done.get((config_hash(identity), experiment.seed)))
    return list(planned.values())


def run_planned(planned: Sequence[Planned], results: Path, say: Callable[[str], None]) -> None:
    """Make the runs that are not done. One that fails does not keep the others from running."""
    failed = []
    for number, run in enumerate(planned, start=1):
        place = f"[{number}/{len(planned)}] {run.name}"
        if run.done:
            say(f"{place}: done before, {run.done}")
            continue
        try:
            record = run_experiment(run.experiment)
        except InputError as error:
            say(f"{place}: failed: {error}")
            failed.append(f"{run.name}: {error}")
            continue
        if rank() == 0:
            write_result(results, record)
        say(f"{place}: All {_percent(record['all'])}, {record['seconds']} s")
    if failed:
        raise InputError(f"{len(failed)} of {len(planned)} runs failed; the first, {failed[0]}")


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.1f}"
