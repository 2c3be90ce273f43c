"""Small files that hold enormous pictures: refused, or decoded in less than 1 GB."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from tests.torture.batches import survive
from tests.torture.images import decoded
from tests.torture.tally import Campaign, Case
from tests.torture.world import World

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


def _check(world: World, case: Case) -> list[str]:
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
    "bombs", "small files of enormous pictures", _bombs, _check, kind="mutated inputs", weight=0.5
)
