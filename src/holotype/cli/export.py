"""What a run is taken out as: `holotype write` (folders, labels, COCO, Camtrap DP), `holotype export` (ONNX)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from holotype.cli.common import echo
from holotype.cli.options import ExportOptions, WriteOptions
from holotype.errors import InputError
from holotype.export.camtrap import write_camtrap
from holotype.export.coco import write_coco
from holotype.export.folders import write_folders
from holotype.export.image_header import CAMERA_CLOCK_NO_ZONE, FILE_CLOCK
from holotype.export.results_table import write_labels
from holotype.utils.text import join_or, plural

SHOWN = 5
"""Names that are listed on the terminal."""
ONLY_WITH = {"all": ("labels",), "copy": ("folders", "camtrap_dp"), "deployments": ("camtrap_dp",)}
"""Flags that mean something for some forms alone."""


def write_command(options: WriteOptions) -> None:
    forms = [name for name in WRITERS if getattr(options, name) is not None]
    if len(forms) != 1:
        raise InputError(f"holotype write needs one of {', '.join(map(_flag, WRITERS))}, and only one.")
    for flag, fitting in ONLY_WITH.items():
        if getattr(options, flag) and forms[0] not in fitting:
            fit = join_or(map(_flag, fitting))
            raise InputError(f"{_flag(flag)} says nothing about {_flag(forms[0])}; it goes with {fit}.")
    echo("\n".join(WRITERS[forms[0]](options, getattr(options, forms[0]))))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _write_folders(options: WriteOptions, out: Path) -> Iterator[str]:
    how = {"copy": options.copy, "overwrite": options.overwrite, "progress": options.progress}
    done = write_folders(options.run, out, **how)
    yield f"{plural(done.images, 'image')} in {plural(done.folders, 'folder')}: {out}"
    if done.made:
        yield ", ".join(plural(n, kind) for kind, n in done.made.most_common()) + "."
    if done.gone:
        yield f"{plural(done.gone, 'image')} left out: the files are gone."


def _write_labels(options: WriteOptions, out: Path) -> Iterator[str]:
    done = write_labels(options.run, out, every=options.all, overwrite=options.overwrite)
    yield f"{plural(done.n, 'label')} of {plural(len(done.by_class), 'class')}: {out}"
    if not options.all:  # else nothing is left for a discovery of the same images
        yield f"Next: holotype discover IMAGES --labels {out}"


def _write_coco(options: WriteOptions, out: Path) -> Iterator[str]:
    done = write_coco(options.run, out, overwrite=options.overwrite, progress=options.progress)
    counts = f"{plural(done.images, 'image')}, {plural(done.annotations, 'annotation')}"
    yield f"{counts}, {plural(done.categories, 'category')}: {out}"
    if done.unread:
        yield f"{plural(done.unread, 'image')} left out: unreadable, or the files are gone."


def _write_camtrap(options: WriteOptions, out: Path) -> Iterator[str]:
    how = {"copy": options.copy, "overwrite": options.overwrite, "progress": options.progress}
    done = write_camtrap(options.run, out, deployments=options.deployments, **how)
    yield f"{plural(done.images, 'image')} of {plural(done.deployments, 'deployment')}: {out}"
    if done.copied:
        yield f"{plural(done.copied, 'image')} are in {out / 'media'}."
    if n := done.clocks[FILE_CLOCK]:
        yield f"{plural(n, 'image')} without a camera time: the time of the file is used."
    if n := done.clocks[CAMERA_CLOCK_NO_ZONE]:
        yield f"{plural(n, 'image')} without a time zone: that of this computer is used."
    if done.names:
        more = f" and {len(done.names) - SHOWN:,} more" if len(done.names) > SHOWN else ""
        yield f"Used as scientific names: {', '.join(done.names[:SHOWN])}{more}."
    if done.gone:
        yield f"{plural(done.gone, 'image')} left out: the files are gone."
    if done.missing:
        yield f"The standard also asks for: {', '.join(done.missing)}. Holotype keeps what you fill in."


WRITERS: dict[str, Callable[[WriteOptions, Path], Iterator[str]]] = {
    "folders": _write_folders,
    "labels": _write_labels,
    "coco": _write_coco,
    "camtrap_dp": _write_camtrap,
}
"""Each writes, and yields what a person wants to see afterwards."""


# -- ONNX ---------------------------------------------------------------------------------------------


def export_command(options: ExportOptions) -> None:
    from holotype.export.onnx import export_onnx  # brings torch

    parity = export_onnx(options.run, options.file, overwrite=options.overwrite)
    echo(
        f"{options.file}: images (batch, 3, S, S) in; features and logits out. The metadata name the categories.\n"
        f"Largest difference from the trained model on random images: features {parity.features:.1e} (largest "
        f"value {parity.size:.1f}), probability of the category {parity.probability:.1e}."
    )
