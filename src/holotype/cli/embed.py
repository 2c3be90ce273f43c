"""Features of whole collections: `holotype embed` writes them as Parquet shards, `holotype sample` draws from them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from holotype.cli import DONE, NOT_WELL
from holotype.cli.common import echo
from holotype.cli.options import MAX_SHARD, EmbedOptions, ImageOptions, SampleOptions, ShardOptions
from holotype.config.schema import BACKBONE_FIELDS, BackboneConfig, resolved_backbone
from holotype.data.datasets.registry import BENCHMARKS, check_dataset, load_benchmark
from holotype.data.decode import DRAFT
from holotype.data.gcd_split import gcd_split
from holotype.data.labels import write_sample_file
from holotype.data.load import collection_name, load_table, paths_of, stream_paths
from holotype.data.paths import Paths, absolute, is_address, is_pattern
from holotype.data.table import Table
from holotype.discovery.backbone_choice import BackboneChoice, choose_backbone
from holotype.embeddings.coreset import CoresetSample, FileLabels, FolderLabels, NoLabels, draw_coreset
from holotype.embeddings.executor import Executor, check_installed, ray_session, run_shards, shard_of_process
from holotype.embeddings.shards import ShardFolder, ShardRequest, absolute_source, prepare_shards
from holotype.embeddings.store import EmbedCounts, EmbeddingParts, EmbedShard, backbone_facts
from holotype.errors import InputError
from holotype.training.progress import StopRequest
from holotype.utils.atomic import clean_partial_tree, refuse_existing
from holotype.utils.console import progress_bar
from holotype.utils.device import pick_device
from holotype.utils.locks import lock_folder
from holotype.utils.text import plural

SMALL_SHARD = 512
"""Images of a slice on a CPU of this machine: a stop loses at most one, which takes a large network a minute."""


def embed_command(options: EmbedOptions) -> int:
    share = check_shards(options)
    folder = options.out or Path("runs") / f"{source_label(options.images)}-embeddings"
    with contextlib.nullcontext() if share else lock_folder(folder):  # with --only others may work here
        if not share:
            clean_partial_tree(folder)
        source, paths = source_stream(options)
        chosen = choose_network(options)
        net, config = chosen.backbone, resolved_backbone(chosen.config)
        facts, named = backbone_facts(net), {"backbone": net.name, "draft": DRAFT}
        request = ShardRequest(facts, source, paths, shard_size(options), named)
        planned = prepare_shards(folder, request, share)
        job = EmbedShard(str(folder.resolve()), config, options.device)
        if options.engine != "ray":
            job.use(net, planned.own_images)
        tally = EmbedCounts()
        code = run_sharded(planned, job, options, "Embedding images", tally.add)
    echo(f"{tally.n:,} images, {tally.dim} numbers each: {folder}")
    if tally.broken:
        echo(f"{tally.broken:,} could not be read and have zeros, for example: {tally.example}")
    return code


def read_source(options: ImageOptions) -> Table:
    """Return a benchmark under the GCD protocol, or a collection of one's own."""
    check_dataset(options.images)
    if options.images in BENCHMARKS:
        return gcd_split(load_benchmark(options.images, options.root))
    return load_table(options.images, options.labels)


def source_stream(options: ImageOptions) -> tuple[str, Callable[[], Paths]]:
    """Return what the images are called in a manifest, and what begins a stream of their paths."""
    if options.images in BENCHMARKS:
        return options.images, lambda: paths_of(read_source(options))
    return absolute_source(options.images), lambda: stream_paths(options.images, labels=options.labels)


def source_label(images: str) -> str:
    """Return what a collection is called after, before anything of it is read; InputError where there is none."""
    check_dataset(images)
    if images in BENCHMARKS:
        return images
    return collection_name(images if is_address(images) or is_pattern(images) else Path(images).resolve())


def choose_network(options: ImageOptions) -> BackboneChoice:
    """Load the backbone that the flags ask for."""
    named = {name: getattr(options, name) for name in BACKBONE_FIELDS}
    # on a cluster, what is here says nothing
    elsewhere = getattr(options, "engine", None) == "ray" and options.device != "auto"
    device = options.device if elsewhere else pick_device(options.device)
    chosen = choose_backbone(BackboneConfig(options.backbone, **named), device)
    if options.backbone == "auto":
        echo(chosen.words)
    return chosen


def run_sharded(
    folder: ShardFolder, job: Any, options: ShardOptions, title: str, add: Callable[[Any], None]
) -> int:
    """Do the slices of a folder; add: is given what the job returns of each. Returns the exit code.

    Ctrl-C raises Stopped; the same command goes on.
    """
    images, ray = 0, options.engine == "ray"
    with StopRequest() as stop, progress_bar(title, folder.own_images, options.progress) as bar:

        def advance(more: int) -> None:
            nonlocal images
            images += more
            bar(more)
            if stop.requested:
                stop.leave(f"image {images:,} of {folder.own_images:,}")

        def done(number: int, answer: Any) -> None:
            add(answer)
            if ray:  # a job of this process tells how far it is within a slice
                advance(answer.n)

        here: Executor = partial(run_shards, partial(job, advance=advance))
        there = partial(ray_session, job, options.ray_address, options.actors, gpus=options.device != "cpu")
        with there() if ray else contextlib.nullcontext(here) as engine:
            failed = folder.run(engine, done)
    if failed:
        echo(folder.sentence(failed), error=True)
    return NOT_WELL if failed else DONE


def check_shards(options: ShardOptions) -> tuple[int, int] | None:
    """Return the share of this process, (1, 4) for --only 2/4; raise InputError for what cannot be."""
    if options.engine == "ray":
        check_installed()
    return shard_of_process(options.only) if options.only is not None else None


def shard_size(options: ShardOptions) -> int:
    """Return the images of a slice of a new folder."""
    local = options.engine != "ray" and pick_device(options.device) == "cpu"
    return options.slice or (SMALL_SHARD if local else MAX_SHARD)


def sample_command(options: SampleOptions) -> None:
    if options.no_labels and options.labels:
        raise InputError("--labels and --no-labels contradict each other; leave out one.")
    n, out, cells, seed = options.n, options.out, options.cells, options.seed
    refuse_existing(out, options.overwrite, (".parquet",))
    parts = EmbeddingParts(options.embeddings)
    labels = NoLabels() if options.no_labels else FolderLabels(parts.root)
    if options.labels:
        labels = FileLabels(options.labels, parts.root)
    sample = draw_coreset(parts, n, cells=cells, labels=labels, seed=seed, progress=options.progress)
    facts = {"n": n, "cells": sample.n_cells, "seed": seed, "images": sample.n_images}
    path = [absolute(one, parts.root) for one in sample.path]
    columns = {
        "path": path,
        "label": sample.label,
        "weight": sample.weight,
        "cell": sample.cell.astype("int32"),
    }
    write_sample_file(out, columns, facts)
    echo(sample_summary(sample, n, out))


def sample_summary(sample: CoresetSample, n: int, out: Path) -> str:
    """Return what a person wants to see afterwards."""
    taken, all_ = len(sample.path), plural(sample.n_images, "image")
    if sample.n_images <= n:
        lines = [f"There are only {all_}, no more than the {n:,} asked for: {out} holds all of them."]
    else:
        lines = [f"{taken:,} of {all_} from {plural(sample.n_cells, 'cell')}: {out}"]
    if sample.n_labelled:
        lines.append(f"{plural(sample.n_labelled, 'image is', 'images are')} labelled, which were all kept.")
    if taken > sample.n_labelled:
        free = [weight for weight, label in zip(sample.weight, sample.label, strict=True) if not label]
        lines.append(f"One without a label stands for {min(free):,.1f} to {max(free):,.1f} images.")
    if sample.n_unread:
        lines.append(f"Left out, since they could not be read: {plural(sample.n_unread, 'image')}.")
    return "\n".join(lines)
