"""Redact reports: without names and paths of the machine, for handing on.

Images are called by short names, from which edits that come back find their way (`short_names` gives the same again).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from holotype.data.paths import is_address, relative

PRIVATE_KEYS = ("place", "latitude", "longitude")
"""Of the images: where a rare animal lives is for its owner to tell."""
ABSOLUTE_PATH = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:[\\/]|~?/)[^\s'\"(),;]*")
"""A path in a sentence, as far as it has no blanks."""
URL_PATTERN = re.compile(r"\b(?:s3|gs|gcs|abfss?|hf)://[^\s'\"(),;]*")
"""The same of an object in a store."""


def short_names(paths: Sequence[str], root: str) -> list[str]:
    """(n,) names to hand on, with slashes: the path below the folder of the images, or else below that of the user,
    or else without its start. Should two be alike, both keep all but the start.

    root: the folder of the images; "" = the one that all of them lie in.
    """
    root = root or _shared(paths)
    starts = [os.path.join(start, "") for start in (root, os.path.expanduser("~")) if start]
    below = [next((path[len(s) :] for s in starts if path.startswith(s)), path) for path in paths]
    if is_address(root):  # what a store must be told stands in the middle
        below = relative(paths, root)
    names = [_without_start(path) for path in below]
    count = Counter(names)
    return [
        name if count[name] == 1 else _without_start(path) for name, path in zip(names, paths, strict=True)
    ]


def _shared(paths: Sequence[str]) -> str:
    """The folder that all files lie in; "" where there is none."""
    try:
        return os.path.commonpath([os.path.dirname(path) for path in paths])
    except ValueError:  # no files, or on several drives
        return ""


def _without_start(path: str) -> str:
    drive, rest = os.path.splitdrive(path)
    return "/".join(filter(None, (drive.strip("\\/:"), rest.replace(os.sep, "/").lstrip("/"))))


@dataclass(frozen=True)
class Redactor:
    """Takes the paths of this machine out of texts."""

    names: Mapping[str, str]
    """Path of an image to its short name."""
    folders: tuple[str, ...]
    """Whatever lies in one of them is called by its name from there."""

    def __call__(self, text: str) -> str:
        for start in sorted((os.path.join(folder, "") for folder in self.folders), key=len, reverse=True):
            text = text.replace(start, "") if len(start) > 1 else text
        text = URL_PATTERN.sub(lambda found: found[0].partition("?")[0].rpartition("/")[2], text)
        return ABSOLUTE_PATH.sub(lambda found: re.split(r"[\\/]", found[0].rstrip("\\/"))[-1] or "/", text)

    def everywhere(self, value: Any) -> Any:
        """The same in all texts of lists and dictionaries."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {key: self.everywhere(inner) for key, inner in value.items()}
        return [self.everywhere(inner) for inner in value] if isinstance(value, list) else value

    def image(self, path: str) -> str:
        return self.names[path] if path in self.names else self(path)


def build_redactor(paths: Sequence[str], root: str, run: Path) -> Redactor:
    """paths: of all images. root: the folder that they lie in. run: the run folder."""
    folders = {root, str(run), str(run.resolve()), os.path.expanduser("~"), os.getcwd()} - {"", "."}
    return Redactor(dict(zip(paths, short_names(paths, root), strict=True)), tuple(folders))


def redact_names_in_data(data: Mapping[str, Any], hide: Redactor) -> dict[str, Any]:
    """The data of a page (report/page_data.py) with short names, and with no path of this machine.

    The way from the page to the originals stays, unless it names the user.
    """
    images = data["images"]
    names = [hide.image(images["root"] + rest) for rest in images["path"]]
    texts = {column: hide.everywhere(images[column]) for column in ("problem", "note")}
    rest = images["file"] or images["path"]
    way = {
        "link": None if reveals_paths(images["link"]) else images["link"],
        "file": [] if rest == names else rest,
    }
    return {
        **data,
        "images": {**images, **texts, "root": "", "path": names, **way},
        "facts": hide.everywhere({key: value for key, value in data["facts"].items() if key != "root"}),
        "log": [_short_path(row, hide) for row in data["log"]],
        "earlier_log": [_short_path(row, hide) for row in data["earlier_log"]],
    }


def reveals_paths(link: str | None) -> bool:
    """Does the way to the originals name the user, or begin at the top of this machine?"""
    user = os.path.basename(os.path.expanduser("~"))
    parts = unquote(link or "").split("/")
    return parts[0] == "file:" or (user != "" and user in parts)


def redact_page(data: Mapping[str, Any], hide: Redactor) -> dict[str, Any]:
    """The same to hand on: without the command, without places, and without a way to the originals."""
    told = redact_names_in_data(data, hide)
    images = {key: value for key, value in told["images"].items() if key not in PRIVATE_KEYS}
    facts = {key: value for key, value in told["facts"].items() if key != "command"}
    return {**told, "mailed": True, "images": {**images, "link": None, "file": []}, "facts": facts}


def _short_path(row: Sequence[str], hide: Redactor) -> list[str]:
    """A row of the log of edits, whose fourth column is the image."""
    return [*row[:3], hide.image(row[3]) if row[3] else "", *row[4:]]
