"""Detections: boxes from MegaDetector, COCO or a list, as rows of a table.

MegaDetector  {"images": [{"file": ..., "detections": [{"category": "1", "conf": 0.9, "bbox": [x, y, w, h]}]}],
              "detection_categories": {"1": "animal", "2": "person", "3": "vehicle"}}, shares of the picture;
              newer versions write the list alone, with "confidence" and the corners in pixels
COCO          {"images": [{"id": ..., "file_name": ...}], "annotations": [{"image_id": ..., "bbox": [x, y, w, h]}],
              "categories": [{"id": ..., "name": ...}]}, pixels
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.boxes import BadBox, Box, make_box, parse_numbers, split_box, with_box
from holotype.data.exif import upright_sizes
from holotype.data.paths import MAX_EXAMPLES, resolve_images
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.text import plural, suggest_path

HOLOTYPE_FORMAT = "categories found by Holotype"
"""Ends the description of a COCO file that `holotype write` made: its scores are those of categories, not of boxes."""
CONFIDENCE = 0.2
"""Of a detector below which a box is left out, unless told; MegaDetector's own advice."""
ANIMAL = "animal"
NAMES = {"1": ANIMAL, "2": "person", "3": "vehicle"}
"""What MegaDetector's categories mean where the file does not say."""
OTHER_CLASSES = {
    **dict.fromkeys(("person", "persons", "people", "human", "humans", "2"), "person"),
    **dict.fromkeys(("vehicle", "vehicles", "3"), "vehicle"),
}
"""What is left out, in small letters, and how it is called."""
WHOLE_IMAGE = Box(0, 0, 1, 1)
"""Of a picture that cannot be read: it will be told as such, and not for its box."""

log = logging.getLogger("holotype")


@dataclass(frozen=True)
class Detection:
    """A box as it stands in a file."""

    file: str
    """Path of the picture."""
    values: tuple[float, float, float, float]
    """x, y, w, h."""
    fractions: bool
    """Are they shares of the picture's sides? Pixels otherwise."""
    where: str
    """Its place in the file, in words."""
    size: tuple[int, int] | None = None
    """Width and height of the picture in pixels, where the file tells them."""


@dataclass
class Detections:
    """What a file holds."""

    file: Path
    least: float
    """Confidence from which on a box counts."""
    boxes: list[Detection] = field(default_factory=list)
    pictures: dict[str, None] = field(default_factory=dict)
    """All that it speaks of, with boxes or without."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Boxes of other things by what they show: person, vehicle."""
    unsure: int = 0
    """Boxes of too little confidence."""
    failed: int = 0
    """Pictures that the detector could not read."""

    def take(self, detection: Detection, name: str, conf: float | None, animals: bool) -> None:
        """Add a box, unless it shows something else, or is not sure enough. animals: do all other names count as
        something else?"""
        other = OTHER_CLASSES.get(name.casefold()) or (name if animals and name.casefold() != ANIMAL else "")
        if other:
            self.left_out[other] += 1
        elif conf is not None and not conf >= self.least:
            self.unsure += 1
        else:
            self.boxes.append(detection)


def read_detections(file: Path, confidence: float = CONFIDENCE) -> Detections:
    """Return the boxes of animals, or of whatever a COCO file annotates; people and vehicles are left out and
    counted."""
    if not file.is_file():
        raise InputError(f"The file {file} of boxes does not exist{suggest_path(file)}; check its name.")
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is not readable JSON ({str(error)[:100]}); export it again.") from error
    found = Detections(file, confidence)
    try:
        images = content if isinstance(content, list) else content["images"]
        if "annotations" in content:
            _from_coco(found, content)
        elif any("detections" in image or "failure" in image for image in images):
            _from_megadetector(found, content)
        else:
            raise KeyError("detections")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}"
        raise InputError(f"{file} is neither MegaDetector's nor COCO ({said}); give such.") from error
    return found


def _from_megadetector(found: Detections, content: Any) -> None:
    names: dict[str, str] = {}
    if older := isinstance(content, dict):
        names = NAMES | {str(key): str(name) for key, name in content.get("detection_categories", {}).items()}
        content = content["images"]
    for image in content:
        file = str(image["file"])
        found.pictures[file] = None
        found.failed += bool(image.get("failure"))
        for number, box in enumerate(image.get("detections") or (), start=1):
            x, y, w, h = map(float, box["bbox"])
            values = (x, y, w, h) if older else (x, y, w - x, h - y)  # newer versions write corners
            name = names.get(str(box["category"]), str(box["category"]))
            conf = float(box["conf" if older else "confidence"])
            found.take(Detection(file, values, older, f"box {number} of {file}"), name, conf, animals=True)


def _from_coco(found: Detections, content: dict[str, Any]) -> None:
    names = {one["id"]: str(one.get("name", "")) for one in content.get("categories", [])}
    images = {one["id"]: one for one in content["images"]}
    found.pictures = dict.fromkeys(str(one["file_name"]) for one in content["images"])
    number: Counter[str] = Counter()
    scores = () if HOLOTYPE_FORMAT in str(content.get("info")) else ("score", "conf")
    for one in content["annotations"]:
        if not one.get("bbox"):  # the picture as a whole
            continue
        image = images[one["image_id"]]
        file = str(image["file_name"])
        number[file] += 1
        x, y, w, h = map(float, one["bbox"])
        width, height = int(image.get("width") or 0), int(image.get("height") or 0)
        size = (width, height) if width > 0 and height > 0 else None
        conf = next((float(one[key]) for key in scores if one.get(key) is not None), None)
        detection = Detection(file, (x, y, w, h), False, f"box {number[file]} of {file}", size)
        found.take(detection, names.get(one.get("category_id"), ""), conf, animals=False)


def read_box_column(
    cells: Sequence[str], files: Sequence[str | None], where: Callable[[int], str], skip: bool
) -> list[str | None]:
    """Return (n,) each row's picture with its box, None for rows without either.

    cells: x, y, w, h in pixels, or shares where all are at most 1; "" = no box. files: absolute paths, None = the
    picture is missing. where: the place of a row, in words. skip: rows with a bad box are left out instead of refused.
    """
    boxes, bad = {}, {}
    for row, (cell, file) in enumerate(zip(cells, files, strict=True)):
        if file is not None and cell.strip():
            try:
                values = parse_numbers(cell)
                fractions = all(value <= 1 for value in values)  # a box of one pixel is nobody's
                boxes[row] = Detection(file, values, fractions, where(row))
            except BadBox as problem:
                bad[row] = f"{where(row)}: {problem}"
    paths = _box_paths(boxes, bad, skip)
    return [paths.get(row) for row in range(len(cells))]


def _box_paths(boxes: Mapping[int, Detection], bad: dict[int, str], skip: bool) -> dict[int, str]:
    """Return the paths of boxes by their rows. bad: what is wrong with others; all are refused in one sentence, or
    said to be left out."""
    size = upright_sizes([box.file for box in boxes.values() if not box.fractions])
    paths = {}
    for row, box in boxes.items():
        try:
            paths[row] = with_box(box.file, _to_box(box, size.get(box.file)))
        except BadBox as problem:
            bad[row] = f"{box.where}: {problem}"
    if not bad:
        return paths
    examples = "; ".join(bad[row] for row in sorted(bad)[:MAX_EXAMPLES])
    text = f"{plural(len(bad), 'bad box', 'bad boxes')} ({examples})"
    if not skip:
        rule = "a box is x, y, w, h in pixels, or in shares of the picture from 0 to 1"
        raise InputError(f"{text}; {rule}: correct that, or leave these out with --skip-missing.")
    log.info(f"Left out: {text}.")
    return paths


def _to_box(box: Detection, size: tuple[int, int] | None) -> Box:
    """Return the box. size: of the picture as it is now, None where it is not known or cannot be read."""
    if box.fractions:
        return make_box(box.values, None)
    if box.size is not None and size is not None and box.size == size[::-1] != size:
        drawn, upright = (f"{width} x {height}" for width, height in (box.size, size))
        raise BadBox(f"it was drawn on a picture of {drawn} pixels, which is {upright} upright")
    drawn_on = box.size or size  # a copy of another size has the same shares
    return WHOLE_IMAGE if drawn_on is None else make_box(box.values, drawn_on)


def crop_table(table: Table, found: Detections, starts: Sequence[Path], skip: bool) -> Table:
    """Return the table with a row for each box instead of one for each picture; what has none is left out.

    A box has the label of its picture, unless the table holds that very box already. Boxes that are in the table alone
    stay. starts: folders that paths in the file may start at. skip: pictures that are missing, and bad boxes, are left
    out instead of refused.
    """
    rows_of: dict[str, dict[str, int]] = {}
    """Picture to its boxes in the table, and their rows."""
    whole: dict[str, int] = {}
    for row, path in enumerate(table.path):
        file, box = split_box(path)
        (rows_of.setdefault(file, {}) if box else whole)[path] = row
        rows_of.setdefault(file, {})
    boxes = _resolve_boxes(found, list(rows_of), starts, skip)
    rows, paths, unlabelled = [], [], []
    for file, listed in rows_of.items():
        for path in dict.fromkeys((*boxes.get(file, ()), *listed)):
            rows.append(listed.get(path, whole.get(file, next(iter(listed.values()), 0))))
            paths.append(path)
            # the row of another box of the picture tells no label
            unlabelled.append(path not in listed and file not in whole)
    if not paths:
        raise InputError(f"{found.file} has no box for any picture of {table.name}; give another file.")
    cut = table.take(rows, np.array(paths, dtype=object))
    label = np.where(unlabelled, "", cut.label)
    gone = [name for name in cut.known if name not in set(label)]
    _log_boxes(found, paths, len(rows_of))
    used = Counter(rows)
    if several := sum(used[row] > 1 and table.label[row] != "" for row in whole.values()):
        log.info(f"Each box of {plural(several, 'labelled picture')} with several boxes takes the label.")
    if gone:
        names = ", ".join(gone[:MAX_EXAMPLES]) + (", ..." if len(gone) > MAX_EXAMPLES else "")
        log.info(f"Left out: {plural(len(gone), 'class', 'classes')} without a labelled box ({names}).")
    return replace(cut, label=label, known=tuple(name for name in cut.known if name not in gone))


def _resolve_boxes(
    found: Detections, pictures: Sequence[str], starts: Sequence[Path], skip: bool
) -> dict[str, list[str]]:
    """Return picture to the paths of its boxes."""
    names = list(found.pictures)
    missing = f"pictures that {found.file} names cannot be found here"
    how: dict[str, Any] = {"file": found.file, "missing": missing, "skip": skip}
    files = resolve_images(names, starts, set(pictures).__contains__, lambda: pictures, **how)
    file_of_name = {name: file for name, file in zip(names, files, strict=True) if file is not None}
    kept = [box for box in found.boxes if box.file in file_of_name]
    boxes = {row: replace(box, file=file_of_name[box.file]) for row, box in enumerate(kept)}
    paths: dict[str, list[str]] = {}
    for row, path in _box_paths(boxes, {}, skip).items():
        paths.setdefault(boxes[row].file, []).append(path)
    return paths


def _log_boxes(found: Detections, paths: Sequence[str], pictures: int) -> None:
    with_boxes = len({split_box(path)[0] for path in paths})
    left = [plural(n, name) for name, n in found.left_out.most_common()]
    if found.unsure:
        left.append(f"{found.unsure:,} of less than {found.least:g} confidence")
    if found.failed:
        left.append(f"{plural(found.failed, 'picture')} that the detector could not read")
    if pictures > with_boxes:
        left.append(f"{plural(pictures - with_boxes, 'picture')} without a box")
    text = f"{found.file}: {plural(len(paths), 'box', 'boxes')} in {plural(with_boxes, 'picture')}."
    log.info(f"{text} Left out: {', '.join(left)}." if left else text)


def box_columns(paths: Sequence[str]) -> dict[str, np.ndarray]:
    """Return columns of a table of images: (N,) `file`, the picture, and `box` as shares, "" for whole pictures; none
    where there is no box."""
    parts = [split_box(path) for path in paths]
    if not any(box for _, box in parts):
        return {}
    return {
        "file": np.array([file for file, _ in parts], dtype=object),
        "box": np.array([box.text if box else "" for _, box in parts], dtype=object),
    }
