"""Run one round: embed, choose the number of categories, train, assign every image.

The count supposes that labels were drawn at random (clustering/class_size.py). Labels from edits are picked: where
images were wrong, and a few in each new category. Counted with them, a collection seems to have many small classes. So
they take no part in the count; and where people have merged, parted and rejected, what they have left is the number,
with what the count has changed by since.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

import numpy as np

from holotype.clustering.estimate_k import count_key, estimate_table, write_count
from holotype.clustering.k_curve import CountEstimate
from holotype.config.schema import AUTO, NO
from holotype.data import detections
from holotype.data.bursts import SECONDS, count_units, find_bursts, spread_labels, with_groups
from holotype.data.decode import DecodedImages
from holotype.data.exif import ExifData, read_exif_all
from holotype.data.load import check_trainable
from holotype.data.table import Table
from holotype.discovery.collection import shown_names
from holotype.discovery.constraints import check_images_left, unreadable_labels, visible_classes
from holotype.discovery.plan import Round
from holotype.discovery.training_plan import (
    applicable_methods,
    clear_trainings,
    draw_sample,
    methods_of,
    plan_training,
    resolve_settings,
    train_ensemble,
)
from holotype.embeddings.store import Embeddings, embed_table
from holotype.errors import InputError
from holotype.methods import Method, Prediction, find_method
from holotype.results.describe import LABELLED_BY_BURST, burst_text
from holotype.results.discovery import Discovery, RunFacts
from holotype.results.edits import FOLLOWS_NOTE
from holotype.results.ensemble import methods_phrase
from holotype.runs.experiment import Experiment
from holotype.runs.predict import EnsembleRuns, RoundContext
from holotype.runs.resources import ResourceCache, RunData
from holotype.runs.run import Run, finish_run
from holotype.utils.device import Device, pick_device
from holotype.utils.memory import available_memory
from holotype.utils.serialization import read_json, read_parquet_table, write_parquet
from holotype.utils.text import plural

MIN_UNLABELLED = 8
"""Usable images below which there is nothing to train on."""

DECODED_SHARE = 0.25
"""Of the memory that is free, for images between embedding and training."""

log = logging.getLogger(__name__)


def run_round(round: Round) -> None:
    """Embed, count, train, place and describe; the round's folder holds what came out."""
    with round.clock.step("embedding"):
        if len(round.table) <= resolve_settings(round.config)["sample"]:
            round.decoded = DecodedImages(int(DECODED_SHARE * available_memory()))
        embedded = embed_table(
            round.table,
            round.chosen.backbone,
            Device.on(round.config.device),
            round.folder / "embeddings",
            digest=round.digests,
            source=round.embedded,
            decoded=round.decoded,
            progress=round.progress,
        )
    shots = [ExifData()] * len(round.table)
    if round.table.features is None:
        shots = load_exif(round.folder, round.table, round.digests, round.progress)
    apply_class_labels(round, embedded)
    round.fitted()
    find_round_bursts(round, shots, embedded)
    check_images_left(round.table, round.given, round.images.keys, round.folder)
    check_embedded(round.table, embedded.features, round.out, round.least_classes)
    k, count = choose_k(round, embedded.features)
    check_enough(round.active, k)
    discover_categories(round, embedded, k, count)


def apply_class_labels(round: Round, embedded: Embeddings) -> None:
    """Let the table know what cannot be read; a class that has no labelled image then is none, and that is told."""
    table = round.table.with_problems(embedded.problem)
    round.table, lost = visible_classes(table, round.given.names)
    for line in (*unreadable_labels(table, round.given, round.images), *lost):
        log.warning(line)
    for row in np.flatnonzero(table.label != round.table.label):
        embedded.note[row] = f"its label {table.label[row]!r} takes no part"
    follows = round.given.follows(round.images.keys) & round.table.labelled
    add_note(embedded, np.flatnonzero(follows), FOLLOWS_NOTE)


def add_note(embedded: Embeddings, rows: Iterable[int], words: str) -> None:
    for row in rows:
        embedded.note[row] = "; ".join(part for part in (embedded.note[row], words) if part)


def check_embedded(table: Table, features: np.ndarray, out: np.ndarray, classes: int = 2) -> None:
    """Raise InputError where images cannot be read or told apart. out: (N,) bool, those that people have rejected;
    classes: how many must have labels."""
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
    check_trainable(table.take(usable), classes)
    rows = features[usable]
    if np.abs(rows - rows[0]).max() < 1e-5:
        raise InputError(
            f"All {len(rows)} images of {table.name} look the same to the backbone, so there is nothing to tell "
            "apart; check that they are different pictures."
        )


def find_round_bursts(round: Round, shots: Sequence[ExifData], embedded: Embeddings) -> None:
    """Let the round know when, where and with which camera its images were taken, and which are frames of one burst:
    frames take labels from each other. shots: (N,) what the heads of the files say."""
    round.columns["digest"] = np.array(round.digests, dtype=object)
    round.columns |= exif_columns(shots) | detections.box_columns([str(path) for path in round.table.path])
    if round.table.text is not None:
        round.columns["text"] = round.table.text
    if round.table.weight is not None:
        round.columns["weight"] = round.table.weights
    labels = {*round.source.known, *round.images.means}  # that images came with, whatever they mean
    group, how = burst_groups(round.table, round.config.bursts, shots, embedded.features, ", alike", labels)
    spread = spread_labels(with_groups(round.table, group), round.out)
    round.table = spread.table
    add_note(embedded, spread.rows, LABELLED_BY_BURST)
    lines = [exif_sentence(shots)]
    if round.table.group is not None:
        count = count_bursts(round.table.group[round.table.usable])
        lines.append(f"{count} ({how}); a burst counts once. --bursts no counts each image.")
        if n := len(spread.rows):
            lines.append(f"{plural(n, 'frame')} labelled like another frame of the same burst.")
        if spread.torn:
            lines.append(
                "Frames of one burst carry different labels, so its other frames take none: "
                f"{shown_names(spread.torn)}."
            )
        own_rows = [method for method in methods_of(round.config) if draws_own_rows(method)]
        lines += [
            f"{method} draws its images itself, so in its steps every frame counts." for method in own_rows
        ]
    for line in filter(None, lines):
        log.info(line)


def burst_groups(
    table: Table,
    setting: str,
    shots: Sequence[ExifData],
    features: np.ndarray,
    found: str,
    labels: Set[str] = frozenset(),
) -> tuple[Sequence[str] | np.ndarray, str]:
    """(N,) the burst of each image, "" where it is alone, and how they are known. found: ends that, where they are not
    told but found. labels: as in find_bursts."""
    if setting == NO:
        return [""] * len(table), ""
    if table.group is not None and any(table.group):
        return table.group, "as the column group says"
    seconds = SECONDS if setting == AUTO else float(setting)
    how = f"one camera, at most {seconds:g} seconds apart{found}"
    return find_bursts(table, shots, features, seconds, labels), how


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
        run, prediction, trainings = train_round(round, sample, k, embedded.features[rows])
    with round.clock.step("placing"):
        about = RunFacts(
            title=table.name,
            root=table.root,
            round=round.number,
            earlier_runs=round.history.runs,
            confirmed_labels=len(round.given.labels),
            seconds=round.clock.seconds,
            choice_of_backbone=round.chosen.words,
        )
        context = RoundContext(
            f"{uuid.uuid4().hex[:12]}-{round.number}",
            about,
            count.as_dict() if count else None,
            round.before,
            # a class whose labels were taken away, as of a heap, hands on its id only if edits have named it
            round.difference.classes_gone - round.given.names.keys(),
            round.given.names,
            round.history.taken,
            embedded.features,
            columns=round.columns,
            trainings=trainings,
            table=table,
            rows=rows,
            note=embedded.note,
            rejected=round.out,
        )
        finish_run(run, prediction, run.loop.seconds(), len(round.inputs.seeds), context)
        clear_trainings(round.own)


def train_round(
    round: Round, sample: Table, k: int, embedded: np.ndarray
) -> tuple[Run, Prediction, EnsembleRuns | None]:
    """Train on the images of the sample, with one seed or several. embedded: their features of the frozen backbone."""
    data, backbone, asked = RunData(sample, k), round.chosen.backbone, methods_of(round.config)
    methods, remarks = applicable_methods(asked, data, backbone)
    seeds = round.inputs.seeds
    if len(seeds) > 1 or asked[0] not in methods:  # else who does not take part would have had no turn
        for remark in remarks:
            log.info(remark)
    methods = methods[: len(seeds)]
    if len(seeds) > 1:
        turns = f", {methods_phrase(methods)}" if len(methods) > 1 else ""
        log.info(
            f"{len(seeds)} trainings with the seeds {seeds[0]} to {seeds[-1]}{turns}, side by side; images are placed "
            "where they agree (--effort changes how many)."
        )
    experiments = [make_experiment(round, sample, k, method) for method in methods]
    shelf = ResourceCache(data=data, backbone=backbone, decoded=round.decoded, by_content=True)
    return train_ensemble(experiments, seeds, shelf, sample, k, embedded)


def make_experiment(round: Round, sample: Table, k: int, method: str) -> Experiment:
    """The training of a discovery with that method, in the words of `holotype train`."""
    config, steps = round.config, resolve_settings(round.config)["steps"]
    device = pick_device(config.device)
    experiment = plan_training(method, sample, k, steps, device, config.network)
    if experiment.preset != "default":
        log.info(f"On a CPU, {method} is trained with its preset {experiment.preset}.")
    experiment.dataset = sample.name or "images"
    experiment.seed, experiment.out, experiment.progress = config.seed, str(round.own), round.progress
    if sample.features is not None:
        experiment.cache_views = "off"
    return experiment


EXIF_FILE = "shots.parquet"
EXIF_COLUMNS = tuple(one.name for one in dataclasses.fields(ExifData))


def exif_columns(shots: Sequence[ExifData]) -> dict[str, np.ndarray]:
    """The columns of a table of images of which anything is known: (N,) object text, (N,) float."""
    kinds = {"taken": object, "latitude": float, "longitude": float, "camera": object}
    columns = {
        name: np.array([getattr(shot, name) for shot in shots], dtype=kind) for name, kind in kinds.items()
    }
    is_known = {name: np.isfinite(v) if v.dtype == float else v != "" for name, v in columns.items()}
    return {name: values for name, values in columns.items() if is_known[name].any()}


def exif_sentence(shots: Sequence[ExifData]) -> str:
    """In one line, "" where no head says anything."""
    times = sorted(shot.taken for shot in shots if shot.taken)
    places = [shot for shot in shots if shot.latitude == shot.latitude]
    cameras = [shot.camera for shot in shots if shot.camera]
    different = len(set(cameras))
    with_which = f"with which of {different:,} cameras" if different > 1 else "with which camera"
    counts = {"when": len(times), "where": len(places), with_which: len(cameras)}
    first, *rest = [(what, n) for what, n in counts.items() if n] or [("", 0)]
    if not first[0]:
        return ""
    days = f" ({times[0][:10]} to {times[-1][:10]})" if times else ""
    parts = [f"{first[0]} {first[1]:,} of {len(shots):,} images were taken{days}"]
    return f"The files say {', '.join([*parts, *(f'{what} {n:,} were' for what, n in rest)])}."


def load_exif(folder: Path, table: Table, digest: Sequence[str], progress: bool = False) -> list[ExifData]:
    """Read the heads of the images whose content is new, and keep what they say. digest: (N,) (data/hashing.py)."""
    known = _read_exif_file(folder)
    new = [row for row, own in enumerate(digest) if own not in known]
    found = dict(zip(new, read_exif_all([str(table.path[row]) for row in new], progress), strict=True))
    fresh = {digest[row]: shot for row, shot in found.items() if digest[row]}
    if fresh:
        _write_exif_file(folder, known | fresh)
    return [found[row] if row in found else known[own] for row, own in enumerate(digest)]


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


def _write_exif_file(folder: Path, shots: Mapping[str, ExifData]) -> None:
    import pyarrow as pa

    columns = {name: [getattr(shot, name) for shot in shots.values()] for name in EXIF_COLUMNS}
    write_parquet(folder / EXIF_FILE, pa.table({"digest": list(shots), **columns}))


def categories_left(before: Discovery, table: Table) -> int:
    """Categories after the edits of a round: the classes that are known now, and the new categories that are left.

    A class that has labels for the first time is no further category where most of its images lay in one.
    """
    left = {category.id for category in before.categories if category.n} - set(table.known)
    for lay in _previous_category(before, table).values():
        left -= {id for id in set(lay) if id and 2 * lay.count(id) > len(lay)}
    return len(table.known) + len(left)


def categories_added(before: Discovery, table: Table) -> int:
    """Classes among these that have come together with most of their images: the count of today knows of them too."""
    return sum(2 * lay.count(None) > len(lay) for lay in _previous_category(before, table).values())


def _previous_category(before: Discovery, table: Table) -> dict[str, list[str | None]]:
    """Of each class that has labels for the first time: where its labelled images lay, None = they were not there.

    before: with the paths of today."""
    places = before.images["category_id"].fillna("")
    place = dict(zip(before.images["path"], map(str, places), strict=True))
    new = sorted(set(table.known) - set(before.known))
    return {name: [place.get(path) for path in table.path[table.label == name]] for name in new}


def corrected_k(count: CountEstimate, before: Discovery, table: Table) -> tuple[int, str]:
    """The number to train with, and why. before: the round before, as corrected.

    Of the same images the count changes by chance alone, so that it has a say only where images have come or gone, and
    where there is one of the round before to compare it with. Classes that have come with their images are among what
    it has grown by.
    """
    left, grown, change = categories_left(before, table), 0, ""
    if before.count and _has_other_images(before, table):
        grown = count.best - CountEstimate.from_dict(before.count).best
        grown -= min(max(grown, 0), categories_added(before, table))
    if grown:
        more = "higher" if grown > 0 else "lower"
        change = f", and with the images that have come or gone the count is {abs(grown)} {more}"
    k = max(left + grown, len(table.known))
    return k, f"Corrections have left {left} categories{change}. Training with {k}."


def expected_k(before: Discovery, table: Table) -> str:
    """What is known of that number before anything is counted. before, table: as in with_corrections."""
    left = max(categories_left(before, table), len(table.known))
    told = f"Corrections have left {left} categories"
    if before.count and _has_other_images(before, table):
        return f"{told}; the images that have come or gone may change that number (--k sets it)."
    return f"{told}, and as many would be trained with (--k sets it)."


def _has_other_images(before: Discovery, table: Table) -> bool:
    """Have images come or gone?"""
    return set(before.images["path"]) != set(table.path)


COUNT_FILE = "count.json"

log = logging.getLogger(__name__)


def choose_k(round: Round, features: np.ndarray) -> tuple[int, CountEstimate | None]:
    """The number of categories to train with, and the estimate that it comes from."""
    config, count = round.config, None
    if config.k == "auto":
        with round.clock.step("counting"):
            count = count_categories(round, features)
        k, why = count.best, f"Training with {count.best}."
        if round.before and round.corrected:
            k, why = corrected_k(count, round.before, round.table)
        log.info(f"{count.words} {why}")
    else:
        k = int(config.k)
    if k < len(round.table.known):  # edits have made known what --k did not count
        k = len(round.table.known)
        log.warning(f"With the labels from edits there are {k} known classes, so --k {config.k} becomes {k}.")
    return k, count


def count_categories(round: Round, features: np.ndarray) -> CountEstimate:
    """Estimate k from the embeddings, or read what an earlier call with the same input found."""
    config, table = round.config, round.drawn
    if round.out.any():
        table, features = table.take(~round.out), features[~round.out]
    content = hashlib.sha256(" ".join(round.digests).encode()).hexdigest()  # a repaired image looks otherwise
    key = count_key(table, round.chosen.backbone.digest, config.seed) | {"content": content}
    path = round.folder / COUNT_FILE
    if path.is_file():
        try:
            content = read_json(path)
            if content.get("of") == key:
                return CountEstimate.from_dict(content)
        except (OSError, ValueError, AttributeError, InputError):
            log.warning(f"{path} cannot be read, and is made again.")
    count = estimate_table(table, features, config.device, seed=config.seed, progress=round.progress)
    write_count(path, count, key)
    return count
