"""Data sets in memory: arrays, data frames, tables and torch data sets, as a list of images on the disk.

Everything else reads a list: config.yaml, a resumed run, another process and `holotype assign`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from holotype.data.csv import csv_text, escape_formula
from holotype.data.decode import TURNS, encode_image, exif_orientation
from holotype.data.paths import is_address, relative
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.atomic import write_bytes, write_text

FOLDER = Path("runs") / "data"
"""Where lists and pictures go."""
COLUMNS = ("path", "label", "truth", "group")
NO_DATASETS = ("list", "tuple", "dict", "ndarray", "Tensor", "Series")
"""Types that have items as well."""
FORMS = (
    "the name of a benchmark, a path, (images, labels), (images, labels, truth), a Table, a data frame with the "
    "columns path and label, or a torch Dataset"
)


def to_label_column(y: Iterable[Any] | None, n: int) -> list[str]:
    """Labels as text, "" for none. y: None, or n of anything.

    None, "", NaN, NaT and pandas' NA mean none, and so does -1 where all others are whole numbers.
    """
    if isinstance(y, str) or not hasattr(y if y is not None else (), "__iter__"):
        raise InputError(f"The labels are {y!r}; give a list of them, one per image.")
    values = [_plain(value) for value in ([None] * n if y is None else y)]
    if len(values) != n:
        raise InputError(f"There are {n} images but {len(values)} labels; give one per image, or None.")
    if odd := [value for value in values if hasattr(value, "__len__") and not isinstance(value, str)]:
        raise InputError(f"A label is a {type(odd[0]).__name__}; give one word or number per image.")
    # whole numbers with gaps come as floats from pandas
    numbers = [int(value) if _is_integer(value) else None for value in values]
    whole = all(
        number is not None for number, value in zip(numbers, values, strict=True) if value is not None
    )
    return [
        "" if value is None or (whole and value == -1) else str(value if number is None else number).strip()
        for number, value in zip(numbers, values, strict=True)
    ]


def _plain(value: Any) -> Any:
    """Return a label without the array or tensor around it; None for one that is missing."""
    import pandas as pd

    if getattr(value, "shape", None) == ():
        value = value.item()
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else value


def _is_integer(value: Any) -> bool:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return number and float(value).is_integer()


def dataset_path(data: Any, folder: Path = FOLDER) -> str:
    """Return what names a data set on the disk; one in memory is written there first.

    Args:
        data: a name or a path, which is returned as it is; or one of FORMS.
        folder: where lists and pictures go, each data set in a folder of its own.
    """
    if isinstance(data, str | os.PathLike):
        return os.fspath(data)
    name, columns, pictures = _columns_of(data)
    for number in range(1, len(list(folder.glob(f"{name}*"))) + 2):
        own = folder / (name if number == 1 else f"{name}-{number}")
        if pictures is not None:
            columns["path"] = save_images(pictures, own / "images")
        names = [column for column in COLUMNS if column in columns]
        cells = zip(*(map(escape_formula, columns[column]) for column in names), strict=True)
        text, file = csv_text([names, *cells]), own / f"{own.name}.csv"
        if not file.is_file():
            write_text(file, text)
        if file.read_text(encoding="utf-8") == text:
            break
    return str(file)


def read_side(file: Path, table: Table) -> np.ndarray:
    """Return (N, S) the vectors of a Parquet file with the columns path and vector, in the order of a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        content = pq.read_table(file, columns=["path", "vector"])
        vectors = np.array(content["vector"].to_pylist(), dtype=np.float32)
        row = {path: number for number, path in enumerate(content["path"].to_pylist())}
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        sentence = f"{file} is no Parquet file with a path and an equally long vector in each row ({error})"
        raise InputError(f"{sentence}; write it again.") from error
    names = zip(table.path, relative(table.path, table.root), strict=True)
    found = [row.get(path, row.get(name, -1)) for path, name in names]
    if -1 in found:
        lost = f"{found.count(-1):,} of the {len(table):,} images, for example {table.path[found.index(-1)]}"
        raise InputError(f"{file} has no vector for {lost}; add them.")
    if not np.isfinite(vectors[found]).all():
        raise InputError(f"{file} has vectors with NaN or infinite numbers; correct them.")
    return vectors[found]


def _columns_of(data: Any) -> tuple[str, dict[str, Any], list[Any] | None]:
    """Return name, columns of text, and the images where these lie in memory."""
    frame = data.to_frame() if isinstance(data, Table) else data
    if type(frame).__name__ == "DataFrame":
        if absent := {"path", "label"} - {*frame.columns}:
            raise InputError(f"The data frame has no column {min(absent)}; it needs path and label.")
        columns = {name: to_label_column(frame[name], len(frame)) for name in COLUMNS if name in frame}
        columns["path"] = [os.path.abspath(path) for path in columns["path"]]
        return (data.name if isinstance(data, Table) else "") or "frame", columns, None
    if isinstance(data, tuple) and len(data) in (2, 3):
        name, (images, *columns_) = "arrays", data
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and type(data).__name__ not in NO_DATASETS:
        name, classes = type(data).__name__, getattr(data, "classes", None)
        items = [data[i] for i in range(len(data))]
        if odd := [item for item in items if not isinstance(item, tuple | list) or len(item) < 2]:
            raise InputError(f"An item of {name} is a {type(odd[0]).__name__}; give (image, label) for each.")
        images, labels = [item[0] for item in items], [_plain(item[1]) for item in items]
        if classes is not None and all(_is_integer(label) for label in labels):
            if (last := max(map(int, labels), default=-1)) >= len(classes):
                raise InputError(
                    f"{name} has the label {last} and only {len(classes)} classes; correct them."
                )
            labels = [classes[int(i)] if i >= 0 else "" for i in labels]
        columns_ = [labels]
    else:
        raise InputError(f"A data set cannot be a {type(data).__name__}; give {FORMS}.")
    pictures = [_pixels(image) for image in images]
    if not pictures:
        raise InputError("The data set has no image; give two classes of labelled ones, and others.")
    read = {
        key: to_label_column(y, len(pictures)) for key, y in zip(("label", "truth"), columns_, strict=False)
    }
    return name, read, pictures


def _pixels(image: Any) -> Any:
    """Return an image as save_images takes it: of a tensor (C, H, W) its pixels (H, W, C)."""
    if not hasattr(image, "detach"):
        return image
    pixels = np.asarray(image.detach().cpu())
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3, 4):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.dtype.kind == "f" and not 0 <= pixels.min() <= pixels.max() <= 1:
        raise InputError(
            f"The pixels of a tensor go from {pixels.min():.2f} to {pixels.max():.2f}, not from 0 to 1; leave "
            "Normalize out of the transforms: the backbone's own is applied."
        )
    return pixels


ArrayImage = str | os.PathLike[str] | Image.Image | np.ndarray
"""A path, a PIL image, or pixels (H, W), (H, W, 1), (H, W, 3) or (H, W, 4): uint8, or floats from 0 to 1."""


def to_image_list(pictures: Iterable[Any]) -> list[Any]:
    """Return the pictures one by one; a single one is refused."""
    if isinstance(pictures, str | os.PathLike | Image.Image):
        raise InputError("One image was given where a list of images is needed; put it into a list.")
    return list(pictures)


def save_images(pictures: Iterable[Any], folder: Path | str) -> list[str]:
    """Return the path of every picture: absolute for a path; PIL images and arrays are written to `folder`.

    A file is named after its place in the list and its pixels, so that other pictures never replace it.
    """
    pictures = to_image_list(pictures)
    digits = max(5, len(str(len(pictures))))
    paths = []
    for number, picture in enumerate(pictures):
        if isinstance(picture, str | os.PathLike):
            path = os.fspath(picture)
            paths.append(path if is_address(path) else os.path.abspath(path))
            continue
        image = _for_png(_to_image(picture, number))
        digest = hashlib.sha256(f"{image.mode} {image.size} ".encode() + image.tobytes()).hexdigest()[:12]
        file = Path(os.path.abspath(folder)) / f"{number:0{digits}d}-{digest}.png"
        if not file.is_file():
            write_bytes(file, encode_image(image, "PNG"))
        paths.append(str(file))
    return paths


def _to_image(picture: Any, number: int) -> Image.Image:
    if isinstance(picture, Image.Image):
        return picture
    try:
        pixels = np.asarray(picture)  # a tensor on the CPU becomes an array as well
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"Image {number} is not a path, a PIL image or an array ({error}).") from error
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))) or not pixels.size:
        raise InputError(f"Image {number} has the shape {pixels.shape}; give (height, width[, 3]).")
    if pixels.dtype != np.uint8:
        top = {"i": 255, "u": 255, "b": 1, "f": 1}.get(pixels.dtype.kind, 0)
        if not (top and pixels.min() >= 0 and pixels.max() <= top):
            raise InputError(
                f"Image {number} holds {pixels.dtype} values; give uint8, or floats from 0 to 1."
            )
        pixels = np.round(pixels.astype(np.float64) * (255 / top)).astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(pixels))


def _for_png(image: Image.Image) -> Image.Image:
    """Return the first frame, upright, in a mode that PNG files have.

    A file written from memory has no EXIF data left to say how it is to be turned.
    """
    orientation, _ = exif_orientation(image)
    if orientation in TURNS:
        image = image.transpose(TURNS[orientation])
    if image.mode == "P":  # its pixels are numbers of colours, and the digest does not see these
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    return image if image.mode in ("1", "L", "LA", "RGB", "RGBA", "I;16") else image.convert("RGB")
