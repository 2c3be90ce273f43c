"""`holotype embed`: the backbone's features of every image, as Parquet shards that a rerun continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.cli.common import (
    SOURCES,
    Parser,
    add_labels_flag,
    add_running_flags,
    echo,
    is_rank0_output,
    typed_argument,
)
from holotype.cli.executor import (
    RAY_EXECUTOR,
    add_executor_flags,
    check_executor_flags,
    run_sharded,
    shard_size,
)
from holotype.config.types import MAX_SIDE, Side
from holotype.utils.atomic import clean_partial_tree
from holotype.utils.locks import lock_folder

if TYPE_CHECKING:
    from holotype.data.paths import Paths
    from holotype.data.table import Table
    from holotype.discovery.backbone_choice import BackboneChoice
    from holotype.embeddings.extract import EmbedCounts, Embeddings


@dataclass
class ImageSource:
    """Images that a command was given."""

    table: Table
    """As found, before any image is read."""
    name: str
    classes: int | None = None
    """How many classes there are, known and novel, where that is known: of a benchmark."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    check_executor_flags(given)
    folder = Path(given.out) if given.out else Path("runs") / f"{source_label(given.images)}-embeddings"
    if given.only:  # others may work here at the same time
        return _embed_slices(given, folder)
    with lock_folder(folder):
        clean_partial_tree(folder)
        return _embed_slices(given, folder)


def _embed_slices(given: Any, folder: Path) -> int:
    from holotype.config.schema import resolved_backbone
    from holotype.embeddings.executor import shard_of_process
    from holotype.embeddings.extract import EmbedCounts, EmbedShard, embed_facts, embed_summary
    from holotype.embeddings.shards import ShardRequest, prepare_shards

    source, paths = source_stream(given)
    chosen = choose_network(given)
    backbone = chosen.backbone
    wanted = ShardRequest(embed_facts(backbone), embed_summary(), source, paths, shard_size(given))
    planned = prepare_shards(folder, wanted, shard_of_process(given.only) if given.only else None)
    job = EmbedShard(
        str(folder.resolve()),
        planned.root,
        resolved_backbone(chosen.config),
        backbone.digest,
        backbone.image_size,
        backbone.dim,
        given.device,
    )
    if given.engine != RAY_EXECUTOR:
        job.use(backbone)
    tally = EmbedCounts()
    code = run_sharded(planned, job, given, "Embedding images", tally.add)
    if is_rank0_output():
        echo(embed_summary_text(tally, folder))
    return code


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype embed",
        description="Write the features that a frozen backbone gives to every image, as Parquet shards with the "
        "columns path, feature, problem and note. You can stop with Ctrl-C; the same command continues.",
    )
    add_image_flags(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for the shards (default: runs/NAME-embeddings)")
    add_executor_flags(parser)
    return parser


def add_image_flags(parser: Parser) -> None:
    """What embed and estimate-k take: images, labels, backbone, device."""
    parser.add_argument(
        "images",
        metavar="IMAGES",
        help=f"{SOURCES}, or the name of a benchmark",
    )
    add_labels_flag(parser)
    parser.add_argument("--root", metavar="DIR", help="folder of the benchmark, in its official layout")
    parser.add_argument(
        "--backbone",
        "--backbone.name",
        default="auto",
        metavar="NAME",
        help="auto (default), embedded, timm's name, hf-hub:ORGANISATION/REPOSITORY, or a .safetensors file",
    )
    parser.add_argument(
        "--arch", "--backbone.arch", metavar="NAME", help="timm's name of the network in a .safetensors file"
    )
    parser.add_argument(
        "--image-size",
        "--backbone.image-size",
        type=typed_argument("--image-size", Side),
        metavar="PIXELS",
        help=f"side of the backbone's input, at least 1 and at most {MAX_SIDE:,}",
    )
    parser.add_argument(
        "--pool",
        "--backbone.pool",
        default="auto",
        metavar="KIND",
        help="what to use as the feature: token (CLS), mean (of the patches), or auto (default): as the makers of the "
        "weights do",
    )
    for flag in ("mean", "std"):
        parser.add_argument(
            f"--{flag}",
            f"--backbone.{flag}",
            metavar="R,G,B",
            help=f"{flag} that a .safetensors file expects",
        )
    add_running_flags(parser)


def read_source(given: Any) -> ImageSource:
    """A benchmark under the GCD protocol, or a collection of one's own."""
    from holotype.data.datasets.registry import BENCHMARKS, check_dataset, load_benchmark
    from holotype.data.gcd_split import gcd_split
    from holotype.data.load import load_table

    check_dataset(given.images)
    if given.images in BENCHMARKS:
        benchmark = load_benchmark(given.images, Path(given.root) if given.root else None)
        return ImageSource(gcd_split(benchmark), given.images, len(benchmark.known) + len(benchmark.novel))
    table = load_table(given.images, Path(given.labels) if given.labels else None)
    return ImageSource(table, source_label(given.images))


def source_stream(given: Any) -> tuple[str, Callable[[], Paths]]:
    """What the images are called in a manifest, and what begins a stream of their paths."""
    from holotype.data.datasets.registry import BENCHMARKS
    from holotype.data.load import paths_of, stream_paths
    from holotype.data.storage import is_address, is_pattern
    from holotype.embeddings.shards import absolute_source

    if given.images in BENCHMARKS:
        return given.images, lambda: paths_of(read_source(given).table)
    plain = not is_address(given.images) and not is_pattern(given.images)
    labels = Path(given.labels) if given.labels else None
    return absolute_source(given.images, plain), lambda: stream_paths(given.images, labels=labels)


def source_label(images: str) -> str:
    """What a collection is called after, before anything of it is read; InputError where there is none."""
    from holotype.data.datasets.registry import BENCHMARKS, check_dataset
    from holotype.data.load import collection_name
    from holotype.data.storage import is_address, is_pattern

    check_dataset(images)
    if images in BENCHMARKS:
        return images
    return collection_name(images if is_address(images) or is_pattern(images) else Path(images).resolve())


def choose_network(given: Any) -> BackboneChoice:
    """The backbone that the flags ask for."""
    from holotype.config.schema import BackboneConfig
    from holotype.discovery.backbone_choice import choose_backbone
    from holotype.utils.device import pick_device

    named = {name: getattr(given, name) for name in ("arch", "image_size", "pool", "mean", "std")}
    elsewhere = (
        getattr(given, "engine", None) == RAY_EXECUTOR and given.device != "auto"
    )  # what is here says nothing then
    device = given.device if elsewhere else pick_device(given.device)
    chosen = choose_backbone(BackboneConfig(given.backbone, **named), device)
    if is_rank0_output() and given.backbone == "auto":
        echo(chosen.words)
    return chosen


def embed_source(table: Table, given: Any, folder: Path) -> tuple[Embeddings, str]:
    """The features of a table as the flags ask, all in memory, and the digest of the backbone."""
    from holotype.embeddings.extract import embed_table
    from holotype.utils.device import Device

    backbone = choose_network(given).backbone
    embedded = embed_table(table, backbone, Device.on(given.device), folder, progress=not given.no_progress)
    return embedded, backbone.digest


def embed_summary_text(tally: EmbedCounts, folder: Path) -> str:
    lines = [f"{tally.n:,} images, {tally.dim} numbers each: {folder}"]
    if tally.broken:
        lines.append(f"{tally.broken:,} could not be read and have zeros, for example: {tally.example}")
    return "\n".join(lines)
