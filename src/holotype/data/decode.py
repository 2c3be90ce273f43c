"""From a path to an RGB image, whatever the file turns out to be."""

from __future__ import annotations

import os

import numpy as np
from PIL import Image, UnidentifiedImageError

from holotype.data.containers import ContainerProblem, read_array, split_container

GREY_16 = ("I;16", "I;16L", "I;16B", "I;16N")
ORIENTATION_TAG = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes an image with this EXIF orientation upright; 1 = it is."""


class ImageProblem(Exception):
    """An image cannot be used; the message is a sentence for the person who owns it."""


def read_image(path: str) -> tuple[Image.Image, str]:
    """The image at `path` ("file" or "file#index") as RGB, upright, and a note ("" = nothing to say).

    Transparency is laid on white, of several frames the first is taken. Raises ImageProblem.
    """
    part = split_container(path)
    if part is not None:
        try:
            return Image.fromarray(read_array(*part)).convert("RGB"), ""
        except ContainerProblem as problem:
            raise ImageProblem(str(problem)) from problem
    return _read_file(path)


def _read_file(path: str) -> tuple[Image.Image, str]:
    if not os.path.isfile(path):
        raise ImageProblem(f"{path} is not a file.")
    if os.path.getsize(path) == 0:
        raise ImageProblem(f"{path} is empty (0 bytes).")
    try:
        with Image.open(path) as image:
            frames = _frames_note(image)
            image.load()
            upright, exif = _upright(image)
            notes = (frames, exif, _depth_note(image))
            return _to_rgb(upright, path), "; ".join(note for note in notes if note)
    except ImageProblem:
        raise
    except UnidentifiedImageError as error:
        raise ImageProblem(f"{path} is not an image of a kind that can be read.") from error
    except Image.DecompressionBombError as error:
        raise ImageProblem(f"{path} is too large ({error}); shrink it first.") from error
    except Exception as error:  # decoders fail in many ways on damaged files; none may stop a run
        raise ImageProblem(f"{path} is damaged or cut off ({error}).") from error


def _frames_note(image: Image.Image) -> str:
    """Leaves the image at its first frame. MPO is a photograph with its preview, not several pictures."""
    frames = int(getattr(image, "n_frames", 1))
    if frames <= 1 or image.format == "MPO":
        return ""
    image.seek(0)
    return f"first of {frames} frames used"


def _depth_note(image: Image.Image) -> str:
    return "16-bit grey values divided by 257" if _is_grey_16(image) else ""


def _is_grey_16(image: Image.Image) -> bool:
    # before Pillow 11.3 a 16-bit PNG opens with mode I
    return image.mode in GREY_16 or (image.mode == "I" and image.format == "PNG")


def _upright(image: Image.Image) -> tuple[Image.Image, str]:
    """Rotated as its EXIF data ask, in the mode it has, and a note.

    ImageOps.exif_transpose also writes the EXIF data anew, which fails on some that can be read.
    """
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:  # the pixels are sound; only the camera's remarks are not
        return image, "unreadable EXIF data ignored"
    if orientation not in TURNS:
        return image, ""
    turned = image.transpose(TURNS[orientation])
    turned.format = image.format  # transposing forgets it, and _is_grey_16 asks
    return turned, ""


def _to_rgb(image: Image.Image, path: str) -> Image.Image:
    if _is_grey_16(image):
        # 65535 = 255 * 257, so that white stays white; PIL's own conversion clips at 255
        grey = np.asarray(image).astype(np.uint32)
        return Image.fromarray(((grey + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ImageProblem(f"{path} has 32-bit values of unknown range; save it with 8 or 16 bits.")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, layer).convert("RGB")
    return image.convert("RGB")
