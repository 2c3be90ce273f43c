"""Image formats: file endings and the decoders that read them.

A file's name proves nothing, so Pillow tries its decoders on the content, and some of these start other programs: an
EPS file called photo.jpg would run Ghostscript. Only the decoders named here ever see a file.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.util import find_spec

from PIL import Image, features

DECODERS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "TIFF", "WEBP", "PPM", "AVIF", "HEIF")
"""Pillow's names, the most frequent first; that of JPEG opens MPO as well. Those that are not there are left out."""
PILLOW_FORMATS = (
    *(".bmp", ".dib", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".mpo", ".pgm"),
    *(".png", ".ppm", ".tif", ".tiff", ".webp"),
)
AVIF, HEIF = (".avif",), (".heic", ".heif")
INSTALL_HINTS = dict.fromkeys(AVIF, "pillow 11.3 or later") | dict.fromkeys(HEIF, "pillow-heif")
"""Endings that not every installation can read, and what reads them."""


def _has_avif() -> bool:
    return "avif" in features.modules and bool(features.check("avif"))


def _has_heif() -> bool:
    return find_spec("pillow_heif") is not None


IMAGE_EXTENSIONS = (*PILLOW_FORMATS, *(AVIF if _has_avif() else ()), *(HEIF if _has_heif() else ()))
"""Files that end so are images, in capitals or not."""


@cache
def decoders() -> tuple[str, ...]:
    """Those of DECODERS that are there; for `formats` of every Image.open."""
    if _has_heif():
        importlib.import_module("pillow_heif").register_heif_opener()
    Image.init()
    return tuple(name for name in DECODERS if name in Image.OPEN)


def install_hint(name: str) -> str:
    """What would read a file of this name; "" where nothing is known that would, or where it is there."""
    ending = next((ending for ending in INSTALL_HINTS if name.lower().endswith(ending)), "")
    return "" if ending in IMAGE_EXTENSIONS else INSTALL_HINTS.get(ending, "")
