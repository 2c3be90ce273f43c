"""Predictions for tools in which people label images: Label Studio, CVAT and FiftyOne.

Label Studio takes tasks with `predictions` (https://labelstud.io/guide/predictions), and the labelling interface that
stands beside them. CVAT takes its own XML, "CVAT for images 1.1", in which a label that a program gave has the source
`auto`. FiftyOne reads FiftyOneImageClassificationDataset. What people say in the first two comes back as edits
(results/annotated.py). The score is the model's probability, and 1 where a person has said what an image shows.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from holotype.data.boxes import Box
from holotype.data.exif import read_headers
from holotype.export.results_table import ResultsTable, read_results_table
from holotype.results.annotated import FROM_NAME, IMAGE_KEY, LOCAL_FILES, RUN_KEY
from holotype.utils.atomic import refuse_existing, write_output
from holotype.utils.text import plural


@dataclass(frozen=True)
class PredictionsResult:
    """What was written."""

    images: int
    categories: int
    unread: int
    """Images that are not in it, because they cannot be read or their files are gone."""
    next: str
    """What to do with it, in a sentence."""

    def summary(self, out: Path) -> str:
        """Describe in lines what was written to `out`."""
        lines = [
            f"{plural(self.images, 'image')}, {plural(self.categories, 'category', 'categories')}: {out}"
        ]
        if self.unread:
            lines.append(f"{plural(self.unread, 'image')} left out: unreadable, or the files are gone.")
        return "\n".join([*lines, self.next])


@dataclass(frozen=True)
class Picture:
    """A file with what it shows: one prediction, or one for each of its boxes."""

    name: str
    """From the folder of the images."""
    width: int
    height: int
    shown: list[tuple[str, float, Box | None]]
    """Name of the category, score (NaN = none), and the box."""


def read_pictures(results: ResultsTable, progress: bool) -> list[Picture]:
    """Return the pictures of a run that can be read, with the images that are in a category."""
    rows = (row for row in range(len(results)) if not results.problem[row])
    pictures = results.pictures(rows)
    heads = zip(pictures, read_headers(list(pictures), progress), strict=True)

    def shown(row: int) -> tuple[str, float, Box | None]:
        score = 1.0 if results.by_hand[row] else results.probability[row]
        return results.category[row], score, results.parts[row][1]

    return [
        Picture(
            results.below_root(name),
            head.width,
            head.height,
            [shown(row) for row in pictures[name] if results.category[row]],
        )
        for name, head in heads
        if head.width
    ]


def _result(results: ResultsTable, pictures: list[Picture], what: str) -> PredictionsResult:
    n = sum(max(len(one.shown), 1) for one in pictures)
    return PredictionsResult(n, len(results.found.categories), max(len(results) - n, 0), what)


def write_label_studio(
    run: Path, file: Path, *, overwrite: bool = False, progress: bool = False
) -> PredictionsResult:
    """Write tasks with predictions, and NAME.config.xml beside them. Args as in `write_coco`."""
    refuse_existing(file, overwrite, (".json",))
    config = file.with_name(f"{file.stem}.config.xml")
    refuse_existing(config, overwrite, (".xml",))
    results = read_results_table(run, need_files=True)
    pictures = read_pictures(results, progress)
    boxed = any(box for one in pictures for _, _, box in one.shown)
    tasks = [_task(results, one, boxed) for one in pictures]
    names = [category.name for category in results.found.categories]
    _write_text(config, label_studio_config(names, boxed), overwrite)
    _write_text(file, json.dumps(tasks, ensure_ascii=False, indent=1, allow_nan=False) + "\n", overwrite)
    root = results.found.facts.root
    return _result(
        results,
        pictures,
        f"The labelling interface is {config}. Start Label Studio with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true "
        f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={os.path.dirname(root) or '/'}, add {root} as local storage without "
        f"syncing it, and import the tasks; then holotype report {run} --edits EXPORT.json.",
    )


def label_studio_config(names: list[str], boxed: bool) -> str:
    """Return the labelling interface: one choice per image, or labelled boxes."""
    view = ET.Element("View")
    ET.SubElement(view, "Image", name="image", value="$image")
    group = "RectangleLabels" if boxed else "Choices"
    labels = ET.SubElement(view, group, name=FROM_NAME, toName="image")
    for name in names:
        ET.SubElement(labels, "Label" if boxed else "Choice", value=name)
    ET.indent(view)
    return ET.tostring(view, encoding="unicode") + "\n"


def _task(results: ResultsTable, picture: Picture, boxed: bool) -> dict[str, Any]:
    scores = [score for _, score, _ in picture.shown if math.isfinite(score)]
    made = [_choice(number, picture, one, boxed) for number, one in enumerate(picture.shown)]
    model: dict[str, Any] = {"model_version": f"holotype {results.found.run_id}", "result": made}
    if scores:
        model["score"] = round(min(scores), 6)
    return {
        "data": {
            # Label Studio serves folders below its document root, and not the root itself
            "image": LOCAL_FILES + quote(f"{os.path.basename(results.found.facts.root)}/{picture.name}"),
            IMAGE_KEY: picture.name,
            RUN_KEY: results.found.run_id,
        },
        "predictions": [model] if made else [],
    }


def _choice(
    number: int, picture: Picture, shown: tuple[str, float, Box | None], boxed: bool
) -> dict[str, Any]:
    name, score, box = shown
    one: dict[str, Any] = {"id": f"{number}", "from_name": FROM_NAME, "to_name": "image"}
    if math.isfinite(score):
        one["score"] = round(score, 6)
    if not boxed:
        return one | {"type": "choices", "value": {"choices": [name]}}
    x, y, w, h = (0.0, 0.0, 1.0, 1.0) if box is None else (box.x, box.y, box.w, box.h)
    value = {"x": 100 * x, "y": 100 * y, "width": 100 * w, "height": 100 * h, "rotation": 0}
    size = {"original_width": picture.width, "original_height": picture.height, "image_rotation": 0}
    return one | size | {"type": "rectanglelabels", "value": {**value, "rectanglelabels": [name]}}


def write_cvat(
    run: Path, file: Path, *, overwrite: bool = False, progress: bool = False
) -> PredictionsResult:
    """Write an XML file in the form "CVAT for images 1.1". Args as in `write_coco`."""
    refuse_existing(file, overwrite, (".xml",))
    results = read_results_table(run, need_files=True)
    pictures = read_pictures(results, progress)
    names = [category.name for category in results.found.categories]
    top = ET.Element("annotations")
    ET.SubElement(top, "version").text = "1.1"
    task = ET.SubElement(ET.SubElement(top, "meta"), "task")
    ET.SubElement(task, "name").text = f"{results.title} {results.found.run_id}"
    labels = ET.SubElement(task, "labels")
    for name in names:
        label = ET.SubElement(labels, "label")
        ET.SubElement(label, "name").text = name
        attribute = ET.SubElement(ET.SubElement(label, "attributes"), "attribute")
        facts = {
            "name": "confidence",
            "mutable": "False",
            "input_type": "text",
            "default_value": "",
            "values": "",
        }
        for key, value in facts.items():
            ET.SubElement(attribute, key).text = value
    for number, picture in enumerate(pictures):
        top.append(_cvat_image(number, picture))
    ET.indent(top)
    _write_text(
        file, '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(top, encoding="unicode"), overwrite
    )
    return _result(
        results,
        pictures,
        "In CVAT: make a task of the same images with these labels, Upload annotations, CVAT 1.1. Export it as CVAT "
        f"for images 1.1; then holotype report {run} --edits annotations.xml.",
    )


def _cvat_image(number: int, picture: Picture) -> ET.Element:
    size = {"width": str(picture.width), "height": str(picture.height)}
    image = ET.Element("image", {"id": str(number), "name": picture.name, **size})
    for name, score, box in picture.shown:
        if box is None:
            made = ET.SubElement(image, "tag", label=name, source="auto")
        else:
            x, y, w, h = box.pixels((picture.width, picture.height))
            ends = {"xtl": x, "ytl": y, "xbr": x + w, "ybr": y + h}
            corners = {key: f"{value:.2f}" for key, value in ends.items()}
            facts = {"label": name, "source": "auto", "occluded": "0", **corners, "z_order": "0"}
            made = ET.SubElement(image, "box", facts)
        if math.isfinite(score):
            ET.SubElement(made, "attribute", name="confidence").text = f"{score:.4f}"
    return image


def write_fiftyone(
    run: Path, file: Path, *, overwrite: bool = False, progress: bool = False
) -> PredictionsResult:
    """Write the labels of a FiftyOneImageClassificationDataset, whose images stay where they are. Args as in
    `write_coco`; boxes are left out, since that form has one label for an image."""
    refuse_existing(file, overwrite, (".json",))
    results = read_results_table(run, need_files=True)
    pictures = read_pictures(results, progress)
    labels = dict(_fiftyone_labels(pictures))
    content = {"classes": [category.name for category in results.found.categories], "labels": labels}
    _write_text(file, json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n", overwrite)
    return _result(
        results,
        pictures,
        "In Python: fo.Dataset.from_dir(dataset_type=fo.types.FiftyOneImageClassificationDataset, "
        f"data_path={results.found.facts.root!r}, labels_path={str(file)!r})",
    )


def _fiftyone_labels(pictures: list[Picture]) -> Iterator[tuple[str, dict[str, Any]]]:
    for picture in pictures:
        for name, score, box in picture.shown:
            if box is None:
                sure = {"confidence": round(score, 6)} if math.isfinite(score) else {}
                yield os.path.splitext(picture.name)[0], {"label": name, **sure}


def _write_text(file: Path, text: str, overwrite: bool) -> None:
    write_output(file, lambda part: part.write_text(text, encoding="utf-8"), overwrite=overwrite)
