"""datapackage.json of a Camtrap DP package (https://camtrap-dp.tdwg.org), and what is said of a category in it.

Only what is known is written. What the standard asks for besides, people fill in, and it stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holotype import __version__
from holotype.errors import InputError
from holotype.placing.written import Results
from holotype.results.discovery import UNNAMED_PATTERN, Category

VERSION = "1.0.2"
"""Of the standard."""
AT = f"https://raw.githubusercontent.com/tdwg/camtrap-dp/{VERSION}"
TABLES = ("deployments", "media", "observations")
OF_PEOPLE = ("contributors", "project.samplingDesign", "project.captureMethod")
"""What the standard requires and nobody but people can know."""
TYPES = {name: name for name in ("animal", "human", "vehicle", "blank", "unknown", "unclassified")} | {
    "person": "human",
    "people": "human",
    "empty": "blank",
}
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


def package(
    results: Results,
    held: dict[str, Any],
    times: Sequence[datetime],
    places: Sequence[tuple[float, float]],
    names: Iterable[str],
) -> dict[str, Any]:
    """The content of the file. held: of an earlier one; times: the first and the last; names: scientific ones."""
    title = results.found.facts.title or results.run.name
    known = {taxon.get("scientificName"): taxon for taxon in held.get("taxonomic", [])}
    sources = [one for one in held.get("sources", []) if one.get("title") != "Holotype"]
    others = [one for one in held.get("resources", []) if one.get("name") not in TABLES]
    new = {
        "resources": [*map(_resource, TABLES), *others],
        "profile": f"{AT}/camtrap-dp-profile.json",
        "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "sources": [*sources, {"title": "Holotype", "version": __version__}],
        "spatial": _spatial(places)
        or held.get("spatial")
        or {"type": "GeometryCollection", "geometries": []},
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


def missing(content: dict[str, Any]) -> list[str]:
    """Keys that the standard requires and that people have not filled in yet."""
    flat = {**content, **{f"project.{key}": value for key, value in content["project"].items()}}
    return [key for key in OF_PEOPLE if not flat.get(key)]


def _resource(name: str) -> dict[str, str]:
    return {
        "name": name,
        "path": f"{name}.csv",
        "profile": "tabular-data-resource",
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "schema": f"{AT}/{name}-table-schema.json",
    }


def _spatial(places: Sequence[tuple[float, float]]) -> dict[str, Any] | None:
    """The box around the deployments as GeoJSON; None where no place is known."""
    if not places:
        return None
    west, east = min(x for x, _ in places), max(x for x, _ in places)
    south, north = min(y for _, y in places), max(y for _, y in places)
    if (west, south) == (east, north):
        return {"type": "Point", "coordinates": [west, south]}
    corners = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [corners]}


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9._]+", "-", title.lower()).strip("-.") or "images"
