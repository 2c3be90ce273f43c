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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.boxes import BadBox, Box, are_fractions, make_box, parse_numbers, split_box, with_box
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
    **dict.fromkeys(("person", "persons", "people", "human", "humans", "2"), "people"),
    **dict.fromkeys(("vehicle", "vehicles", "3"), "vehicles"),
}
"""What is left out, in small letters, and how it is called."""


@dataclass(frozen=True)
class Detection:
    """A box as it stands in the file."""

    file: str
    """Path of the picture."""
    values: tuple[float, float, float, float]
    """x, y, w, h."""
    fractions: bool
    """Are they shares of the picture's sides? Pixels otherwise."""
    size: tuple[int, int] | None
    """Width and height of the picture in pixels, where the file tells them."""
    number: int
    """Of the box in its picture, from 1."""


@dataclass
class Detections:
    """What a file holds."""

    file: Path
    boxes: list[Detection] = field(default_factory=list)
    pictures: dict[str, None] = field(default_factory=dict)
    """All that it speaks of, with boxes or without."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Boxes by why: people, vehicles, less than 0.2 confidence."""
    failed: int = 0
    """Pictures that the detector could not read."""

    def take(self, detection: Detection, name: str, conf: float | None, least: float, known: bool) -> None:
        """Unless it shows something else, or is not sure enough. known: are all names but animal left out?"""
        self.pictures[detection.file] = None
        other = OTHER_CLASSES.get(name.casefold()) or (name if known and name.casefold() != ANIMAL else "")
        if other:
            self.left_out[other] += 1
        elif conf is not None and not conf >= least:
            self.left_out[f"of less than {least:g} confidence"] += 1
        else:
            self.boxes.append(detection)


def read_detections(file: Path, confidence: float = CONFIDENCE) -> Detections:
    """The boxes of animals, or of whatever a COCO file annotates; people and vehicles are left out and counted."""
    content = _read(file)
    found = Detections(file)
    try:
        images = content if isinstance(content, list) else content["images"]
        if "annotations" in content:
            _from_coco(found, content, confidence)
        elif any("detections" in image or "failure" in image for image in images):
            _from_megadetector(found, content, confidence)
        else:
            raise KeyError("detections")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{file} is neither the output of MegaDetector nor COCO annotations ({type(error).__name__}: {error}); "
            "give a JSON file of one of these."
        ) from error
    return found


def _read(file: Path) -> Any:
    if not file.is_file():
        raise InputError(f"The file {file} of boxes does not exist{suggest_path(file)}; check its name.")
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is not readable JSON ({str(error)[:100]}); export it again.") from error


def _from_megadetector(found: Detections, content: Any, least: float) -> None:
    names: dict[str, str] = {}
    if older := isinstance(content, dict):
        names = NAMES | {str(key): str(name) for key, name in content.get("detection_categories", {}).items()}
        content = content["images"]
    for image in content:
        file = str(image["file"])
        found.pictures[file] = None
        found.failed += bool(image.get("failure"))
        for number, box in enumerate(image.get("detections") or (), start=1):
            x, y, w, h = _values(box)
            values = (x, y, w, h) if older else (x, y, w - x, h - y)  # newer versions write corners
            name = names.get(str(box["category"]), str(box["category"]))
            conf = float(box["conf" if older else "confidence"])
            found.take(Detection(file, values, older, None, number), name, conf, least, known=True)


def _from_coco(found: Detections, content: dict[str, Any], least: float) -> None:
    names = {one["id"]: str(one.get("name", "")) for one in content.get("categories", [])}
    images = {one["id"]: one for one in content["images"]}
    found.pictures = dict.fromkeys(str(one["file_name"]) for one in content["images"])
    number: Counter[str] = Counter()
    ours = HOLOTYPE_FORMAT in str(content.get("info"))
    for one in content["annotations"]:
        if not one.get("bbox"):  # the picture as a whole
            continue
        image = images[one["image_id"]]
        file = str(image["file_name"])
        number[file] += 1
        keys = () if ours else ("score", "conf")
        conf = next((float(one[key]) for key in keys if one.get(key) is not None), None)
        detection = Detection(file, _values(one), False, _size(image), number[file])
        found.take(detection, names.get(one.get("category_id"), ""), conf, least, known=False)


def _values(box: dict[str, Any]) -> tuple[float, float, float, float]:
    x, y, w, h = map(float, box["bbox"])
    return x, y, w, h


def _size(image: dict[str, Any]) -> tuple[int, int] | None:
    width, height = int(image.get("width") or 0), int(image.get("height") or 0)
    return (width, height) if width > 0 and height > 0 else None


def detections_summary(found: Detections) -> Iterator[str]:
    """What was left out, in parts of a sentence."""
    for name, n in found.left_out.most_common():
        if name in ("people", "vehicles"):
            yield plural(n, name.replace("people", "person").removesuffix("s"), name)
        else:
            yield f"{n:,} {name}" if name.startswith("of ") else f"{n:,} of {name}"


WHOLE_IMAGE = Box(0, 0, 1, 1)
"""Of a picture that cannot be read: it will be told as such, and not for its box."""

log = logging.getLogger("holotype")


# -- a column `box` -------------------------------------------------------------------------------------


def read_box_column(
    cells: Sequence[str], files: Sequence[str | None], where: Callable[[int], str], skip: bool
) -> list[str | None]:
    """(n,) each row's picture with its box, None for rows without either.

    cells: x, y, w, h in pixels, or shares where all are at most 1; "" = no box. files: absolute paths, None = the
    picture is missing. where: the place of a row, in words. skip: rows with a bad box are left out instead of refused.
    """
    wanted = [row for row, cell in enumerate(cells) if cell.strip() and files[row] is not None]
    found: list[str | None] = [None] * len(cells)
    given, bad = {}, {}
    for row in wanted:
        try:
            given[row] = parse_numbers(cells[row])
        except BadBox as problem:
            bad[row] = str(problem)
    in_pixels = [str(files[row]) for row, values in given.items() if not are_fractions(values)]
    size = upright_sizes(in_pixels)
    for row, values in given.items():
        file = str(files[row])
        try:
            found[row] = with_box(file, _box(values, size.get(file), are_fractions(values)))
        except BadBox as problem:
            bad[row] = str(problem)
    _report_bad_boxes([f"{where(row)}: {bad[row]}" for row in sorted(bad)], skip)
    return found


def _box(values: Sequence[float], size: tuple[int, int] | None, shares: bool) -> Box:
    return WHOLE_IMAGE if size is None and not shares else make_box(values, None if shares else size)


def _report_bad_boxes(problems: Sequence[str], skip: bool) -> None:
    """Refuse bad boxes in one sentence, or say that they are left out."""
    if not problems:
        return
    text = f"{plural(len(problems), 'bad box', 'bad boxes')} ({'; '.join(problems[:MAX_EXAMPLES])})"
    if skip:
        log.info(f"Left out: {text}.")
        return
    raise InputError(
        f"{text}; a box is x, y, w, h in pixels, or in shares of the picture from 0 to 1: "
        "correct that, or rename a column that holds something else; discover --skip-missing goes on without these."
    )


# -- a file of boxes ------------------------------------------------------------------------------------


def crop_table(table: Table, found: Detections, starts: Sequence[Path], skip: bool) -> Table:
    """The table with a row for each box instead of one for each picture; what has none is left out.

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
        raise InputError(
            f"{found.file} has no box for any picture of {table.name}; check that it is of these images."
        )
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
    """Picture to the paths of its boxes."""
    names, present = list(found.pictures), set(pictures)
    missing = f"pictures that {found.file} names cannot be found here"
    how: dict[str, Any] = {"file": found.file, "missing": missing, "skip": skip}
    files = resolve_images(names, starts, present.__contains__, lambda: pictures, **how)
    file_of_name = {name: file for name, file in zip(names, files, strict=True) if file is not None}
    boxes = [box for box in found.boxes if box.file in file_of_name]
    size = upright_sizes([file_of_name[box.file] for box in boxes if not box.fractions])
    paths: dict[str, list[str]] = {}
    bad = []
    for box in boxes:
        file = file_of_name[box.file]
        try:
            paths.setdefault(file, []).append(with_box(file, _detected_box(box, size.get(file))))
        except BadBox as problem:
            bad.append(f"box {box.number} of {box.file}: {problem}")
    _report_bad_boxes(bad, skip)
    return paths


def _detected_box(box: Detection, size: tuple[int, int] | None) -> Box:
    """size: of the picture as it is now, None where it is not known or cannot be read."""
    if box.size is not None and size is not None and box.size == size[::-1] != size:
        raise BadBox(
            f"it was drawn on a picture of {box.size[0]} x {box.size[1]} pixels, which is {size[0]} x {size[1]} upright"
        )
    return _box(box.values, box.size or size, box.fractions)  # a copy of another size has the same shares


def _log_boxes(found: Detections, paths: Sequence[str], pictures: int) -> None:
    with_boxes = len({split_box(path)[0] for path in paths})
    text = f"{found.file}: {plural(len(paths), 'box', 'boxes')} in {plural(with_boxes, 'picture')}."
    left = list(detections_summary(found))
    if found.failed:
        left.append(f"{plural(found.failed, 'picture')} that the detector could not read")
    if pictures > with_boxes:
        left.append(f"{plural(pictures - with_boxes, 'picture')} without a box")
    log.info(f"{text} Left out: {', '.join(left)}." if left else text)


# -- columns --------------------------------------------------------------------------------------------


def box_columns(paths: Sequence[str]) -> dict[str, np.ndarray]:
    """Of a table of images: (N,) `file`, the picture, and `box` as shares, "" for whole pictures. Empty where there is
    no box."""
    parts = [split_box(path) for path in paths]
    if not any(box for _, box in parts):
        return {}
    return {
        "file": np.array([file for file, _ in parts], dtype=object),
        "box": np.array([box.text if box else "" for _, box in parts], dtype=object),
    }
