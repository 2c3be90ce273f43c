"""Pictures with the heads that cameras write."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from holotype.data.exif import EXIF_IFD, GPS_IFD, MAKE, MODEL, SERIAL, TAKEN

SIZE = (48, 40)


def photograph(
    file: Path,
    pixels: np.ndarray | None = None,
    *,
    taken: str = "",
    offset: str = "",
    make: str = "",
    model: str = "",
    serial: str = "",
    gps: dict[int, Any] | None = None,
    orientation: int = 0,
) -> Path:
    """Write a picture; what is not given is not in its head."""
    image = Image.new("RGB", SIZE, (90, 120, 60)) if pixels is None else Image.fromarray(pixels)
    exif = Image.Exif()
    for tag, value in ((MAKE, make), (MODEL, model), (0x0112, orientation)):
        if value:
            exif[tag] = value
    told = {TAKEN[0][0]: taken, TAKEN[0][1]: offset, SERIAL: serial}
    if any(told.values()):
        exif.get_ifd(EXIF_IFD).update({tag: value for tag, value in told.items() if value})
    if gps:
        exif.get_ifd(GPS_IFD).update(gps)
    file.parent.mkdir(parents=True, exist_ok=True)
    image.save(file, exif=exif)
    return file
