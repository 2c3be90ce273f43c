"""Where the answer of `holotype assign` goes if nobody says it: RUN/assigned, one table for each source of images.

A table is called after its source: new/ has new.csv. Another source of that name gets new (2).csv, so that no answer
is written over that of other images; the same source has its table brought up to date. sources.json tells which is
whose, by a digest: where images lie is told to nobody who is sent the run. What it does not know of was put there by
somebody else, and stays.
"""

from __future__ import annotations

import hashlib
import os
from itertools import count
from pathlib import Path

from holotype.data.addresses import is_address, is_pattern, split_inside
from holotype.data.readers.registry import source_name
from holotype.errors import InputError
from holotype.machine.files import write_text
from holotype.machine.locks import waiting_for
from holotype.machine.sealed import read_sealed, sealed
from holotype.placing.folders import numbered

FOLDER, FILE, FORMAT = "assigned", "sources.json", 1


def own_answer(run: Path, images: str) -> Path:
    """The table of these images in the folder of the run, theirs from now on."""
    folder, source = run / FOLDER, _digest(images)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written ({error.strerror or error}); name a file elsewhere with --out."
        ) from error
    with waiting_for(folder / FILE, "the list of answers"):
        sources = _read(folder)
        names = (numbered(stem_of(images), ".csv", number) for number in count(1))
        name = next(
            name for name in names if sources.get(name, source) == source and _may_be(folder, name, sources)
        )
        if name not in sources:
            write_text(folder / FILE, sealed({"format": FORMAT, "sources": sources | {name: source}}))
    return folder / name


def stem_of(images: str) -> str:
    """What the answer is called after."""
    if is_address(images) or is_pattern(images):
        return source_name(images)
    if inside := split_inside(images):
        images = inside[1]
    full = Path(os.path.abspath(images))
    return (full.name if full.is_dir() else full.stem) or "images"


def _may_be(folder: Path, name: str, sources: dict[str, str]) -> bool:
    return name in sources or not os.path.lexists(folder / name)


def _digest(images: str) -> str:
    """A digest of the source, the same wherever the command is typed."""
    source = images if is_address(images) else os.path.realpath(images)
    return hashlib.sha256(os.fsencode(source)).hexdigest()


def _read(folder: Path) -> dict[str, str]:
    """Digest of the source by name of the table; none where the list cannot be read: nothing is taken for ours then."""
    try:
        content = read_sealed(folder / FILE)
        if content["format"] == FORMAT:
            return {str(name): str(source) for name, source in content["sources"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return {}
