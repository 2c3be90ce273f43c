"""What people said in Label Studio or CVAT, as edits of the run that the images come from.

An image whose label is the category that it lies in is confirmed; with another label it is moved. What a program gave
and nobody touched says nothing: predictions in Label Studio, and the source `auto` in CVAT.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from holotype.data.paths import relative
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, read_edits, run_ids
from holotype.utils.text import nfc

FROM_NAME, IMAGE_KEY, RUN_KEY = "category", "path", "holotype_run"
LOCAL_FILES = "/data/local-files/?d="
"""By which Label Studio serves images of its own machine."""
MAX_LABEL = 200


class Annotation(NamedTuple):
    """One answer of a person."""

    image: str
    """As the tool calls it."""
    label: str
    time: str
    """ISO 8601, "" = not told."""
    run_id: str = ""
    """Of the run that the tool was given the image by, "" = not told."""


def read_corrections(folder: Path, file: Path) -> list[Edit]:
    """Return the edits in a file: of the report, or what Label Studio (.json) or CVAT (.xml) exported."""
    readers = {".json": _label_studio, ".xml": _cvat}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        return read_edits(file)
    if not file.is_file():
        raise InputError(f"{file} is not a file; name what Label Studio or CVAT exported.")
    try:
        said = [one for one in map(_tidy, reader(file)) if one.label]
    except (ValueError, KeyError, TypeError, AttributeError, ET.ParseError, OSError) as error:
        tool = "Label Studio (JSON)" if reader is _label_studio else "CVAT (images 1.1)"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{file} is no export of {tool} ({reason}); export it again.") from error
    return _as_edits(folder, file, said)


def _tidy(said: Annotation) -> Annotation:
    """Return an answer with its label as names are written; one without a sign says nothing."""
    if not isinstance(said.label, str) or len(said.label) > MAX_LABEL:
        raise ValueError(f"a label is no text of up to {MAX_LABEL} signs")
    return said._replace(label=nfc(" ".join(said.label.split())))


def _as_edits(folder: Path, file: Path, said: list[Annotation]) -> list[Edit]:
    found = Discovery.load(folder)
    paths = [str(path) for path in found.images["path"]]
    row = {name: at for at, name in enumerate(relative(paths, found.facts.root))}
    lies = found.images["category_id"].fillna("").tolist()
    called = {category.id: category.name for category in found.categories}
    rows = [(one, row[name]) for one in said if (name := _known_name(one.image, row)) is not None]
    if said and not rows:
        raise InputError(
            f"None of the {len(said):,} labelled images of {file} is among those of {folder}, for example "
            f"{said[0].image}; it is an export of another project."
        )
    runs = run_ids(folder)
    if others := {one.run_id for one, _ in rows if one.run_id and one.run_id not in runs}:
        raise InputError(
            f"The tasks of {file} were written from another run ({min(others)}), whose images have names of this one; "
            "name the folder of that run."
        )
    now = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")
    edits, digests = [], found.digests
    for one, at in rows:
        same = one.label in (lies[at], called.get(lies[at]))
        action, value = ("confirm", lies[at]) if same else ("move", one.label)
        run = one.run_id if one.run_id in runs else runs[0]
        edits.append(Edit(run, one.time or now, action, paths[at], lies[at], value, digests[at]))
    return edits


def _known_name(image: str, there: Container[str]) -> str | None:
    """The name of an image in the run: as the tool has it, or without the folders in front that the tool has added."""
    parts = image.replace("\\", "/").split("/")
    return next((name for at in range(len(parts)) if (name := "/".join(parts[at:])) in there), None)


def _label_studio(file: Path) -> Iterator[Annotation]:
    """Read the JSON export: the latest annotation of each task that was not skipped."""
    tasks: Any = json.loads(file.read_bytes())
    if not isinstance(tasks, list):
        raise TypeError("it holds no list of tasks")
    for task in tasks:
        data, told = task["data"], [a for a in task.get("annotations") or () if not a.get("was_cancelled")]
        for answer in sorted(told, key=_time)[-1:]:
            image = data.get(IMAGE_KEY) or unquote(str(data["image"]).removeprefix(LOCAL_FILES))
            for one in answer["result"]:
                if one["type"] == "choices" and one["value"]["choices"]:
                    yield Annotation(
                        image, one["value"]["choices"][0], _time(answer), str(data.get(RUN_KEY, ""))
                    )


def _time(answer: dict[str, Any]) -> str:
    return str(answer.get("updated_at") or answer.get("created_at") or "")


def _cvat(file: Path) -> Iterator[Annotation]:
    """Read CVAT for images 1.1: the tags of images that a person has given or changed."""
    top = ET.parse(file).getroot()
    if top.tag != "annotations":
        raise ValueError(f"it begins with <{top.tag}>")
    for image in top.iter("image"):
        for tag in image.findall("tag"):
            if tag.get("source", "manual") != "auto":
                yield Annotation(image.attrib["name"], tag.attrib["label"], "")
