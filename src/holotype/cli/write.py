"""`holotype write`: the results of a run as folders, as labels for the next run, as COCO JSON or as Camtrap DP."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.cli.common import Parser, add_overwrite_flag, echo, is_rank0_output
from holotype.errors import InputError
from holotype.utils.text import plural

if TYPE_CHECKING:
    from holotype.export.camtrap import CamtrapPackage
    from holotype.export.coco import CocoResult
    from holotype.export.folders import SortResult
    from holotype.export.results_table import LabelsResult

SHOWN = 5
"""Names that are listed on the terminal."""
ONLY_WITH = {"all": ("labels",), "copy": ("folders", "camtrap_dp"), "deployments": ("camtrap_dp",)}
"""Flags that mean something for some forms alone."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    form = next((name for name in FORMATS if getattr(given, name) is not None), None)
    if form is None:
        raise InputError(
            f"holotype write needs one of {', '.join(map(_flag, FORMATS))}; its --help says what they are."
        )
    for flag, forms in ONLY_WITH.items():
        if getattr(given, flag) and form not in forms:
            fitting = " or ".join(_flag(name) for name in forms)
            raise InputError(f"{_flag(flag)} says nothing about {_flag(form)}; it goes with {fitting}.")
    words = FORMATS[form](given)
    if is_rank0_output():
        echo(words)
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype write",
        description="Write the results of a run, with its corrections, for other programs or the next run.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of a finished run")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--folders", metavar="DIR", help="every image in a folder of its category, as links")
    forms.add_argument("--labels", metavar="FILE", help="labels.csv for the next holotype discover")
    forms.add_argument("--coco", metavar="FILE", help="COCO JSON, with the boxes, or the whole image as box")
    forms.add_argument("--camtrap-dp", metavar="DIR", help="a Camtrap DP package for camera traps")
    parser.add_argument(
        "--all",
        action="store_true",
        help="with --labels: every placed image, not only labelled, moved and confirmed ones",
    )
    parser.add_argument(
        "--copy",
        action="store_true",
        help="with --folders and --camtrap-dp: copies of the images instead of links",
    )
    parser.add_argument(
        "--deployments",
        metavar="WHAT",
        help="with --camtrap-dp: folders (the first folder below the image folder names the deployment), or a CSV or "
        "Parquet file with the columns path and deployment (default: all images are one deployment)",
    )
    add_overwrite_flag(
        parser, "a file that exists, or a folder that Holotype wrote; files that you added to it stay"
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    return parser


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _folders(given: Namespace) -> str:
    from holotype.export.folders import write_folders

    done = write_folders(
        Path(given.run),
        Path(given.folders),
        copy=given.copy,
        overwrite=given.overwrite,
        progress=not given.no_progress,
    )
    return folders_text(done, given.folders)


def _labels(given: Namespace) -> str:
    from holotype.export.results_table import write_labels

    done = write_labels(Path(given.run), Path(given.labels), every=given.all, overwrite=given.overwrite)
    return labels_text(done, given.labels, every=given.all)


def _coco(given: Namespace) -> str:
    from holotype.export.coco import write_coco

    done = write_coco(
        Path(given.run), Path(given.coco), overwrite=given.overwrite, progress=not given.no_progress
    )
    return coco_text(done, given.coco)


def _camtrap_dp(given: Namespace) -> str:
    from holotype.export.camtrap import write_camtrap

    done = write_camtrap(
        Path(given.run),
        Path(given.camtrap_dp),
        deployments=given.deployments,
        copy=given.copy,
        overwrite=given.overwrite,
        progress=not given.no_progress,
    )
    return camtrap_text(done, given.camtrap_dp)


FORMATS: dict[str, Callable[[Namespace], str]] = {
    "folders": _folders,
    "labels": _labels,
    "coco": _coco,
    "camtrap_dp": _camtrap_dp,
}


# -- what a person wants to see afterwards ------------------------------------------------------------------


def folders_text(done: SortResult, where: str) -> str:
    lines = [f"{plural(done.images, 'image')} in {plural(done.folders, 'folder')}: {where}"]
    made = [plural(n, kind, _plural(kind)) for kind, n in done.made.most_common()]
    lines += [f"{', '.join(made)}."] if made else []
    if done.gone:
        lines.append(f"{plural(done.gone, 'image')} left out: the files are gone.")
    return "\n".join(lines)


def labels_text(done: LabelsResult, where: str, every: bool) -> str:
    """every: all images are in it, and nothing is left for a discovery of the same ones."""
    words = f"{plural(done.n, 'label')} of {plural(len(done.by_class), 'class', 'classes')}: {where}"
    return words if every else f"{words}\nNext: holotype discover IMAGES --labels {where}"


def coco_text(done: CocoResult, where: str) -> str:
    lines = [
        f"{plural(done.images, 'image')}, {plural(done.annotations, 'annotation')}, "
        f"{plural(done.categories, 'category', 'categories')}: {where}"
    ]
    if done.unread:
        lines.append(f"{plural(done.unread, 'image')} left out: unreadable, or the files are gone.")
    return "\n".join(lines)


def camtrap_text(done: CamtrapPackage, where: str) -> str:
    from holotype.export.image_header import CAMERA_CLOCK_NO_ZONE, FILE_CLOCK

    lines = [f"{plural(done.images, 'image')} of {plural(done.deployments, 'deployment')}: {where}"]
    if done.copied:
        lines.append(f"{plural(done.copied, 'image')} are in {Path(where) / 'media'}.")
    if n := done.clocks[FILE_CLOCK]:
        lines.append(f"{plural(n, 'image')} without a camera time: the time of the file is used.")
    if n := done.clocks[CAMERA_CLOCK_NO_ZONE]:
        lines.append(f"{plural(n, 'image')} without a time zone: that of this computer is used.")
    if done.names:
        more = f" and {len(done.names) - SHOWN:,} more" if len(done.names) > SHOWN else ""
        lines.append(f"Used as scientific names: {', '.join(done.names[:SHOWN])}{more}.")
    if done.gone:
        lines.append(f"{plural(done.gone, 'image')} left out: the files are gone.")
    if done.missing:
        lines.append(
            f"The standard also asks for: {', '.join(done.missing)}. Holotype keeps what you fill in."
        )
    return "\n".join(lines)


def _plural(kind: str) -> str:
    return "copies" if kind == "copy" else f"{kind}s"
