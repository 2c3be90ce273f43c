"""Boxes as detectors and annotators write them: MegaDetector's JSON and COCO annotations.

MegaDetector  {"images": [{"file": ..., "detections": [{"category": "1", "conf": 0.9, "bbox": [x, y, w, h]}]}],
              "detection_categories": {"1": "animal", "2": "person", "3": "vehicle"}}, shares of the picture;
              newer versions write the list alone, with "confidence" and the corners in pixels
COCO          {"images": [{"id": ..., "file_name": ...}], "annotations": [{"image_id": ..., "bbox": [x, y, w, h]}],
              "categories": [{"id": ..., "name": ...}]}, pixels
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from holotype.errors import InputError
from holotype.utils.text import suggest_path

OURS = "categories found by Holotype"
"""Ends the description of a COCO file that `holotype write` made: its scores are those of categories, not of boxes."""
CONFIDENCE = 0.2
"""Of a detector below which a box is left out, unless told; MegaDetector's own advice."""
ANIMAL = "animal"
NAMES = {"1": ANIMAL, "2": "person", "3": "vehicle"}
"""What MegaDetector's categories mean where the file does not say."""
OTHERS = {
    **dict.fromkeys(("person", "persons", "people", "human", "humans", "2"), "people"),
    **dict.fromkeys(("vehicle", "vehicles", "3"), "vehicles"),
}
"""What is left out, in small letters, and how it is called."""

ONE = {"people": "person", "vehicles": "vehicle"}

Units = Literal["shares", "pixels", "corners"]


@dataclass(frozen=True)
class Detection:
    """A box as it stands in the file."""

    file: str
    """Path of the picture."""
    values: tuple[float, ...]
    """x, y, w, h; of corners left, top, right, bottom."""
    units: Units
    size: tuple[int, int] | None
    """Width and height of the picture in pixels, where the file tells them."""
    number: int
    """Of the box in its picture, from 1."""

    @property
    def where(self) -> str:
        return f"box {self.number} of {self.file}"


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
        other = OTHERS.get(name.casefold()) or (name if known and name.casefold() != ANIMAL else "")
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
        if isinstance(content, list):
            _from_list(found, content, confidence)
        elif "annotations" in content:
            _from_coco(found, content, confidence)
        elif any("detections" in one or "failure" in one for one in content["images"]):
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


def _from_megadetector(found: Detections, content: dict[str, Any], least: float) -> None:
    names = NAMES | {str(key): str(name) for key, name in content.get("detection_categories", {}).items()}
    for image in content["images"]:
        file = str(image["file"])
        found.pictures[file] = None
        found.failed += bool(image.get("failure"))
        for number, one in enumerate(image.get("detections") or (), start=1):
            detection = Detection(file, _values(one), "shares", None, number)
            name = names.get(str(one["category"]), str(one["category"]))
            found.take(detection, name, float(one["conf"]), least, known=True)


def _from_list(found: Detections, content: list[Any], least: float) -> None:
    for image in content:
        file = str(image["file"])
        found.pictures[file] = None
        for number, one in enumerate(image["detections"] or (), start=1):
            detection = Detection(file, _values(one), "corners", None, number)
            found.take(detection, str(one["category"]), float(one["confidence"]), least, known=True)


def _from_coco(found: Detections, content: dict[str, Any], least: float) -> None:
    names = {one["id"]: str(one.get("name", "")) for one in content.get("categories", [])}
    images = {one["id"]: one for one in content["images"]}
    found.pictures = dict.fromkeys(str(one["file_name"]) for one in content["images"])
    number: Counter[str] = Counter()
    ours = OURS in str(content.get("info"))
    for one in content["annotations"]:
        if not one.get("bbox"):  # the picture as a whole
            continue
        image = images[one["image_id"]]
        file = str(image["file_name"])
        number[file] += 1
        keys = () if ours else ("score", "conf")
        conf = next((float(one[key]) for key in keys if one.get(key) is not None), None)
        detection = Detection(file, _values(one), "pixels", _size(image), number[file])
        found.take(detection, names.get(one.get("category_id"), ""), conf, least, known=False)


def _values(one: dict[str, Any]) -> tuple[float, ...]:
    values = tuple(float(value) for value in one["bbox"])
    if len(values) != 4:
        raise ValueError(f"bbox {one['bbox']} is not four numbers")
    return values


def _size(image: dict[str, Any]) -> tuple[int, int] | None:
    width, height = int(image.get("width") or 0), int(image.get("height") or 0)
    return (width, height) if width > 0 and height > 0 else None


def told(found: Detections) -> Iterator[str]:
    """What was left out, in parts of a sentence."""
    for name, n in found.left_out.most_common():
        if n == 1 and name in ONE:
            yield f"1 {ONE[name]}"
        else:
            yield f"{n:,} {name}" if name.startswith("of ") or name in ONE else f"{n:,} of {name}"
