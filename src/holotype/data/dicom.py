"""DICOM files as Pillow's images, where the extra `dicom` is installed: the first frame, in its stated window."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
from PIL import Image, ImageFile

from holotype.data.decode import Window, apply_window
from holotype.data.image_files import DICOM, ArchiveProblem

FORMAT = "DICOM"
PREAMBLE = 128
"""Bytes before the mark DICM."""
PIXEL_KEYS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")


class DicomImageFile(ImageFile.ImageFile):
    """One file, as pydicom reads it."""

    format = FORMAT
    format_description = "DICOM"

    def _open(self) -> None:
        stream: Any = self.fp
        stream.seek(PREAMBLE)
        if stream.read(4) != b"DICM":
            raise SyntaxError("no DICOM file")
        import pydicom

        stream.seek(0)
        self.dataset: Any = pydicom.dcmread(stream)
        name = os.fsdecode(self.filename) if self.filename else "This"
        if not any(key in self.dataset for key in PIXEL_KEYS) or not {"Rows", "Columns"} <= {
            *self.dataset.dir()
        }:
            raise ArchiveProblem(f"{name} is a DICOM file without pixels; leave it out.")
        self._size = (int(self.dataset.Columns), int(self.dataset.Rows))
        colours = int(self.dataset.get("SamplesPerPixel", 1)) > 1
        self._mode = "RGB" if colours or "PALETTE" in self.dataset.PhotometricInterpretation else "L"
        self.n_frames = int(self.dataset.get("NumberOfFrames", 1) or 1)
        self.tile = []

    def load(self) -> Any:
        """Decode the first frame."""
        if self._im is None:
            try:
                values, window = decode_frame(self.dataset)
            except (
                RuntimeError
            ) as error:  # of pydicom, which lists in many lines what it lacks for each decoder
                if "missing dependencies" not in str(error):
                    raise
                kind = self.dataset.file_meta.TransferSyntaxUID.name
                raise ArchiveProblem(
                    f"{os.fsdecode(self.filename or 'This')} is compressed as {kind}, which pydicom reads with another "
                    "package alone; see docs/laboratory.md."
                ) from error
            self.im = Image.fromarray(values).im
            if window is not None:
                self.info["shown"] = window
            self.dataset = None
        return super().load()

    def seek(self, frame: int) -> None:
        """The first frame is the only one that is read."""


def decode_frame(dataset: Any) -> tuple[np.ndarray, Window | None]:
    """Return the first frame of a data set of pydicom, (H, W) or (H, W, 3) uint8, and the window of grey values."""
    from pydicom.pixels import apply_color_lut, apply_modality_lut, pixel_array

    values = pixel_array(dataset, index=0)  # one frame: a film may hold gigabytes of them
    if "PALETTE" in dataset.PhotometricInterpretation:
        values = apply_color_lut(values, dataset)
    if values.ndim == 3:
        whole = values.dtype.kind in "iu"
        top = float(np.iinfo(values.dtype).max if whole else max(values.max(), 1e-6))
        return (values if values.dtype == np.uint8 else apply_window(values, (0.0, top))), None
    values = apply_modality_lut(values, dataset)
    low, high = _window(dataset) or (float(values.min()), float(values.max()))
    window = (low, max(high, low + 1e-6))
    grey = apply_window(values, window)
    return (255 - grey if dataset.PhotometricInterpretation == "MONOCHROME1" else grey), window


def _window(dataset: Any) -> tuple[float, float] | None:
    """The first linear window that a file states: from c - 0.5 - (w - 1) / 2 to c - 0.5 + (w - 1) / 2."""
    centre, width = dataset.get("WindowCenter"), dataset.get("WindowWidth")
    if centre is None or width is None:
        return None
    first = [
        float(one[0] if hasattr(one, "__len__") and not isinstance(one, str) else one)
        for one in (centre, width)
    ]
    half = (first[1] - 1) / 2
    return (first[0] - 0.5 - half, first[0] - 0.5 + half) if half > 0 else None


def register() -> None:
    """Let Pillow open DICOM files, without what pydicom remarks on them."""
    warnings.filterwarnings("ignore", module="pydicom")
    Image.register_open(FORMAT, DicomImageFile)
    Image.register_extensions(FORMAT, list(DICOM))
