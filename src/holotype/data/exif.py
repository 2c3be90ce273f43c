"""When, where and with which camera a picture was taken, from the head of its file; with its size,
format and clock, where a form of export wants these. No pixels are read.

What a camera writes is often odd. Nothing of it stops anything: what makes no sense is left out.
"""

from __future__ import annotations

import contextlib
import math
import mimetypes
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from PIL import Image

from holotype.data.boxes import split_box
from holotype.data.hashing import file_stamps, open_image_bytes
from holotype.data.image_files import decoders, read_array, split_archive
from holotype.utils.device import cpu_count, thread_map

ORIENTATION_TAG, MAKE, MODEL, EXIF_IFD, GPS_IFD = 0x0112, 0x010F, 0x0110, 0x8769, 0x8825
SERIAL = 0xA431
TAKEN = ((0x9003, 0x9011), (0x9004, 0x9012))
"""EXIF tags of a time and of its offset from UTC: when the picture was taken, when it was digitised."""
TIME = re.compile(r"(\d{4})[:/-](\d\d)[:/-](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.\d+)?", re.ASCII)
"""2024:05:31 08:25:38, and what some devices make of it. A day alone is no time."""
OFFSET = re.compile(r"([+-])(\d\d):?([0-5]\d)", re.ASCII)
LATITUDE, LONGITUDE = (1, 2, 90.0), (3, 4, 180.0)
"""GPS tags of N, S, E or W and of degrees, minutes and seconds; and the largest number of degrees."""
MAX_TEXT = 80
"""Letters of a camera's name."""

# Pillow warns of every odd tag, and nobody can do anything about it.
warnings.filterwarnings("ignore", category=UserWarning, module="PIL.TiffImagePlugin")


@dataclass(frozen=True)
class ExifData:
    """What the head of a file says of its picture."""

    taken: str = ""
    """ISO 8601 to the second, with the offset from UTC where the camera tells it; "" = not known."""
    latitude: float = math.nan
    """Degrees, north is positive; NaN = not known."""
    longitude: float = math.nan
    """Degrees, east is positive."""
    camera: str = ""
    """Make, model and serial number, as far as they are known."""
    serial: bool = False
    """Is there a serial number in it? Then no two cameras share the name."""


NO_EXIF = ExifData()


class ImageHead(NamedTuple):
    """Size, format and EXIF data of a picture."""

    width: int
    """Upright, in pixels; 0 where the file cannot be read."""
    height: int
    mediatype: str
    """Such as image/jpeg."""
    exif: ExifData


def read_exif_all(paths: Sequence[str], progress: bool = False) -> list[ExifData]:
    """Return the data of images, in the order of the paths. An image inside an array file has no head of its own."""
    heads = read_heads([split_box(path)[0] for path in paths], progress)
    return [NO_EXIF if split_archive(path) else head.exif for path, head in zip(paths, heads, strict=True)]


def upright_sizes(files: Sequence[str]) -> dict[str, tuple[int, int] | None]:
    """Return width and height of pictures as people see them; None where one cannot be read."""
    heads = zip(files, read_heads(files), strict=True)
    return {file: (head.width, head.height) if head.width else None for file, head in heads}


def read_heads(files: Sequence[str], progress: bool = False) -> list[ImageHead]:
    """Return the heads of pictures ("file" or "file#index"), in their order; each is read once."""
    unique = list(dict.fromkeys(files))
    # more threads than processors help where files lie on a slow drive
    heads = thread_map(read_head, unique, "Reading heads of images", progress, min(8, 2 * cpu_count()))
    known = dict(zip(unique, heads, strict=True))
    return [known[file] for file in files]


def read_head(file: str) -> ImageHead:
    """Return the head of one picture; what cannot be read is left out."""
    part, mediatype = split_archive(file), mimetypes.guess_type(file)[0] or ""
    if not mediatype.startswith("image/"):
        mediatype = "image/png" if part else "image/unknown"
    try:
        if part:
            height, width = read_array(*part).shape[:2]
            return ImageHead(width, height, mediatype, NO_EXIF)
        with Image.open(open_image_bytes(file), formats=decoders()) as image:
            # Pillow turns a TIFF file itself
            has_turn = has_exif_header(image) and image.format != "TIFF"
            turned = has_turn and image.getexif().get(ORIENTATION_TAG) in (5, 6, 7, 8)
            size = image.size[::-1] if turned else image.size
            return ImageHead(*size, Image.MIME.get(image.format or "", mediatype), exif_from_bytes(image))
    except Exception:  # decoders fail in many ways on damaged files
        return ImageHead(0, 0, mediatype, NO_EXIF)


def exif_from_bytes(image: Image.Image) -> ExifData:
    """Return the data of a file that is open already, each part by itself: a broken one takes no other with it."""
    try:
        exif = image.getexif() if has_exif_header(image) else Image.Exif()
        details, place = _ifd(exif, EXIF_IFD), _ifd(exif, GPS_IFD)
        time = taken_at(details)
        latitude, longitude = _degrees(place, *LATITUDE), _degrees(place, *LONGITUDE)
        if math.isnan(latitude + longitude) or latitude == longitude == 0:  # a receiver without a fix
            latitude = longitude = math.nan
        serial = exif_text(details.get(SERIAL))
        camera = " ".join(part for part in (_model(exif), serial) if part)[:MAX_TEXT]
        written = "" if time is None else time.isoformat(timespec="seconds")
        return ExifData(written, latitude, longitude, camera, bool(serial))
    except Exception:  # a head that leads nowhere
        return NO_EXIF


def has_exif_header(image: Image.Image) -> bool:
    """Return whether an open file has EXIF data in front. A PNG file may have them behind its pixels, and would be
    decoded for them."""
    return "exif" in image.info or image.format == "TIFF"


def _ifd(exif: Image.Exif, tag: int) -> dict[int, Any]:
    try:
        return dict(exif.get_ifd(tag))
    except Exception:  # a table that leads nowhere
        return {}


def _model(exif: Image.Exif) -> str:
    """Return `Canon EOS 80D`: most models begin with the maker's name, and the others get it."""
    try:
        make, model = exif_text(exif.get(MAKE)), exif_text(exif.get(MODEL))
    except Exception:  # the same
        return ""
    first = make.split(" ")[0].casefold()
    return model if model.casefold().startswith(first) else f"{make} {model}".strip()


def taken_at(exif: dict[int, Any]) -> datetime | None:
    """Return when a picture was taken, or else digitised; with a time zone where the camera tells it. exif: of
    EXIF_IFD."""
    for when, offset in TAKEN:
        if found := TIME.fullmatch(exif_text(exif.get(when))):
            with contextlib.suppress(ValueError):  # a clock that was never set: 0000:00:00
                time = datetime(*map(int, found.groups()))  # type: ignore[arg-type]
                return time.replace(tzinfo=_zone(exif_text(exif.get(offset))))
    return None


def exif_text(value: object) -> str:
    """Return the text of a tag in one line, "" for none; what cannot be printed is left out."""
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value or "")
    plain = "".join(sign if sign.isprintable() else " " for sign in text.split("\0")[0])
    return " ".join(plain.encode("utf-8", "ignore").decode().split())


def _zone(text: str) -> timezone | None:
    """Return the zone of +02:00 or +0200; None for anything else."""
    found = OFFSET.fullmatch(text)
    if found is None or int(found[2]) > 23:
        return None
    offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
    return timezone(-offset if found[1] == "-" else offset)


def _degrees(gps: dict[int, Any], side: int, tag: int, most: float) -> float:
    """Return degrees with their sign, rounded to a decimetre; NaN where they are none."""
    try:
        parts = [float(part) for part in gps[tag]]
        sign = {"N": 1, "E": 1, "S": -1, "W": -1}[exif_text(gps[side])[:1].upper()]
        value = sum(part / 60**power for power, part in enumerate(parts[:3]))
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return math.nan
    return round(sign * value, 6) if 0 <= value <= most else math.nan


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
