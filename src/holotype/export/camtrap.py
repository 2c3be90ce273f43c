"""Export a run as a Camtrap DP package.

Only what is known is written, and Holotype knows neither place nor camera. What the standard asks for besides, people
fill in, and it stays when the package is written again.

A picture is one media file with one observation, or one for each of its boxes; a burst is an event. The pictures stay
where they are and are named by their addresses, or are copied into media/, so that the package can be handed on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holotype import __version__
from holotype.data.boxes import Box
from holotype.data.csv import csv_text, escape_formula, read_columns, unescape_formula
from holotype.data.image_files import has_own_file
from holotype.errors import InputError
from holotype.export.folders import NewFolder, TargetFile, new_folder
from holotype.export.image_header import (
    CAMERA_CLOCK,
    CAMERA_CLOCK_NO_ZONE,
    FILE_CLOCK,
    ImageHeader,
    read_headers,
)
from holotype.export.results_table import ResultsTable, read_results_table
from holotype.results.discovery import UNNAMED_PATTERN, Category
from holotype.utils.atomic import write_text

CAMTRAP_VERSION = "1.0.2"
"""Of the standard."""
SCHEMA_URL = f"https://raw.githubusercontent.com/tdwg/camtrap-dp/{CAMTRAP_VERSION}"
TABLE_SCHEMAS = ("deployments", "media", "observations")
HUMAN_TYPES = ("contributors", "project.samplingDesign", "project.captureMethod")
"""What the standard requires and nobody but people can know."""
TYPES = {name: name for name in ("animal", "human", "vehicle", "blank", "unknown", "unclassified")}
TYPES |= {"person": "human", "people": "human", "empty": "blank"}
"""Names of categories that are no animals, in small letters."""
BINOMIAL = re.compile(r"([A-Z][a-z]{2,}) ([a-z]{3,})(?: [a-z]{3,})?")
GENUS = re.compile(r".*(?:us|is|es|as|os|ys|um|yon|ifer|[ao]|[aeioy]n?x)")
SPECIES = re.compile(r".*(?:us|is|um|ii|ae|os|or|ans|leo|a|[aei]x)")
"""Endings of Latin that English words seldom have; of those that both have, such as -on, English wins."""


def observation_type(category: Category) -> str:
    """animal, unless its name says otherwise; unknown for a category that nobody has named, also once edits have made a
    class of it."""
    if UNNAMED_PATTERN.fullmatch(category.name):
        return "unknown"
    return TYPES.get(category.name.casefold(), "animal")


def scientific_name(name: str) -> str:
    """The name where it reads as that of a species (Vulpes vulpes, Sus scrofa), else "".

    Two or three words, the first with a capital, and both with the endings of Latin: Red kite and Ankle boot are none.
    """
    found = BINOMIAL.fullmatch(name)
    if found is None:
        return ""
    genus, species = found[1].lower(), found[2]
    return name if genus == species or (GENUS.fullmatch(genus) and SPECIES.fullmatch(species)) else ""


def build_datapackage(
    results: ResultsTable,
    held: dict[str, Any],
    times: Sequence[datetime],
    places: Sequence[tuple[float, float]],
    names: Iterable[str],
) -> dict[str, Any]:
    """The content of the file. held: of an earlier one; times: the first and the last; names: scientific ones."""
    title = results.found.facts.title or results.run.name
    known = {taxon.get("scientificName"): taxon for taxon in held.get("taxonomic", [])}
    sources = [one for one in held.get("sources", []) if one.get("title") != "Holotype"]
    others = [one for one in held.get("resources", []) if one.get("name") not in TABLE_SCHEMAS]
    spatial = _spatial(places) or held.get("spatial") or {"type": "GeometryCollection", "geometries": []}
    new = {
        "resources": [*map(_resource, TABLE_SCHEMAS), *others],
        "profile": f"{SCHEMA_URL}/camtrap-dp-profile.json",
        "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "sources": [*sources, {"title": "Holotype", "version": __version__}],
        "spatial": spatial,
        "temporal": {"start": f"{times[0]:%Y-%m-%d}", "end": f"{times[1]:%Y-%m-%d}"},
        "taxonomic": [known.get(name, {"scientificName": name}) for name in sorted(set(names))],
    }
    project = {"title": title, "individualAnimals": False, "observationLevel": ["media"]}
    first = {"name": _slug(title), "title": title}
    return {**first, **held, **new, "project": {**project, **held.get("project", {})}}


def read_package(file: Path) -> dict[str, Any]:
    """What an earlier file says; nothing where there is none."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
        lists = [content.get(key, []) for key in ("resources", "sources", "taxonomic")]
        if isinstance(content.get("project", {}), dict) and all(
            isinstance(one, list) and all(isinstance(item, dict) for item in one) for one in lists
        ):
            return dict(content)
    except (ValueError, AttributeError):
        pass
    raise InputError(f"{file} is not the JSON of a data package any more; correct it there, or delete it.")


def missing_fields(content: dict[str, Any]) -> list[str]:
    """Keys that the standard requires and that people have not filled in yet."""
    flat = {**content, **{f"project.{key}": value for key, value in content["project"].items()}}
    return [key for key in HUMAN_TYPES if not flat.get(key)]


def _resource(name: str) -> dict[str, str]:
    return {
        "name": name,
        "path": f"{name}.csv",
        "profile": "tabular-data-resource",
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "schema": f"{SCHEMA_URL}/{name}-table-schema.json",
    }


def _spatial(places: Sequence[tuple[float, float]]) -> dict[str, Any] | None:
    """The box around the deployments as GeoJSON; None where no place is known."""
    if not places:
        return None
    (west, south), (east, north) = (tuple(map(of, zip(*places, strict=True))) for of in (min, max))
    if (west, south) == (east, north):
        return {"type": "Point", "coordinates": [west, south]}
    corners = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [corners]}


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9._]+", "-", title.lower()).strip("-.") or "images"


BY_FOLDER = "folders"
"""Instead of a file: the first folder below that of the images tells the deployment."""
DEPLOYMENT_COLUMNS = (
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
OWN_COLUMN = ("deploymentID", "deploymentStart", "deploymentEnd", "timestampIssues")
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
        self.unsure |= clock != CAMERA_CLOCK


# -- which image belongs where ---------------------------------------------------------------------------


def deployments_of(results: ResultsTable, told: str | None) -> list[str]:
    """(N,) the deployment of each image. told: FOLDERS, a table file with path and deployment, or None for just one."""
    whole = results.found.facts.title or results.run.name
    if told is None:
        return [whole] * len(results)
    if told == BY_FOLDER:
        below = [results.below_root(path) for path in results.path]
        if any(os.path.isabs(path) for path in below):
            raise InputError(
                f"The images of {results.run} lie in no folder of their own, so folders tell no deployments; give "
                "--deployments a file with the columns path and deployment."
            )
        return [path.split("/")[0] if "/" in path else whole for path in below]
    return _from_list(results, Path(told))


def _from_list(results: ResultsTable, file: Path) -> list[str]:
    columns = read_columns(file)
    if not {"path", "deployment"} <= set(columns):
        raise InputError(
            f"{file} has the columns {', '.join(columns)}; it must have path and deployment, or give --deployments "
            f"{BY_FOLDER}."
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


def merge_deployments(found: dict[str, Deployment], held: Sequence[dict[str, str]]) -> list[dict[str, str]]:
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
        rows.append({column: new.get(column, old.get(column, "")) for column in DEPLOYMENT_COLUMNS})
    theirs = [name for name in DEPLOYMENT_COLUMNS if name not in OWN_COLUMN]
    return [*rows, *(row for row in before.values() if any(row[name] for name in theirs))]


def read_deployments(file: Path) -> list[dict[str, str]]:
    """Return the rows of an earlier table, as a spreadsheet may have saved it; none where there is no file."""
    if not file.is_file():
        return []
    columns = read_columns(file)
    if "deploymentid" not in columns:
        raise InputError(f"{file} has no column deploymentID; put it back, or delete the file.")
    columns["deploymentid"] = [unescape_formula(name) for name in columns["deploymentid"]]
    rows = (dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))
    return [{name: row.get(name.lower(), "") for name in DEPLOYMENT_COLUMNS} for row in rows]


def parse_coordinates(rows: Iterable[dict[str, str]]) -> list[tuple[float, float]]:
    """Return (longitude, latitude) of the deployments that have both."""
    places = []
    for row in rows:
        with contextlib.suppress(ValueError):
            longitude, latitude = float(row["longitude"]), float(row["latitude"])
            if abs(longitude) <= 180 and abs(latitude) <= 90:
                places.append((longitude, latitude))
    return places


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else None


PACKAGE = "datapackage.json"
PLACES = "deployments.csv"
MEDIA_FOLDER = "media"
MEDIA = (
    *("mediaID", "deploymentID", "captureMethod", "timestamp", "filePath", "filePublic", "fileName"),
    *("fileMediatype", "exifData", "favorite", "mediaComments"),
)
OBSERVATIONS = (
    *("observationID", "deploymentID", "mediaID", "eventID", "eventStart", "eventEnd", "observationLevel"),
    *("observationType", "cameraSetupType", "scientificName", "count", "lifeStage", "sex", "behavior"),
    *("individualID", "individualPositionRadius", "individualPositionAngle", "individualSpeed"),
    *("bboxX", "bboxY", "bboxWidth", "bboxHeight", "classificationMethod", "classifiedBy"),
    *("classificationTimestamp", "classificationProbability", "observationTags", "observationComments"),
)
CLOCKS = {
    CAMERA_CLOCK_NO_ZONE: "the camera names no time zone: that of the computer was taken",
    FILE_CLOCK: "time of the file: the image holds none",
}


@dataclass
class CamtrapPackage:
    """What was written."""

    images: int
    deployments: int
    clocks: Counter[str]
    """Images by where their times come from."""
    names: list[str]
    """Categories that were taken for scientific names."""
    gone: int
    """Images that are not in it, because their files are gone, or because they are unreadable parts of a container."""
    copied: int
    missing: list[str] = field(default_factory=list)
    """What people have to fill in before the package is whole."""


@dataclass(frozen=True)
class _Media:
    """A picture whose file is there."""

    path: str
    rows: list[int]
    """Of the results: several where it has several boxes."""
    id: str
    deployment: str
    head: ImageHeader

    @property
    def time(self) -> str:
        return self.head.time.isoformat(timespec="seconds")


def write_camtrap(
    run: Path,
    folder: Path,
    *,
    deployments: str | None = None,
    copy: bool = False,
    overwrite: bool = False,
    progress: bool = False,
) -> CamtrapPackage:
    """Write a package, or replace one that Holotype wrote (overwrite); what people filled in is taken over.

    deployments: FOLDERS, or a table file with path and deployment. copy: the images themselves into media/.
    """
    results = read_results_table(run)
    results.check_files()
    of = deployments_of(results, deployments)
    with new_folder(folder, results.found.run_id, overwrite=overwrite, merged=(PACKAGE, PLACES)) as new:
        held, rows = read_package(folder / PACKAGE), read_deployments(folder / PLACES)
        media = _read_media(results, of, progress)
        found: dict[str, Deployment] = {}
        for one in media:
            deployment = found.setdefault(one.deployment, Deployment(one.head.time, one.head.time))
            deployment.add(one.head.time, one.head.clock)
        files = _copy_media(media, new, copy, progress)
        rows = merge_deployments(found, rows)
        places = parse_coordinates(rows)
        names = {c.id: scientific_name(c.name) for c in results.found.categories}
        used = {names.get(results.category_id[row], "") for one in media for row in one.rows} - {""}
        times = min(one.start for one in found.values()), max(one.end for one in found.values())
        content = build_datapackage(results, held, times, places, used)
        _write_table(new.path / "media.csv", MEDIA, _media_rows(results, media, files))
        _write_table(new.path / "observations.csv", OBSERVATIONS, _observations(results, media, names))
        # other cells are people's own: a latitude may begin with a minus
        guarded = (row | {"deploymentID": escape_formula(row["deploymentID"])} for row in rows)
        _write_table(new.path / PLACES, DEPLOYMENT_COLUMNS, guarded)
        write_text(new.path / PACKAGE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return CamtrapPackage(
        images=len(media),
        deployments=len(found),
        clocks=Counter(one.head.clock for one in media),
        names=sorted(used),
        gone=len(results) - sum(len(one.rows) for one in media),
        copied=sum(map(bool, files)),
        missing=["latitude and longitude in deployments.csv"] * (len(places) < len(rows))
        + missing_fields(content),
    )


def _read_media(results: ResultsTable, of: Sequence[str], progress: bool) -> list[_Media]:
    """Read times and kinds from the heads of the files that are there."""
    pictures: dict[str, list[int]] = {}
    for row, (path, _) in enumerate(results.parts):
        if results.there[row] and (has_own_file(path) or not results.problem[row]):
            pictures.setdefault(path, []).append(row)
    heads = read_headers(list(pictures), progress)
    return [
        _Media(
            path, rows, hashlib.sha256(results.below_root(path).encode()).hexdigest()[:16], of[rows[0]], head
        )
        for (path, rows), head in zip(pictures.items(), heads, strict=True)
    ]


def _copy_media(media: Sequence[_Media], new: NewFolder, copy: bool, progress: bool) -> list[str]:
    """(M,) files from the package's folder of the images that are part of it, "" for others.

    Images inside containers have no address of their own, so that they always are.
    """
    inside = [copy or not has_own_file(one.path) for one in media]
    wanted = [TargetFile(one.path, one.deployment) for one, here in zip(media, inside, strict=True) if here]
    file = iter(new.add(wanted, below=MEDIA_FOLDER, copy=True, progress=progress).file)
    return [f"{MEDIA_FOLDER}/{next(file)}" if here else "" for here in inside]


# -- rows --------------------------------------------------------------------------------------------------


def _media_rows(
    results: ResultsTable, media: Sequence[_Media], files: Sequence[str]
) -> Iterator[dict[str, str]]:
    for one, file in zip(media, files, strict=True):
        notes = (CLOCKS.get(one.head.clock, ""), results.problem[one.rows[0]])
        yield {
            "mediaID": one.id,
            "deploymentID": escape_formula(one.deployment),
            "timestamp": one.time,
            "filePath": file or media_address(one.path),
            "filePublic": "false",
            "fileName": escape_formula(os.path.basename(file or one.path)),
            "fileMediatype": one.head.mediatype,
            "mediaComments": escape_formula("; ".join(note for note in notes if note)),
        }


def _observations(
    results: ResultsTable, media: Sequence[_Media], names: dict[str, str]
) -> Iterator[dict[str, str]]:
    facts = results.found.facts
    words = ", ".join(word for word in (facts.method, str(facts.backbone.get("name", ""))) if word)
    by = escape_formula(f"Holotype {__version__}" + (f" ({words})" if words else ""))
    of = {category.id: category for category in results.found.categories}
    said = {id: _classified_by(category.name, category.kind) for id, category in of.items()}
    kinds = {id: observation_type(category) for id, category in of.items()}
    events = _events(results, media)
    boxes = ((picture, n, row) for picture in media for n, row in enumerate(picture.rows, start=1))
    for one, number, row in boxes:
        id, probability = results.category_id[row], results.probability[row]
        human, machine = results.by_hand[row] and id in of, not results.by_hand[row] and id in of
        doubtful = " | doubtful:true" if results.doubtful[row] and id in of else ""
        sure = machine and math.isfinite(probability)
        yield {
            "observationID": f"{one.id}-{number}",
            "deploymentID": escape_formula(one.deployment),
            "mediaID": one.id,
            **events.get(results.group[row], {"eventStart": one.time, "eventEnd": one.time}),
            "observationLevel": "media",
            "observationType": kinds.get(id, "unclassified"),
            "scientificName": names.get(id, ""),
            **_bounding_box(results.parts[row][1]),
            "classificationMethod": "human" if human else "machine" if machine else "",
            "classifiedBy": by if machine else "",
            "classificationProbability": f"{probability:.6g}" if sure else "",
            "observationTags": said.get(id, "") + doubtful,
            "observationComments": escape_formula(results.note[row]),
        }


def _events(results: ResultsTable, media: Sequence[_Media]) -> dict[str, dict[str, str]]:
    """Of the bursts: an id, and the first and the last time of their frames."""
    times: dict[str, list[datetime]] = {}
    for one in media:
        for row in one.rows:
            times.setdefault(results.group[row], []).append(one.head.time)
    return {
        group: {
            "eventID": escape_formula(group),
            "eventStart": min(some).isoformat(timespec="seconds"),
            "eventEnd": max(some).isoformat(timespec="seconds"),
        }
        for group, some in times.items()
        if group
    }


def _bounding_box(box: Box | None) -> dict[str, str]:
    if box is None:
        return {}
    values = zip(("X", "Y", "Width", "Height"), box.text.split(","), strict=True)
    return {f"bbox{name}": value for name, value in values}


def _classified_by(name: str, kind: str) -> str:
    """A category in the tags, which a bar would part."""
    return f"category:{name.replace('|', '/')} | kind:{'known' if kind == 'known' else 'new'}"


def media_address(path: str) -> str:
    """The URL of a local file, without two dots in a row, which the standard refuses."""
    return Path(path).as_uri().replace("..", "%2E%2E")


def _write_table(file: Path, columns: Sequence[str], rows: Iterable[dict[str, str]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        stream.write(csv_text([columns]))
        stream.writelines(csv_text([[row.get(name, "") for name in columns]]) for row in rows)
