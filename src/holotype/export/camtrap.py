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
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from holotype import __version__
from holotype.data.csv import csv_text, escape_formula, read_columns, unescape_formula
from holotype.data.exif import CAMERA_CLOCK, CAMERA_CLOCK_NO_ZONE, FILE_CLOCK, ImageHeader, read_headers
from holotype.data.image_files import has_own_file
from holotype.data.paths import find_images
from holotype.errors import InputError
from holotype.export.folders import NewFolder, TargetFile, new_folder
from holotype.export.results_table import KINDS, ResultsTable, read_results_table
from holotype.results.discovery import UNNAMED_PATTERN, Category
from holotype.utils.atomic import write_text
from holotype.utils.text import plural

CAMTRAP_VERSION = "1.0.2"
"""Of the standard."""
SCHEMA_URL = f"https://raw.githubusercontent.com/tdwg/camtrap-dp/{CAMTRAP_VERSION}"
PACKAGE, DEPLOYMENTS_FILE, MEDIA_FOLDER = "datapackage.json", "deployments.csv", "media"
DEPLOYMENTS = (
    "deploymentID", "locationID", "locationName", "latitude", "longitude", "coordinateUncertainty",
    "deploymentStart", "deploymentEnd", "setupBy", "cameraID", "cameraModel", "cameraDelay", "cameraHeight",
    "cameraDepth", "cameraTilt", "cameraHeading", "detectionDistance", "timestampIssues", "baitUse",
    "featureType", "habitat", "deploymentGroups", "deploymentTags", "deploymentComments",
)  # fmt: skip
MEDIA = (
    "mediaID", "deploymentID", "captureMethod", "timestamp", "filePath", "filePublic", "fileName",
    "fileMediatype", "exifData", "favorite", "mediaComments",
)  # fmt: skip
OBSERVATIONS = (
    "observationID", "deploymentID", "mediaID", "eventID", "eventStart", "eventEnd", "observationLevel",
    "observationType", "cameraSetupType", "scientificName", "count", "lifeStage", "sex", "behavior",
    "individualID", "individualPositionRadius", "individualPositionAngle", "individualSpeed",
    "bboxX", "bboxY", "bboxWidth", "bboxHeight", "classificationMethod", "classifiedBy",
    "classificationTimestamp", "classificationProbability", "observationTags", "observationComments",
)  # fmt: skip
OWN_COLUMNS = ("deploymentID", "deploymentStart", "deploymentEnd", "timestampIssues")
"""Columns of the deployments that are filled here."""
HUMAN_FIELDS = ("contributors", "project.samplingDesign", "project.captureMethod")
"""What the standard requires and nobody but people can know."""
BY_FOLDER = "folders"
"""Instead of a file: the first folder below that of the images names the deployment."""
TYPES = {name: name for name in ("animal", "human", "vehicle", "blank", "unknown", "unclassified")}
TYPES |= {"person": "human", "people": "human", "empty": "blank"}
"""Names of categories that are no animals, in small letters."""
BINOMIAL = re.compile(r"([A-Z][a-z]{2,}) ([a-z]{3,})(?: [a-z]{3,})?")
GENUS = re.compile(r".*(?:us|is|es|as|os|ys|um|yon|ifer|[ao]|[aeioy]n?x)")
SPECIES = re.compile(r".*(?:us|is|um|ii|ae|os|or|ans|leo|a|[aei]x)")
"""Endings of Latin that English words seldom have; of those that both have, such as -on, English wins."""
CLOCKS = {
    CAMERA_CLOCK_NO_ZONE: "the camera names no time zone: that of the computer was taken",
    FILE_CLOCK: "time of the file: the image holds none",
}
SHOWN = 5
"""Names that a summary lists."""


@dataclass
class CamtrapResult:
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

    def summary(self, out: Path) -> str:
        """Describe in lines what was written to `out`."""
        notes = {
            f"are in {out / MEDIA_FOLDER}.": self.copied,
            "without a camera time: the time of the file is used.": self.clocks[FILE_CLOCK],
            "without a time zone: that of this computer is used.": self.clocks[CAMERA_CLOCK_NO_ZONE],
            "left out: the files are gone.": self.gone,
        }
        lines = [f"{plural(self.images, 'image')} of {plural(self.deployments, 'deployment')}: {out}"]
        lines += [f"{plural(n, 'image')} {text}" for text, n in notes.items() if n]
        if self.names:
            more = f" and {len(self.names) - SHOWN:,} more" if len(self.names) > SHOWN else ""
            lines.append(f"Used as scientific names: {', '.join(self.names[:SHOWN])}{more}.")
        if self.missing:
            asked = ", ".join(self.missing)
            lines.append(f"The standard also asks for: {asked}. Holotype keeps what you fill in.")
        return "\n".join(lines)


class _Media(NamedTuple):
    """A picture whose file exists."""

    path: str
    rows: list[int]
    """Of the results: several where it has several boxes."""
    id: str
    deployment: str
    header: ImageHeader


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


def write_camtrap(
    run: Path,
    folder: Path,
    *,
    deployments: str | None = None,
    copy: bool = False,
    overwrite: bool = False,
    progress: bool = False,
) -> CamtrapResult:
    """Write a package, or replace one that Holotype wrote; what people filled in is taken over.

    Args:
        run: Folder of the run.
        folder: A new or empty folder.
        deployments: BY_FOLDER, or a table file with the columns path and deployment; all images are one without.
        copy: Copy the images into media/.
        overwrite: Replace a package that Holotype wrote.
        progress: Show progress bars.

    Returns:
        What was written, and what people have to fill in.
    """
    results = read_results_table(run, need_files=True)
    names = deployment_names(results, deployments)
    with new_folder(
        folder, results.found.run_id, overwrite=overwrite, merged=(PACKAGE, DEPLOYMENTS_FILE)
    ) as new:
        earlier, earlier_rows = read_package(folder / PACKAGE), read_deployments(folder / DEPLOYMENTS_FILE)
        media = _read_media(results, names, progress)
        headers: dict[str, list[ImageHeader]] = defaultdict(list)
        for one in media:
            headers[one.deployment].append(one.header)
        files = _copy_media(media, new, copy, progress)
        rows = merge_deployments(headers, earlier_rows)
        places = parse_coordinates(rows)
        species = {c.id: scientific_name(c.name) for c in results.found.categories}
        used = {species.get(results.category_id[row], "") for one in media for row in one.rows} - {""}
        content = build_datapackage(results, earlier, [one.header.time for one in media], places, used)
        _write_table(new.path / "media.csv", MEDIA, _media_rows(results, media, files))
        _write_table(new.path / "observations.csv", OBSERVATIONS, _observations(results, media, species))
        # other cells are people's own: a latitude may begin with a minus
        guarded = (row | {"deploymentID": escape_formula(row["deploymentID"])} for row in rows)
        _write_table(new.path / DEPLOYMENTS_FILE, DEPLOYMENTS, guarded)
        write_text(new.path / PACKAGE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return CamtrapResult(
        images=len(media),
        deployments=len(headers),
        clocks=Counter(one.header.clock for one in media),
        names=sorted(used),
        gone=len(results) - sum(len(one.rows) for one in media),
        copied=sum(map(bool, files)),
        missing=["latitude and longitude in deployments.csv"] * (len(places) < len(rows))
        + missing_fields(content),
    )


def deployment_names(results: ResultsTable, source: str | None) -> list[str]:
    """Return the (N,) deployment of each image.

    source: BY_FOLDER, a table file with the columns path and deployment, or None for just one deployment.
    """
    if source is None:
        return [results.title] * len(results)
    if source == BY_FOLDER:
        below = [results.below_root(path) for path in results.path]
        if any(os.path.isabs(path) for path in below):
            raise InputError(f"The images of {results.run} share no folder; give --deployments a file.")
        return [path.split("/")[0] if "/" in path else results.title for path in below]
    columns = read_columns(Path(source))
    if not {"path", "deployment"} <= set(columns):
        raise InputError(f"{source} must have the columns path and deployment; it has {', '.join(columns)}.")
    pictures = [picture for picture, _ in results.parts]
    starts = (Path(results.found.facts.root), Path(os.path.abspath(source)).parent)
    paths, _ = find_images(columns["path"], starts, set(pictures).__contains__, lambda: pictures)
    listed = (unescape_formula(name.strip()) for name in columns["deployment"])
    names = dict(zip(paths, listed, strict=True))
    absent = [picture for picture in pictures if not names.get(picture)]
    if absent:
        missing = f"{len(absent):,} of the {len(results):,} images, for example {absent[0]}"
        raise InputError(f"{source} names no deployment for {missing}; add them.")
    return [names[picture] for picture in pictures]


def merge_deployments(
    headers: Mapping[str, Sequence[ImageHeader]], earlier: Sequence[dict[str, str]]
) -> list[dict[str, str]]:
    """Return the rows of the table.

    headers: those of the images, by deployment. earlier: rows of an earlier table, with what people have filled in.
    """
    before = {row["deploymentID"]: row for row in earlier}
    rows = []
    for name, of_images in headers.items():
        old = before.pop(name, {})
        times = [header.time for header in of_images]
        for text in (old.get("deploymentStart", ""), old.get("deploymentEnd", "")):
            with contextlib.suppress(ValueError):
                times += [time for time in (datetime.fromisoformat(text),) if time.tzinfo]
        unsure = any(header.clock != CAMERA_CLOCK for header in of_images)
        new = {
            "deploymentID": name,
            "deploymentStart": _iso(min(times)),
            "deploymentEnd": _iso(max(times)),
            "timestampIssues": old.get("timestampIssues") or str(unsure).lower(),
        }
        rows.append({column: new.get(column, old.get(column, "")) for column in DEPLOYMENTS})
    theirs = [name for name in DEPLOYMENTS if name not in OWN_COLUMNS]
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
    return [{name: row.get(name.lower(), "") for name in DEPLOYMENTS} for row in rows]


def parse_coordinates(rows: Iterable[dict[str, str]]) -> list[tuple[float, float]]:
    """Return (longitude, latitude) of the deployments that have both."""
    places = []
    for row in rows:
        with contextlib.suppress(ValueError):
            longitude, latitude = float(row["longitude"]), float(row["latitude"])
            if abs(longitude) <= 180 and abs(latitude) <= 90:
                places.append((longitude, latitude))
    return places


def _read_media(results: ResultsTable, deployments: Sequence[str], progress: bool) -> list[_Media]:
    """Read times and formats from the headers of the files that exist."""
    rows = range(len(results))
    pictures = results.pictures(
        row for row in rows if has_own_file(results.path[row]) or not results.problem[row]
    )
    media = []
    for (path, own), header in zip(pictures.items(), read_headers(list(pictures), progress), strict=True):
        id = hashlib.sha256(results.below_root(path).encode()).hexdigest()[:16]
        media.append(_Media(path, own, id, deployments[own[0]], header))
    return media


def _copy_media(media: Sequence[_Media], new: NewFolder, copy: bool, progress: bool) -> list[str]:
    """Return (M,) files from the package's folder of the images that are part of it, "" for others.

    Images inside containers have no address of their own, so that they always are.
    """
    inside = [copy or not has_own_file(one.path) for one in media]
    wanted = [TargetFile(one.path, one.deployment) for one, here in zip(media, inside, strict=True) if here]
    file = iter(new.add(wanted, below=MEDIA_FOLDER, copy=True, progress=progress).file)
    return [f"{MEDIA_FOLDER}/{next(file)}" if here else "" for here in inside]


def _media_rows(
    results: ResultsTable, media: Sequence[_Media], files: Sequence[str]
) -> Iterator[dict[str, str]]:
    for one, file in zip(media, files, strict=True):
        notes = (CLOCKS.get(one.header.clock, ""), results.problem[one.rows[0]])
        yield {
            "mediaID": one.id,
            "deploymentID": escape_formula(one.deployment),
            "timestamp": _iso(one.header.time),
            "filePath": file or media_address(one.path),
            "filePublic": "false",
            "fileName": escape_formula(os.path.basename(file or one.path)),
            "fileMediatype": one.header.mediatype,
            "mediaComments": escape_formula("; ".join(filter(None, notes))),
        }


def _observations(
    results: ResultsTable, media: Sequence[_Media], species: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    facts = results.found.facts
    words = ", ".join(filter(None, (facts.method, str(facts.backbone.get("name", "")))))
    by = escape_formula(f"Holotype {__version__}" + (f" ({words})" if words else ""))
    categories = {category.id: category for category in results.found.categories}
    times: dict[str, list[datetime]] = defaultdict(list)
    for one in media:
        for number, row in enumerate(one.rows, start=1):
            times[results.group[row] or f"{one.id}-{number}"].append(one.header.time)
    events = {group: (_iso(min(some)), _iso(max(some))) for group, some in times.items()}
    for one, number, row in ((m, n, row) for m in media for n, row in enumerate(m.rows, start=1)):
        id, group, box = f"{one.id}-{number}", results.group[row], results.parts[row][1]
        category, probability = categories.get(results.category_id[row]), results.probability[row]
        start, end = events[group or id]
        cells = {
            "observationID": id,
            "deploymentID": escape_formula(one.deployment),
            "mediaID": one.id,
            "eventID": escape_formula(group),
            "eventStart": start,
            "eventEnd": end,
            "observationLevel": "media",
            "observationType": "unclassified",
            "observationComments": escape_formula(results.note[row]),
        }
        if box is not None:
            sides = ("bboxX", "bboxY", "bboxWidth", "bboxHeight")
            cells |= dict(zip(sides, box.text.split(","), strict=True))
        if category is not None:
            tags = f"category:{category.name.replace('|', '/')} | kind:{KINDS[category.kind]}"
            cells |= {
                "observationType": observation_type(category),
                "scientificName": species[category.id],
                "classificationMethod": "human" if results.by_hand[row] else "machine",
                "observationTags": tags + " | doubtful:true" * results.doubtful[row],
            }
            if not results.by_hand[row]:
                sure = f"{probability:.6g}" if math.isfinite(probability) else ""
                cells |= {"classifiedBy": by, "classificationProbability": sure}
        yield cells


def observation_type(category: Category) -> str:
    """Return animal, unless the name says otherwise; unknown for a category that nobody has named.

    That holds also once edits have made a class of it.
    """
    if UNNAMED_PATTERN.fullmatch(category.name):
        return "unknown"
    return TYPES.get(category.name.casefold(), "animal")


def scientific_name(name: str) -> str:
    """Return the name where it reads as that of a species (Vulpes vulpes, Sus scrofa), else "".

    Two or three words, the first with a capital, and both with the endings of Latin: Red kite and Ankle boot are none.
    """
    found = BINOMIAL.fullmatch(name)
    if found is None:
        return ""
    genus, species = found[1].lower(), found[2]
    return name if genus == species or (GENUS.fullmatch(genus) and SPECIES.fullmatch(species)) else ""


def media_address(path: str) -> str:
    """Return the URL of a local file, without two dots in a row, which the standard refuses."""
    return Path(path).as_uri().replace("..", "%2E%2E")


def _write_table(file: Path, columns: Sequence[str], rows: Iterable[dict[str, str]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        stream.write(csv_text([columns]))
        stream.writelines(csv_text([[row.get(name, "") for name in columns]]) for row in rows)


def build_datapackage(
    results: ResultsTable,
    earlier: dict[str, Any],
    times: Sequence[datetime],
    places: Sequence[tuple[float, float]],
    names: Iterable[str],
) -> dict[str, Any]:
    """Return the content of the file. earlier: of the file before; names: scientific ones."""
    tables = ("deployments", "media", "observations")
    resources = [
        {
            "name": name,
            "path": f"{name}.csv",
            "profile": "tabular-data-resource",
            "format": "csv",
            "mediatype": "text/csv",
            "encoding": "utf-8",
            "schema": f"{SCHEMA_URL}/{name}-table-schema.json",
        }
        for name in tables
    ]
    known = {taxon.get("scientificName"): taxon for taxon in earlier.get("taxonomic", [])}
    sources = [one for one in earlier.get("sources", []) if one.get("title") != "Holotype"]
    others = [one for one in earlier.get("resources", []) if one.get("name") not in tables]
    project = {"title": results.title, "individualAnimals": False, "observationLevel": ["media"]}
    return {
        "name": re.sub(r"[^a-z0-9._]+", "-", results.title.lower()).strip("-.") or "images",
        "title": results.title,
        "spatial": {"type": "GeometryCollection", "geometries": []},
        **earlier,
        "resources": [*resources, *others],
        "profile": f"{SCHEMA_URL}/camtrap-dp-profile.json",
        "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "sources": [*sources, {"title": "Holotype", "version": __version__}],
        **_spatial(places),
        "temporal": {"start": f"{min(times):%Y-%m-%d}", "end": f"{max(times):%Y-%m-%d}"},
        "taxonomic": [known.get(name, {"scientificName": name}) for name in sorted(set(names))],
        "project": {**project, **earlier.get("project", {})},
    }


def _spatial(places: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return the box around the deployments as GeoJSON; nothing where no place is known."""
    if not places:
        return {}
    (west, south), (east, north) = (tuple(map(of, zip(*places, strict=True))) for of in (min, max))
    if (west, south) == (east, north):
        return {"spatial": {"type": "Point", "coordinates": [west, south]}}
    corners = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"spatial": {"type": "Polygon", "coordinates": [corners]}}


def read_package(file: Path) -> dict[str, Any]:
    """Return the content of an earlier file; nothing where there is none."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
        lists = [content.get(key, []) for key in ("resources", "sources", "taxonomic")]
        kinds = [type(item) for one in lists for item in one] + [type(content.get("project", {}))]
        if {*map(type, lists)} == {list} and {*kinds} == {dict}:
            return dict(content)
    except (ValueError, AttributeError, TypeError):
        pass
    raise InputError(f"{file} is not the JSON of a data package any more; correct it there, or delete it.")


def missing_fields(content: dict[str, Any]) -> list[str]:
    """Return the keys that the standard requires and that people have not filled in yet."""
    flat = {**content, **{f"project.{key}": value for key, value in content["project"].items()}}
    return [key for key in HUMAN_FIELDS if not flat.get(key)]
