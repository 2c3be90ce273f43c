"""Image headers: size, format and time of an image file, without reading pixels."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from PIL import Image

from holotype.data.boxes import split_box
from holotype.data.decode import ORIENTATION_TAG
from holotype.data.exif import EXIF_IFD, has_exif_header, taken_at
from holotype.data.hashing import file_stamps, open_image_bytes
from holotype.data.image_files import decoders, read_array, split_archive
from holotype.utils.console import progress_bar
from holotype.utils.device import cpu_count

HEADERS_AT_ONCE = 1024
"""Images that wait for the threads together; threads help where files lie on a slow drive."""
CAMERA_CLOCK, CAMERA_CLOCK_NO_ZONE, FILE_CLOCK = "camera", "camera without a time zone", "file"
"""Where a time comes from."""


@dataclass(frozen=True)
class ImageHeader:
    """Size, format and time of one image whose file exists."""

    width: int
    """Upright, in pixels; 0 where the file cannot be read."""
    height: int
    mediatype: str
    """Such as image/jpeg."""
    time: datetime
    """When it was taken, with a time zone: where the file names none, that of this computer."""
    clock: str
    """CAMERA_CLOCK, CAMERA_CLOCK_NO_ZONE, or FILE_CLOCK: the time of the file, because there is no other."""


def read_headers(paths: Sequence[str], progress: bool) -> Iterator[ImageHeader]:
    """Yield the header of every path ("file" or "file#index"), in their order; all files must exist."""
    with (
        progress_bar("Reading heads of images", len(paths), progress) as advance,
        ThreadPoolExecutor(min(8, 2 * cpu_count())) as pool,
    ):
        for first in range(0, len(paths), HEADERS_AT_ONCE):
            batch = paths[first : first + HEADERS_AT_ONCE]
            yield from pool.map(read_header, batch)
            advance(len(batch))


def read_header(path: str) -> ImageHeader:
    """Return the header of one image; what cannot be read is left out.

    An image inside a container has the time of its container, a box the header of its picture.
    """
    path, _ = split_box(path)
    size, mediatype, clock = (0, 0), mimetypes.guess_type(path)[0] or "", FILE_CLOCK
    try:
        if part := split_archive(path):
            mediatype = "image/png"
            height, width = read_array(*part).shape[:2]
            size = width, height
        else:
            with Image.open(open_image_bytes(path), formats=decoders()) as image:
                size, mediatype = image.size, Image.MIME.get(image.format or "", mediatype)
                if has_exif_header(image):
                    exif = image.getexif()
                    if (
                        exif.get(ORIENTATION_TAG) in (5, 6, 7, 8) and image.format != "TIFF"
                    ):  # Pillow turns it
                        size = size[::-1]
                    if taken := taken_at(exif.get_ifd(EXIF_IFD)):
                        time = taken if taken.tzinfo else taken.astimezone()
                        clock = CAMERA_CLOCK if taken.tzinfo else CAMERA_CLOCK_NO_ZONE
    except Exception:  # decoders fail in many ways on damaged files, and EXIF data are often odd
        pass
    if clock == FILE_CLOCK:
        (stamp,) = file_stamps([path])
        time = datetime.fromtimestamp(int(stamp.partition("-")[2] or 0) / 1e9).astimezone()
    return ImageHeader(*size, mediatype if mediatype.startswith("image/") else "image/unknown", time, clock)
