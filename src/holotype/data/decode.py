"""Decode images of any kind into RGB pixels: one by one, shrunk, or many in order in threads.

A file of some kB may hold gigabytes of pixels. The memory that decoding takes is known from the file's header, before
a pixel is read, and images beyond MAX_PIXELS or MAX_BYTES are refused. Decoded pixels are turned upright and made RGB
in strips, so that there are two copies at most, and one of an image that is upright RGB already.

An image with more than 8 bits is shown through a window, the grey values that become black and white. A file may state
it: TIFF as the display range that ImageJ and Fiji write, or as its tags for the smallest and the largest sample; PNG as
a text `window` such as 120,4095; DICOM as its window. A 16-bit file without one counts as 12 bits if no value is larger
than 4,095, else as 16. Values of 32 bits need a stated window.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import warnings
from collections.abc import Generator, Iterator, Sequence
from threading import Condition, Lock
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from holotype.data.boxes import Box, Rectangle, split_box
from holotype.data.exif import ORIENTATION_TAG, ExifData, exif_from_bytes
from holotype.data.hashing import open_image_bytes
from holotype.data.image_files import ArchiveProblem, decoders, install_hint, read_array, split_archive
from holotype.data.storage import StorageError
from holotype.utils.device import cpu_count, thread_map

MAX_PIXELS = 178_956_970
"""Of one image. Pillow refuses more as well; the largest cameras take 150 million."""
MAX_BYTES = 1_000_000_000
"""That one image may take until it is RGB: as many as MAX_PIXELS do, or 125 million with transparency or turned."""
STRIP = 1 << 20
"""Pixels that are turned upright and made RGB together."""
GREY_16 = ("I;16", "I;16L", "I;16B", "I;16N")
WIDE_MODES = (*GREY_16, "I", "F")
"""Pillow's modes of more than 8 bits."""
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
    """Memory that threads share. Each waits until enough is free; one that needs more than all of it gets all."""

    def __init__(self, nbytes: int) -> None:
        self._total = self._free = nbytes
        self._changed = Condition()

    @contextlib.contextmanager
    def reserve(self, nbytes: int) -> Iterator[None]:
        nbytes = min(nbytes, self._total)
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

Region = tuple[float, float, float, float]
"""left, top, right, bottom in pixels."""

# Pillow warns from half of MAX_PIXELS on. Such an image is decoded or becomes a problem, and the bound is ours.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
if "PILLOW_BLOCK_SIZE" not in os.environ:
    # Pillow keeps pixels in blocks of 16 MiB. C libraries give back to the system what is larger than 32 MiB, and may
    # keep what is smaller for the thread that asked for it: each thread would hold on to the largest image it has read.
    Image.core.set_block_size(64 << 20)


Window = tuple[float, float]
"""The values that become 0 and 255."""
DESCRIPTION, SAMPLE_TAGS = 270, ((340, 341), (280, 281))
TOP_12, TOP_16 = 4095, 65535


def file_window(image: Image.Image) -> Window | None:
    """Return the window that an open file states; None where it states no valid one."""
    low: Any = None
    high: Any = None
    if image.format == "TIFF":
        tags = getattr(image, "tag_v2", {})
        text = str(tags.get(DESCRIPTION, ""))
        ends = [re.search(rf"^{name}=([-+.\deE]+)\s*$", text, re.MULTILINE) for name in ("min", "max")]
        if ends[0] and ends[1]:
            low, high = ends[0][1], ends[1][1]
        else:
            pairs = [(tags[first], tags[last]) for first, last in SAMPLE_TAGS if {first, last} <= {*tags}]
            low, high = pairs[0] if pairs else (None, None)
    elif image.format == "PNG" and isinstance(stated := image.info.get("window"), str):
        low, _, high = stated.partition(",")
    try:
        window = tuple(float(end[0] if isinstance(end, tuple) else end) for end in (low, high))
    except (TypeError, ValueError, IndexError):
        return None
    return window if all(map(math.isfinite, window)) and window[0] < window[1] else None  # type: ignore[return-value]


def default_window(image: Image.Image) -> Window:
    """Return the window of a decoded 16-bit image whose file states none."""
    top = np.asarray(image).max(initial=0)
    return 0.0, float(TOP_12 if top <= TOP_12 else TOP_16)


def window_note(window: Window) -> str:
    """Return the note about the grey values that are shown."""
    return f"grey values from {window[0]:,g} to {window[1]:,g} shown"


def apply_window(values: np.ndarray, window: Window) -> np.ndarray:
    """(H, W) grey values of any type -> (H, W) uint8; NaN becomes black."""
    low, high = window
    scaled = (values.astype(np.float32) - np.float32(low)) * np.float32(255 / (high - low))
    return np.rint(np.clip(np.nan_to_num(scaled), 0, 255)).astype(np.uint8)


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
    """An image whose file is open and whose memory need is known; the pixels come on demand, upright and as RGB."""

    def __init__(
        self,
        image: Image.Image,
        path: str,
        nbytes: int,
        box: Box | None = None,
        shrunk: tuple[int, tuple[int, int]] | None = None,
    ) -> None:
        """box: the part of the image to return; None = the whole. shrunk: how many times smaller the file is decoded,
        and its size in the file."""
        self._image, self._path, self._box = image, path, box
        self._shrunk = shrunk or (1, image.size)
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
        grey = ""
        if self._image.mode in WIDE_MODES:
            self._window = file_window(self._image)
            if self._window is None and self._image.mode in ("I", "F"):
                raise ImageProblem(
                    f"{self._path} has 32-bit values and states no window; save it with 8 or 16 bits, or with one."
                )
            self._window = self._window or default_window(self._image)
            grey = window_note(self._window)
        elif "shown" in self._image.info and self._image.format == "DICOM":
            grey = window_note(self._image.info["shown"])
        self._orientation, exif = exif_orientation(self._image)
        self.note = "; ".join(note for note in (frames, exif, grey) if note)

    def exif(self) -> ExifData:
        """Return when, where and with which camera it was taken; call it before `load`."""
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
    def full_size(self) -> tuple[int, int]:
        """Return the size that it has without decoding it smaller."""
        left, top, right, bottom = self._cut(self._shrunk[1])
        return right - left, bottom - top

    @property
    def region(self) -> Region:
        """Return where the full size lies in `rgb`: of an image decoded smaller, the last pixels are less than one."""
        times, stored = self._shrunk
        if self._box is not None:
            return 0, 0, *self.size
        width, height = stored[0] / times, stored[1] / times
        left = self._image.width - width if self._orientation in (2, 3, 7, 8) else 0
        top = self._image.height - height if self._orientation in (3, 4, 6, 7) else 0
        if self._orientation < 5:
            return left, top, left + width, top + height
        return top, left, top + height, left + width

    def _cut(self, size: tuple[int, int]) -> Rectangle:
        """Return the box, or the whole, in pixels of the upright image. size: as stored."""
        width, height = size if self._orientation < 5 else size[::-1]
        return self._box.cut((width, height)) if self._box else (0, 0, width, height)

    def rgb(self) -> Image.Image:
        """Return the whole image, or the box of it."""
        left, top, right, bottom = self._cut(self._image.size)
        if _is_rgb(self._image) and self._orientation == 1 and self._box is None:
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
def open_image(path: str, min_side: int | None = None) -> Iterator[OpenImage]:
    """Open the image at `path`, "file", "file#index" or an address, with a box or without. Whatever goes wrong before
    it is closed becomes an ImageProblem.

    min_side: a JPEG may be decoded smaller and quicker, with sides of at least so many pixels.
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
            least = math.ceil(min_side / min(box.w, box.h)) if min_side and box else min_side
            if least and file.format == "TIFF":
                _seek_reduced(file, least)
            size, times = file.size, 1
            can_shrink = file.format in ("JPEG", "MPO") and file.mode == "RGB"
            if least and can_shrink and (drafted := file.draft("RGB", (least, least))):
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


def _seek_reduced(file: Image.Image, least: int) -> None:
    """Go to the smallest page of a scan that shows the whole of it with sides of at least `least` pixels."""
    (width, height), best = file.size, (math.prod(file.size), 0)
    for page in range(1, min(getattr(file, "n_frames", 1), MAX_PAGES)):
        file.seek(page)
        w, h = file.size
        alike = abs(w * height - h * width) <= SAME_SHAPE * width * height
        if alike and min(w, h) >= least and w < width:
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


def decoding_bytes(image: Image.Image, size: tuple[int, int], box: Box | None = None) -> int:
    """Return the memory that an open image, or a box of it, takes at most until it is RGB, from what its head says.
    size: as it is in the file."""
    stored = math.prod(image.size) * SMALL_MODES.get(image.mode, 4)
    decoding = stored
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
    ready = _is_rgb(image) and box is None and (head_only or exif_orientation(image)[0] == 1)
    return max(decoding, stored if ready else stored + 4 * math.prod(image.size))


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


def exif_orientation(image: Image.Image) -> tuple[int, str]:
    """Return the EXIF orientation, a key of TURNS or 1, and a note.

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


def read_resized(path: str, side: int, min_side: int, *, enlarge: bool = False) -> Image.Image:
    """Read an image in RGB, its longer side shrunk to `side` pixels. Raises ImageProblem.

    min_side: as of `open_image`. enlarge: let a smaller one grow to that size.
    """
    with open_image(path, min_side) as image, DECODE_BUDGET.reserve(image.nbytes), image.loaded():
        scale = side / max(image.size) if enlarge else min(1.0, side / max(image.size))
        width, height = (max(1, round(length * scale)) for length in image.size)
        resampling = Image.Resampling.BICUBIC if scale > 1 else Image.Resampling.LANCZOS
        return image.rgb().resize((width, height), resampling, reducing_gap=2.0)


def encode_image(image: Image.Image, format: str, **options: Any) -> bytes:
    """Return the bytes of an image file. options: of Pillow's `save`.

    Pillow itself, given a file, does not notice where the last bytes of it no longer fit on the disk.
    """
    content = io.BytesIO()
    image.save(content, format=format, **options)
    return content.getvalue()


LONGEST_SIDE_RATIO = 4
"""An image's longer side is cut to at most this many times its shorter side."""
DRAFT = 2
"""An image that is decoded smaller keeps at least so many times the sides that it is shrunk to: JPEG files are decoded
at 1/2, 1/4 or 1/8 of their sides, as for thumbnails, which takes a fifth of the time for 12 million pixels."""
DRAFT_ERROR = (4, 24)
"""Mean and largest difference from the pixels of the image decoded whole, of 255, that tests allow for noise and hard
chequers, the worst cases. A photograph differs by less than 1 in the mean."""


class Decoded(NamedTuple):
    """One image; (0, 0, 3) pixels if it has a problem."""

    pixels: np.ndarray
    problem: str
    note: str


def decode_one(path: str, short: int, draft: int = DRAFT) -> Decoded:
    """Read an image and bring its shorter side to `short`; whatever goes wrong becomes its problem.

    draft: 0 decodes every image whole.
    """
    try:
        with open_image(path, draft * short) as image, DECODE_BUDGET.reserve(image.nbytes), image.loaded():
            size, crop, note = _resized_size(image.full_size, short)
            left, top, right, bottom = image.region
            x, y = (right - left) / image.full_size[0], (bottom - top) / image.full_size[1]
            if crop is not None:
                crop = (left + x * crop[0], top + y * crop[1], left + x * crop[2], top + y * crop[3])
            resized = image.rgb().resize(size, Image.Resampling.BICUBIC, crop or image.region)
        return Decoded(np.asarray(resized), "", "; ".join(filter(None, (image.note, note))))
    except ImageProblem as problem:
        return Decoded(np.empty((0, 0, 3), dtype=np.uint8), str(problem), "")


def _resized_size(size: tuple[int, int], short: int) -> tuple[tuple[int, int], Region | None, str]:
    """Return the size that brings the shorter side to `short`; where the longer side is cut, also the part to take and
    a note."""
    width, height = size
    side = min(width, height)
    to_width, to_height = short * width // side, short * height // side
    limit = LONGEST_SIDE_RATIO * short
    if max(to_width, to_height) <= limit:
        return (to_width, to_height), None, ""
    # Only the middle is ever computed: a strip one pixel high would fill the memory if resized whole.
    keep_width, keep_height = min(to_width, limit), min(to_height, limit)
    x, y = (to_width - keep_width) // 2, (to_height - keep_height) // 2
    left, right = x * width / to_width, (x + keep_width) * width / to_width
    top, bottom = y * height / to_height, (y + keep_height) * height / to_height
    note = f"{width} x {height} pixels: only the middle used, {LONGEST_SIDE_RATIO} times the shorter side"
    return (keep_width, keep_height), (left, top, right, bottom), note


class DecodedImages:
    """Decoded images that are needed once more, as many as `limit` bytes hold."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._images: dict[tuple[str, int], Decoded] = {}

    def add(self, path: str, short: int, image: Decoded) -> None:
        if image.pixels.nbytes <= self.limit and not image.problem:
            self.limit -= image.pixels.nbytes
            self._images[path, short] = image

    def take(self, path: str, short: int) -> Decoded | None:
        """Remove and return an image."""
        return self._images.pop((path, short), None)

    def clear(self) -> None:
        self._images.clear()


def decode_in_order(
    paths: Sequence[str],
    short: int,
    workers: int | None,
    progress: bool,
    *,
    draft: int = DRAFT,
    decoded: DecodedImages | None = None,
) -> Generator[Decoded, None, None]:
    """Decode in threads and yield in the order of `paths`, with a bar on the terminal.

    Processes are no faster, on two processors and on sixteen (docs/performance.md).

    workers: threads, by default one a processor. draft: as of decode_one. decoded: images that are read already.
    """

    def find_or_decode(path: str) -> Decoded:
        return (decoded.take(path, short) if decoded else None) or decode_one(path, short, draft)

    yield from thread_map(find_or_decode, paths, "Reading images", progress, workers or cpu_count())
