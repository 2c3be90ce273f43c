"""A Darwin Core Archive (https://dwc.tdwg.org/text/): occurrences, and the pictures as an extension."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from holotype.export.camtrap import scientific_name
from holotype.export.folders import new_folder
from holotype.export.results_table import ResultsTable, read_results_table
from holotype.results.discovery import UNNAMED_PATTERN
from holotype.utils.atomic import write_text
from holotype.utils.text import plural

TERMS = "http://rs.tdwg.org/dwc/terms/"
OCCURRENCE_FILE, MEDIA_FILE = "occurrence.txt", "multimedia.txt"
OCCURRENCE = {
    name: TERMS + name
    for name in (
        *("occurrenceID", "basisOfRecord", "occurrenceStatus", "eventDate"),
        *("decimalLatitude", "decimalLongitude"),
        *("scientificName", "vernacularName", "verbatimIdentification", "identificationVerificationStatus"),
        *("identificationRemarks", "datasetName"),
    )
}
"""Columns of the core, and the terms that they are."""
MEDIA = {
    "occurrenceID": TERMS + "occurrenceID",
    "type": "http://purl.org/dc/terms/type",
    "identifier": "http://purl.org/dc/terms/identifier",
}
MEDIA_TYPE = "http://rs.gbif.org/terms/1.0/Multimedia"


@dataclass(frozen=True)
class DarwinCoreResult:
    """What was written."""

    occurrences: int
    named: int
    """Of them with a scientific name."""
    dated: int

    def summary(self, out: Path) -> str:
        """Describe in lines what was written to `out`."""
        return (
            f"{plural(self.occurrences, 'occurrence')}, {self.named:,} with a scientific name, {self.dated:,} with a "
            f"date: {out}\nBefore you publish: eml.xml (title, contacts, licence), and addresses of the pictures in "
            f"{MEDIA_FILE}."
        )


def write_darwin_core(
    run: Path, out: Path, *, overwrite: bool = False, progress: bool = False
) -> DarwinCoreResult:
    """Write the images of a run that are in a category as an archive.

    Args:
        run: Folder of the run.
        out: Folder of the archive.
        overwrite: Replace `out` where Holotype wrote it.
        progress: Nothing to show.

    Returns:
        Counts of what was written.
    """
    results = read_results_table(run)
    rows = [row for row in range(len(results)) if results.category[row] and not results.problem[row]]
    core = [_occurrence(results, row) for row in rows]
    names = [results.below_root(results.parts[row][0]) for row in rows]
    media = [
        {"occurrenceID": one["occurrenceID"], "type": "StillImage", "identifier": name}
        for one, name in zip(core, names, strict=True)
    ]
    with new_folder(out, results.found.run_id, overwrite=overwrite) as new:
        write_text(new.path / OCCURRENCE_FILE, _table(OCCURRENCE, core))
        write_text(new.path / MEDIA_FILE, _table(MEDIA, media))
        write_text(new.path / "meta.xml", _meta())
        write_text(new.path / "eml.xml", _eml(results))
    dated = sum(bool(one["eventDate"]) for one in core)
    return DarwinCoreResult(len(core), sum(bool(one["scientificName"]) for one in core), dated)


def _occurrence(results: ResultsTable, row: int) -> dict[str, str]:
    """A row of the core. A category that nobody has named says no more than that something was there."""
    name, images = results.category[row], results.found.images
    latin, probability = scientific_name(name), results.probability[row]
    by_hand, unnamed = results.by_hand[row], UNNAMED_PATTERN.fullmatch(name) is not None
    how = "identified by a person" if by_hand else "identified by a model"
    if not by_hand and math.isfinite(probability):
        how += f" with probability {probability:.3f}"

    def told(column: str) -> str:
        value = images[column].iloc[row] if column in images else ""
        return "" if value is None or value != value else str(value)

    return {
        "occurrenceID": f"{results.found.run_id}:{row + 1}",
        "basisOfRecord": "MachineObservation",
        "occurrenceStatus": "present",
        "eventDate": told("taken"),
        "decimalLatitude": told("latitude"),
        "decimalLongitude": told("longitude"),
        "scientificName": latin,
        "vernacularName": "" if latin or unnamed else name,
        "verbatimIdentification": name,
        "identificationVerificationStatus": "verified" if by_hand else "unverified",
        "identificationRemarks": how,
        "datasetName": results.title,
    }


def _table(columns: dict[str, str], rows: list[dict[str, str]]) -> str:
    """Tab-separated values, in which no cell holds a tab or a line break."""
    lines = ["\t".join(columns)]
    lines += ["\t".join(" ".join(row[name].split()) for name in columns) for row in rows]
    return "\n".join(lines) + "\n"


def _meta() -> str:
    """What the columns of the two files mean."""
    top = ET.Element("archive", xmlns="http://rs.tdwg.org/dwc/text/", metadata="eml.xml")
    how = {
        "encoding": "UTF-8",
        "fieldsTerminatedBy": "\\t",
        "linesTerminatedBy": "\\n",
        "fieldsEnclosedBy": "",
        "ignoreHeaderLines": "1",
    }
    for kind, file, columns, row_type in (
        ("core", OCCURRENCE_FILE, OCCURRENCE, TERMS + "Occurrence"),
        ("extension", MEDIA_FILE, MEDIA, MEDIA_TYPE),
    ):
        part = ET.SubElement(top, kind, {**how, "rowType": row_type})
        ET.SubElement(ET.SubElement(part, "files"), "location").text = file
        ET.SubElement(part, "id" if kind == "core" else "coreid", index="0")
        for index, term in enumerate(columns.values()):
            if kind == "core" or index:
                ET.SubElement(part, "field", index=str(index), term=term)
    ET.indent(top)
    return ET.tostring(top, encoding="unicode") + "\n"


def _eml(results: ResultsTable) -> str:
    """The least that a data set says of itself; people fill in the rest."""
    top = ET.Element(
        "eml:eml",
        {
            "xmlns:eml": "https://eml.ecoinformatics.org/eml-2.2.0",
            "packageId": results.found.run_id,
            "system": "holotype",
        },
    )
    data = ET.SubElement(top, "dataset")
    ET.SubElement(data, "title").text = results.title
    for role in ("creator", "contact"):
        ET.SubElement(ET.SubElement(data, role), "organizationName").text = "unknown"
    ET.indent(top)
    return ET.tostring(top, encoding="unicode") + "\n"
