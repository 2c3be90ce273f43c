"""Dry run: inspect a collection and preview the next round; nothing is written.

Each finding is one line, with a few examples; where there is nothing to say, there is no line.
"""

from __future__ import annotations

import copy
import logging
import os
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, pairwise
from pathlib import Path

import numpy as np
import torch

from holotype.config.schema import DiscoverConfig
from holotype.data.bursts import count_units, with_groups
from holotype.data.decode import decode_in_order
from holotype.data.duplicates import MAX_PAIRS, Pair, same_pictures, scan_thumbnails
from holotype.data.exif import ExifData
from holotype.data.image_store import CROP_FRACTION, VectorStore
from holotype.data.labels import read_list, similar_names, unsorted_names
from holotype.data.load import with_readable_classes
from holotype.data.paths import find_images, relative
from holotype.data.table import Table
from holotype.discovery.collection import Collection, shown_names
from holotype.discovery.groups import groups_line
from holotype.discovery.plan import Round, RoundPlan
from holotype.discovery.rehearsal import hide_labels
from holotype.discovery.round_runner import burst_groups, count_bursts, exif_sentence, expected_k
from holotype.discovery.training_plan import (
    applicable_methods,
    draw_sample,
    methods_of,
    plan_training,
    resolve_settings,
)
from holotype.errors import InputError
from holotype.models.backbone import Backbone
from holotype.models.zoo import fastest_pass
from holotype.results.ensemble import votes_in_words
from holotype.runs.experiment import Experiment, stages_of
from holotype.runs.resources import RunData, build_method, effective_views, requested_views
from holotype.training.encoder import Encoder
from holotype.training.interleave import wait_for
from holotype.training.loop import Loop
from holotype.training.progress import StopRequest
from holotype.utils.device import Device
from holotype.utils.text import format_duration, plural

MAX_FILES_NAMED, MAX_CLASSES_NAMED = 3, 12
"""Examples of a line, and classes that are named with their size; the others are counted."""
LISTS = (".csv", ".tsv", ".txt", ".parquet")
LARGEST_LIST = 50_000_000
"""Bytes of a file beyond which nobody looks whether it holds labels."""

log = logging.getLogger("holotype")


@dataclass(frozen=True)
class DryRunReport:
    """What was seen."""

    table: Table
    """With the problems that were found, and without the classes that cannot be read."""
    lines: list[str]
    """The result first."""
    unread: list[str]
    """Lines about images that cannot be read. When a discovery begins, embedding says this."""
    shots: list[ExifData]
    """What the heads of the files say."""


def inspect_collection(
    table: Table, config: DiscoverConfig, images: Collection, progress: bool = False
) -> DryRunReport:
    """Look at every image once, small, and at the names of the classes. images: the index of the table."""
    if table.features is not None:
        readable, gone = with_readable_classes(table)
        lines = [*_result(table, config, len(readable.known)), *_names(table)]
        lines += _copies(_same_content(images, table), table, "The same vector")
        return DryRunReport(readable, lines, _unread(table, gone), [ExifData()] * len(table))
    seen = scan_thumbnails(list(table.path), progress)
    table = table.with_problems([old or new for old, new in zip(table.problem, seen.problem, strict=True)])
    readable, gone = with_readable_classes(table)
    keys = images.keys
    near = [(a, b) for a, b in same_pictures(seen) if keys[a] != keys[b]]
    lines = [
        *_result(table, config, len(readable.known)),
        *_names(table),
        *_label_files(table),
        *_copies(_same_content(images, table), table, "The same file"),
        *_copies(near, table, "Nearly the same picture"),
    ]
    return DryRunReport(readable, lines, _unread(table, gone), seen.shots)


def log_report(round: Round, table: Table) -> None:
    """Log what a round begins with and how long it takes; only before the first one are the images opened for that.

    table: as it was read."""
    config = round.config
    if round.last:
        named = round.given.called(round.table)
        lines = _result(named, config, len(named.known), round.corrected)
        lines += [*_names(named), *(_label_files(table) if table.features is None else ())]
    else:
        lines = inspect_collection(round.source, config, round.images, round.progress).lines
    trainings, network = len(round.inputs.seeds), round.chosen.backbone
    for line in (*lines, estimate_time(round.active, config, network, trainings, round.to_embed)):
        log.info(line)


def _result(table: Table, config: DiscoverConfig, known: int, corrected: bool = False) -> list[str]:
    """known: classes that take part. corrected: people have said how many categories there are."""
    size = Counter(label for label in table.label if label)
    labelled = size.total()
    first = f"{len(table):,} images: {labelled:,} labelled in {plural(len(size), 'class', 'classes')}, "
    first += f"{len(table) - labelled:,} unlabelled."
    if config.k == "auto":
        how = "follows from corrections" if corrected else "is estimated"
        first += f" How many categories there are {how} (--k sets it)."
    elif int(config.k) >= known:
        first += f" {_room_text(int(config.k), known)}"
    more = list(filter(None, [groups_line(table)]))
    if not size:
        return [first, *more]
    named = ", ".join(f"{name} {n:,}" for name, n in size.most_common(MAX_CLASSES_NAMED))
    if rest := [n for _, n in size.most_common()[MAX_CLASSES_NAMED:]]:
        least, most = min(rest), plural(max(rest), "image")
        named += f" and {len(rest):,} more of {most if least == max(rest) else f'{least:,} to {most}'}"
    return [first, f"Classes by labelled images: {named}.", *more]


def _room_text(k: int, known: int) -> str:
    return f"--k {k} leaves room for {plural(k - known, 'new category', 'new categories')}."


def _names(table: Table) -> list[str]:
    size, lines = Counter(table.label), []
    groups, heaps = similar_names(table.known), unsorted_names(table.known)
    for group in groups[:MAX_FILES_NAMED]:
        names = ", ".join(f"{name} ({size[name]:,})" for name in group)
        lines.append(
            f"Probably one class under {len(group)} names, but treated as {len(group)} classes: {names}."
        )
    if more := groups[MAX_FILES_NAMED:]:
        others = "; ".join(", ".join(group) for group in more[:MAX_FILES_NAMED])
        lines.append(f"{plural(len(more), 'more group')} of names like these: {others}.")
    for name in heaps[:MAX_FILES_NAMED]:
        lines.append(
            f"Is {name} a class, or a folder of unsorted images? --unlabelled {shlex.quote(name)} treats its "
            f"{plural(size[name], 'image')} as unlabelled."
        )
    if more_heaps := heaps[MAX_FILES_NAMED : 2 * MAX_FILES_NAMED]:
        lines.append(f"The same question for {', '.join(more_heaps)}.")
    return lines


def _unread(table: Table, gone: Sequence[str]) -> list[str]:
    """gone: classes of which no labelled image can be read."""
    lines = []
    if problems := [problem for problem in table.problem if problem]:
        lines.append(
            f"{plural(len(problems), 'image')} cannot be read: {' '.join(problems[:MAX_FILES_NAMED])}"
        )
    if gone:
        dropped = "it is no class" if len(gone) == 1 else "they are no classes"
        lines.append(f"No labelled image of {shown_names(gone)} can be read, so {dropped} here.")
    return lines


def _label_files(table: Table) -> list[str]:
    """Lists in the folder of the images that give them other labels than they have."""
    lines, labels = [], dict(zip(table.path, table.label, strict=True))
    for file in _lists(table.root):
        shown = os.path.relpath(file) if file.is_relative_to(Path.cwd()) else str(file)
        try:
            listed = read_list(file)
        except (InputError, OSError) as problem:
            if "label" in file.stem.lower():
                lines.append(f"{shown} is not used: {problem}")
            continue
        found, _ = find_images(listed.path, (Path(table.root),), labels.__contains__, lambda: list(labels))
        given = {path: label for path, label in zip(found, listed.label, strict=True) if path is not None}
        if differs := sum(labels[path] != label for path, label in given.items()):
            lines.append(
                f"{shown} says otherwise of the labels of {plural(differs, 'image')}; "
                f"--labels {shlex.quote(shown)} takes what it says."
            )
    return lines[:MAX_FILES_NAMED]


def _lists(root: str) -> list[Path]:
    try:
        files = [Path(entry.path) for entry in os.scandir(root) if entry.is_file()] if root else []
        lists = [file for file in files if file.suffix.lower() in LISTS and not file.name.startswith(".")]
        return sorted(file for file in lists if file.stat().st_size <= LARGEST_LIST)
    except OSError:
        return []


def _same_content(images: Collection, table: Table) -> list[Pair]:
    """A chain of pairs through the rows of each content, so that copies with different labels are neighbours once."""
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(images.keys):
        rows.setdefault(key, []).append(row)
    chains = (sorted(group, key=lambda row: (str(table.label[row]), row)) for group in rows.values())
    return [pair for chain in chains for pair in pairwise(chain)]


def _copies(pairs: Sequence[Pair], table: Table, what: str) -> list[str]:
    """Pairs across labels, pairs of a labelled and an unlabelled image, and the others."""
    kinds: dict[str, list[Pair]] = {"across": [], "half": [], "same": []}
    for pair in pairs:
        one, other = (table.label[row] for row in pair)
        kinds["same" if one == other else "across" if one and other else "half"].append(pair)
    ends = {
        "across": "under different labels: {}; check these labels first.",
        "half": "both labelled and unlabelled: {}.",
        "same": "twice in a class or among the unlabelled: {}.",
    }
    return [
        f"{what} {ends[kind].format(_shown_pairs(found, table))}" for kind, found in kinds.items() if found
    ]


def _shown_pairs(pairs: Sequence[Pair], table: Table) -> str:
    examples = "; ".join(
        " and ".join(relative([str(table.path[row]) for row in pair], table.root))
        for pair in pairs[:MAX_FILES_NAMED]
    )
    count = plural(len(pairs), "pair") + (" or more" if len(pairs) >= MAX_PAIRS else "")
    return f"{count}, {'for example ' if len(pairs) > MAX_FILES_NAMED else ''}{examples}"


def preview_plan(plan: RoundPlan) -> list[str]:
    """Say what `discover` would do with this plan; refuse what it would refuse."""
    if not (plan.last and plan.trains):
        return plan.lines()
    plan.check()
    lines = [*plan.lines(), *plan.edit_lines()]
    k, known = plan.config.k, len(plan.labelled.known)
    if k == "auto":
        return [*lines, expected_k(plan.before, plan.labelled)] if plan.before and plan.given.binds else lines
    if known > len(plan.source.known):
        so = _room_text(int(k), known) if int(k) >= known else f"--k {k} becomes {known}."
        lines.append(f"With the labels from edits there are {known} known classes, so {so}")
    return lines


def exif_summary(table: Table, config: DiscoverConfig, heads: Sequence[ExifData]) -> list[str]:
    """A line about what the files say, and one about bursts, each where there is something to say. heads: of each
    image."""
    lines = list(filter(None, [exif_sentence(heads)]))
    # every two frames are alike here: a discovery looks at the pictures as well, and finds as many or fewer
    alike, ending = np.ones((len(table), 1)), "; those that do not look alike are parted later"
    group, how = burst_groups(table, config.bursts, heads, alike, ending)
    grouped = with_groups(table, group).group
    if grouped is not None:
        bursts = count_bursts(grouped[table.usable])
        lines.append(f"{bursts} ({how}). A burst counts once; --bursts no counts each image.")
    return lines


IMAGES_READ = 16
"""Images that are read to see how long it takes."""
TIMED_BATCH = {"cpu": 8}
"""Images that are sent through the trunk for the same reason; on a CPU more of them take as much longer."""
SENT_ELSEWHERE = 128
STEPS_TRIED = 4
"""Of a training, all in one epoch; the first one warms up and does not count."""
WHOLE_NETWORK = 3
"""Times a pass of the network that a view takes where gradients run through all of it."""


@dataclass(frozen=True)
class Throughput:
    """Seconds for one image."""

    reading: float
    trunk: float


def estimate_time(
    table: Table, config: DiscoverConfig, backbone: Backbone, trainings: int, to_embed: int | None = None
) -> str:
    """Say how long a discovery, or a round of it, takes; as in estimate_seconds."""
    embedding, training = estimate_seconds(table, config, backbone, trainings, to_embed)
    several = f"{trainings} trainings" if trainings > 1 else "training"
    device = "CPU" if Device.on(config.device).device.type == "cpu" else "GPU"
    where = f"Time on this {device}, roughly: {format_duration(embedding + training)}"
    if table.features is not None:
        return f"{where} ({several}). {votes_in_words(trainings)}"
    return (
        f"{where} (embedding {format_duration(embedding)}, {several} {format_duration(training)}), with the network "
        f"{backbone.name} at {backbone.image_size} pixels. {votes_in_words(trainings)}"
    )


def estimate_seconds(
    table: Table, config: DiscoverConfig, backbone: Backbone, trainings: int, to_embed: int | None = None
) -> tuple[float, float]:
    """Return the seconds that embedding takes, and training.

    backbone: the one that will be taken, or one of the same shape. to_embed: images of which there are no features yet,
    where these are not all."""
    compute, settings, known = Device.on(config.device), resolve_settings(config), len(table.known)
    device, new = compute.device.type, len(table) if to_embed is None else to_embed
    sample = table.take(draw_sample(table, settings["sample"], config.seed))
    # before the categories are counted, as many are supposed to be new as are known
    data = RunData(sample, max(2 * known, 1) if config.k == "auto" else max(int(config.k), known))
    methods, _ = applicable_methods(methods_of(config), data, backbone)
    experiments = [
        plan_training(method, sample, data.k, settings["steps"], device, config.network)
        for method in methods[:trainings]
    ]
    pace = measure_throughput(table, backbone, compute)
    caches = [effective_views(experiment, requested_views(experiment)) for experiment in experiments]
    filling = max(views.entries if views else 0 for views in caches) * len(sample) * pace.trunk
    if device == "cpu":
        # tokens of other images are there since they were embedded (training/build_token_cache.py)
        filling *= new / len(table)
    # what is read for embedding is kept for training, unless a sample of the images trains
    reading = pace.reading * (len(table) - new if len(table) <= settings["sample"] else len(sample))
    steps = [training_seconds(experiment, data, backbone, compute, pace) for experiment in experiments]
    turns = [*islice(cycle(steps), trainings)]
    if trainings > 1 and hide_labels(sample, config.seed) is not None:
        turns.append(steps[0])
    return embedding_seconds(new, pace, device), filling + reading + sum(turns)


def embedding_seconds(n: int, pace: Throughput, device: str) -> float:
    """On a CPU reading and computing share the processors; on a GPU one goes on behind the other."""
    return n * (pace.reading + pace.trunk if device == "cpu" else max(pace.reading, pace.trunk))


def training_seconds(
    experiment: Experiment, data: RunData, backbone: Backbone, compute: Device, pace: Throughput
) -> float:
    """Return the seconds of all steps of a training."""
    seconds = 0.0
    for place, stage in enumerate(stages_of(experiment)):
        batch_size = stage.batch_size or experiment.train.batch_size
        steps = stage.length(experiment.train.epochs) * (count_units(data.table) // batch_size)
        trunk = batch_size * (stage.views.weak + stage.views.strong) * pace.trunk
        if stage.needs == "images":
            seconds += steps * WHOLE_NETWORK * trunk
            continue
        seconds += steps * step_seconds(experiment, place, data, backbone, compute)
        if experiment.cache_views == "off" or not stage.cacheable:
            seconds += steps * trunk
    return seconds


def step_seconds(
    experiment: Experiment, place: int, data: RunData, backbone: Backbone, compute: Device
) -> float:
    """Train a stage for a few steps, in which all images are blank, and return the seconds of the fastest.

    place: of the stage. Nobody's weights change."""
    table, device, size = data.table, compute.device, backbone.image_size
    tokens = torch.ones(1, backbone.dim, device=device)
    if table.features is None:
        blank = torch.zeros(1, 3, size, size, dtype=torch.uint8, device=device)
        tokens = Encoder(backbone, compute).inputs(blank)
    # heads and queues are as large as for all images, and an epoch begins with a look at a few of them
    batch_size = max(stage.batch_size or experiment.train.batch_size for stage in stages_of(experiment))
    problem = np.full(len(table), "left out", dtype=object)
    problem[draw_sample(table, STEPS_TRIED * batch_size, experiment.seed)] = ""
    store = VectorStore(tokens.expand(len(table), -1), torch.zeros(len(table), 1, dtype=torch.long), problem)
    with torch.random.fork_rng(devices=[]):
        method = build_method(experiment, data, backbone)
    network, subset = replace(backbone, tail=copy.deepcopy(backbone.tail)), table.with_problems(problem)
    loop = Loop(experiment.train, method, network, store, subset, compute, seed=experiment.seed)
    loop.position.stage, before, clock = place, logging.root.manager.disable, [time.monotonic()]
    logging.disable()  # what a method says of blank images is true of no others
    try:
        for _ in islice(loop.training(StopRequest()), STEPS_TRIED):
            wait_for(device)
            clock.append(time.monotonic())
    finally:
        logging.disable(before)
    return float(np.diff(clock)[1 - STEPS_TRIED :].min())


def measure_throughput(table: Table, backbone: Backbone, compute: Device) -> Throughput:
    """Read some images from all over the table, and send some through the network.

    A first pass warms up the device and does not count, nor do passes that others who use the machine have slowed down.
    """
    if table.features is not None:
        return Throughput(0.0, 0.0)
    rows = np.unique(np.linspace(0, len(table) - 1, IMAGES_READ).astype(int))
    paths, side = [str(path) for path in table.path[rows]], int(backbone.image_size / CROP_FRACTION)
    started = time.monotonic()
    for _ in decode_in_order(paths, side, None, False):
        pass
    reading = (time.monotonic() - started) / len(rows)
    encoder, device, size = Encoder(backbone, compute), compute.device, backbone.image_size
    n = TIMED_BATCH.get(device.type, SENT_ELSEWHERE)
    images = torch.zeros(n, 3, size, size, dtype=torch.uint8, device=device)
    return Throughput(reading, fastest_pass(lambda: encoder.inputs(images), device) / n)
