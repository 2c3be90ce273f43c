"""`holotype embed`: the backbone's features of every image, as Parquet shards that a rerun continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from holotype.cli.common import (
    Dir,
    LabelsOptions,
    Parser,
    RunningOptions,
    echo,
    is_rank0_output,
)
from holotype.config.schema import BACKBONE_FIELDS, BackboneConfig, Pool
from holotype.config.types import Count, Name, Side
from holotype.errors import InputError
from holotype.utils.atomic import clean_partial_tree
from holotype.utils.locks import lock_folder

if TYPE_CHECKING:
    from holotype.data.paths import Paths
    from holotype.data.table import Table
    from holotype.discovery.backbone_choice import BackboneChoice
    from holotype.embeddings.executor import Executor
    from holotype.embeddings.shards import ShardFolder
    from holotype.embeddings.store import EmbedCounts, Embeddings

SMALL_SHARD = 512
"""Images of a slice on a CPU of this machine: a stop loses at most one slice, and a large network takes a minute for
this one."""


@dataclass
class ImageSource:
    """Images that a command was options."""

    table: Table
    """As found, before any image is read."""
    name: str
    classes: int | None = None
    """How many classes there are, known and novel, where that is known: of a benchmark."""


@dataclass(kw_only=True)
class ImageOptions(LabelsOptions, RunningOptions):
    """What embed and estimate-k take."""

    images: str
    """Folder of images, CSV or Parquet file that lists them, Parquet file or tars that hold them ('{000..099}.tar'), an
    address (s3://bucket/photos, gs://, abfs://, hf://datasets/...), or the name of a benchmark."""
    root: Dir | None = None
    """Folder of the benchmark, in its official layout."""
    backbone: Name = "auto"
    """The network: auto, embedded, timm's name, hf-hub:ORGANISATION/REPOSITORY, or a .safetensors file."""
    arch: Name | None = None
    """timm's name of the network in a .safetensors file."""
    image_size: Annotated[Side, "PIXELS"] | None = None
    """Side of the backbone's input."""
    pool: Pool = "auto"
    """What to use as the feature: token (CLS), mean (of the patches), or auto: as the makers of the weights do."""
    mean: Annotated[str, "R,G,B"] | None = None
    """Mean that a .safetensors file expects."""
    std: Annotated[str, "R,G,B"] | None = None
    """Standard deviation that a .safetensors file expects."""


@dataclass(kw_only=True)
class ShardOptions(RunningOptions):
    """What embed and assign take to work in slices, on one machine or on several."""

    engine: Literal["local", "ray"] | None = None
    """Where to compute the slices: local, in this process (default), or ray, on a Ray cluster
    (pip install 'holotype[ray]')."""
    ray_address: Annotated[str, "ADDR"] | None = None
    """With --engine ray: host:port of the cluster, or auto for the cluster of this machine (default: RAY_ADDRESS, or
    else a new cluster on this machine)."""
    actors: Annotated[Count, "N"] | None = None
    """With --engine ray: number of workers, each with a GPU if there are any (default: all that fit)."""
    only: Annotated[str, "I/N"] | None = None
    """Do only every N-th slice, starting with the I-th, for example in a Slurm array; other jobs may work in the same
    folder at once."""
    slice: Annotated[Count, "IMAGES"] | None = None
    """Images per slice, at most 4,096, for a new folder (default: 512 on a CPU of this machine, else 4,096)."""

    @property
    def share(self) -> tuple[int, int] | None:
        """The slices of this process."""
        from holotype.embeddings.executor import shard_of_process

        return shard_of_process(self.only) if self.only is not None else None

    def check(self) -> None:
        """Raise InputError for what cannot be, before anything is read."""
        from holotype.embeddings.shards import IMAGES_PER_PLAN_SHARD

        _ = self.share
        for flag, value in (("--ray-address", self.ray_address), ("--actors", self.actors)):
            if value and self.engine != "ray":
                raise InputError(f"{flag} says nothing without --engine ray; add it, or leave {flag} out.")
        if self.slice and self.slice > IMAGES_PER_PLAN_SHARD:
            raise InputError(
                f"--slice {self.slice} is more than {IMAGES_PER_PLAN_SHARD:,} images; give a smaller number."
            )
        if self.engine == "ray":
            from holotype.embeddings.executor import check_installed

            check_installed()

    @property
    def shard_size(self) -> int:
        """Images of a slice of a new folder."""
        from holotype.embeddings.shards import IMAGES_PER_PLAN_SHARD
        from holotype.utils.device import pick_device

        if self.slice:
            return self.slice
        local = self.engine != "ray" and pick_device(self.device) == "cpu"
        return SMALL_SHARD if local else IMAGES_PER_PLAN_SHARD


@dataclass(kw_only=True)
class EmbedOptions(ImageOptions, ShardOptions):
    """Write the features that a frozen backbone gives to every image, as Parquet shards with the columns digest, path,
    feature, problem and note. You can stop with Ctrl-C; the same command continues."""

    out: Dir | None = None
    """Folder for the shards (default: runs/NAME-embeddings)."""


def make_parser() -> Parser:
    return Parser("embed", EmbedOptions)


def command(argv: Sequence[str]) -> int:
    options: EmbedOptions = make_parser().parse_args(argv)
    options.check()
    folder = options.out or Path("runs") / f"{source_label(options.images)}-embeddings"
    if options.only:  # others may work here at the same time
        return _embed_slices(options, folder)
    with lock_folder(folder):
        clean_partial_tree(folder)
        return _embed_slices(options, folder)


def _embed_slices(options: EmbedOptions, folder: Path) -> int:
    from holotype.config.schema import resolved_backbone
    from holotype.embeddings.shards import ShardRequest, prepare_shards
    from holotype.embeddings.store import EmbedCounts, EmbedShard, backbone_facts

    source, paths = source_stream(options)
    chosen = choose_network(options)
    backbone = chosen.backbone
    wanted = ShardRequest(
        backbone_facts(backbone), source, paths, options.shard_size, {"backbone": backbone.name}
    )
    planned = prepare_shards(folder, wanted, options.share)
    job = EmbedShard(str(folder.resolve()), resolved_backbone(chosen.config), options.device)
    if options.engine != "ray":
        job.use(backbone)
    tally = EmbedCounts()
    code = run_sharded(planned, job, options, "Embedding images", tally.add)
    if is_rank0_output():
        echo(embed_summary_text(tally, folder))
    return code


def read_source(options: ImageOptions) -> ImageSource:
    """A benchmark under the GCD protocol, or a collection of one's own."""
    from holotype.data.datasets.registry import BENCHMARKS, check_dataset, load_benchmark
    from holotype.data.gcd_split import gcd_split
    from holotype.data.load import load_table

    check_dataset(options.images)
    if options.images in BENCHMARKS:
        benchmark = load_benchmark(options.images, options.root)
        return ImageSource(gcd_split(benchmark), options.images, len(benchmark.known) + len(benchmark.novel))
    table = load_table(options.images, options.labels)
    return ImageSource(table, source_label(options.images))


def source_stream(options: ImageOptions) -> tuple[str, Callable[[], Paths]]:
    """What the images are called in a manifest, and what begins a stream of their paths."""
    from holotype.data.datasets.registry import BENCHMARKS
    from holotype.data.load import paths_of, stream_paths
    from holotype.embeddings.shards import absolute_source

    if options.images in BENCHMARKS:
        return options.images, lambda: paths_of(read_source(options).table)
    return absolute_source(options.images), lambda: stream_paths(options.images, labels=options.labels)


def source_label(images: str) -> str:
    """What a collection is called after, before anything of it is read; InputError where there is none."""
    from holotype.data.datasets.registry import BENCHMARKS, check_dataset
    from holotype.data.load import collection_name
    from holotype.data.storage import is_address, is_pattern

    check_dataset(images)
    if images in BENCHMARKS:
        return images
    return collection_name(images if is_address(images) or is_pattern(images) else Path(images).resolve())


def choose_network(options: ImageOptions) -> BackboneChoice:
    """The backbone that the flags ask for."""
    from holotype.discovery.backbone_choice import choose_backbone
    from holotype.utils.device import pick_device

    named = {name: getattr(options, name) for name in BACKBONE_FIELDS}
    # on a cluster, what is here says nothing
    elsewhere = getattr(options, "engine", None) == "ray" and options.device != "auto"
    device = options.device if elsewhere else pick_device(options.device)
    chosen = choose_backbone(BackboneConfig(options.backbone, **named), device)
    if is_rank0_output() and options.backbone == "auto":
        echo(chosen.words)
    return chosen


def embed_source(table: Table, options: ImageOptions, folder: Path) -> tuple[Embeddings, str]:
    """The features of a table as the flags ask, all in memory, and the digest of the backbone."""
    from holotype.embeddings.store import embed_table
    from holotype.utils.device import Device

    backbone = choose_network(options).backbone
    embedded = embed_table(
        table, backbone, Device.on(options.device), folder, progress=not options.no_progress
    )
    return embedded, backbone.digest


def embed_summary_text(tally: EmbedCounts, folder: Path) -> str:
    lines = [f"{tally.n:,} images, {tally.dim} numbers each: {folder}"]
    if tally.broken:
        lines.append(f"{tally.broken:,} could not be read and have zeros, for example: {tally.example}")
    return "\n".join(lines)


def run_sharded(
    folder: ShardFolder, job: Any, options: ShardOptions, title: str, add: Callable[[Any], None]
) -> int:
    """Do the slices of a folder; add: is given what the job returns of each. Returns the exit code.

    Ctrl-C raises Stopped; the same command goes on.
    """
    from holotype.cli import DONE, NOT_WELL
    from holotype.training.progress import StopRequest
    from holotype.utils.console import progress_bar

    images = 0
    with StopRequest() as stop, progress_bar(title, folder.own_images, not options.no_progress) as bar:

        def advance(more: int) -> None:
            nonlocal images
            images += more
            bar(more)
            if stop.requested:
                stop.leave(f"image {images:,} of {folder.own_images:,}")

        def done(number: int, answer: Any) -> None:
            add(answer)
            if options.engine == "ray":
                advance(answer.n)

        with _make_executor(job, options, advance) as engine:
            failed = folder.run(engine, done)
    if failed and is_rank0_output():
        echo(folder.sentence(failed), error=True)
    return NOT_WELL if failed else DONE


@contextmanager
def _make_executor(job: Any, options: ShardOptions, advance: Callable[[int], None]) -> Iterator[Executor]:
    """What does the slices. advance: of this process, where the job may tell how far it is within a slice."""
    if options.engine == "ray":
        from holotype.embeddings.executor import ray_session

        with ray_session(job, options.ray_address, options.actors, gpus=options.device != "cpu") as executor:
            yield executor
    else:
        from holotype.embeddings.executor import run_shards

        yield partial(run_shards, partial(job, advance=advance))
