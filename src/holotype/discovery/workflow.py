"""From a folder of images to categories: embed, count, train, place, describe, report.

Every step leaves its result in the run folder, so that a stopped run goes on where it was:

identity.json, config.yaml           what was asked for
embeddings/, count.json              of the steps on the way, for all rounds
rounds/N/                            what each round found, before edits: a run folder like any other (rounds.py)
model.json, model.safetensors, features.npy, provenance.json, scores.json   those of the last round
discovery.json, assignments.*, report.html   what the last round found, with edits
queue.csv                            the images whose answers are worth most
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holotype.categories.found import Discovery
from holotype.categories.queue import write_queue
from holotype.data.sources import check_trainable, load_table
from holotype.data.table import Table
from holotype.discovery.best_backbone import Chosen, choose_backbone
from holotype.discovery.changes import write_changes
from holotype.discovery.config import DiscoverConfig
from holotype.discovery.finding import FEWEST, Round, check_long_tail, run_round
from holotype.discovery.look import tell
from holotype.discovery.moved import follow, relative
from holotype.discovery.plan import resolved
from holotype.discovery.rounds import (
    Played,
    begin_round,
    changed_images,
    corrected_rounds,
    finished_rounds,
    given_to,
    keep_corrected,
    last_round,
    play,
    round_folder,
    share_round,
    stamp_images,
    take_edits,
)
from holotype.discovery.timing import Clock
from holotype.errors import InputError
from holotype.machine.device import pick_device
from holotype.machine.locks import hold
from holotype.machine.plain import NotPlain, as_plain, from_plain
from holotype.methods import find_method
from holotype.models.backbone import BackboneConfig
from holotype.report import build_report
from holotype.report.points import with_map
from holotype.runs.folder import RunFolder
from holotype.runs.parts import Data, check_fits, check_k
from holotype.runs.settings import default_experiment
from holotype.runs.trees import flat

IDENTITY = "identity.json"
FORMAT = 2
"""Of the run folder as a whole."""

log = logging.getLogger(__name__)


def discover(
    images: Path | str,
    labels: Path | str | None = None,
    *,
    out: Path | str | None = None,
    edits: Path | str | None = None,
    progress: bool = True,
    unlabelled: Sequence[str] = (),
    skip_missing: bool = False,
    **settings: Any,
) -> Discovery:
    """Find the categories in a folder, a CSV or a Parquet file of images; the same as `holotype discover`.

    out: run folder. edits: file of edits. unlabelled, skip_missing: as in load_table. settings: fields of
    DiscoverConfig.
    """
    try:
        config = DiscoverConfig(**settings)
    except TypeError as error:
        raise InputError(
            f"discover does not take this setting ({error}); its settings are those of DiscoverConfig."
        ) from error
    given = None if labels is None else Path(labels)
    table = load_table(Path(images), given, unlabelled=unlabelled, skip_missing=skip_missing)
    folder = Path(out) if out else default_folder(Path(images))
    return discover_table(table, config, folder, progress=progress, edits=Path(edits) if edits else None)


def default_folder(images: Path) -> Path:
    return Path("runs") / f"{images.resolve().name}-discover"


def discover_table(
    table: Table,
    config: DiscoverConfig,
    folder: Path,
    *,
    progress: bool = True,
    edits: Path | None = None,
) -> Discovery:
    """Find the categories in a table of images and write the run folder; resumes, and applies edits.

    edits: a file that the report exported. Names count at once; where other edits say something that the last round
    was not given, or images were replaced, a new round is trained.
    """
    folder = Path(folder)
    check_table(table, config)
    with hold(folder):
        config, chosen = claim(folder, table, config)
        rounds = [round_folder(folder, number) for number in finished_rounds(folder)]
        follow(folder, [*rounds, *corrected_rounds(folder)], table)
        if edits is not None:
            take_edits(folder, edits)
        played, stamped = play(folder), stamp_images(table)
        if needs_round(folder, played, stamped):
            chosen = chosen or choose_backbone(config.network, pick_device(config.device))
            keep_corrected(folder, played)
            number = begin_round(folder, played.given, stamped)
            if number == 1:
                tell(table, config, chosen.backbone, progress)
            for line in played.told(number):
                log.info(line)
            run_round(next_round(folder, number, table, config, chosen, played, progress))
        return write_result(folder, progress)


def needs_round(folder: Path, played: Played, stamped: dict[str, str]) -> bool:
    """Whether there is something that the last round was not given; says what."""
    number = last_round(folder)
    if not number:
        return True
    if changed := changed_images(folder, number, stamped):
        log.info(
            f"{changed:,} of the {len(stamped):,} images have changed since round {number}, so that another is trained."
        )
        return True
    last = given_to(folder, number)
    if (played.given.labels, played.given.rejected) != (last.labels, last.rejected):
        log.info(f"Edits say more than round {number} was told, so that another is trained.")
        return True
    return False


def next_round(
    folder: Path,
    number: int,
    table: Table,
    config: DiscoverConfig,
    chosen: Chosen,
    played: Played,
    progress: bool,
) -> Round:
    """A round with what is known from those before it."""
    return Round(
        played.given.apply(table),
        config,
        chosen,
        folder,
        round_folder(folder, number),
        number,
        before=played.applied.discovery if played.applied else None,
        earlier_runs=played.runs,
        given=played.given,
        taken=played.taken,
        progress=progress,
    )


def write_result(folder: Path, progress: bool) -> Discovery:
    """Apply the log of edits to the last round, and write model, discovery, assignments and report."""
    number = last_round(folder)
    with Clock().step("the map"):
        with_map(round_folder(folder, number), progress=progress)
    applied = play(folder).applied
    assert applied is not None  # a round has come to its end
    for problem in applied.problems:
        log.warning(problem)
    share_round(folder, number)
    applied.discovery.save(folder)
    write_queue(folder, applied.discovery)
    for line in write_changes(folder, number):
        log.info(line)
    with Clock().step("the report"):
        build_report(applied.discovery, folder, progress=progress)
    return applied.discovery


# -- before anything is computed --------------------------------------------------------------------------


def check_table(table: Table, config: DiscoverConfig) -> None:
    """Raise InputError for collections in which there is nothing to discover, and for methods that do not exist."""
    find_method(config.method)
    if config.long_tail:
        check_long_tail(config.method)
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
    if begun and (not isinstance(begun, dict) or begun.get("format") != FORMAT):
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
    wanted, chosen = config.network, None
    if wanted.name == "auto" and begun:
        wanted = read_network(folder, begun)
    elif not begun:
        chosen = choose_backbone(wanted, pick_device(config.device))
        wanted = chosen.config
        # what cannot be trained is refused before anything is written; a k that is estimated is looked at then
        k = len(table.known) + 1 if config.k == "auto" else config.k
        check_fits(default_experiment(config.method, "images"), Data(table, k), chosen.backbone)
        log.info(chosen.words)
    identity = {"format": FORMAT, **resolved(config), **seen, "backbone": as_plain(wanted)}
    check_settings(folder, begun, identity)
    config = config.with_network(wanted)
    run.write_json(IDENTITY, identity)
    run.write_config(as_plain(config))
    return config, chosen


def read_network(folder: Path, identity: dict[str, Any]) -> BackboneConfig:
    """The backbone that a discovery began with."""
    try:
        return from_plain(BackboneConfig, identity.get("backbone"), every=False)
    except NotPlain as problem:
        raise InputError(
            f"{folder / IDENTITY} cannot be read (backbone: {problem}); choose another folder with --out."
        ) from problem


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
    """Digests of both, apart, so that a person learns which of them has changed. Images count by relative path."""
    paths = relative([str(path) for path in table.path], table.root)
    seen = {"images": paths, "labels": [list(table.label), list(table.known)]}
    return {name: hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12] for name, what in seen.items()}
