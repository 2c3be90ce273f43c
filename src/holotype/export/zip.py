"""Export the report as one zip to mail, with tables that open in a spreadsheet.

It holds no originals, no places and no path of this machine. The same run gives the same file to the byte.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import pandas as pd

from holotype.data.boxes import split_box
from holotype.errors import InputError
from holotype.export.results_table import BOM
from holotype.report.build import data_script, read_data
from holotype.report.redact import PRIVATE_KEYS, Redactor, build_redactor, redact_page
from holotype.report.thumbnails import GRID, sheet_name
from holotype.results.describe import burst_counts
from holotype.results.discovery import TEXTS, Discovery, write_csv
from holotype.utils.atomic import refuse_existing, write_output

ZIP_DATE = (1980, 1, 1, 0, 0, 0)
"""Of every part: the first day that a zip knows."""
MAIL_FOLDER = 20_000_000
"""Bytes that most mail servers take."""
ZIP_README = """{title}: what Holotype found in {n} images.

Unpack this file, then open report.html in a browser. It needs no network and sends nothing anywhere.
assignments.csv has a line for every image, categories.csv one for every category{changes}.
The pictures are small ones; the originals are not in here.
To correct something, do so in the report, export edits.csv there, and send that file back.
"""


@dataclass(frozen=True)
class ZipResult:
    """What was written."""

    size: int
    """In bytes."""
    images: int
    """Shown by the page."""
    tables: tuple[str, ...]


def write_zip(run: Path, file: Path, *, overwrite: bool = False) -> ZipResult:
    """Zip the report that lies in a run folder; it has to be built before."""
    refuse_existing(file, overwrite, (".zip",))
    found = Discovery.load(run)
    hide = build_redactor([str(path) for path in found.images["path"]], found.facts.root, run)
    data = read_data(run)
    tables = dict(_tables(found, run, hide))
    changes = ",\nchanges.csv what became of those of the round before" if "changes.csv" in tables else ""
    readme = ZIP_README.format(title=data["title"], n=f"{len(found.images):,}", changes=changes)

    def write(part: Path) -> None:
        with ZipFile(part, "w", ZIP_DEFLATED) as out:

            def put(name: str, content: bytes, how: int = ZIP_DEFLATED) -> None:
                entry = ZipInfo(f"{file.stem}/{name}", ZIP_DATE)
                entry.external_attr = 0o644 << 16
                out.writestr(entry, content, how)

            put("README.txt", readme.encode())
            put("report.html", (run / "report.html").read_bytes())
            put("report/data.js", data_script(redact_page(data, hide)).encode("ascii"))
            for name, content in tables.items():
                put(name, content)
            cells = np.array(data["thumbs"]["cell"], dtype=int)
            for number in np.unique(cells[cells >= 0] // GRID**2):
                name = sheet_name(int(number))
                put(f"report/thumbs/{name}", _zip_content(run / "report" / "thumbs" / name), ZIP_STORED)

    write_output(file, write, overwrite=overwrite)
    return ZipResult(file.stat().st_size, len(data["images"]["path"]), tuple(tables))


def _tables(found: Discovery, run: Path, hide: Redactor) -> Iterator[tuple[str, bytes]]:
    """Name and content of those that a reader can open, accents and all."""
    images = found.images.assign(
        path=[hide.image(str(path)) for path in found.images["path"]],
        problem=[hide(text) for text in found.images["problem"].fillna("").astype(str)],
    )
    images = images.drop(columns=[name for name in PRIVATE_KEYS if name in images])
    if "file" in images:
        images = images.assign(file=[split_box(path)[0] for path in images["path"]])
    if "group" in images:
        images = images.assign(group=[hide(text) for text in images["group"].fillna("").astype(str)])
    yield "assignments.csv", _excel_csv(images, TEXTS)
    names = ("id", "name", "kind", "n", "cohesion", "separation", "nearest", "words", "suggested")
    table = pd.DataFrame({name: [getattr(c, name) for c in found.categories] for name in names})
    table = table.rename(columns={"id": "category_id", "name": "category", "n": "images"})
    table = table.assign(**burst_counts(found.images, [c.id for c in found.categories]))
    yield "categories.csv", _excel_csv(table, ("category_id", "category", "nearest", "words", "suggested"))
    changes = run / "rounds" / str(found.facts.round) / "changes.csv"
    if changes.is_file():
        yield "changes.csv", BOM.encode() + _zip_content(changes)


def _zip_content(file: Path) -> bytes:
    """Of a file of the run, which is no link: else a file from anywhere could be mailed in its place."""
    if file.is_symlink():
        raise InputError(f"{file} is a symbolic link, and what it leads to is not mailed; delete it.")
    return file.read_bytes()


def _excel_csv(frame: pd.DataFrame, texts: Sequence[str]) -> bytes:
    text = io.StringIO()
    write_csv(frame, texts, text)
    return (BOM + text.getvalue()).encode()
