"""Maps of what trained runs make of the unlabelled images, and how tight their classes are, as numbers.

    python benchmarks/maps.py runs/cub/simgcd-s0 runs/cub/rpc-s0 --root data --out maps
    python benchmarks/maps.py runs/cub/rpc-s0 --root data --out maps --features-only
    python benchmarks/maps.py --complete maps/*.npz

Opens finished runs of one data set and puts the unlabelled images' centre crops through each run's trained tail.
OUT/NAME.npz holds, in the order of the table: `features` (N, D), of length 1, as float16; `class` (N,), the true one;
`kind` (N,), known or novel; `name`; `run`, a JSON object of where they come from; and `points` (N, 2), the t-SNE, which
`benchmarks/figures.py tsne` draws. The t-SNE needs neither images nor weights: --complete adds it where it is missing.
OUT/NAME.json says for known and for novel classes: `silhouette`, `same_class` and `other_class`, the mean cosines.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from script import one_sentence
from tightness import tightness, unit
from torch import nn

from holotype.categories.layout import FEW, layout
from holotype.cluster.evaluate import scored_rows
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.machine.files import write_beside, write_text
from holotype.runs.experiment import Experiment
from holotype.runs.folder import IDENTITY, SCORES, RunFolder
from holotype.runs.identity import Identity
from holotype.runs.parts import make_method
from holotype.runs.prepared import Prepared, Shelf, make_compute
from holotype.runs.record import Record
from holotype.runs.settings import read_settings, resolve
from holotype.runs.tables import facts
from holotype.runs.together import call
from holotype.runs.trained import WEIGHTS
from holotype.training.encode import Encoder
from holotype.training.sources import FreshViews, evaluation_features

FILES = ("config.yaml", IDENTITY, SCORES, WEIGHTS)
"""Of a finished run, all that is read here."""
ARRAYS = ("features", "class", "kind", "name", "run")
"""Of a map without its points."""

Arrays = dict[str, np.ndarray]


@dataclass
class FinishedRun:
    """A run folder, read but not yet loaded."""

    path: Path
    experiment: Experiment
    identity: Identity
    record: Record

    @property
    def name(self) -> str:
        return call(self.experiment)

    @property
    def stem(self) -> str:
        """The name as a file can have it."""
        return re.sub(r"[^\w.=@+-]+", "-", self.name)


# -- the runs ---------------------------------------------------------------------------------------------


def open_run(path: Path, root: Path | None) -> FinishedRun:
    """What a run folder says of itself; `root` in place of the folder that its data set had then."""
    if missing := [name for name in FILES if not (path / name).is_file()]:
        raise InputError(f"{path} is not the folder of a finished run (no {missing[0]}); train it first.")
    folder = RunFolder(path)
    identity = Identity.from_dict(folder.read_json(IDENTITY), path / IDENTITY)
    record = Record.from_dict(folder.read_json(SCORES), path / SCORES)
    config = read_settings(path / "config.yaml")
    if root is not None:
        config["root"] = root
    experiment = resolve(config["method_name"], config["dataset"], config["preset"], config)
    # a map may be made on another machine than the run, and a number of categories is not estimated again
    experiment.device, experiment.devices, experiment.k = "auto", 1, identity.data["k"]
    return FinishedRun(path, experiment, identity, record)


def check_together(runs: Sequence[FinishedRun]) -> None:
    """Maps are compared image by image, and each has a file of its own."""
    first = runs[0]
    for run in runs[1:]:
        if run.identity.data["table"] != first.identity.data["table"]:
            raise InputError(
                f"{first.path} and {run.path} were trained on different tables ({first.identity.data['name']} and "
                f"{run.identity.data['name']}, or other labels); map each by itself."
            )
    stems = [run.stem for run in runs]
    if twice := [stem for stem in stems if stems.count(stem) > 1]:
        raise InputError(f"Two runs are called {twice[0]}; map them by themselves, with different --out.")


def prepare(run: FinishedRun, shelf: Shelf) -> Prepared:
    """Table, images and backbone of a run, which must be those that it was trained on."""
    compute = make_compute(run.experiment)
    prepared = shelf.get(run.experiment, compute)
    if prepared.data.table.fingerprint() != run.identity.data["table"]:
        raise InputError(
            f"The images or labels of {run.identity.data['name']} are not those that {run.path} was trained on; "
            "give the folder that it had with --root."
        )
    if prepared.backbone.digest != run.identity.backbone["digest"]:
        raise InputError(
            f"The backbone {run.experiment.backbone.name} is not the one that {run.path} was trained on (its "
            "weights differ); put the old file back."
        )
    return prepared


def trained_encoder(run: FinishedRun, prepared: Prepared) -> Encoder:
    """The encoder of the run, as its method embeds with it."""
    method = make_method(run.experiment, prepared.data, prepared.backbone)
    encoder = Encoder(prepared.network(), prepared.compute, method)
    modules = nn.ModuleDict({"tail": encoder.module, "method": method})
    modules.to(encoder.device, encoder.dtype)
    try:
        tensors = load_file(run.path / WEIGHTS)
        modules.load_state_dict({name: tensors[name] for name in modules.state_dict()})
    except (KeyError, RuntimeError, OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"The weights in {run.path} cannot be read ({reason}); train it anew.") from error
    modules.eval()
    return encoder


def shown_rows(table: Table) -> np.ndarray:
    """Rows that are scored, which must be enough for a map."""
    if table.truth is None:
        raise InputError(f"{table.name} has no true classes to tell apart in a map; take a benchmark.")
    rows = scored_rows(table)
    if len(rows) < FEW:
        raise InputError(f"{table.name} has {len(rows)} images to map; take {FEW} or more.")
    return rows


def embed(run: FinishedRun, shelf: Shelf) -> Arrays:
    """The map of a run, without its points."""
    prepared = prepare(run, shelf)
    images, table = prepared.images, prepared.data.table  # the table, once its images were decoded
    rows = shown_rows(table)
    source = FreshViews(images, trained_encoder(run, prepared))
    found = evaluation_features(source, torch.from_numpy(rows)).float().cpu().numpy()
    source.close()
    truth = np.asarray(table.truth)[rows].astype(str)
    origin = origin_of(run.record)
    return {
        "features": unit(found).astype(np.float16),
        "class": truth,
        "kind": np.where(np.isin(truth, table.known), "known", "novel"),
        "name": np.array(run.name),
        "run": np.array(json.dumps(origin, ensure_ascii=False)),
    }


def origin_of(record: Record) -> dict[str, Any]:
    """What goes with a map of the run that it shows."""
    scores = {name: getattr(record.scores, name) for name in ("all", "old", "new")}
    return facts(record) | {"seed": record.identity.seed, "commit": record.made.commit} | scores


def project(features: np.ndarray) -> np.ndarray:
    """(N, D) -> (N, 2) float32, by the t-SNE of the report."""
    return layout(features.astype(np.float32), limit=len(features)).astype(np.float32)


# -- files ------------------------------------------------------------------------------------------------


def write_map(path: Path, arrays: Arrays) -> None:
    """The map, and what it says in numbers beside it; prints the numbers."""

    def write(beside: Path) -> None:
        with beside.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    write_beside(path, write)
    name, found = str(arrays["name"]), tightness(arrays["features"], arrays["class"], arrays["kind"])
    content = {"name": name, "run": json.loads(str(arrays["run"])), **found}
    write_text(path.with_suffix(".json"), json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    for part, values in found.items():
        print(f"{name}, {part}: " + ", ".join(f"{key} {value}" for key, value in values.items()))


def read_map(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); make it anew from its run.") from error
    if missing := [key for key in ARRAYS if key not in arrays]:
        raise InputError(f"{path} is no map of this script (no {missing[0]}); make it from a run.")
    return arrays


def make_maps(folders: Sequence[Path], out: Path, root: Path | None, features_only: bool) -> None:
    runs = [open_run(folder, root) for folder in folders]
    check_together(runs)
    shelf = Shelf()
    for run in runs:
        arrays = embed(run, shelf)
        if not features_only:
            arrays["points"] = project(arrays["features"])
        write_map(out / f"{run.stem}.npz", arrays)


def complete(path: Path) -> None:
    """Add the points where they are missing."""
    arrays = read_map(path)
    if "points" not in arrays:
        arrays["points"] = project(arrays["features"])
    write_map(path, arrays)


def make_parser() -> argparse.ArgumentParser:
    told = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=told)
    add = parser.add_argument
    add("runs", type=Path, nargs="*", metavar="RUN_FOLDER", help="finished runs of one data set")
    add("--out", type=Path, metavar="DIR", help="folder of the maps")
    add("--root", type=Path, metavar="DIR", help="folder in which the benchmark lies, where it has moved")
    add("--features-only", action="store_true", help="leave the t-SNE to --complete")
    add("--complete", type=Path, nargs="+", metavar="FILE", help="maps of --features-only")
    return parser


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    given = make_parser().parse_args(words)
    if given.complete and (given.runs or given.out or given.root or given.features_only):
        raise InputError("--complete needs nothing but its files; leave out the rest.")
    if given.complete:
        for path in given.complete:
            complete(path)
    elif given.runs and given.out:
        make_maps(given.runs, given.out, given.root, given.features_only)
    else:
        raise InputError("Name run folders and --out DIR, or maps to --complete.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
