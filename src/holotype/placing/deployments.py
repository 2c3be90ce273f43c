"""Deployments of a Camtrap DP package: which of them each image belongs to, and the table deployments.csv.

Holotype knows neither place nor camera. What people fill into the table stays when it is written again.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from holotype.data.csv import read_columns, unescape_formula
from holotype.errors import InputError
from holotype.placing.heads import CAMERA
from holotype.placing.written import Results

FOLDERS = "folders"
"""Instead of a file: the first folder below that of the images tells the deployment."""
COLUMNS = (
    *("deploymentID", "locationID", "locationName", "latitude", "longitude", "coordinateUncertainty"),
    *(
        "deploymentStart",
        "deploymentEnd",
        "setupBy",
        "cameraID",
        "cameraModel",
        "cameraDelay",
        "cameraHeight",
    ),
    *("cameraDepth", "cameraTilt", "cameraHeading", "detectionDistance", "timestampIssues", "baitUse"),
    *("featureType", "habitat", "deploymentGroups", "deploymentTags", "deploymentComments"),
)
OWN = ("deploymentID", "deploymentStart", "deploymentEnd", "timestampIssues")
"""Columns that are filled here."""


@dataclass
class Deployment:
    """What the images say of one."""

    start: datetime
    end: datetime
    unsure: bool = False
    """Is any time without a zone, or that of a file?"""

    def add(self, time: datetime, clock: str) -> None:
        self.start, self.end = min(self.start, time), max(self.end, time)
        self.unsure |= clock != CAMERA


# -- which image belongs where ---------------------------------------------------------------------------


def deployments_of(results: Results, told: str | None) -> list[str]:
    """(N,) the deployment of each image. told: FOLDERS, a table file with path and deployment, or None for just one."""
    whole = results.found.facts.title or results.run.name
    if told is None:
        return [whole] * len(results)
    if told == FOLDERS:
        below = [results.below_root(path) for path in results.path]
        if any(os.path.isabs(path) for path in below):
            raise InputError(
                f"The images of {results.run} lie in no folder of their own, so folders tell no deployments; give "
                "--deployments a file with the columns path and deployment."
            )
        return [path.split("/")[0] if "/" in path else whole for path in below]
    return _listed(results, Path(told))


def _listed(results: Results, file: Path) -> list[str]:
    columns = read_columns(file)
    if not {"path", "deployment"} <= set(columns):
        raise InputError(
            f"{file} has the columns {', '.join(columns)}; it must have path and deployment, or give --deployments "
            f"{FOLDERS}."
        )
    starts = (results.found.facts.root or "", os.path.abspath(file.parent))
    of: dict[str, str] = {}
    for path, name in zip(columns["path"], columns["deployment"], strict=True):
        of.update(
            (os.path.normpath(os.path.join(start, path)), unescape_formula(name.strip())) for start in starts
        )
    pictures = [file for file, _ in results.parts]
    absent = [path for path in pictures if not of.get(path)]
    if absent:
        raise InputError(
            f"{file} names no deployment for {len(absent):,} of the {len(results):,} images, for example {absent[0]}; "
            f"add them, with paths relative to {starts[0] or starts[1]}."
        )
    return [of[path] for path in pictures]


# -- the table -------------------------------------------------------------------------------------------


def merged(found: dict[str, Deployment], held: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Rows of the table. held: those of an earlier one, with what people have filled in since."""
    before = {row["deploymentID"]: row for row in held}
    rows = []
    for name, one in found.items():
        old = before.pop(name, {})
        start, end = _time(old.get("deploymentStart", "")), _time(old.get("deploymentEnd", ""))
        new = {
            "deploymentID": name,
            "deploymentStart": min(one.start, start or one.start).isoformat(timespec="seconds"),
            "deploymentEnd": max(one.end, end or one.end).isoformat(timespec="seconds"),
            "timestampIssues": old.get("timestampIssues") or str(one.unsure).lower(),
        }
        rows.append({column: new.get(column, old.get(column, "")) for column in COLUMNS})
    filled = [row for row in before.values() if any(row[name] for name in COLUMNS if name not in OWN)]
    return [*rows, *filled]


def read_deployments(file: Path) -> list[dict[str, str]]:
    """The rows of an earlier table, as a spreadsheet may have saved it; none where there is no file."""
    if not file.is_file():
        return []
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text; save it as CSV UTF-8.") from error
    head = text.split("\n", 1)[0]
    rows = csv.DictReader(
        io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ","
    )
    if "deploymentID" not in (rows.fieldnames or ()):
        raise InputError(f"{file} has no column deploymentID; put it back, or delete the file.")
    try:
        return [
            {name: row.get(name) or "" for name in COLUMNS}
            | {"deploymentID": unescape_formula(row["deploymentID"] or "")}
            for row in rows
        ]
    except csv.Error as error:
        raise InputError(f"{file}, line {rows.line_num}, is not CSV ({error}); correct it there.") from error


def coordinates(rows: Sequence[dict[str, str]]) -> list[tuple[float, float]]:
    """(longitude, latitude) of the deployments that have both."""
    return [place for row in rows if (place := _place(row)) is not None]


def without_place(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    """Ids of the others."""
    return (row["deploymentID"] for row in rows if _place(row) is None)


def _place(row: dict[str, str]) -> tuple[float, float] | None:
    try:
        longitude, latitude = float(row["longitude"]), float(row["latitude"])
    except ValueError:
        return None
    return (longitude, latitude) if abs(longitude) <= 180 and abs(latitude) <= 90 else None


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else None
