"""Image headers: size, format and time of an image file, without reading pixels."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from PIL import Image

from holotype.data.boxes import split_box
from holotype.data.decode import ORIENTATION_TAG
from holotype.data.exif import EXIF_IFD, has_exif_header, taken_at
from holotype.data.hashing import file_stamps, open_image_bytes
from holotype.data.image_files import decoders, read_array, split_archive
from holotype.utils.console import progress_bar
from holotype.utils.device import cpu_count

HEADERS_AT_ONCE, HEADER_BATCH = 1024, 32
"""Images whose heads are asked for together, and by one thread: threads help where files lie on a slow drive."""
CAMERA_CLOCK, CAMERA_CLOCK_NO_ZONE, FILE_CLOCK = "camera", "camera without a time zone", "file"
"""Where a time comes from."""


@dataclass(frozen=True)
class ImageHeader:
    """Of one image whose file is there."""

    width: int
    """Upright, in pixels; 0 where the file cannot be read."""
    height: int
    mediatype: str
    """Such as image/jpeg."""
    time: datetime
    """When it was taken, with a time zone: where the file names none, that of this computer."""
    clock: str
    """CAMERA, CAMERA_WITHOUT_ZONE or FILE: the time of the file, because there is no other."""


def read_headers(paths: Sequence[str], progress: bool) -> Iterator[ImageHeader]:
    """In the order of the paths, "file" or "file#index", all of which are there."""
    with (
        progress_bar("Reading heads of images", len(paths), progress) as advance,
        ThreadPoolExecutor(min(8, 2 * cpu_count())) as pool,
    ):
        for first in range(0, len(paths), HEADERS_AT_ONCE):
            some = paths[first : first + HEADERS_AT_ONCE]
            parts = [some[i : i + HEADER_BATCH] for i in range(0, len(some), HEADER_BATCH)]
            for heads in pool.map(lambda part: [read_header(path) for path in part], parts):
                yield from heads
            advance(len(some))


def read_header(path: str) -> ImageHeader:
    """Whatever cannot be read is left out; an image inside a container has the time of its container, a box the head of
    its picture."""
    path, _ = split_box(path)
    if part := split_archive(path):
        return ImageHeader(*_array_size(*part), "image/png", _file_time(part[0]), FILE_CLOCK)
    size, mediatype, taken = (0, 0), "", None
    try:
        with Image.open(open_image_bytes(path), formats=decoders()) as image:
            size, mediatype = image.size, Image.MIME.get(image.format or "", "")
            if has_exif_header(image):
                exif = image.getexif()
                size = size[::-1] if exif.get(ORIENTATION_TAG) in (5, 6, 7, 8) else size
                taken = taken_at(exif.get_ifd(EXIF_IFD))
    except Exception:  # decoders fail in many ways on damaged files, and EXIF data are often odd
        pass
    clock = FILE_CLOCK if taken is None else CAMERA_CLOCK if taken.tzinfo else CAMERA_CLOCK_NO_ZONE
    time = _file_time(path) if taken is None else _with_zone(taken)
    return ImageHeader(*size, mediatype if mediatype.startswith("image/") else _by_ending(path), time, clock)


def _with_zone(time: datetime) -> datetime:
    try:
        return time if time.tzinfo else time.astimezone()
    except (OSError, OverflowError, ValueError):  # before 1970 some systems know no zones
        return time.replace(tzinfo=UTC)


def _file_time(file: str) -> datetime:
    (stamp,) = file_stamps([file])
    return datetime.fromtimestamp(int(stamp.partition("-")[2] or 0) / 1e9).astimezone()


def _array_size(file: str, index: int) -> tuple[int, int]:
    try:
        height, width = read_array(file, index).shape[:2]
    except Exception:  # a container that was cut off since
        return 0, 0
    return width, height


def _by_ending(path: str) -> str:
    guess = mimetypes.guess_type(path)[0] or ""
    return guess if guess.startswith("image/") else "image/unknown"
