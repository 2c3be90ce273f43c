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
from typing import Any

from holotype import __version__
from holotype.data.detections import HOLOTYPE_FORMAT
from holotype.data.exif import read_headers
from holotype.export.results_table import KINDS, ResultsTable, read_results_table
from holotype.utils.atomic import refuse_existing, write_output
from holotype.utils.text import plural


@dataclass(frozen=True)
class CocoResult:
    """Counts of what was written."""

    images: int
    annotations: int
    categories: int
    unread: int
    """Images that are not in it, because they cannot be read or their files are gone."""

    def summary(self, out: Path) -> str:
        """Describe in lines what was written to `out`."""
        counts = plural(self.images, "image"), plural(self.annotations, "annotation")
        text = f"{', '.join(counts)}, {plural(self.categories, 'category', 'categories')}: {out}"
        if self.unread:
            text += f"\n{plural(self.unread, 'image')} left out: unreadable, or the files are gone."
        return text


def write_coco(run: Path, file: Path, *, overwrite: bool = False, progress: bool = False) -> CocoResult:
    """Write one JSON file of all images of a run that can be read; those that were rejected have no annotation.

    Args:
        run: Folder of the run.
        file: Path of the JSON file.
        overwrite: Replace `file` where it exists.
        progress: Show a progress bar.

    Returns:
        Counts of what was written.
    """
    refuse_existing(file, overwrite, (".json",))  # before the heads of all images are read
    results = read_results_table(run, need_files=True)
    pictures = results.pictures(row for row in range(len(results)) if not results.problem[row])
    heads = zip(pictures, read_headers(list(pictures), progress), strict=True)
    size = {picture: (head.width, head.height) for picture, head in heads if head.width}
    rows = sorted(row for picture in size for row in pictures[picture])
    ids = {category.id: number for number, category in enumerate(results.found.categories, start=1)}
    placed = [row for row in rows if results.category_id[row] in ids]
    categories = (
        {"id": ids[one.id], "name": one.name, "supercategory": KINDS[one.kind]}
        for one in results.found.categories
    )
    # an image's id is its place in the collection, from 1
    number = {picture: pictures[picture][0] + 1 for picture in size}
    images = (
        {"id": number[name], "file_name": results.below_root(name), "width": width, "height": height}
        for name, (width, height) in size.items()
    )
    annotations = _annotation_rows(results, placed, ids, number, size)

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(f'{{"info":{_json_value(coco_info(results))},\n"licenses":[]')
            for key, items in (("categories", categories), ("images", images), ("annotations", annotations)):
                stream.write(f',\n"{key}":[')  # one item per line, without a copy of the whole in memory
                stream.writelines(f"{',' if n else ''}\n{_json_value(item)}" for n, item in enumerate(items))
                stream.write("]")
            stream.write("\n}\n")

    write_output(file, write, overwrite=overwrite)
    return CocoResult(len(size), len(placed), len(ids), len(results) - len(rows))


def coco_info(results: ResultsTable) -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "year": now.year,
        "version": results.found.run_id,
        "description": f"{results.title}: {HOLOTYPE_FORMAT} {__version__}",
        "contributor": "",
        "url": "",
        "date_created": now.strftime("%Y/%m/%d"),
    }


def _annotation_rows(
    results: ResultsTable,
    rows: Iterable[int],
    ids: dict[str, int],
    number: dict[str, int],
    size: dict[str, tuple[int, int]],
) -> Iterator[dict[str, Any]]:
    """Yield the annotations of rows. ids, number, size: by category, and by picture.

    score is the model's probability; 1 where a person has said what the image shows.
    """
    for id, row in enumerate(rows, start=1):
        picture, box = results.parts[row]
        whole: tuple[float, ...] = (0, 0, *size[picture])
        x, y, w, h = whole if box is None else (round(value, 4) for value in box.pixels(size[picture]))
        one = {
            "id": id,
            "image_id": number[picture],
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


def _json_value(item: dict[str, Any]) -> str:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
