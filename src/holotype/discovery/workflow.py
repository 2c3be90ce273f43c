"""From a folder of images to categories: embed, count, train, place, describe, report.

Every step leaves its result in the run folder, so that a stopped run goes on where it was:

embeddings/, count.json, training/   of the steps on the way
features.npy                         (N, D) float16, every image after training; NaN for those that cannot be read
model.safetensors, model.json        what places new images
rounds/N/                            what each round found, before edits (rounds.py)
discovery.json, assignments.*, report.html
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holotype.categories.found import Discovery
from holotype.cluster.count import pick_k
from holotype.data.sources import check_trainable, load_table
from holotype.data.table import Table
from holotype.discovery.best_backbone import Chosen, choose_backbone
from holotype.discovery.finding import Round, count_categories, find_categories, put_together
from holotype.discovery.plan import SAMPLE, SAMPLE_ELSEWHERE, STEPS, STEPS_ELSEWHERE
from holotype.discovery.rounds import (
    carry_names,
    confirmed_labels,
    corrected,
    finished_rounds,
    labels_of_round,
    save_round,
    take_edits,
    with_labels,
)
from holotype.discovery.timing import Clock
from holotype.errors import InputError
from holotype.machine.device import Compute, pick_device
from holotype.models.backbone import BackboneConfig
from holotype.report import build_report
from holotype.runs.embed import embed_table
from holotype.runs.folder import RunFolder
from holotype.runs.parts import check_k
from holotype.runs.trees import flat

FEWEST = 8
"""Usable images below which there is nothing to train on."""
IDENTITY = "identity.json"
FORMAT = 1
"""Of the run folder as a whole."""

log = logging.getLogger(__name__)


@dataclass
class DiscoverConfig:
    """Settings of a discovery."""

    k: int | Literal["auto"] = "auto"
    """Number of categories, known and novel together; auto estimates it."""
    steps: int | None = None
    """Training steps; by default 1,000 on a CPU and 6,000 on a GPU."""
    sample: int | None = None
    """Images to train on at most, by default 5,000 on a CPU and 200,000 on a GPU; the rest is placed afterwards."""
    method: str = "rpc"
    """Method that finds the categories."""
    backbone: BackboneConfig = field(default_factory=lambda: BackboneConfig("auto"))
    """The network; auto takes the best that can be had."""
    long_tail: bool = False
    """Expect categories of very different sizes."""
    seed: int = 0
    """Seed of everything random."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda or mps."""

    def resolved(self) -> dict[str, Any]:
        """The settings with what the device decides filled in; backbone left out."""
        device = pick_device(self.device)
        return {
            "k": self.k,
            "steps": self.steps or STEPS.get(device, STEPS_ELSEWHERE),
            "sample": self.sample or SAMPLE.get(device, SAMPLE_ELSEWHERE),
            "method": self.method,
            "long_tail": self.long_tail,
            "seed": self.seed,
        }


def discover(images: Path | str, labels: Path | str | None = None, **settings: Any) -> Discovery:
    """Find the categories in a folder, a CSV or a Parquet file of images; the same as `holotype discover`.

    settings: fields of DiscoverConfig, and out (run folder), edits (file of edits), progress. backbone may be a name.
    """
    table = load_table(Path(images), None if labels is None else Path(labels))
    folder = Path(settings.pop("out", None) or default_folder(Path(images)))
    edits, progress = settings.pop("edits", None), settings.pop("progress", True)
    if isinstance(settings.get("backbone"), str):
        settings["backbone"] = BackboneConfig(settings["backbone"])
    try:
        config = DiscoverConfig(**settings)
    except TypeError as error:
        raise InputError(
            f"discover does not take this setting ({error}); its settings are those of DiscoverConfig."
        ) from error
    return discover_table(table, config, folder, progress=progress, edits=Path(edits) if edits else None)


def default_folder(images: Path) -> Path:
    return Path("runs") / f"{images.resolve().stem}-discover"


def discover_table(
    table: Table,
    config: DiscoverConfig,
    folder: Path,
    *,
    progress: bool = True,
    edits: Path | None = None,
) -> Discovery:
    """Find the categories in a table of images and write the run folder; resumes, and applies edits.

    edits: a file that the report exported. Names, merges and moves count at once; where labels were confirmed, a
    new round is trained with them.
    """
    folder = Path(folder)
    check_table(table, config)
    config, chosen = claim(folder, table, config)
    if edits is not None:
        take_edits(folder, edits)
    labels = confirmed_labels(folder)
    number = finished_rounds(folder)
    if number == 0 or labels != labels_of_round(folder, number):
        chosen = chosen or choose_backbone(config.backbone, pick_device(config.device))
        number += 1
        if number > 1:
            log.info(f"Round {number}, with {len(labels)} labels that edits have confirmed.")
        round = Round(with_labels(table, labels), config, chosen, folder, number, len(labels), progress)
        found = run_round(round)
        if number > 1:
            carry_names(corrected(folder)[0], found)
        save_round(folder, number, found, labels)
    return write_result(folder, progress)


def write_result(folder: Path, progress: bool) -> Discovery:
    """Apply the log of edits to the last round, and write discovery, assignments and report."""
    found, problems = corrected(folder)
    for problem in problems:
        log.warning(problem)
    found.save(folder)
    with Clock().step("the report"):
        build_report(found, folder, progress=progress)
    return found


# -- before anything is computed --------------------------------------------------------------------------


def check_table(table: Table, config: DiscoverConfig) -> None:
    """Raise InputError for collections in which there is nothing to discover."""
    if len(table) < FEWEST:
        raise InputError(
            f"There are only {len(table)} images in {table.name or 'the collection'}; discover needs at least "
            f"{FEWEST}, and hundreds to be of use."
        )
    check_trainable(table)
    if config.k != "auto":
        check_k(config.k, table, table.name)
        if config.k > len(table):
            raise InputError(
                f"--k {config.k} is more than the {len(table)} images of {table.name}; lower it."
            )


def claim(folder: Path, table: Table, config: DiscoverConfig) -> tuple[DiscoverConfig, Chosen | None]:
    """Make sure that the folder is new or of this very discovery.

    Returns the settings with the backbone by its name (where `auto` was asked for, the one that was taken when the
    discovery began), and the backbone where it had to be chosen now.
    """
    run = RunFolder(folder)
    begun = run.read_json(IDENTITY) if (folder / IDENTITY).is_file() else {}
    if begun and begun.get("format") != FORMAT:
        raise InputError(
            f"{folder} holds a run of another kind or version (no discovery of format {FORMAT}); "
            "choose another folder with --out, or delete this one to start anew."
        )
    seen = images_and_labels(table)
    for name, digest in seen.items():
        if begun and begun.get(name) != digest:
            raise InputError(
                f"{folder} holds a discovery with other {name} than those of {table.name}; choose another folder with "
                "--out, or delete this one to start anew."
            )
    settings = config.resolved() | seen
    device, wanted = pick_device(config.device), config.backbone
    chosen = None
    if wanted.name == "auto" and begun:
        wanted = BackboneConfig(**begun["backbone"])
    elif not begun:
        chosen = choose_backbone(wanted, device)
        wanted = chosen.config
        log.info(chosen.words)
    identity = {"format": FORMAT, **settings, "backbone": vars(wanted)}
    check_settings(folder, begun, identity)
    run.write_json(IDENTITY, identity)
    return dataclasses.replace(config, backbone=wanted), chosen


def check_settings(folder: Path, begun: dict[str, Any], identity: dict[str, Any]) -> None:
    """Raise InputError where the discovery in the folder was begun with other settings."""
    before, now = flat(begun), flat(json.loads(json.dumps(identity)))
    for key in now | before if begun else ():
        if before.get(key) != now.get(key):
            raise InputError(
                f"{folder} holds a run with {key} = {before.get(key)!r}, not {now.get(key)!r}; "
                "choose another folder with --out, or delete this one to start anew."
            )


def images_and_labels(table: Table) -> dict[str, str]:
    """Digests of both, apart, so that a person learns which of them has changed."""
    seen = {"images": list(table.path), "labels": [list(table.label), list(table.known)]}
    return {name: hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12] for name, what in seen.items()}


# -- a round ----------------------------------------------------------------------------------------------


def run_round(round: Round) -> Discovery:
    """Embed, count, train, place and describe."""
    config, chosen = round.config, round.chosen
    with round.clock.step("embedding"):
        compute = Compute.on(config.device)
        folder = round.folder / "embeddings"
        embedded = embed_table(round.table, chosen.backbone, compute, folder, progress=round.progress)
    round.table = round.table.with_problems(embedded.problem)
    check_embedded(round.table, embedded.features)
    count = None
    if config.k == "auto":
        with round.clock.step("counting"):
            count = count_categories(round, embedded.features)
        log.info(f"{count.words} Training with {pick_k(count.best, count.high)}.")
    k = pick_k(count.best, count.high) if count else int(config.k)
    if k < len(round.table.known):  # edits have made known what --k did not count
        k = len(round.table.known)
        log.warning(
            f"With the confirmed labels there are {k} known classes, so that --k {config.k} becomes {k}."
        )
    placed = find_categories(round, k)
    return put_together(round, embedded, placed, count)


def check_embedded(table: Table, features: np.ndarray) -> None:
    """Raise InputError where images cannot be read or told apart."""
    usable = table.usable
    unread = int((~usable).sum())
    if unread:
        log.warning(f"{unread:,} of {len(table):,} images cannot be read; assignments.csv says why.")
    if usable.sum() < FEWEST:
        raise InputError(
            f"Only {int(usable.sum())} of the {len(table)} images of {table.name} can be read "
            f"({table.problem[~usable][0] if unread else 'there are no more'}); discover needs at least {FEWEST}."
        )
    check_trainable(table)
    rows = features[usable]
    if np.abs(rows - rows[0]).max() < 1e-5:
        raise InputError(
            f"All {len(rows)} images of {table.name} look the same to the backbone, so that there is nothing to tell "
            "apart; check that they are different pictures."
        )
