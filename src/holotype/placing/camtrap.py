"""The results of a run as a Camtrap DP package: deployments.csv, media.csv, observations.csv and datapackage.json.

A picture is one media file with one observation, or one for each of its boxes; a burst is an event. The pictures stay
where they are and are named by their addresses, or are copied into media/, so that the package can be handed on.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from holotype import __version__
from holotype.data.archives import has_own_file
from holotype.data.boxes import Box
from holotype.data.csv import escape_formula, quote_cell
from holotype.placing.camtrap_package import missing, observation_type, package, read_package, scientific_name
from holotype.placing.deployments import COLUMNS as DEPLOYMENTS
from holotype.placing.deployments import (
    Deployment,
    coordinates,
    deployments_of,
    merged,
    read_deployments,
    without_place,
)
from holotype.placing.folders import NewFolder, Wanted, new_folder
from holotype.placing.heads import CAMERA_WITHOUT_ZONE, FILE, read_heads
from holotype.placing.written import Results, read_results
from holotype.utils.atomic import atomic_write, write_text

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
    CAMERA_WITHOUT_ZONE: "the camera names no time zone: that of the computer was taken",
    FILE: "time of the file: the image holds none",
}


@dataclass
class Packed:
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
    """What is known of the M pictures whose files are there; lists of length M."""

    row: list[int]
    """Of the results, the first one of each picture."""
    rows: list[list[int]]
    """All of them: several where a picture has several boxes."""
    id: list[str]
    deployment: list[str]
    time: list[str]
    clock: list[str]
    mediatype: list[str]


def write_camtrap(
    run: Path,
    folder: Path,
    *,
    deployments: str | None = None,
    copy: bool = False,
    overwrite: bool = False,
    progress: bool = False,
) -> Packed:
    """Write a package, or replace one that Holotype wrote (overwrite); what people filled in is taken over.

    deployments: FOLDERS, or a table file with path and deployment. copy: the images themselves into media/.
    """
    results = read_results(run)
    results.check_files()
    of = deployments_of(results, deployments)
    with new_folder(folder, results.found.run_id, overwrite=overwrite, merged=(PACKAGE, PLACES)) as new:
        held, rows = read_package(folder / PACKAGE), read_deployments(folder / PLACES)
        media, found = _read_media(results, of, progress)
        files = _put_files(results, media, new, copy, progress)
        rows = merged(found, rows)
        names = {c.id: scientific_name(c.name) for c in results.found.categories}
        used = {names.get(results.category_id[row], "") for some in media.rows for row in some} - {""}
        times = min(one.start for one in found.values()), max(one.end for one in found.values())
        content = package(results, held, times, coordinates(rows), used)
        _write_table(new.path / "media.csv", MEDIA, _media_rows(results, media, files))
        _write_table(new.path / "observations.csv", OBSERVATIONS, _observations(results, media, names))
        _write_table(new.path / PLACES, DEPLOYMENTS, _guarded_ids(rows))
        write_text(new.path / PACKAGE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    packed = Packed(len(media.row), len(found), Counter(media.clock), sorted(used), 0, sum(map(bool, files)))
    packed.gone, packed.missing = len(results) - sum(map(len, media.rows)), missing(content)
    if any(without_place(rows)):
        packed.missing.insert(0, "latitude and longitude in deployments.csv")
    return packed


def _read_media(results: Results, of: Sequence[str], progress: bool) -> tuple[_Media, dict[str, Deployment]]:
    """Times and kinds from the heads of the files, and what they say of the deployments."""
    pictures: dict[str, list[int]] = {}
    for row, ((path, _), there, problem) in enumerate(
        zip(results.parts, results.there, results.problem, strict=True)
    ):
        if there and not (problem and not has_own_file(path)):
            pictures.setdefault(path, []).append(row)
    rows = [some[0] for some in pictures.values()]
    media = _Media(rows, list(pictures.values()), [], [of[row] for row in rows], [], [], [])
    found: dict[str, Deployment] = {}
    heads = read_heads(list(pictures), progress)
    for path, name, head in zip(pictures, media.deployment, heads, strict=True):
        below = results.below_root(path)
        media.id.append(hashlib.sha256(below.encode()).hexdigest()[:16])
        media.time.append(head.time.isoformat(timespec="seconds"))
        media.clock.append(head.clock)
        media.mediatype.append(head.mediatype)
        found.setdefault(name, Deployment(head.time, head.time)).add(head.time, head.clock)
    return media, found


def _put_files(results: Results, media: _Media, new: NewFolder, copy: bool, progress: bool) -> list[str]:
    """(M,) files from the package's folder of the images that are part of it, "" for others.

    Images inside containers have no address of their own, so that they always are.
    """
    paths = [results.parts[row][0] for row in media.row]
    inside = [copy or not has_own_file(path) for path in paths]
    wanted = [Wanted(p, name) for p, name, here in zip(paths, media.deployment, inside, strict=True) if here]
    file = iter(new.add(wanted, below=MEDIA_FOLDER, copy=True, progress=progress).file)
    return [f"{MEDIA_FOLDER}/{next(file)}" if here else "" for here in inside]


# -- rows --------------------------------------------------------------------------------------------------


def _media_rows(results: Results, media: _Media, files: Sequence[str]) -> Iterator[dict[str, str]]:
    for i, row in enumerate(media.row):
        path = results.parts[row][0]
        notes = (CLOCKS.get(media.clock[i], ""), results.problem[row])
        yield {
            "mediaID": media.id[i],
            "deploymentID": escape_formula(media.deployment[i]),
            "timestamp": media.time[i],
            "filePath": files[i] or address(path),
            "filePublic": "false",
            "fileName": escape_formula(os.path.basename(files[i] or path)),
            "fileMediatype": media.mediatype[i],
            "mediaComments": escape_formula("; ".join(note for note in notes if note)),
        }


def _observations(results: Results, media: _Media, names: dict[str, str]) -> Iterator[dict[str, str]]:
    facts = results.found.facts
    words = ", ".join(word for word in (facts.method, str(facts.backbone.get("name", ""))) if word)
    by = escape_formula(f"Holotype {__version__}" + (f" ({words})" if words else ""))
    of = {category.id: category for category in results.found.categories}
    said = {id: _said(category.name, category.kind) for id, category in of.items()}
    kinds = {id: observation_type(category) for id, category in of.items()}
    events = _events(results, media)
    for i, number, row in (
        (i, n, row) for i, rows in enumerate(media.rows) for n, row in enumerate(rows, start=1)
    ):
        id, probability = results.category_id[row], results.probability[row]
        human, machine = results.by_hand[row] and id in of, not results.by_hand[row] and id in of
        doubtful = " | doubtful:true" if results.doubtful[row] and id in of else ""
        yield {
            "observationID": f"{media.id[i]}-{number}",
            "deploymentID": escape_formula(media.deployment[i]),
            "mediaID": media.id[i],
            **events.get(results.group[row], {"eventStart": media.time[i], "eventEnd": media.time[i]}),
            "observationLevel": "media",
            "observationType": kinds.get(id, "unclassified"),
            "scientificName": names.get(id, ""),
            **_box(results.parts[row][1]),
            "classificationMethod": "human" if human else "machine" if machine else "",
            "classifiedBy": by if machine else "",
            "classificationProbability": f"{probability:.6g}"
            if machine and math.isfinite(probability)
            else "",
            "observationTags": said.get(id, "") + doubtful,
            "observationComments": escape_formula(results.note[row]),
        }


def _events(results: Results, media: _Media) -> dict[str, dict[str, str]]:
    """Of the bursts: an id, and the first and the last time of their frames."""
    times: dict[str, list[str]] = {}
    for i, rows in enumerate(media.rows):
        for row in rows:
            if group := results.group[row]:
                times.setdefault(group, []).append(media.time[i])
    events = {}
    for group, some in times.items():
        some.sort(
            key=datetime.fromisoformat
        )  # by the hour itself: clocks are set back, and some tell no zone
        events[group] = {"eventID": escape_formula(group), "eventStart": some[0], "eventEnd": some[-1]}
    return events


def _box(box: Box | None) -> dict[str, str]:
    if box is None:
        return {}
    values = zip(("X", "Y", "Width", "Height"), box.text.split(","), strict=True)
    return {f"bbox{name}": value for name, value in values}


def _said(name: str, kind: str) -> str:
    """A category in the tags, which a bar would part."""
    return f"category:{name.replace('|', '/')} | kind:{'known' if kind == 'known' else 'new'}"


def address(path: str) -> str:
    """The URL of a local file, without two dots in a row, which the standard refuses."""
    if os.name == "posix":
        return f"file://{quote(path)}".replace("..", "%2E%2E")
    return Path(path).as_uri().replace("..", "%2E%2E")


def _guarded_ids(rows: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Other cells are people's own: a latitude may begin with a minus."""
    return (row | {"deploymentID": escape_formula(row["deploymentID"])} for row in rows)


# -- files -------------------------------------------------------------------------------------------------


def _write_table(file: Path, columns: Sequence[str], rows: Iterable[dict[str, str]]) -> None:
    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="") as stream:
            stream.write(",".join(columns) + "\n")
            for row in rows:
                cells = (row.get(name, "") for name in columns)
                stream.write(",".join(quote_cell(cell) if cell else "" for cell in cells) + "\n")

    atomic_write(file, write)
