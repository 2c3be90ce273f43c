"""Images inside a larger file, written "file#index": CIFAR's two archives and .npz arrays.

CIFAR's Python archive is a pickle, and a pickle can run any code. Ours is read by an unpickler that
knows three names, and hands out stand-ins for them, so that not even NumPy's own code sees the bytes
before they were checked.
"""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from holotype.data.addresses import is_address, split_inside
from holotype.data.boxes import split_box
from holotype.data.stores import stamp_of

CIFAR_PIXELS = 3 * 32 * 32
CONTAINER_ENDINGS = (".npz", ".bin")
CIFAR_BATCH = re.compile(r"data_batch_\d+|test_batch|train|test")
"""Files of CIFAR's Python archive, which have no ending."""


LARGE, MOST_PACKED = 500_000_000, 50
"""Bytes from which on an archive is looked at more closely, and how many of them may come from one packed byte."""


class ContainerProblem(Exception):
    """A container cannot be read; the message is a sentence."""


def split_index(path: str) -> tuple[str, int] | None:
    """("file", index) of "file#index", where the file has the name of a container; None otherwise.

    Only the last # counts, and folders with a # in their name are no containers.
    """
    file, mark, index = path.rpartition("#")
    if not mark or not (index.isascii() and index.isdigit()):
        return None
    name = os.path.basename(file).lower()
    is_container = name.endswith(CONTAINER_ENDINGS) or CIFAR_BATCH.fullmatch(name)
    return (file, int(index)) if is_container else None


def split_container(path: str) -> tuple[str, int] | None:
    """The same for a container that is there; None for an ordinary path. A real file with # in its name wins."""
    part = split_index(path)
    return part if part and os.path.isfile(part[0]) and not os.path.exists(path) else None


def file_of(path: str) -> str:
    """The file that holds the image: the container for "file#index", the picture for a box, else the path itself."""
    path, _ = split_box(path)
    if inside := split_inside(path):
        return inside[1]
    part = split_container(path)
    return part[0] if part else path


def image_exists(path: str) -> bool:
    """Is there a file for this path (for "file#index" the container, for a box the picture)?"""
    file = file_of(path)
    return stamp_of(file) != "" if is_address(file) else os.path.isfile(file)


def has_own_file(path: str) -> bool:
    """Is the image, or the picture of its box, a file of its own on this machine, which can be linked to?"""
    path, _ = split_box(path)
    return not is_address(path) and split_inside(path) is None and split_container(path) is None


def read_array(file: str, index: int) -> np.ndarray:
    """(H, W) or (H, W, 3) uint8: one image of a container."""
    try:
        stat = os.stat(file)
    except OSError as error:
        raise ContainerProblem(f"{file} cannot be opened ({error.strerror}).") from error
    if file.lower().endswith(".bin"):
        return _read_binary(file, index, stat.st_size)
    with _lock:  # threads ask for neighbouring images: one of them reads the file for all
        images = _whole(file, stat.st_mtime_ns, stat.st_size)
    if index >= len(images):
        raise ContainerProblem(f"{file} holds {len(images)} images, so there is no image {index}.")
    return images[index]


_lock = Lock()


@lru_cache(maxsize=2)
def _whole(file: str, mtime: int, size: int) -> np.ndarray:
    """(N, H, W[, 3]) uint8: all images of an .npz or of a CIFAR pickle.

    mtime and size are there for the cache: a file that changed is read again.
    """
    if file.lower().endswith(".npz"):
        return _read_npz(file)
    return cifar_images(read_cifar_pickle(Path(file)), file)


def _read_npz(file: str) -> np.ndarray:
    try:
        with zipfile.ZipFile(file) as packed:
            part = packed.getinfo("x.npy")
        if part.file_size > LARGE and part.file_size > MOST_PACKED * part.compress_size:
            raise ContainerProblem(
                f"{file} holds {part.file_size / 1e9:.1f} GB that are packed into {part.compress_size / 1e6:.1f} MB, "
                "which no photographs are; pack it anew."
            )
        with np.load(file, allow_pickle=False) as arrays:
            images = arrays["x"]
    except ContainerProblem:
        raise
    except Exception as error:  # zip, zlib, header and key errors alike
        raise ContainerProblem(f"{file} is not a readable .npz file with an array `x`.") from error
    if images.dtype != np.uint8 or not (images.ndim == 3 or (images.ndim == 4 and images.shape[-1] == 3)):
        raise ContainerProblem(f"The array `x` of {file} is not uint8 of shape (N, H, W) or (N, H, W, 3).")
    return images


def binary_header(file: str) -> int:
    """Bytes before the pixels of a record: CIFAR-100 (train.bin, test.bin) has two labels, CIFAR-10 one."""
    return 2 if Path(file).stem in ("train", "test") else 1


def binary_labels(file: Path) -> list[int]:
    """Class index of every record (CIFAR-100: the fine class)."""
    header = binary_header(str(file))
    raw = np.fromfile(file, dtype=np.uint8)
    if raw.size == 0 or raw.size % (header + CIFAR_PIXELS):
        raise ContainerProblem(f"{file} is not a whole number of CIFAR records; it may be cut off.")
    return raw.reshape(-1, header + CIFAR_PIXELS)[:, header - 1].tolist()


def _read_binary(file: str, index: int, size: int) -> np.ndarray:
    header = binary_header(file)
    record = header + CIFAR_PIXELS
    with open(file, "rb") as stream:
        stream.seek(index * record + header)
        raw = stream.read(CIFAR_PIXELS)
    if size % record or len(raw) < CIFAR_PIXELS:
        raise ContainerProblem(f"{file} has no CIFAR record {index}; it may be cut off.")
    return _planes_to_image(np.frombuffer(raw, dtype=np.uint8))


def _planes_to_image(pixels: np.ndarray) -> np.ndarray:
    """(..., 3072) red, green and blue planes -> (..., 32, 32, 3)."""
    return np.moveaxis(pixels.reshape(*pixels.shape[:-1], 3, 32, 32), -3, -1)


def cifar_images(content: dict[str, Any], file: str) -> np.ndarray:
    """(N, 32, 32, 3) uint8 from what read_cifar_pickle returned."""
    data = content.get("data")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (CIFAR_PIXELS,):
        raise ContainerProblem(f"{file} is not a CIFAR batch: it holds no (N, 3072) uint8 array `data`.")
    return _planes_to_image(data)


def read_cifar_pickle(file: Path) -> dict[str, Any]:
    """The dictionary in a file of CIFAR's Python archive: str keys, arrays, lists of int or str."""
    try:
        with file.open("rb") as stream:
            content = _CifarUnpickler(stream, encoding="bytes").load()
    except Exception as error:  # a hostile or broken pickle may fail in any way
        raise ContainerProblem(f"{file} was refused: it is not a plain CIFAR pickle ({error}).") from error
    if not isinstance(content, dict):
        raise ContainerProblem(f"{file} is not a CIFAR batch: it holds no dictionary.")
    return {_plain(key): _plain(value) for key, value in content.items()}


def _plain(value: Any) -> Any:
    """Stand-ins -> arrays, bytes (strings of Python 2) -> str."""
    if isinstance(value, _Array):
        return value.array
    if isinstance(value, bytes):
        return value.decode("latin1")
    return [_plain(v) for v in value] if isinstance(value, list) else value


class _Name:
    """Stand-in for numpy.ndarray, which such pickles only mention by name."""

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("state for a class")


class _Dtype:
    """Stand-in for numpy.dtype; admits bytes and integers."""

    allowed: ClassVar[frozenset[str]] = frozenset({"u1", "i4", "i8"})

    def __init__(self, code: bytes | str, *_: object) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else code
        if self.code not in self.allowed:
            raise pickle.UnpicklingError(f"array of type {self.code!r}")

    def __setstate__(self, state: tuple) -> None:
        if state[1] not in ("|", "<", b"|", b"<"):
            raise pickle.UnpicklingError("array of a foreign byte order")


class _Array:
    """Stand-in for numpy's _reconstruct; keeps the array once its state was checked."""

    def __init__(self, *_: object) -> None:
        self.array = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, column_major, raw = state
        if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("array without plain bytes")
        flat = np.frombuffer(raw, dtype="<" + dtype.code)
        self.array = flat.reshape(shape, order="F" if column_major else "C")


class _CifarUnpickler(pickle.Unpickler):
    """Knows the names in CIFAR's files and no other."""

    names: ClassVar[dict[tuple[str, str], type]] = {
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,  # its name since NumPy 2
        ("numpy", "ndarray"): _Name,
        ("numpy", "dtype"): _Dtype,
    }

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in self.names:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return self.names[module, name]
