"""`holotype embed`: the backbone's features of every image, as Parquet shards that a rerun continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.cli.words import SOURCES, Parser, add_labels_flag, add_running_flags, of_kind, say, speaks
from holotype.machine.files import sweep_tree
from holotype.machine.locks import hold
from holotype.machine.rules import Count

if TYPE_CHECKING:
    from holotype.data.table import Table
    from holotype.runs.embed import Embeddings


@dataclass
class Collection:
    """Images that a command was given."""

    table: Table
    """As found, before any image is read."""
    name: str
    classes: int | None = None
    """How many classes there are, known and novel, where that is known: of a benchmark."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    collection = read_collection(given)
    folder = Path(given.out) if given.out else Path("runs") / f"{collection.name}-embeddings"
    with hold(folder):
        sweep_tree(folder)
        embedded, _ = embed(collection.table, given, folder)
    if speaks():
        say(summary(embedded, folder))
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype embed",
        description="Write the features that a frozen backbone gives to every image, as Parquet shards with the "
        "columns path, feature, problem and note. Ctrl-C and the same command goes on.",
    )
    add_image_flags(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for the shards (default: runs/NAME-embeddings)")
    return parser


def add_image_flags(parser: Parser) -> None:
    """What embed and estimate-k take: images, labels, backbone, device."""
    parser.add_argument(
        "images",
        metavar="IMAGES",
        help=f"{SOURCES}, or the name of a benchmark",
    )
    add_labels_flag(parser)
    parser.add_argument(
        "--root", metavar="DIR", help="folder in which a benchmark lies, in its official layout"
    )
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
        type=of_kind("--image-size", Count),
        metavar="PIXELS",
        help="side of the backbone's input, at least 1",
    )
    parser.add_argument(
        "--pool",
        "--backbone.pool",
        default="auto",
        metavar="KIND",
        help="what becomes the feature: token (CLS), mean (of the patches), or auto (default), what the makers of the "
        "weights take",
    )
    for flag in ("mean", "std"):
        parser.add_argument(
            f"--{flag}",
            f"--backbone.{flag}",
            metavar="R,G,B",
            help=f"{flag} that a .safetensors file expects",
        )
    add_running_flags(parser)


def read_collection(given: Any) -> Collection:
    """A benchmark under the GCD protocol, or a collection of one's own."""
    from holotype.data.addresses import is_address, is_pattern
    from holotype.data.benchmarks import BENCHMARKS, check_dataset, load_benchmark
    from holotype.data.protocol import gcd_split
    from holotype.data.readers.registry import source_name
    from holotype.data.sources import load_table

    check_dataset(given.images)
    if given.images in BENCHMARKS:
        benchmark = load_benchmark(given.images, Path(given.root) if given.root else None)
        return Collection(gcd_split(benchmark), given.images, len(benchmark.known) + len(benchmark.novel))
    table = load_table(given.images, Path(given.labels) if given.labels else None)
    plain = not is_address(given.images) and not is_pattern(given.images)
    return Collection(table, Path(given.images).resolve().stem if plain else source_name(given.images))


def embed(table: Table, given: Any, folder: Path) -> tuple[Embeddings, str]:
    """The features of a table as the flags ask, and the digest of the backbone."""
    from holotype.discovery.best_backbone import choose_backbone
    from holotype.machine.device import Compute, pick_device
    from holotype.models.backbone import BackboneConfig
    from holotype.runs.embed import embed_table

    named = {name: getattr(given, name) for name in ("arch", "image_size", "pool", "mean", "std")}
    config = BackboneConfig(given.backbone, **named)
    chosen = choose_backbone(config, pick_device(given.device))
    if speaks() and given.backbone == "auto":
        say(chosen.words)
    embedded = embed_table(
        table, chosen.backbone, Compute.on(given.device), folder, progress=not given.no_progress
    )
    return embedded, chosen.backbone.digest


def summary(embedded: Embeddings, folder: Path) -> str:
    n, dim = embedded.features.shape
    lines = [f"{n:,} images, {dim} numbers each: {folder}"]
    broken = [problem for problem in embedded.problem if problem]
    if broken:
        lines.append(f"{len(broken):,} could not be read and have zeros, for example: {broken[0]}")
    return "\n".join(lines)
