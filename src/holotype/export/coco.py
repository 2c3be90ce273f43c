"""The results of a run as COCO JSON: the object detection annotations of https://cocodataset.org/#format-data.

A picture has one annotation, whose box is the whole of it, or one for each of its boxes. `score` is no part of that
format, but of COCO's results, and readers pass over what they do not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from holotype import __version__
from holotype.data.detections import HOLOTYPE_FORMAT
from holotype.errors import InputError
from holotype.export.image_header import read_headers
from holotype.export.results_table import ResultsTable, read_results_table
from holotype.results.discovery import Category
from holotype.utils.atomic import refuse_existing, write_output

SUPERCATEGORY = {"known": "known", "novel": "new"}


@dataclass(frozen=True)
class CocoResult:
    """What was written."""

    images: int
    annotations: int
    categories: int
    unread: int
    """Images that are not in it, because they cannot be read or their files are gone."""


def write_coco(run: Path, file: Path, *, overwrite: bool = False, progress: bool = False) -> CocoResult:
    """One JSON file of all images that can be read; those that were rejected have no annotation."""
    if file.suffix.lower() != ".json":
        raise InputError(f"COCO is written as .json, not as {file.name!r}.")
    results = read_results_table(run)
    results.check_files()
    refuse_existing(file, overwrite)  # before the heads of all images are read
    size = image_sizes(results, progress)
    rows = np.flatnonzero(size[:, 0] > 0).tolist()
    categories = list(enumerate(results.found.categories, start=1))
    ids = {category.id: number for number, category in categories}
    placed = [row for row in rows if results.category_id[row] in ids]
    pictures = first_rows(results, rows)

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(f'{{"info":{_json_value(coco_info(results))},\n"licenses":[],\n')
            _write_list(stream, "categories", (_category_row(*one) for one in categories), ",")
            _write_list(stream, "images", (_image_row(results, size, row) for row in pictures.values()), ",")
            _write_list(stream, "annotations", _annotation_rows(results, size, placed, ids, pictures), "")
            stream.write("}\n")

    write_output(file, write, overwrite=overwrite)
    return CocoResult(len(pictures), len(placed), len(ids), len(results) - len(rows))


def first_rows(results: ResultsTable, rows: Iterable[int]) -> dict[str, int]:
    """Picture to the first of its rows."""
    found: dict[str, int] = {}
    for row in rows:
        found.setdefault(results.parts[row][0], row)
    return found


def image_sizes(results: ResultsTable, progress: bool) -> np.ndarray:
    """(N, 2) width and height of the pictures in pixels, upright; 0 for those that cannot be read."""
    size = np.zeros((len(results), 2), dtype=np.int32)
    rows = [row for row, here in enumerate(results.there) if here and not results.problem[row]]
    pictures = list(first_rows(results, rows))
    heads = dict(zip(pictures, read_headers(pictures, progress), strict=True))
    for row in rows:
        head = heads[results.parts[row][0]]
        size[row] = head.width, head.height
    return size


def coco_info(results: ResultsTable) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "year": now.year,
        "version": results.found.run_id,
        "description": f"{results.found.facts.title or results.run.name}: {HOLOTYPE_FORMAT} {__version__}",
        "contributor": "",
        "url": "",
        "date_created": now.strftime("%Y/%m/%d"),
    }


def _category_row(number: int, category: Category) -> dict[str, Any]:
    return {"id": number, "name": category.name, "supercategory": SUPERCATEGORY[category.kind]}


def _image_row(results: ResultsTable, size: np.ndarray, row: int) -> dict[str, Any]:
    """An image's id is its place in the collection, from 1; its name starts at the folder of the images."""
    (width, height), name = size[row].tolist(), results.below_root(results.parts[row][0])
    return {"id": row + 1, "file_name": name, "width": width, "height": height}


def _annotation_rows(
    results: ResultsTable,
    size: np.ndarray,
    rows: Iterable[int],
    ids: dict[str, int],
    pictures: dict[str, int],
) -> Iterator[dict[str, Any]]:
    """score: the model's probability; 1 where a person has said what the image shows. pictures: of first_rows."""
    for number, row in enumerate(rows, start=1):
        width, height = size[row].tolist()
        file, box = results.parts[row]
        whole: tuple[float, ...] = (0, 0, width, height)
        x, y, w, h = whole if box is None else (round(value, 4) for value in box.pixels((width, height)))
        one = {
            "id": number,
            "image_id": pictures[file] + 1,
            "category_id": ids[results.category_id[row]],
            "bbox": [x, y, w, h],
            "area": round(w * h, 4),
            "segmentation": [[round(v, 4) for v in (x, y, x + w, y, x + w, y + h, x, y + h)]],
            "iscrowd": 0,
        }
        probability = 1.0 if results.by_hand[row] else results.probability[row]
        if math.isfinite(probability):  # a method may have none
            one["score"] = round(probability, 6)
        yield one


def _write_list(stream: TextIO, key: str, items: Iterable[dict[str, Any]], end: str) -> None:
    """Write a list, one item per line, without a copy of the whole in memory."""
    stream.write(f'"{key}":[')
    stream.writelines(f"{',' if number else ''}\n{_json_value(item)}" for number, item in enumerate(items))
    stream.write(f"]{end}\n")


def _json_value(item: dict[str, Any]) -> str:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
