"""Run one round: count the categories, train, assign every image."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holotype.clustering.k_curve import CountEstimate
from holotype.config.schema import AUTO, NO, BackboneConfig
from holotype.data import detections
from holotype.data.bursts import SECONDS, SpreadLabels, count_units, find_bursts, spread_labels, with_groups
from holotype.data.exif import NO_EXIF, ExifData, read_exif_all
from holotype.data.load import check_trainable
from holotype.data.table import Table
from holotype.discovery.choose_k import choose_k, choose_long_tail
from holotype.discovery.collection import shown_names
from holotype.discovery.constraints import check_images_left, unreadable_labels, visible_classes
from holotype.discovery.ensemble_training import (
    EnsembleOutcome,
    applicable_methods,
    clear_trainings,
    train_ensemble,
)
from holotype.discovery.plan import Round
from holotype.discovery.training_plan import (
    draw_sample,
    methods_of,
    pick_preset,
    plan_length,
    resolve_settings,
    spread_epochs,
)
from holotype.embeddings.store import Embeddings, embed_table
from holotype.errors import InputError
from holotype.methods import Method, find_method
from holotype.results.apply_edits import FOLLOWS_NOTE
from holotype.results.describe import LABELLED as OF_BURST
from holotype.results.describe import burst_text
from holotype.results.discovery import RunFacts
from holotype.results.ensemble import methods_phrase
from holotype.runs.experiment import Experiment, default_experiment, stages_of
from holotype.runs.predict import RoundContext
from holotype.runs.resources import ResourceCache, RunData, drop_unusable_cache
from holotype.runs.run import finish_run
from holotype.utils.device import Device, pick_device
from holotype.utils.serialization import read_parquet_table, write_parquet
from holotype.utils.text import plural


def find_round_bursts(
    table: Table,
    setting: str,
    shots: Sequence[ExifData],
    features: np.ndarray,
    out: np.ndarray,
    words: Set[str] = frozenset(),
) -> tuple[SpreadLabels, list[str]]:
    """The table with its bursts and the labels that frames take from each other, and what to say of it.

    setting: of DiscoverConfig. shots: (N,) what the heads of the files say. features: (N, D) of the frozen backbone.
    out: (N,) bool, images that people have rejected. words: as in find_bursts.
    """
    group, how = burst_groups(table, setting, shots, features, ", alike", words)
    table = with_groups(table, group)
    spread = spread_labels(table, out)
    if table.group is None:
        return spread, []
    return spread, _burst_lines(spread, how)


def burst_groups(
    table: Table,
    setting: str,
    shots: Sequence[ExifData],
    features: np.ndarray,
    found: str,
    words: Set[str] = frozenset(),
) -> tuple[Sequence[str] | np.ndarray, str]:
    """(N,) the burst of each image, "" where it is alone, and how they are known. found: ends that, where they are not
    told but found. words: as in find_bursts."""
    if setting == NO:
        return [""] * len(table), ""
    if table.group is not None and any(table.group):
        return table.group, "as the column group says"
    seconds = SECONDS if setting == AUTO else float(setting)
    how = f"one camera, at most {seconds:g} seconds apart{found}"
    return find_bursts(table, shots, features, seconds, words), how


def count_bursts(used: np.ndarray) -> str:
    """How many frames there are of how many bursts, and the largest. used: (n,) groups, of which some are bursts."""
    largest = Counter(name for name in used if name).most_common(1)[0][1]
    return f"{burst_text(used)} of up to {largest:,}"


def check_enough(table: Table, k: int) -> None:
    """Raise InputError where there are fewer images than categories, each burst counted once."""
    if table.group is not None and count_units(table) < k:
        raise InputError(
            f"--k {k} is more than the {count_units(table)} images of {table.name}, each burst counted once; lower it, "
            "or count every image with --bursts no."
        )


def draws_own_rows(method: str) -> bool:
    """Does a method draw the images of its steps itself? Then every frame counts there."""
    return find_method(method).rows is not Method.rows


def _burst_lines(spread: SpreadLabels, how: str) -> list[str]:
    group = spread.table.group
    assert group is not None
    told = count_bursts(group[spread.table.usable])
    lines = [f"{told} ({how}); a burst counts once. --bursts no counts each image."]
    if n := len(spread.rows):
        lines.append(f"{plural(n, 'frame')} labelled like another frame of the same burst.")
    if spread.torn:
        lines.append(
            "Frames of one burst carry different labels, so its other frames take none: "
            f"{shown_names(spread.torn)}."
        )
    return lines


MIN_UNLABELLED = 8
"""Usable images below which there is nothing to train on."""

log = logging.getLogger(__name__)


def run_round(round: Round) -> None:
    """Embed, count, train, place and describe; the round's folder holds what came out."""
    with round.clock.step("embedding"):
        embedded = embed_table(
            round.table,
            round.chosen.backbone,
            Device.on(round.config.device),
            round.folder / "embeddings",
            digest=round.digests,
            source=round.embedded,
            progress=round.progress,
        )
    shots = load_exif_table(round.folder, round.table, round.digests, round.progress)
    apply_class_labels(round, embedded)
    load_exif(round, shots, embedded)
    check_images_left(round.table, round.given, round.images.keys, round.folder)
    check_embedded(round.table, embedded.features, round.out)
    k, count = choose_k(round, embedded.features)
    check_enough(round.active, k)
    round.long_tail, round.sizes = choose_long_tail(round.config, round.drawn, embedded.features)
    if round.sizes:
        log.info(round.sizes)
    discover_categories(round, embedded, k, count)


def load_exif(round: Round, shots: ExifTable, embedded: Embeddings) -> None:
    """Let the round know when, where and with which camera its images were taken, and which are frames of one burst."""
    round.columns["digest"] = np.array(round.digests, dtype=object)
    round.columns |= shots.columns() | detections.box_columns([str(path) for path in round.table.path])
    if round.table.weight is not None:
        round.columns["weight"] = round.table.weights
    features, out = embedded.features, round.out
    words = {*round.source.known, *round.images.means}  # labels that images came with, whatever they mean
    spread, lines = find_round_bursts(round.table, round.config.bursts, shots.each, features, out, words)
    round.table = spread.table
    note_alternative(embedded, spread.rows, OF_BURST)
    for line in (shots.words(), *lines):
        if line:
            log.info(line)
    for method in methods_of(round.config):
        if lines and draws_own_rows(method):
            log.info(f"{method} draws its images itself, so in its steps every frame counts.")


def apply_class_labels(round: Round, embedded: Embeddings) -> None:
    """Let the table know what cannot be read; a class that has no labelled image then is none, and that is told."""
    table = round.table.with_problems(embedded.problem)
    round.table, lost = visible_classes(table, round.given.names)
    for line in (*unreadable_labels(table, round.given, round.images), *lost):
        log.warning(line)
    for row in np.flatnonzero(table.label != round.table.label):
        embedded.note[row] = f"its label {table.label[row]!r} takes no part"
    follows = round.given.follows(round.images.keys) & round.table.labelled
    note_alternative(embedded, np.flatnonzero(follows), FOLLOWS_NOTE)


def note_alternative(embedded: Embeddings, rows: Iterable[int], words: str) -> None:
    for row in rows:
        embedded.note[row] = "; ".join(part for part in (embedded.note[row], words) if part)


def check_embedded(table: Table, features: np.ndarray, out: np.ndarray) -> None:
    """Raise InputError where images cannot be read or told apart. out: (N,) bool, those that people have rejected."""
    unread = int((~table.usable).sum())
    usable = table.usable & ~out
    if unread:
        log.warning(f"{unread:,} of {len(table):,} images cannot be read; assignments.csv says why.")
    if usable.sum() < MIN_UNLABELLED:
        raise InputError(
            f"Only {int(usable.sum())} of the {len(table)} images of {table.name} can be used "
            f"({table.problem[~table.usable][0] if unread else 'there are no more'}); discover needs at least "
            f"{MIN_UNLABELLED}."
        )
    check_trainable(table.take(usable))
    rows = features[usable]
    if np.abs(rows - rows[0]).max() < 1e-5:
        raise InputError(
            f"All {len(rows)} images of {table.name} look the same to the backbone, so there is nothing to tell "
            "apart; check that they are different pictures."
        )


# -- training -------------------------------------------------------------------------------------------


def discover_categories(round: Round, embedded: Embeddings, k: int, count: CountEstimate | None) -> None:
    """Train on the table, or on a sample of it, in the round's folder, and place every image."""
    table, limit = round.table, resolve_settings(round.config)["sample"]
    rows = draw_sample(round.active, limit, round.config.seed)
    if len(rows) < int(round.active.usable.sum()):
        log.info(
            f"Training on a sample of {len(rows):,} of the {len(table):,} images; the rest is placed afterwards."
        )
    sample = dataclasses.replace(table.take(rows), truth=None)  # training is not scored on its way
    with round.clock.step("training"):
        trained = train_round(round, sample, k, embedded.features[rows])
    with round.clock.step("placing"):
        about = RunFacts(
            title=table.name,
            root=table.root,
            round=round.number,
            earlier_runs=round.history.runs,
            confirmed_labels=len(round.given.labels),
            seconds=round.clock.seconds,
            sizes=round.sizes,
            choice_of_backbone=round.chosen.words,
        )
        counted = count.as_dict() if count else None
        run_id = f"{uuid.uuid4().hex[:12]}-{round.number}"
        told = RoundContext(
            run_id,
            about,
            counted,
            round.before,
            # a class whose labels were taken away, as of a heap, hands on its id only if edits have named it
            round.difference.classes_gone - round.given.names.keys(),
            round.given.names,
            round.history.taken,
            embedded.features,
            columns=round.columns,
            trainings=trained.trainings,
            table=table,
            rows=rows,
            note=embedded.note,
            rejected=round.out,
        )
        seconds, several = trained.run.loop.seconds(), trained.trainings
        parallel = len(several.seeds) if several else 1
        finish_run(trained.run, trained.prediction, seconds, parallel, told)
        clear_trainings(round.own)


def train_round(round: Round, sample: Table, k: int, embedded: np.ndarray) -> EnsembleOutcome:
    """Train on the images of the sample, with one seed or several. embedded: their features of the frozen backbone."""
    data, backbone, asked = RunData(sample, k), round.chosen.backbone, methods_of(round.config)
    methods, remarks = applicable_methods(asked, data, backbone, long_tail=round.long_tail)
    seeds = round.seeds
    if len(seeds) > 1 or asked[0] not in methods:  # else who does not take part would have had no turn
        for remark in remarks:
            log.info(remark)
    methods = methods[: len(seeds)]
    if len(seeds) > 1:
        turns = f", {methods_phrase(methods)}" if len(methods) > 1 else ""
        log.info(
            f"{len(seeds)} trainings with the seeds {seeds[0]} to {seeds[-1]}{turns}, side by side; images are placed "
            "where they agree (--seeds changes how many)."
        )
    experiments = [make_experiment(round, sample, k, method) for method in methods]
    return train_ensemble(
        experiments, seeds, ResourceCache(data=data, backbone=backbone), sample, k, embedded
    )


def make_experiment(round: Round, sample: Table, k: int, method: str) -> Experiment:
    """The training of a discovery with that method, in the words of `holotype train`."""
    config, steps = round.config, resolve_settings(round.config)["steps"]
    device = pick_device(config.device)
    experiment = plan_training(method, count_units(sample), k, steps, device, config.network)
    if experiment.preset != "default":
        log.info(f"On a CPU, {method} is trained with its preset {experiment.preset}.")
    experiment.dataset = sample.name or "images"
    experiment.seed, experiment.out, experiment.progress = config.seed, str(round.own), round.progress
    if round.long_tail:
        experiment.method.memax_target = "estimated"
    return experiment


def plan_training(
    method: str, n: int, k: int, steps: int, device: str, network: BackboneConfig
) -> Experiment:
    """How a discovery trains with a method on n images, each burst counted once."""
    plan = plan_length(n, steps, device)
    # no recipe: a folder called aircraft is no benchmark
    experiment = default_experiment(method, "images", pick_preset(method, device))
    experiment.k, experiment.device = k, device
    experiment.backbone, experiment.cache_views = network, plan.cache_views
    epochs = spread_epochs(plan.epochs, stages_of(experiment))
    experiment.train.epochs, experiment.train.batch_size = epochs, plan.batch_size
    return drop_unusable_cache(experiment)


# -- what the heads of the files say --------------------------------------------------------------------

EXIF_FILE = "shots.parquet"
EXIF_COLUMNS = tuple(one.name for one in dataclasses.fields(ExifData))


@dataclass(frozen=True)
class ExifTable:
    """Of the N images of a table."""

    each: list[ExifData]

    def columns(self) -> dict[str, np.ndarray]:
        """The columns of a table of images of which anything is known: (N,) object text, (N,) float."""
        found = {
            "taken": np.array([shot.taken for shot in self.each], dtype=object),
            "latitude": np.array([shot.latitude for shot in self.each], dtype=float),
            "longitude": np.array([shot.longitude for shot in self.each], dtype=float),
            "camera": np.array([shot.camera for shot in self.each], dtype=object),
        }
        return {name: values for name, values in found.items() if _has_facts(values)}

    def words(self) -> str:
        """In one line, "" where no head says anything."""
        times = sorted(shot.taken for shot in self.each if shot.taken)
        placed = sum(shot.latitude == shot.latitude for shot in self.each)
        cameras = [shot.camera for shot in self.each if shot.camera]
        different = len(set(cameras))
        facts = {
            "when": len(times),
            "where": placed,
            f"with which of {different:,} cameras" if different > 1 else "with which camera": len(cameras),
        }
        parts = [f"{what} {number:,} were" for what, number in facts.items() if number]
        if not parts:
            return ""
        parts[0] = parts[0].removesuffix(" were") + f" of {len(self.each):,} images were taken"
        if times:
            parts[0] += f" ({times[0][:10]} to {times[-1][:10]})"
        return f"The files say {', '.join(parts)}."


def _has_facts(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).any() if values.dtype == float else (values != "").any())


def load_exif_table(folder: Path, table: Table, digest: Sequence[str], progress: bool = False) -> ExifTable:
    """Read the heads of the images whose content is new, and keep what they say. digest: (N,) (data/hashing.py)."""
    known = _read_exif_file(folder)
    new = [row for row, own in enumerate(digest) if own not in known]
    found = dict(zip(new, read_exif_all([str(table.path[row]) for row in new], progress), strict=True))
    fresh = {digest[row]: shot for row, shot in found.items() if digest[row]}
    if fresh:
        _write_exif_file(folder, known | fresh)
    each = [found[row] if row in found else known[own] for row, own in enumerate(digest)]
    return ExifTable(each or [NO_EXIF] * len(table))


def _read_exif_file(folder: Path) -> dict[str, ExifData]:
    """By digest; nothing where it cannot be read, since it is all in the files."""
    if not (folder / EXIF_FILE).is_file():
        return {}
    try:
        table = read_parquet_table(folder / EXIF_FILE)
        rows = zip(*(table[name].to_pylist() for name in EXIF_COLUMNS), strict=True)
        return {own: ExifData(*row) for own, row in zip(table["digest"].to_pylist(), rows, strict=True)}
    except (OSError, ValueError, KeyError, TypeError):
        log.warning(f"{folder / EXIF_FILE} cannot be read, and is made again.")
        return {}


def _write_exif_file(folder: Path, shots: dict[str, ExifData]) -> None:
    import pyarrow as pa

    rows = zip(*(dataclasses.astuple(shot) for shot in shots.values()), strict=True)
    columns = {"digest": list(shots), **dict(zip(EXIF_COLUMNS, rows, strict=True))}
    write_parquet(folder / EXIF_FILE, pa.table({name: pa.array(values) for name, values in columns.items()}))
