"""Images that are broken, hostile, or something else altogether: each is decoded, or has a problem in a sentence."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image
from tools.torture.harness import Campaign, Case, numbered, survive
from tools.torture.mutate import worse
from tools.torture.world import World

AT_ONCE = 100
SHORT = 32
"""Side to which images are brought."""


@cache
def sound() -> dict[str, bytes]:
    """Small images of every kind that is read, by name."""
    noise = np.random.default_rng(0)
    rgb = Image.fromarray(noise.integers(0, 255, (20, 30, 3), dtype=np.uint8))
    alpha = Image.fromarray(noise.integers(0, 255, (20, 30, 4), dtype=np.uint8))
    deep = Image.fromarray(noise.integers(0, 65535, (20, 30), dtype=np.uint16))
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "a camera's remark"
    made: dict[str, tuple[Image.Image, str, dict[str, object]]] = {
        "plain.jpg": (rgb, "JPEG", {}),
        "progressive.jpg": (rgb, "JPEG", {"progressive": True}),
        "exif.jpg": (rgb, "JPEG", {"exif": exif.tobytes()}),
        "grey.jpg": (rgb.convert("L"), "JPEG", {}),
        "cmyk.jpg": (rgb.convert("CMYK"), "JPEG", {}),
        "two.mpo": (rgb, "MPO", {"save_all": True, "append_images": [rgb]}),
        "plain.png": (rgb, "PNG", {}),
        "alpha.png": (alpha, "PNG", {}),
        "palette.png": (rgb.quantize(16), "PNG", {"transparency": 3}),
        "bits.png": (rgb.convert("1"), "PNG", {}),
        "deep.png": (deep, "PNG", {}),
        "moving.png": (rgb, "PNG", {"save_all": True, "append_images": [rgb.rotate(90)]}),
        "exif.png": (rgb, "PNG", {"exif": exif.tobytes()}),
        "still.gif": (rgb.quantize(8), "GIF", {}),
        "moving.gif": (rgb, "GIF", {"save_all": True, "append_images": [rgb.rotate(180)]}),
        "plain.bmp": (rgb, "BMP", {}),
        "palette.bmp": (rgb.quantize(16), "BMP", {}),
        "plain.dib": (rgb, "DIB", {}),
        "plain.tif": (rgb, "TIFF", {}),
        "lzw.tif": (rgb, "TIFF", {"compression": "tiff_lzw"}),
        "deflate.tif": (alpha, "TIFF", {"compression": "tiff_deflate"}),
        "jpeg.tif": (rgb, "TIFF", {"compression": "jpeg"}),
        "fax.tif": (rgb.convert("1"), "TIFF", {"compression": "group4"}),
        "deep.tif": (deep, "TIFF", {}),
        "pages.tif": (rgb, "TIFF", {"save_all": True, "append_images": [rgb]}),
        "plain.webp": (rgb, "WEBP", {}),
        "exact.webp": (alpha, "WEBP", {"lossless": True}),
        "moving.webp": (rgb, "WEBP", {"save_all": True, "append_images": [rgb.rotate(90)]}),
        "plain.ppm": (rgb, "PPM", {}),
        "deep.pgm": (deep, "PPM", {}),
        "plain.avif": (rgb, "AVIF", {}),
    }
    return {name: content for name, one in made.items() if (content := _saved(*one))} | _containers()


@cache
def _containers() -> dict[str, bytes]:
    """Files that hold several images, of which the first is asked for."""
    noise, packed = np.random.default_rng(1), io.BytesIO()
    np.savez_compressed(packed, x=noise.integers(0, 255, (3, 20, 30, 3), dtype=np.uint8))
    records = noise.integers(0, 255, (3, 3074), dtype=np.uint8)
    return {
        "pack.npz": packed.getvalue(),
        "train.bin": records.tobytes(),
    }


def _saved(image: Image.Image, kind: str, settings: dict[str, object]) -> bytes:
    """b"" where this Pillow cannot write it."""
    stream = io.BytesIO()
    try:
        image.save(stream, format=kind, **settings)
    except (OSError, KeyError, ValueError):
        return b""
    return stream.getvalue()


def _check(world: World, case: Case) -> list[str]:
    seed, number = case.what
    dice, kinds = random.Random(f"{seed} {number}"), list(sound().items())
    folder = world.fresh() / "images"
    folder.mkdir()
    tries: list[tuple[str, Callable[[], list[str]]]] = []
    for i in range(AT_ONCE):
        name, content = dice.choice(kinds)
        how, made = worse(dice, content, [other for _, other in kinds])
        path = folder / f"{i:03d}" / name
        path.parent.mkdir()
        path.write_bytes(made)
        image = f"{path}#0" if name in _containers() else str(path)
        tries.append((f"{i} {name} ({how})", lambda image=image, small=i < 25: decoded(image, small)))
    return survive(tries, watched=str(world.trial))


def decoded(path: str, thumbnail: bool = True) -> list[str]:
    """Read an image as a run does, and as a report does; what is wrong with what came out."""
    from holotype.data.image_store import _decode_one
    from holotype.report.thumbnails import SIDE, _thumbnail

    found = _decode_one(str(path), SHORT)
    if found.problem:
        return (
            []
            if not found.pixels.size and found.problem.endswith(".")
            else [f"odd problem {found.problem!r}"]
        )
    height, width, channels = found.pixels.shape
    wrong = found.pixels.dtype != np.uint8 or channels != 3 or min(height, width) != SHORT
    small = _thumbnail(path) if thumbnail else None
    if wrong or max(height, width) > 4 * SHORT:
        return [f"became {found.pixels.shape}"]
    return [] if small is None or max(small.size) == SIDE else [f"the thumbnail is {small.size}"]


# -- what is called an image and is none ----------------------------------------------------------------------

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\n(owned) (w) file closefile\nshowpage\n"
OTHERS: dict[str, bytes] = {
    "EPS": POSTSCRIPT,
    "EPS in a BOM": b"\xc5\xd0\xd3\xc6"
    + (30).to_bytes(4, "little")
    + len(POSTSCRIPT).to_bytes(4, "little")
    + bytes(18)
    + POSTSCRIPT,
    "PDF": b"%PDF-1.7\n1 0 obj<</Type/Catalog/OpenAction<</S/Launch/F(calc)>>>>endobj\ntrailer<</Root 1 0 R>>\n",
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><image href="file:///etc/passwd"/></svg>',
    "HTML": b"<html><script>alert(1)</script></html>",
    "script": b"#!/bin/sh\ntouch owned\n",
    "pickle": b"cos\nsystem\n(S'touch owned'\ntR.",
    "zip": b"PK\x03\x04" + bytes(60),
    "tar": b"image.png".ljust(257, b"\0") + b"ustar\0" + bytes(249),
    "ELF": b"\x7fELF" + bytes(60),
    "WMF": b"\xd7\xcd\xc6\x9a" + bytes(60),
    "FITS": b"SIMPLE  =                    T" + b" " * 2850,
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(64),
    "GRIB": b"GRIB" + bytes(4) + b"\x02" + bytes(60),
    "BUFR": b"BUFR" + bytes(64),
    "PSD": b"8BPS\x00\x01"
    + bytes(6)
    + b"\x00\x03\x00\x00\x00\x10\x00\x00\x00\x10\x00\x08\x00\x03"
    + bytes(64),
    "FLI": bytes(4) + b"\x12\xaf\x01\x00" + bytes(120),
    "XPM": b'/* XPM */\nstatic char *a[] = {"1 1 1 1","a c #000","a"};',
}
# fmt: off
OWN_FORMATS = (
    "PCX", "TGA", "ICO", "ICNS", "SGI", "IM", "MSP", "JPEG2000", "DDS", "SPIDER", "XBM", "PDF", "EPS",
    "BLP", "PALM",
)
# fmt: on
ENDINGS = (".jpg", ".png", ".tif", ".webp", ".gif", ".bmp", ".ppm")


def _disguises(world: World, seed: int) -> Iterator[Case]:
    contents = dict(OTHERS)
    for kind in OWN_FORMATS:
        mode = {"MSP": "1", "XBM": "1", "SPIDER": "F", "PALM": "P"}.get(kind, "RGB")
        if content := _saved(Image.new(mode, (32, 32)), kind, {}):
            contents[f"{kind} by Pillow"] = content
    for name, content in contents.items():
        yield Case(name, content, len(ENDINGS))


def _disguised(world: World, case: Case) -> list[str]:
    folder = world.fresh() / "images"
    folder.mkdir()
    tries: list[tuple[str, Callable[[], list[str]]]] = []
    for ending in ENDINGS:
        path = folder / f"photo{ending}"
        path.write_bytes(case.what)
        tries.append((f"{case.key} as {path.name}", lambda path=path: _refused(path)))
    before = sorted(folder.iterdir())
    problems = survive(tries, watched=str(folder))
    return problems + [f"{path} appeared" for path in sorted(folder.iterdir()) if path not in before]


def _refused(path: Path) -> list[str]:
    from holotype.data.image_store import _decode_one

    found = _decode_one(str(path), SHORT)
    return [] if found.problem else [f"was decoded to {found.pixels.shape}"]


IMAGES = Campaign(
    "images", "broken images", numbered(AT_ONCE), _check, kind="mutated inputs", short=20, weight=0.5
)
DISGUISED = Campaign(
    "disguised", "other files called images", _disguises, _disguised, kind="mutated inputs", short=-1
)


# -- small files that hold enormous pictures: refused, or decoded in less than 1 GB -----------------------

SIDES = (5_000, 13_000, 60_000)


def png(width: int, height: int, colour: int, depth: int = 8) -> bytes:
    """Zeros, packed a thousandfold."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    line = b"\0" + bytes((width * samples * depth + 7) // 8)
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(line) for _ in range(min(height, 4_000))) + packer.flush()
    palette = _chunk(b"PLTE", bytes(768)) if colour == 3 else b""
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + palette + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def made(kind: str, side: int, settings: dict[str, object]) -> bytes:
    """A grey picture as Pillow writes it; smaller where a format has its limits."""
    most = {"WEBP": 16_383, "JPEG": 65_000, "GIF": 20_000}.get(kind, 20_000)
    stream = io.BytesIO()
    mode = str(settings.pop("mode", "L"))
    Image.new(mode, (min(side, most, 12_000), min(side, most, 12_000))).save(stream, format=kind, **settings)
    return stream.getvalue()


def _bombs(world: World, seed: int) -> Iterator[Case]:
    for side in SIDES:
        for colour in (0, 2, 3, 4, 6):
            yield Case(f"png {colour} {side}", ("png", side, colour))
    for side in (12_000,):
        yield Case(f"progressive jpeg {side}", ("JPEG", side, {"progressive": True, "mode": "RGB"}))
        yield Case(f"gif {side}", ("GIF", side, {}))
        yield Case(f"webp {side}", ("WEBP", side, {"lossless": True}))
        yield Case(f"tiff {side}", ("TIFF", side, {"compression": "tiff_deflate", "mode": "RGBA"}))
        yield Case(f"fax {side}", ("TIFF", side, {"compression": "group4", "mode": "1"}))
    yield Case("strip", ("png", 0, 2))


def _check_bomb(world: World, case: Case) -> list[str]:
    kind, side, how = case.what
    path = world.fresh() / f"bomb.{'png' if kind == 'png' else kind.lower()}"

    def explode() -> list[str]:
        return decoded(str(path))

    if kind == "png":
        content = png(side, side, how) if side else png(2_000_000, 40, how)
        path.write_bytes(content)
    else:
        problem = survive(
            [(case.key, lambda: _write(path, made(kind, side, dict(how))))], watched=str(world.trial)
        )
        if problem and not path.is_file():
            return []  # it could not even be made within 1 GB
    return survive([(case.key, explode)], watched=str(world.trial))


def _write(path: Path, content: bytes) -> list[str]:
    path.write_bytes(content)
    return []


BOMBS = Campaign(
    "bombs", "small files of enormous pictures", _bombs, _check_bomb, kind="mutated inputs", weight=0.5
)
