"""Decode an image file of any kind into RGB pixels, and write pictures that are held in memory as PNG files.

A file of some kB may hold gigabytes of pixels. What decoding takes is known from the file's head, before a pixel is
read, and images beyond MAX_PIXELS or MAX_BYTES are refused. What is decoded is turned upright and made RGB in strips,
so that there are two copies at most, and one of what is upright and RGB already.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Condition, Lock
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from holotype.data.boxes import Box as CutBox
from holotype.data.boxes import Rectangle, split_box
from holotype.data.exif import ORIENTATION_TAG, ExifData, exif_from_bytes
from holotype.data.hashing import open_image_bytes
from holotype.data.image_files import ArchiveProblem, decoders, install_hint, read_array, split_archive
from holotype.data.paths import is_address
from holotype.data.storage import StorageError
from holotype.data.window import WIDE_MODES, Window, apply_window, stated_window, usual_window, window_note
from holotype.errors import InputError
from holotype.utils.atomic import write_bytes
from holotype.utils.device import cpu_count

MAX_PIXELS = 178_956_970
"""Of one image. Pillow refuses more as well; the largest cameras take 150 million."""
MAX_BYTES = 1_000_000_000
"""That one image may take until it is RGB: as many as MAX_PIXELS do, or 125 million with transparency or turned."""
STRIP = 1 << 20
"""Pixels that are turned upright and made RGB together."""
GREY_16 = ("I;16", "I;16L", "I;16B", "I;16N")
SMALL_MODES = {"1": 1, "L": 1, "P": 1} | dict.fromkeys(GREY_16, 2)
"""Bytes of a pixel in Pillow's memory; 4 in all other modes."""
COSTLY_MODES = {"WEBP": 16, "AVIF": 12, "HEIF": 12, "DICOM": 12}
"""Bytes that decoding takes per pixel at most: these decoders hold the picture several times. Measured were 16 for WebP
and 9 for AVIF; HEIF is taken to be like AVIF."""
SCALED = ("JPEG", "TIFF")
"""Kinds of which a small version can be read where the whole is too large."""
MAX_PAGES = 32
"""Pages of a TIFF that are looked at for smaller versions of the first."""
SAME_SHAPE = 0.02
"""Largest difference between the ratios of sides of two such pages."""
ROWS_PER_STRIP, TILE_LENGTH = 278, 323
TURN_NAMES = "FLIP_LEFT_RIGHT ROTATE_180 FLIP_TOP_BOTTOM TRANSPOSE ROTATE_270 TRANSVERSE ROTATE_90"
TURNS = {number: Image.Transpose[name] for number, name in enumerate(TURN_NAMES.split(), start=2)}
"""What makes an image with this EXIF orientation upright; 1 = it is."""

MIN_BUDGET, BUDGET_PER_THREAD = 256 << 20, 64 << 20
"""Bytes that images being decoded may take together: the larger of the first, and the second for each processor.
A photograph of 16 million pixels takes 64 MiB."""


class MemoryBudget:
    """Memory that threads share. Each waits until there is enough; one that wants more than all of it gets all."""

    def __init__(self, nbytes: int) -> None:
        self._all = self._free = nbytes
        self._changed = Condition()

    @contextlib.contextmanager
    def taken(self, nbytes: int) -> Iterator[None]:
        nbytes = min(nbytes, self._all)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= nbytes)
            self._free -= nbytes
        try:
            yield
        finally:
            with self._changed:
                self._free += nbytes
                self._changed.notify_all()


DECODE_BUDGET = MemoryBudget(max(MIN_BUDGET, BUDGET_PER_THREAD * cpu_count()))
"""Of all images that this process decodes."""

Box = tuple[float, float, float, float]
"""left, top, right, bottom in pixels."""

# Pillow warns from half of MAX_PIXELS on. Such an image is decoded or becomes a problem, and the bound is ours.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
if "PILLOW_BLOCK_SIZE" not in os.environ:
    # Pillow keeps pixels in blocks of 16 MiB. C libraries give back to the system what is larger than 32 MiB, and may
    # keep what is smaller for the thread that asked for it: each thread would hold on to the largest image it has read.
    Image.core.set_block_size(64 << 20)


class ImageProblem(Exception):
    """An image cannot be used; the message is a sentence for the person who owns it."""


def read_image(path: str) -> tuple[Image.Image, str]:
    """Return the image at `path` ("file" or "file#index") as RGB, upright, and a note ("" = nothing to say).

    Transparency is laid on white, of several frames the first is taken. Raises ImageProblem.
    """
    with open_image(path) as image:
        image.load()
        return image.rgb(), image.note


class OpenImage:
    """An image whose file is open. What decoding takes is known; the pixels come on demand, upright and as RGB."""

    def __init__(
        self,
        image: Image.Image,
        path: str,
        nbytes: int,
        part: CutBox | None = None,
        drafted: tuple[int, tuple[int, int]] | None = None,
    ) -> None:
        """part: the box that is wanted of it; None = the whole. drafted: how many times smaller it is decoded, and its
        size in the file."""
        self._image, self._path, self._wanted = image, path, part
        self._drafted = drafted or (1, image.size)
        self._orientation = 1
        self._window: Window | None = None
        self.nbytes = nbytes
        """Memory that `load` and `rgb` take, at most."""
        self.note = ""
        """What a person should know of it; complete after `load`."""

    def load(self) -> None:
        """Decode; the image stays in the mode that it has."""
        frames = _frames_note(self._image)
        self._image.load()
        if min(self._image.size) < 1:
            raise ImageProblem(f"{self._path} has no pixels.")
        depth = ""
        if self._image.mode in WIDE_MODES:
            self._window = stated_window(self._image)
            if self._window is None and self._image.mode in ("I", "F"):
                raise ImageProblem(
                    f"{self._path} has 32-bit values and states no window; save it with 8 or 16 bits, or with one."
                )
            self._window = self._window or usual_window(self._image)
            depth = window_note(self._window)
        elif "shown" in self._image.info and self._image.format == "DICOM":
            depth = window_note(self._image.info["shown"])
        self._orientation, exif = _orientation(self._image)
        self.note = "; ".join(note for note in (frames, exif, depth) if note)

    def shot(self) -> ExifData:
        """Return when, where and with which camera it was taken; to be asked before `load`."""
        return exif_from_bytes(self._image)

    @contextlib.contextmanager
    def loaded(self) -> Iterator[None]:
        """Decode, and forget the pixels at the end of the block, so that their memory is free then."""
        try:
            self.load()
            yield
        finally:
            self._image.close()

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height, upright."""
        left, top, right, bottom = self._cut(self._image.size)
        return right - left, bottom - top

    @property
    def whole(self) -> tuple[int, int]:
        """Return the size that it would have if it were not decoded smaller."""
        left, top, right, bottom = self._cut(self._drafted[1])
        return right - left, bottom - top

    @property
    def frame(self) -> Box:
        """Return where all of that lies in `rgb`: of an image decoded smaller, the last pixels are less than one."""
        times, stored = self._drafted
        if self._wanted is not None:
            return 0, 0, *self.size
        width, height = stored[0] / times, stored[1] / times
        left = self._image.width - width if self._orientation in (2, 3, 7, 8) else 0
        top = self._image.height - height if self._orientation in (3, 4, 6, 7) else 0
        box = (left, top, left + width, top + height)
        return box if self._orientation < 5 else (box[1], box[0], box[3], box[2])

    def _cut(self, size: tuple[int, int]) -> Rectangle:
        """Return what is wanted of the upright image. size: as stored."""
        width, height = size if self._orientation < 5 else size[::-1]
        return self._wanted.cut((width, height)) if self._wanted else (0, 0, width, height)

    def rgb(self) -> Image.Image:
        """Return the whole image, or the box of it."""
        left, top, right, bottom = self._cut(self._image.size)
        if _is_rgb(self._image) and self._orientation == 1 and self._wanted is None:
            return self._image
        lines = max(1, STRIP // (right - left))
        if bottom - top <= lines:
            return self._part(left, top, right, bottom)
        whole = Image.new("RGB", self.size)
        for first in range(top, bottom, lines):
            whole.paste(self._part(left, first, right, min(first + lines, bottom)), (0, first - top))
        return whole

    def _part(self, left: int, top: int, right: int, bottom: int) -> Image.Image:
        """Return a part of the upright image, as RGB."""
        width, height = self._image.size
        # where it lies as stored: swapped where the image is turned by a quarter, then counted from the other end
        box = (left, top, right, bottom) if self._orientation < 5 else (top, left, bottom, right)
        if self._orientation in (2, 3, 7, 8):
            box = (width - box[2], box[1], width - box[0], box[3])
        if self._orientation in (3, 4, 6, 7):
            box = (box[0], height - box[3], box[2], height - box[1])
        part = self._image
        if box != (0, 0, width, height):
            part = self._image.crop(box)
        if self._orientation in TURNS:
            part = part.transpose(TURNS[self._orientation])
        return _to_rgb(part, self._window)


@contextlib.contextmanager
def open_image(path: str, about: int | None = None) -> Iterator[OpenImage]:
    """Open the image at `path`, "file", "file#index" or an address, with a box or without. Whatever goes wrong before
    it is closed becomes an ImageProblem.

    about: a JPEG may be decoded smaller and quicker, with sides of at least so many pixels.
    """
    try:
        name, box = split_box(path)
        part = split_archive(name)
        if part is not None:
            image = Image.fromarray(read_array(*part))
            yield OpenImage(image, path, decoding_bytes(image, image.size, box), box)
            return
        content = open_image_bytes(name)
        if isinstance(content, str) and not os.path.isfile(name):
            raise ImageProblem(f"{path} is not a file.")
        if (os.path.getsize(name) if isinstance(content, str) else content.getbuffer().nbytes) == 0:
            raise ImageProblem(f"{path} is empty (0 bytes).")
        with _opened(content) as file:
            if about and file.format == "TIFF":
                _seek_reduced(file, math.ceil(about / min(box.w, box.h)) if box else about)
            size, times = file.size, 1
            if about and file.format in ("JPEG", "MPO") and file.mode == "RGB":
                least = math.ceil(about / min(box.w, box.h)) if box else about
                if drafted := file.draft("RGB", (least, least)):
                    times = round(size[0] / drafted[1][2])
            nbytes = decoding_bytes(file, size, box)
            if math.prod(file.size) > MAX_PIXELS or nbytes > MAX_BYTES:
                sides = f"{size[0]:,} x {size[1]:,} pixels"
                raise ImageProblem(
                    f"{path} is too large ({sides}, {nbytes / 1e9:.1f} GB to decode); shrink it, or save it as JPEG "
                    "or as a TIFF with smaller pages, of which the one that is needed is read."
                )
            yield OpenImage(file, path, nbytes, box, (times, size))
    except ImageProblem:
        raise
    except Exception as error:  # decoders fail in many ways on damaged files; none may stop a run
        raise ImageProblem(_decode_error(error, path)) from error


_bound_lock = Lock()


def _opened(content: str | io.BytesIO) -> Image.Image:
    """Open a file of any size: what is decoded of it is bounded by `open_image`, which may be a small part."""
    try:
        return Image.open(content, formats=decoders())
    except Image.DecompressionBombError:
        if isinstance(content, io.BytesIO):
            content.seek(0)
        with _bound_lock:
            bound, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            try:
                return Image.open(content, formats=SCALED)
            except UnidentifiedImageError:
                raise Image.DecompressionBombError from None
            finally:
                Image.MAX_IMAGE_PIXELS = bound


def _seek_reduced(file: Image.Image, about: int) -> None:
    """Go to the smallest page of a scan that shows the whole of it with sides of at least `about` pixels."""
    (width, height), best = file.size, (math.prod(file.size), 0)
    for page in range(1, min(getattr(file, "n_frames", 1), MAX_PAGES)):
        file.seek(page)
        w, h = file.size
        alike = abs(w * height - h * width) <= SAME_SHAPE * width * height
        if alike and min(w, h) >= about and w < width:
            best = min(best, (w * h, page))
    file.seek(best[1])


def _decode_error(error: Exception, path: str) -> str:
    """Return a decoder's complaint as a sentence."""
    if isinstance(error, ArchiveProblem | StorageError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        package = install_hint(path)
        hint = f"; {package} would read it if it were installed" if package else ""
        return f"{path} is not an image of a kind that can be read{hint}."
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"{path} is too large (more than {MAX_PIXELS:,} pixels); shrink it first."
    if isinstance(error, MemoryError):
        return f"{path} takes more memory than there is; shrink it first."
    if isinstance(error, OSError) and error.errno is not None:
        return f"{path} cannot be read ({error.strerror})."
    return f"{path} is damaged or cut off ({' '.join(str(error).split())})."


def decoding_bytes(image: Image.Image, size: tuple[int, int], box: CutBox | None = None) -> int:
    """Return the memory that an open image, or a box of it, takes at most until it is RGB, from what its head says.
    size: as it is in the file."""
    kept = math.prod(image.size) * SMALL_MODES.get(image.mode, 4)
    decoding = kept
    if image.format in COSTLY_MODES:
        decoding = math.prod(size) * COSTLY_MODES[image.format]
    elif image.format in ("JPEG", "MPO") and image.info.get("progressive"):
        # 16 bits a coefficient, all before the first pixel
        decoding += math.prod(size) * 2 * len(image.getbands())
    elif image.format == "TIFF":
        tags = getattr(image, "tag_v2", {})
        lines = tags.get(ROWS_PER_STRIP, tags.get(TILE_LENGTH, size[1]))  # decoded at once
        decoding += size[0] * min(size[1], lines if isinstance(lines, int) else size[1]) * 5
    # A PNG file may have EXIF data behind the pixels, and asking for them would decode it.
    head_only = image.format == "PNG" and "exif" not in image.info
    ready = _is_rgb(image) and box is None and (head_only or _orientation(image)[0] == 1)
    return max(decoding, kept if ready else kept + 4 * math.prod(image.size))


def _is_rgb(image: Image.Image) -> bool:
    return image.mode == "RGB" and "transparency" not in image.info


def _frames_note(image: Image.Image) -> str:
    """Leave the image at its first frame. MPO is a photograph with its preview, not several pictures."""
    frames = int(getattr(image, "n_frames", 1))
    if frames <= 1 or image.format == "MPO":
        return ""
    if image.tell():
        return "a smaller page of the scan used"
    image.seek(0)
    return f"first of {frames} frames used"


def _orientation(image: Image.Image) -> tuple[int, str]:
    """Return how its EXIF data ask to turn it, a key of TURNS or 1, and a note.

    ImageOps.exif_transpose also writes the EXIF data anew, which fails on some that can be read.
    """
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:  # the pixels are sound; only the camera's remarks are not
        return 1, "unreadable EXIF data ignored"
    return (orientation if orientation in TURNS else 1), ""


def _to_rgb(image: Image.Image, window: Window | None = None) -> Image.Image:
    if window is not None:  # PIL's own conversion clips at 255
        return Image.fromarray(apply_window(np.asarray(image), window)).convert("RGB")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, layer).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


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
            given = os.fspath(picture)
            paths.append(given if is_address(str(given)) else os.path.abspath(given))
            continue
        image = _for_png(_to_image(picture, number))
        digest = hashlib.sha256(f"{image.mode} {image.size} ".encode() + image.tobytes()).hexdigest()[:12]
        path = Path(os.path.abspath(folder)) / f"{number:0{digits}d}-{digest}.png"
        if not path.is_file():
            write_bytes(path, encode_image(image, "PNG"))
        paths.append(str(path))
    return paths


def read_resized(path: str, side: int, about: int, *, enlarge: bool = False) -> Image.Image:
    """Read an image in RGB, its longer side shrunk to `side` pixels. Raises ImageProblem.

    about: as of `open_image`. enlarge: let a smaller one grow to that size.
    """
    with open_image(path, about=about) as image, DECODE_BUDGET.taken(image.nbytes), image.loaded():
        scale = side / max(image.size) if enlarge else min(1.0, side / max(image.size))
        width, height = (max(1, round(length * scale)) for length in image.size)
        how = Image.Resampling.BICUBIC if scale > 1 else Image.Resampling.LANCZOS
        return image.rgb().resize((width, height), how, reducing_gap=2.0)


def encode_image(image: Image.Image, format: str, **how: Any) -> bytes:
    """Return what a file of an image holds, for whoever writes it. how: of Pillow's `save`.

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
    orientation, _ = _orientation(image)
    if orientation in TURNS:
        image = image.transpose(TURNS[orientation])
    if image.mode == "P":  # its pixels are numbers of colours, and the digest does not see these
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    return image if image.mode in ("1", "L", "LA", "RGB", "RGBA", "I;16") else image.convert("RGB")
