"""Write images held in memory as PNG files."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from holotype.data.decode import ORIENTATION_TAG, TURNS
from holotype.data.storage import is_address
from holotype.errors import InputError
from holotype.utils.atomic import write_bytes

ArrayImage = str | os.PathLike[str] | Image.Image | np.ndarray
"""A path, a PIL image, or pixels (H, W), (H, W, 1), (H, W, 3) or (H, W, 4): uint8, or floats from 0 to 1."""


def to_image_list(pictures: Iterable[Any]) -> list[Any]:
    """The pictures one by one; a single one is refused."""
    if isinstance(pictures, str | os.PathLike | Image.Image):
        raise InputError("One image was given where a list of images is needed; put it into a list.")
    return list(pictures)


def save_images(pictures: Iterable[Any], folder: Path | str) -> list[str]:
    """The path of every picture: absolute for a path; PIL images and arrays are written to `folder`.

    A file is named after its place in the list and its pixels, so that other pictures never replace it.
    """
    pictures = to_image_list(pictures)
    digits = max(5, len(str(len(pictures))))
    paths = []
    for number, picture in enumerate(pictures):
        if isinstance(picture, str | os.PathLike):
            given = os.fspath(picture)
            paths.append(given if is_address(str(given)) else os.path.abspath(given))
            continue
        image = _to_array(_to_image(picture, number))
        digest = hashlib.sha256(f"{image.mode} {image.size} ".encode() + image.tobytes()).hexdigest()[:12]
        path = Path(os.path.abspath(folder)) / f"{number:0{digits}d}-{digest}.png"
        if not path.is_file():
            write_bytes(path, encode_png(image, "PNG"))
        paths.append(str(path))
    return paths


def encode_png(image: Image.Image, format: str, **how: Any) -> bytes:
    """What a file of an image holds, for whoever writes it. how: of Pillow's `save`.

    Pillow itself, given a file, does not notice where the last bytes of it no longer fit on the disk.
    """
    content = io.BytesIO()
    image.save(content, format=format, **how)
    return content.getvalue()


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
        raise InputError(
            f"Image {number} has the shape {pixels.shape}; give pixels as (height, width) or (height, width, 3)."
        )
    return Image.fromarray(_eight_bits(pixels, number))


def _eight_bits(pixels: np.ndarray, number: int) -> np.ndarray:
    """uint8 as it is; bool and floats from 0 to 1 times 255; other whole numbers if they lie in 0 .. 255."""
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels)
    if pixels.dtype.kind not in "fbiu":
        raise InputError(f"Image {number} holds {pixels.dtype} values; give uint8, or floats from 0 to 1.")
    low, high = float(pixels.min()), float(pixels.max())
    scale, top = (255, 1.0) if pixels.dtype.kind in "fb" else (1, 255.0)
    if not (low >= 0 and high <= top):
        raise InputError(
            f"Image {number} holds {pixels.dtype} values from {low:g} to {high:g}; give uint8, or floats from 0 to 1."
        )
    return np.round(pixels.astype(np.float64) * scale).astype(np.uint8)


def _to_array(image: Image.Image) -> Image.Image:
    """The first frame, upright, in a mode that PNG files have.

    A file written from memory has no EXIF data left to say how it is to be turned.
    """
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:  # the pixels are sound; only the camera's remarks are not
        orientation = 1
    if orientation in TURNS:
        image = image.transpose(TURNS[orientation])
    if image.mode == "P":  # its pixels are numbers of colours, and the digest does not see these
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    return image if image.mode in ("1", "L", "LA", "RGB", "RGBA", "I;16") else image.convert("RGB")
