"""`holotype write`: the results of a run as folders, as labels for the next run, as COCO JSON or as Camtrap DP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from holotype.cli.common import Dir, File, Parser, ProgressOptions, RunDir, echo, is_rank0_output
from holotype.errors import InputError
from holotype.utils.text import join_or, plural

if TYPE_CHECKING:
    from holotype.export.camtrap import CamtrapPackage
    from holotype.export.coco import CocoResult
    from holotype.export.folders import SortResult
    from holotype.export.results_table import LabelsResult

SHOWN = 5
"""Names that are listed on the terminal."""
FORMATS = ("folders", "labels", "coco", "camtrap_dp")
ONLY_WITH = {"all": ("labels",), "copy": ("folders", "camtrap_dp"), "deployments": ("camtrap_dp",)}
"""Flags that mean something for some forms alone."""


@dataclass(kw_only=True)
class WriteOptions(ProgressOptions):
    """Write the results of a run, with its corrections, for other programs or the next run."""

    run: RunDir
    """Folder of a finished run."""
    folders: Dir | None = None
    """Every image in a folder of its category, as links."""
    labels: File | None = None
    """labels.csv for the next holotype discover."""
    coco: File | None = None
    """COCO JSON, with the boxes, or the whole image as box."""
    camtrap_dp: Dir | None = None
    """A Camtrap DP package for camera traps."""
    all: bool = False
    """With --labels: every placed image, not only labelled, moved and confirmed ones."""
    copy: bool = False
    """With --folders and --camtrap-dp: copies of the images instead of links."""
    deployments: Annotated[str, "WHAT"] | None = None
    """With --camtrap-dp: folders (the first folder below the image folder names the deployment), or a CSV or Parquet
    file with the columns path and deployment (default: all images are one deployment)."""
    overwrite: bool = False
    """Replace a file that exists, or a folder that Holotype wrote; files that you added to it stay."""


def make_parser() -> Parser:
    return Parser("write", WriteOptions)


def command(argv: Sequence[str]) -> int:
    options: WriteOptions = make_parser().parse_args(argv)
    forms = [name for name in FORMATS if getattr(options, name) is not None]
    if len(forms) != 1:
        raise InputError(f"holotype write needs one of {', '.join(map(_flag, FORMATS))}, and only one.")
    for flag, fitting in ONLY_WITH.items():
        if getattr(options, flag) and forms[0] not in fitting:
            raise InputError(
                f"{_flag(flag)} says nothing about {_flag(forms[0])}; it goes with {join_or(map(_flag, fitting))}."
            )
    words = write_results(options)
    if is_rank0_output():
        echo(words)
    return 0


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def write_results(options: WriteOptions) -> str:
    """Write what is asked for; return what a person wants to see afterwards."""
    from holotype.export.camtrap import write_camtrap
    from holotype.export.coco import write_coco
    from holotype.export.folders import write_folders
    from holotype.export.results_table import write_labels

    run, overwrite, progress = options.run, options.overwrite, not options.no_progress
    if out := options.folders:
        sorted_run = write_folders(run, out, copy=options.copy, overwrite=overwrite, progress=progress)
        return folders_text(sorted_run, out)
    if out := options.labels:
        return labels_text(write_labels(run, out, every=options.all, overwrite=overwrite), out, options.all)
    if out := options.coco:
        return coco_text(write_coco(run, out, overwrite=overwrite, progress=progress), out)
    out = cast(Path, options.camtrap_dp)
    how = {"copy": options.copy, "overwrite": overwrite, "progress": progress}
    return camtrap_text(write_camtrap(run, out, deployments=options.deployments, **how), out)


# -- what a person wants to see afterwards ------------------------------------------------------------------


def folders_text(done: SortResult, where: Path) -> str:
    lines = [f"{plural(done.images, 'image')} in {plural(done.folders, 'folder')}: {where}"]
    made = [plural(n, kind, "copies" if kind == "copy" else "") for kind, n in done.made.most_common()]
    lines += [f"{', '.join(made)}."] if made else []
    if done.gone:
        lines.append(f"{plural(done.gone, 'image')} left out: the files are gone.")
    return "\n".join(lines)


def labels_text(done: LabelsResult, where: Path, every: bool) -> str:
    """every: all images are in it, and nothing is left for a discovery of the same ones."""
    words = f"{plural(done.n, 'label')} of {plural(len(done.by_class), 'class', 'classes')}: {where}"
    return words if every else f"{words}\nNext: holotype discover IMAGES --labels {where}"


def coco_text(done: CocoResult, where: Path) -> str:
    lines = [
        f"{plural(done.images, 'image')}, {plural(done.annotations, 'annotation')}, "
        f"{plural(done.categories, 'category', 'categories')}: {where}"
    ]
    if done.unread:
        lines.append(f"{plural(done.unread, 'image')} left out: unreadable, or the files are gone.")
    return "\n".join(lines)


def camtrap_text(done: CamtrapPackage, where: Path) -> str:
    from holotype.export.image_header import CAMERA_CLOCK_NO_ZONE, FILE_CLOCK

    lines = [f"{plural(done.images, 'image')} of {plural(done.deployments, 'deployment')}: {where}"]
    if done.copied:
        lines.append(f"{plural(done.copied, 'image')} are in {where / 'media'}.")
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
