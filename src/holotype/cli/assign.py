"""`holotype assign`: new images into the categories of a run, without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.cli.words import (
    SOURCES,
    Parser,
    add_box_flags,
    add_code_flag,
    add_running_flags,
    boxes_of,
    say,
    several,
    speaks,
)

if TYPE_CHECKING:
    from holotype.placing.assign import Assigned

SHOWN = 20
"""Categories that are listed on the terminal; the file has them all."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.placing.assign import assign_images

    assigned = assign_images(
        Path(given.run),
        given.images,
        out=Path(given.out) if given.out else None,
        copy_to=Path(given.copy_to) if given.copy_to else None,
        device=given.device,
        progress=not given.no_progress,
        skip_missing=given.skip_missing,
        **boxes_of(given.boxes, given.box_confidence),
    )
    if speaks():
        say(summary(assigned))
        if given.copy_to:
            say(f"Folders of links, one per category: {given.copy_to}")
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype assign",
        description="Place new images in the categories of a run, without training, and mark those "
        "that fit nothing.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of a finished run")
    parser.add_argument(
        "images",
        metavar="NEW_IMAGES",
        help=f"{SOURCES}; or one image",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="where the table goes, .csv or .parquet (default: RUN/assigned/NEW_IMAGES.csv)",
    )
    parser.add_argument(
        "--copy-to", metavar="DIR", help="also make a folder of links per category there; overwrites nothing"
    )
    add_box_flags(parser)
    parser.add_argument(
        "--skip-missing",
        action="store_true",
        help="with --boxes and tables: go on without pictures that are missing and boxes that cannot be",
    )
    add_code_flag(parser)
    add_running_flags(parser)
    return parser


def summary(assigned: Assigned) -> str:
    """What a person wants to see afterwards."""
    kinds = assigned.kinds
    lines = [
        f"{several(assigned.n, 'image')}: {kinds['known']:,} in known classes, {kinds['novel']:,} in new categories."
    ]
    common = assigned.categories.most_common(SHOWN)
    lines += [f"  {n:>7,}  {name or 'no category (rejected)'}" for name, n in common]
    if len(assigned.categories) > SHOWN:
        lines.append(f"  and {len(assigned.categories) - SHOWN} smaller categories")
    if assigned.unfit:
        lines.append(
            f"{assigned.unfit:,} of them fit nothing well (fits = False in the table); look at these first."
        )
    if assigned.unread:
        lines.append(f"{assigned.unread:,} could not be read; the column problem says why.")
    lines.append(f"Every image with its category: {assigned.out}")
    return "\n".join(lines)
