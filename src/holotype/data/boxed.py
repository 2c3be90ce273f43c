"""Boxes and the pictures that they are boxes of: from numbers in a list or a detector's file to rows of a table."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from holotype.data.boxes import BadBox, Box, are_shares, make_box, numbers, split_box, with_box
from holotype.data.containers import read_array, split_container
from holotype.data.decode import ORIENTATION_TAG
from holotype.data.detections import Detection, Detections, told
from holotype.data.encoded import readable
from holotype.data.exif import has_head
from holotype.data.kinds import decoders
from holotype.data.matching import find_images
from holotype.data.paths import in_quotes
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.device import cpu_count

WHOLE = Box(0, 0, 1, 1)
"""Of a picture that cannot be read: it will be told as such, and not for its box."""
NAMED = 3
"""Examples of a line."""
HINT = "discover --skip-missing goes on without these"

log = logging.getLogger("holotype")


# -- sizes ----------------------------------------------------------------------------------------------


def upright_sizes(files: Sequence[str]) -> dict[str, tuple[int, int] | None]:
    """Width and height of pictures, as people see them, from the heads of their files; None where that cannot be
    read."""
    every = list(dict.fromkeys(files))
    with ThreadPoolExecutor(min(8, 2 * cpu_count())) as pool:
        return dict(zip(every, pool.map(upright_size, every), strict=True))


def upright_size(file: str) -> tuple[int, int] | None:
    try:
        if part := split_container(file):
            height, width = read_array(*part).shape[:2]
            return width, height
        with Image.open(readable(file), formats=decoders()) as image:
            turned = has_head(image) and image.getexif().get(ORIENTATION_TAG) in (5, 6, 7, 8)
            return image.size[::-1] if turned else image.size
    except Exception:  # decoders fail in many ways on damaged files
        return None


# -- a column `box` -------------------------------------------------------------------------------------


def read_column(
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
            given[row] = numbers(cells[row])
        except BadBox as problem:
            bad[row] = str(problem)
    in_pixels = [str(files[row]) for row, values in given.items() if not are_shares(values)]
    size = upright_sizes(in_pixels)
    for row, values in given.items():
        file = str(files[row])
        try:
            found[row] = with_box(file, _box(values, size.get(file), are_shares(values)))
        except BadBox as problem:
            bad[row] = str(problem)
    _complain([f"{where(row)}: {bad[row]}" for row in sorted(bad)], "box", skip)
    return found


def _box(values: Sequence[float], size: tuple[int, int] | None, shares: bool) -> Box:
    if shares:
        return make_box(values, None)
    if size is None:
        return WHOLE
    return make_box(values, size)


def _complain(problems: Sequence[str], what: str, skip: bool) -> None:
    """Refuse bad boxes in one sentence, or say that they are left out."""
    if not problems:
        return
    n = f"1 {what} is" if len(problems) == 1 else f"{len(problems):,} {what}es are"
    shown = "; ".join(problems[:NAMED])
    if skip:
        log.info(f"Left out: {n} not to be used ({shown}).")
        return
    raise InputError(
        f"{n} not to be used ({shown}); a box is x, y, w, h in pixels, or in shares of the picture from 0 to 1: "
        f"correct that, or call a column that holds something else otherwise; {HINT}."
    )


# -- a file of boxes ------------------------------------------------------------------------------------


def cut_out(table: Table, found: Detections, starts: Sequence[Path], skip: bool) -> Table:
    """The table with a row for each box instead of one for each picture; what has none is left out.

    A box has the label of its picture, unless the table holds that very box already. Boxes that are in the table alone
    stay. starts: folders that paths in the file may start at. skip: pictures that are missing, and bad boxes, are left
    out instead of refused.
    """
    own: dict[str, dict[str, int]] = {}
    """Picture to its boxes in the table, and their rows."""
    whole: dict[str, int] = {}
    for row, path in enumerate(map(str, table.path)):
        file, box = split_box(path)
        if box is None:
            whole[file] = row
        own.setdefault(file, {})
        if box is not None:
            own[file][path] = row
    boxes = _resolved(found, _files(found, own, starts, skip), skip)
    rows: list[int] = []
    paths: list[str] = []
    unsaid: list[bool] = []
    """Is nothing said of the box, nor of its picture? The row of another box of it tells no label."""
    for file, listed in own.items():
        for path in dict.fromkeys((*(with_box(file, box) for box in boxes.get(file, ())), *listed)):
            rows.append(listed.get(path, whole.get(file, next(iter(listed.values()), 0))))
            paths.append(path)
            unsaid.append(path not in listed and file not in whole)
    if not paths:
        raise InputError(
            f"{found.file} has no box for any picture of {table.name}; check that it is of these images."
        )
    _tell(found, paths, len(own))
    _tell_labels(table, whole, Counter(rows))
    cut = table.take(rows, np.array(paths, dtype=object))
    return _with_classes(replace(cut, label=np.where(unsaid, "", cut.label)))


def _with_classes(cut: Table) -> Table:
    """Without the known classes of which no labelled picture has a box; they are told."""
    present = set(cut.label)
    gone = [name for name in cut.known if name not in present]
    if gone:
        more = f" and {len(gone) - NAMED:,} more" if len(gone) > NAMED else ""
        log.info(
            f"No labelled picture of {', '.join(gone[:NAMED])}{more} has a box, so "
            f"{'it is no class' if len(gone) == 1 else 'they are no classes'} here."
        )
    return replace(cut, known=tuple(name for name in cut.known if name in present))


def _files(
    found: Detections, pictures: Mapping[str, object], starts: Sequence[Path], skip: bool
) -> dict[str, str]:
    """Path in the file of boxes to the picture that it means."""
    given = list(found.pictures)
    meant, guessed = find_images(given, starts, pictures.__contains__, lambda: list(pictures))
    absent = [name for name, file in zip(given, meant, strict=True) if file is None]
    if absent:
        told_ = f"{len(absent):,} of the {len(given):,} pictures that {found.file} names cannot be found here"
        examples = ", ".join(map(in_quotes, absent[:NAMED]))
        if not skip:
            raise InputError(
                f"{told_}, for example {examples}; relative paths start at {starts[0]}, and {HINT}."
            )
        log.info(f"Left out: {told_}, for example {examples}.")
    if guessed:
        log.info(
            f"{len(guessed):,} paths of {found.file} were found by their last parts, for example "
            f"{in_quotes(given[guessed[0]])} is {meant[guessed[0]]}."
        )
    return {name: file for name, file in zip(given, meant, strict=True) if file is not None}


def _resolved(found: Detections, files: Mapping[str, str], skip: bool) -> dict[str, list[Box]]:
    """Picture to its boxes."""
    there = [one for one in found.boxes if one.file in files]
    size = upright_sizes([files[one.file] for one in there if one.units != "shares"])
    boxes: dict[str, list[Box]] = {}
    bad = []
    for one in there:
        file = files[one.file]
        try:
            boxes.setdefault(file, []).append(_of(one, size.get(file)))
        except BadBox as problem:
            bad.append(f"{one.where}: {problem}")
    _complain(bad, "box", skip)
    return boxes


def _of(one: Detection, size: tuple[int, int] | None) -> Box:
    """size: of the picture as it is now, None where it is not known or cannot be read."""
    if one.units == "shares":
        return make_box(one.values, None)
    x, y, w, h = one.values
    if one.units == "corners":
        w, h = w - x, h - y
    if one.size is not None and size is not None and one.size == size[::-1] != size:
        raise BadBox(
            f"it was drawn on a picture of {one.size[0]} x {one.size[1]} pixels, which is {size[0]} x {size[1]} upright"
        )
    return _box((x, y, w, h), one.size or size, shares=False)  # a copy of another size has the same shares


def _tell(found: Detections, paths: Sequence[str], pictures: int) -> None:
    with_boxes = len({split_box(path)[0] for path in paths})
    words = f"{found.file}: {_many(len(paths), 'box', 'boxes')} in {_many(with_boxes, 'picture')}"
    left = list(told(found))
    left += [_many(found.failed, "picture") + " that the detector could not read"] if found.failed else []
    left += [f"{_many(pictures - with_boxes, 'picture')} without a box"] if pictures > with_boxes else []
    log.info(f"{words}. Left out: {', '.join(left)}." if left else f"{words}.")


def _tell_labels(table: Table, whole: Mapping[str, int], used: Counter[int]) -> None:
    """used: how many boxes took each row."""
    several = sum(used[row] > 1 and table.label[row] != "" for row in whole.values())
    if several:
        which = "1 labelled picture has" if several == 1 else f"{several:,} labelled pictures have"
        log.info(f"{which} several boxes, each of which takes the label.")


def _many(n: int, one: str, several: str = "") -> str:
    return f"{n:,} {one if n == 1 else several or one + 's'}"


# -- columns --------------------------------------------------------------------------------------------


def columns(paths: Sequence[str]) -> dict[str, np.ndarray]:
    """Of a table of images: (N,) `file`, the picture, and `box` as shares, "" for whole pictures. Empty where there is
    no box."""
    parts = [split_box(path) for path in paths]
    if not any(box for _, box in parts):
        return {}
    return {
        "file": np.array([file for file, _ in parts], dtype=object),
        "box": np.array([box.text if box else "" for _, box in parts], dtype=object),
    }
