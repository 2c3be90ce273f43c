"""`holotype discover`: from a folder of images to categories and a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.cli.words import Parser, add_labels_flag, add_running_flags, speaks
from holotype.errors import InputError

if TYPE_CHECKING:
    from holotype.categories.found import Discovery

MOST_LINES = 40
"""Categories that are listed on the terminal; the report shows all."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    k = read_k(given.k)
    from holotype.data.sources import load_table
    from holotype.discovery.workflow import DiscoverConfig, default_folder, discover_table
    from holotype.models.backbone import BackboneConfig

    table = load_table(Path(given.images), Path(given.labels) if given.labels else None)
    folder = Path(given.out) if given.out else default_folder(Path(given.images))
    config = DiscoverConfig(
        k=k,
        steps=given.steps,
        sample=given.sample,
        backbone=BackboneConfig(given.backbone, arch=given.arch, image_size=given.image_size),
        long_tail=given.long_tail,
        seed=given.seed,
        device=given.device,
    )
    edits = Path(given.edits) if given.edits else None
    found = discover_table(table, config, folder, progress=not given.no_progress, edits=edits)
    if speaks():
        print(summary(found, folder))
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype discover",
        description="Place every image in a known class or in a category found in the data: embed, estimate how many "
        "categories there are, train, describe, write a report. Ctrl-C and the same command goes on.",
    )
    parser.add_argument(
        "images", metavar="IMAGES", help="folder of images, or a CSV or Parquet file that lists them"
    )
    add_labels_flag(parser)
    parser.add_argument(
        "--k", default="auto", help="number of categories, known and new together, or auto (default)"
    )
    parser.add_argument(
        "--backbone",
        default="auto",
        metavar="NAME",
        help="auto, embedded, timm's name, or a .safetensors file",
    )
    parser.add_argument("--arch", metavar="NAME", help="timm's name of the network in a .safetensors file")
    parser.add_argument("--image-size", type=int, metavar="PIXELS", help="side of the backbone's input")
    parser.add_argument("--out", metavar="RUN", help="run folder (default: runs/NAME-discover)")
    parser.add_argument(
        "--steps", type=positive, metavar="N", help="training steps (default: 1,000; on a GPU 6,000)"
    )
    parser.add_argument(
        "--sample",
        type=positive,
        metavar="N",
        help="images to train on at most (default: 5,000; on a GPU 200,000)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: 0)")
    parser.add_argument("--edits", metavar="FILE", help="edits.csv as exported from the report of this run")
    parser.add_argument("--long-tail", action="store_true", help="expect categories of very different sizes")
    add_running_flags(parser)
    return parser


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InputError(f"{text!r} is not a number of at least 1; give one.")
    return int(text)


def read_k(text: str) -> int:
    """The number; "auto" as it stands."""
    if text == "auto":
        return text  # type: ignore[return-value]
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise InputError(f"--k {text} is neither auto nor a number of categories; give one of these.")
    return int(text)


def summary(found: Discovery, folder: Path) -> str:
    """What a person wants to see at the end."""
    images, facts = found.images, found.facts
    unread = int((images.problem != "").sum())
    novel = [c for c in found.categories if c.kind == "novel"]
    lines = ["", f"{len(images):,} images, {len(found.known)} known classes, {len(novel)} new categories"]
    lines[-1] += f"; {unread:,} images could not be read" if unread else ""
    if count := found.count:
        lines.append(
            f"How many there are: {count['low']} to {count['high']}, most likely {count['best']}; "
            f"trained with {facts.get('k')} (--k sets it)"
        )
    width = max((len(c.name) for c in found.categories[:MOST_LINES]), default=0)
    lines += [
        "",
        *(f"  {c.name:<{width}} {c.n:>7,}  {c.words}".rstrip() for c in found.categories[:MOST_LINES]),
    ]
    if len(found.categories) > MOST_LINES:
        lines.append(f"  and {len(found.categories) - MOST_LINES} more in the report")
    seconds = ", ".join(f"{step} {value:.0f} s" for step, value in facts.get("seconds", {}).items())
    lines += ["", f"{int(images.doubtful.sum()):,} images are doubtful. Round {facts['round']}; {seconds}."]
    lines.append(f"Every image with its category: {folder / 'assignments.csv'}")
    lines.append(f"Report: {folder / 'report.html'}")
    if caveat := facts.get("backbone", {}).get("caveat"):
        lines.append(f"Backbone {facts['backbone']['name']}: {caveat}")
    return "\n".join(lines)
