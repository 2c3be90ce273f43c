"""Files that hold images: the formats that are read, and images inside an array file, written `file#index`.

A file's name proves nothing, so Pillow tries its decoders on the content, and some of these start other programs: an
EPS file called photo.jpg would run Ghostscript. Only the decoders named here ever see a file. Array files are CIFAR's
binary archive and .npz.
"""

from __future__ import annotations

import importlib
import os
import zipfile
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

import numpy as np
from PIL import Image

from holotype.data.boxes import split_box
from holotype.data.paths import is_address, split_member
from holotype.data.storage import remote_stamp
from holotype.errors import InputError

DECODERS = ("JPEG", "PNG", "GIF", "BMP", "DIB", "TIFF", "WEBP", "PPM", "AVIF", "HEIF", "DICOM")
"""Pillow's names, the most frequent first; that of JPEG opens MPO as well. Those that are not there are left out."""
HEIF = (".heic", ".heif")
HAS_HEIF = find_spec("pillow_heif") is not None
DICOM = (".dcm", ".dicom")
HAS_DICOM = find_spec("pydicom") is not None
IMAGE_EXTENSIONS = (
    *(".avif", ".bmp", ".dib", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".mpo", ".pgm", ".png", ".ppm"),
    *(".tif", ".tiff", ".webp", *(HEIF if HAS_HEIF else ())),
    *(DICOM if HAS_DICOM else ()),
)
"""Files that end so are images, in capitals or not."""


@cache
def decoders() -> tuple[str, ...]:
    """Return those of DECODERS that are there; for `formats` of every Image.open."""
    if HAS_HEIF:
        importlib.import_module("pillow_heif").register_heif_opener()
    if HAS_DICOM:
        importlib.import_module("holotype.data.dicom").register()
    Image.init()
    return tuple(name for name in DECODERS if name in Image.OPEN)


def install_hint(name: str) -> str:
    """Return what would read a file of this name; "" where nothing is known that would, or where it is there."""
    if name.lower().endswith(DICOM) and not HAS_DICOM:
        return "holotype[dicom]"
    return "pillow-heif>=1.3" if name.lower().endswith(HEIF) and not HAS_HEIF else ""


def no_image(where: object, what: str = "files") -> InputError:
    """Return the error of a source without images."""
    kinds = ", ".join(IMAGE_EXTENSIONS)
    return InputError(f"There is no image in {where}; {what} that end in {kinds} count as images.")


CIFAR_PIXELS = 3 * 32 * 32
ARCHIVE_SUFFIXES = (".npz", ".bin")
LARGE_BYTES, MAX_UNPACKED_RATIO = 500_000_000, 50
"""Bytes from which on an archive is looked at more closely, and how many of them may come from one packed byte."""


class ArchiveProblem(Exception):
    """A container cannot be read; the message is a sentence."""


def split_index(path: str) -> tuple[str, int] | None:
    """Return ("file", index) of "file#index", where the file has the name of a container; None otherwise.

    Only the last # counts, and folders with a # in their name are no containers.
    """
    file, mark, index = path.rpartition("#")
    if not mark or not (index.isascii() and index.isdigit()):
        return None
    return (file, int(index)) if file.lower().endswith(ARCHIVE_SUFFIXES) else None


def split_archive(path: str) -> tuple[str, int] | None:
    """Return the same for a container that is there; None for an ordinary path. A real file with # in its name wins."""
    part = split_index(path)
    return part if part and os.path.isfile(part[0]) and not os.path.exists(path) else None


def file_of(path: str) -> str:
    """Return the file that holds the image: the container for "file#index", the picture for a box, else the path."""
    path, _ = split_box(path)
    if inside := split_member(path):
        return inside[1]
    part = split_archive(path)
    return part[0] if part else path


def image_exists(path: str) -> bool:
    """Return whether there is a file for this path (for "file#index" the container, for a box the picture)."""
    file = file_of(path)
    return remote_stamp(file) != "" if is_address(file) else os.path.isfile(file)


def has_own_file(path: str) -> bool:
    """Return whether the image, or the picture of its box, is a file of its own on this machine, to be linked to."""
    path, _ = split_box(path)
    return not is_address(path) and split_member(path) is None and split_archive(path) is None


def read_array(file: str, index: int) -> np.ndarray:
    """Return (H, W) or (H, W, 3) uint8: one image of a container."""
    try:
        stat = os.stat(file)
    except OSError as error:
        raise ArchiveProblem(f"{file} cannot be opened ({error.strerror}).") from error
    if file.lower().endswith(".bin"):
        return _read_binary(file, index, stat.st_size)
    with _lock:  # threads ask for neighbouring images: one of them reads the file for all
        images = _read_npz(file, stat.st_mtime_ns, stat.st_size)
    if index >= len(images):
        raise ArchiveProblem(f"{file} holds {len(images)} images, so there is no image {index}.")
    return images[index]


_lock = Lock()


@lru_cache(maxsize=2)
def _read_npz(file: str, mtime: int, size: int) -> np.ndarray:
    """Return (N, H, W[, 3]) uint8: all images of an .npz.

    mtime and size are there for the cache: a file that changed is read again.
    """
    try:
        with zipfile.ZipFile(file) as packed:
            part = packed.getinfo("x.npy")
        if part.file_size > LARGE_BYTES and part.file_size > MAX_UNPACKED_RATIO * part.compress_size:
            raise ArchiveProblem(f"{file} unpacks to {part.file_size / 1e9:.1f} GB; pack it anew.")
        with np.load(file, allow_pickle=False) as arrays:
            images = arrays["x"]
    except ArchiveProblem:
        raise
    except Exception as error:  # zip, zlib, header and key errors alike
        raise ArchiveProblem(f"{file} is not a readable .npz file with an array `x`.") from error
    if images.dtype != np.uint8 or not (images.ndim == 3 or (images.ndim == 4 and images.shape[-1] == 3)):
        raise ArchiveProblem(f"The array `x` of {file} is not uint8 of shape (N, H, W) or (N, H, W, 3).")
    return images


def binary_header(file: str) -> int:
    """Return the bytes before the pixels of a record: CIFAR-100 (train.bin, test.bin) has two labels, CIFAR-10 one."""
    return 2 if Path(file).stem in ("train", "test") else 1


def binary_labels(file: Path) -> list[int]:
    """Return the class index of every record (CIFAR-100: the fine class)."""
    header = binary_header(str(file))
    raw = np.fromfile(file, dtype=np.uint8)
    if raw.size == 0 or raw.size % (header + CIFAR_PIXELS):
        raise ArchiveProblem(f"{file} is not a whole number of CIFAR records; it may be cut off.")
    return raw.reshape(-1, header + CIFAR_PIXELS)[:, header - 1].tolist()


def _read_binary(file: str, index: int, size: int) -> np.ndarray:
    header = binary_header(file)
    record = header + CIFAR_PIXELS
    with open(file, "rb") as stream:
        stream.seek(index * record + header)
        raw = stream.read(CIFAR_PIXELS)
    if size % record or len(raw) < CIFAR_PIXELS:
        raise ArchiveProblem(f"{file} has no CIFAR record {index}; it may be cut off.")
    return np.moveaxis(np.frombuffer(raw, dtype=np.uint8).reshape(3, 32, 32), 0, -1)  # planes of colours
