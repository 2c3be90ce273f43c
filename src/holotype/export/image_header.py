"""Image headers: size, format and time of an image file, without reading pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holotype.data.boxes import split_box
from holotype.data.exif import read_heads
from holotype.data.hashing import file_stamps

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


def read_headers(paths: Sequence[str], progress: bool = False) -> list[ImageHeader]:
    """Return the header of every path, in their order; all files must exist.

    An image inside a container has the time of its container, a box the header of its picture.
    """
    files = [split_box(path)[0] for path in paths]
    headers = []
    for head, stamp in zip(read_heads(files, progress), file_stamps(files), strict=True):
        if head.exif.taken:
            taken = datetime.fromisoformat(head.exif.taken)
            time, clock = taken.astimezone(), CAMERA_CLOCK_NO_ZONE
            if taken.tzinfo:
                time, clock = taken, CAMERA_CLOCK
        else:
            time = datetime.fromtimestamp(int(stamp.partition("-")[2] or 0) / 1e9).astimezone()
            clock = FILE_CLOCK
        headers.append(ImageHeader(head.width, head.height, head.mediatype, time, clock))
    return headers
