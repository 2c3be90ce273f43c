"""The exporters of `holotype write`. A new one is a file in this folder and an entry of EXPORTERS."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Protocol


class ExportResult(Protocol):
    """What an exporter returns."""

    def summary(self, out: Path) -> str:
        """Describe in lines what was written to `out`."""


@dataclass(frozen=True)
class Exporter:
    """A form in which the results of a run are written: the flag --name of `holotype write`."""

    name: str
    metavar: str
    """FILE or DIR: what the flag names."""
    help: str
    function: str
    """`module:function` in this folder: (run, out, *, overwrite, progress, **options) -> ExportResult."""
    options: tuple[str, ...] = ()
    """Fields of ExporterOptions that the function takes as well."""

    def write(self, run: Path, out: Path, **options: Any) -> ExportResult:
        module, _, name = self.function.partition(":")
        result: ExportResult = getattr(import_module(f"holotype.export.{module}"), name)(run, out, **options)
        return result


@dataclass(kw_only=True)
class ExporterOptions:
    """Flags that mean something to some exporters alone."""

    all: bool = False
    """With --labels: every placed image, not only labelled, moved and confirmed ones."""
    copy: bool = False
    """With --folders and --camtrap-dp: copies of the images instead of links."""
    deployments: Annotated[str, "WHAT"] | None = None
    """With --camtrap-dp: folders (the first folder below the image folder names the deployment), or a CSV or Parquet
    file with the columns path and deployment (default: all images are one deployment)."""


EXPORTERS = (
    Exporter("folders", "DIR", "One folder of links per category.", "folders:write_folders", ("copy",)),
    Exporter(
        "labels", "FILE", "Labels for the next discovery (CSV).", "results_table:write_labels", ("all",)
    ),
    Exporter("coco", "FILE", "COCO JSON, with the boxes, or the whole image as box.", "coco:write_coco"),
    Exporter(
        "label_studio",
        "FILE",
        "Tasks with predictions for Label Studio (JSON).",
        "annotation_tools:write_label_studio",
    ),
    Exporter(
        "cvat", "FILE", "Annotations for CVAT (XML, CVAT for images 1.1).", "annotation_tools:write_cvat"
    ),
    Exporter(
        "fiftyone", "FILE", "Labels of a dataset of FiftyOne (JSON).", "annotation_tools:write_fiftyone"
    ),
    Exporter("darwin_core", "DIR", "A Darwin Core Archive of occurrences.", "darwin_core:write_darwin_core"),
    Exporter("camtrap_dp", "DIR", "A Camtrap DP package.", "camtrap:write_camtrap", ("copy", "deployments")),
)
