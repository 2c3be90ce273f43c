"""Images, lists of images and command lines that are broken, hostile, or something else altogether: each is read, or
refused in a sentence."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tools.torture.harness import Campaign, Case, Ended, Try, expect, numbered, survive
from tools.torture.world import World, differences, snapshot

# fmt: off
EXTREMES = (
    b"\x00", b"\xff", b"\x7f", b"\x80", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\x00\x00\x00", b"\x00" * 8,
)
"""Numbers at the edges of what fits, in both orders of bytes."""
TEXTS = (
    "", " ", "\x00", "\n", "\r\n", "\t", "\ufeff", "\u202ereversed", "e\u0301", "ß", "İ", "\U0001f9ec", "\ud800",
    "=1+1", "+cmd|' /C calc'!A0", "-2", "@SUM(A1)", "'quoted", '"', "a,b;c", "NA", "null", "nan", "inf",
    "-inf", "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "{{ 7*7 }}", "${jndi:x}",
    "javascript:alert(1)", "../../etc/passwd", "/etc/passwd", "C:\\con", "a/b", "a\\b", ".", "..", "~",
    "-rf", "--help", "%s%n", "%00", "\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "\x9b2J", "\x07", "x" * 300,
    "new-01", "unlabelled", "rejected",
)
"""Words that somebody, somewhere, trusts."""
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 1e308, -0.0, float("nan"), float("inf"),
    [], {}, [[]], [None], {"": None}, {"a": {"a": {}}}, "", "x", "1", "nan", [1, "a", None], "x" * 5000,
)
# fmt: on


def worse(dice: random.Random, content: bytes, others: Sequence[bytes] = ()) -> tuple[str, bytes]:
    """How, and what came out. others: contents of which a part may be put in."""
    data = bytearray(content)
    place = dice.randrange(len(data) + 1) if dice.random() < 0.6 else dice.randrange(min(len(data), 64) + 1)
    how = dice.choice(("flips", "flips", "extreme", "cut", "drop", "double", "insert", "splice", "zeros"))
    if how == "flips":
        for _ in range(dice.choice((1, 1, 2, 40)) if data else 0):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif how == "extreme":
        part = dice.choice(EXTREMES)
        data[place : place + len(part)] = part
    elif how == "cut":
        del data[place:]
    elif how == "drop":
        del data[place : place + dice.choice((1, 2, 4, 16, 256))]
    elif how == "double":
        data[place:place] = data[place : place + dice.choice((1, 4, 64, 1024))]
    elif how == "insert":
        data[place:place] = dice.randbytes(dice.choice((1, 4, 64)))
    elif how == "zeros":
        data[place : place + dice.choice((4, 64, 512))] = bytes(dice.choice((4, 64, 512)))
    elif others:
        other = dice.choice(others)
        data[place:] = other[dice.randrange(len(other) + 1) :]
    return how, bytes(data)


def flipped(content: bytes, bit: int) -> bytes:
    """The content with one bit turned over."""
    data = bytearray(content)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def worse_json(dice: random.Random, content: bytes) -> tuple[str, bytes]:
    """JSON that is still JSON, with a value of another type, or a key too many or too few."""
    value = json.loads(content)
    how = dice.choice(("value", "value", "value", "text", "gone", "more", "whole", "twice"))
    places = list(_places(value))
    if how == "whole" or not places:
        value = copy.deepcopy(dice.choice(VALUES))
    else:
        holder, key = dice.choice(places)
        if how == "gone":
            del holder[key]
        elif how == "more" and isinstance(holder, dict):
            holder[dice.choice(TEXTS)] = copy.deepcopy(dice.choice(VALUES))
        elif how == "twice" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            holder[key] = dice.choice(TEXTS) if how == "text" else copy.deepcopy(dice.choice(VALUES))
    return how, json.dumps(value).encode()


def _places(value: Any) -> Any:
    """Every (holder, key) of a tree; of long lists the first ones."""
    several = isinstance(value, dict | list)
    for key in list(value) if isinstance(value, dict) else range(len(value[:6]) if several else 0):
        yield value, key
        yield from _places(value[key])


IMAGES_AT_ONCE, TABLES_AT_ONCE = 100, 50
SHORT = 32  # side to which images are brought


@cache
def sound() -> dict[str, bytes]:
    """Small images of every kind that is read, by name, and files that hold several."""
    noise, packed = np.random.default_rng(0), io.BytesIO()
    rgb = Image.fromarray(noise.integers(0, 255, (20, 30, 3), dtype=np.uint8))
    alpha = Image.fromarray(noise.integers(0, 255, (20, 30, 4), dtype=np.uint8))
    deep = Image.fromarray(noise.integers(0, 65535, (20, 30), dtype=np.uint16))
    exif, more = Image.Exif(), {"save_all": True}
    exif[0x0112] = 6
    made: dict[str, tuple[Image.Image, dict[str, object]]] = {
        "plain.jpg": (rgb, {}),
        "progressive.jpg": (rgb, {"progressive": True, "exif": exif.tobytes()}),
        "cmyk.jpg": (rgb.convert("CMYK"), {}),
        "two.mpo": (rgb, more),
        "plain.png": (rgb, {"exif": exif.tobytes()}),
        "alpha.png": (alpha, {}),
        "palette.png": (rgb.quantize(16), {"transparency": 3}),
        "bits.png": (rgb.convert("1"), {}),
        "deep.png": (deep, {}),
        "moving.png": (rgb, more),
        "moving.gif": (rgb, more),
        "palette.bmp": (rgb.quantize(16), {}),
        "plain.tiff": (rgb, {}),
        "lzw.tiff": (rgb, {"compression": "tiff_lzw"}),
        "deflate.tiff": (alpha, {"compression": "tiff_deflate"}),
        "jpeg.tiff": (rgb, {"compression": "jpeg"}),
        "fax.tiff": (rgb.convert("1"), {"compression": "group4"}),
        "pages.tiff": (rgb, more),
        "plain.webp": (rgb, {}),
        "moving.webp": (rgb, more | {"lossless": True}),
        "plain.ppm": (rgb, {}),
        "plain.avif": (rgb, {}),
    }
    found = {name: _saved(image, Path(name).suffix[1:], how) for name, (image, how) in made.items()}
    np.savez_compressed(packed, x=noise.integers(0, 255, (3, 20, 30, 3), dtype=np.uint8))
    records = noise.integers(0, 255, (3, 3074), dtype=np.uint8)
    found |= {"pack.npz": packed.getvalue(), "train.bin": records.tobytes()}
    return {name: content for name, content in found.items() if content}


def _saved(image: Image.Image, kind: str, how: dict[str, object]) -> bytes:
    """b"" where this Pillow cannot write it."""
    stream, how = io.BytesIO(), dict(how)
    if "save_all" in how:
        how["append_images"] = [image.rotate(90)]
    with contextlib.suppress(OSError, KeyError, ValueError):
        image.copy().save(stream, format={"jpg": "JPEG"}.get(kind, kind.upper()), **how)
        return stream.getvalue()
    return b""


def _broken(world: World, case: Case) -> list[str]:
    seed, number = case.what
    dice, kinds = random.Random(f"{seed} {number}"), list(sound().items())
    tries: list[Try] = []
    world.fresh()
    for i in range(IMAGES_AT_ONCE):
        name, content = dice.choice(kinds)
        how, made = worse(dice, content, [other for _, other in kinds])
        path = world.trial / "images" / f"{i:03d}" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(made)
        image = f"{path}#0" if name.endswith((".npz", ".bin")) else str(path)
        tries.append((f"{i} {name} ({how})", lambda image=image, small=i < 25: decoded(image, small)))
    return survive(tries, watched=str(world.trial))


def decoded(path: str, thumbnail: bool = True) -> list[str]:
    """Read an image as a run does, and as a report does; what is wrong with what came out."""
    from holotype.data.decode import decode_one
    from holotype.report.thumbnails import SIDE, _thumbnail

    found = decode_one(path, SHORT)
    if found.problem:
        odd = found.pixels.size or not found.problem.endswith(".")
        return [f"odd problem {found.problem!r}"] if odd else []
    height, width, channels = found.pixels.shape
    sound_kind = found.pixels.dtype == np.uint8 and channels == 3
    if not (sound_kind and min(height, width) == SHORT and max(height, width) <= 4 * SHORT):
        return [f"became {found.pixels.shape}"]
    small = _thumbnail(path) if thumbnail else None
    return [] if small is None or max(small.size) == SIDE else [f"the thumbnail is {small.size}"]


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\n(owned) (w) file closefile\nshowpage\n"
OTHERS: dict[str, bytes] = {
    "EPS": POSTSCRIPT,
    "EPS in a BOM": b"\xc5\xd0\xd3\xc6" + struct.pack("<II", 30, len(POSTSCRIPT)) + bytes(18) + POSTSCRIPT,
    "PDF": b"%PDF-1.7\n1 0 obj<</Type/Catalog/OpenAction<</S/Launch/F(calc)>>>>endobj\ntrailer<</Root 1 0 R>>\n",
    "SVG": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><image href="file:///etc/passwd"/></svg>',
    "script": b"#!/bin/sh\ntouch owned\n",
    "pickle": b"cos\nsystem\n(S'touch owned'\ntR.",
    "zip": b"PK\x03\x04" + bytes(60),
    "tar": b"image.png".ljust(257, b"\0") + b"ustar\0" + bytes(249),
    "WMF": b"\xd7\xcd\xc6\x9a" + bytes(60),
    "FITS": b"SIMPLE  =                    T" + b" " * 2850,
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(64),
    "GRIB": b"GRIB" + bytes(4) + b"\x02" + bytes(60),
    "PSD": b"8BPS\x00\x01"
    + bytes(6)
    + b"\x00\x03\x00\x00\x00\x10\x00\x00\x00\x10\x00\x08\x00\x03"
    + bytes(64),
    "XPM": b'/* XPM */\nstatic char *a[] = {"1 1 1 1","a c #000","a"};',
}
ENDINGS = (".jpg", ".png", ".tif", ".webp", ".gif", ".bmp", ".ppm")


def _bombs(world: World, seed: int) -> Iterator[Case]:
    """Small files of enormous pictures: refused, or decoded in less than 1 GB."""
    for side in (5_000, 13_000, 60_000):
        for colour in (0, 2, 3, 4, 6):
            yield Case(f"png {colour} {side}", (side, side, colour))
    yield Case("strip", (2_000_000, 40, 2))


def png(width: int, height: int, colour: int) -> bytes:
    """Zeros, packed a thousandfold."""
    line, packer = b"\0" + bytes(width * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]), zlib.compressobj(9)
    packed = b"".join(packer.compress(line) for _ in range(min(height, 4_000))) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = [(b"IHDR", head), *([(b"PLTE", bytes(768))] * (colour == 3)), (b"IDAT", packed), (b"IEND", b"")]
    parts = [struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _bomb(world: World, case: Case) -> list[str]:
    path = world.fresh() / "bomb.png"
    path.write_bytes(png(*case.what))
    return survive([(case.key, lambda: decoded(str(path)))], watched=str(world.trial))


@cache
def lists(images: Path) -> dict[str, bytes]:
    """Files that list the images, in all ways that are read, by name."""
    paths = sorted(path.relative_to(images).as_posix() for path in images.rglob("*.png"))
    rows = [(path, path.split("/")[0]) for path in paths]
    plain = "path,label\n" + "".join(f"{path},{label}\n" for path, label in rows)
    quoted = "path;label;truth\r\n" + "".join(f'"{path}";"{label}";"{label}"\r\n' for path, label in rows)
    absolute = "file_name\tlabel\n" + "".join(f"{images / path}\t{label}\n" for path, label in rows)
    n, words = len(rows), [label for _, label in rows]
    labels = {"plain": words, "numbers": list(range(n)), "none": [None] * n}
    labels |= {"lists": [[label] for label in words], "bytes": [b"\xff\x00"] * n}
    return {
        "plain.csv": plain.encode(),
        "quoted.csv": quoted.encode("utf-8-sig"),
        "wide.csv": plain.encode("utf-16"),
        "tabs.tsv": absolute.encode(),
        "bare.csv": ("path\n" + "\n".join(paths)).encode(),
        "empty.csv": b"",
        **{f"{name}.parquet": _parquet(paths, of) for name, of in labels.items()},
    }


def _parquet(paths: list[str], labels: list[Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table({"path": paths, "label": labels}), stream)
    return stream.getvalue()


def _tables(world: World, case: Case) -> list[str]:
    seed, number = case.what
    dice, kinds = random.Random(f"tables {seed} {number}"), list(lists(world.images).items())
    tries: list[Try] = []
    world.fresh()
    for i in range(TABLES_AT_ONCE):
        name, content = dice.choice(kinds)
        if name.endswith(".parquet") or dice.random() < 0.5:
            how, made = worse(dice, content, [other for _, other in kinds])
        else:
            how, made = "cells", _cells(dice, content)
        path = world.trial / f"{i:03d}-{name}"
        path.write_bytes(made)
        tries.append((f"{path.name} ({how})", lambda path=path: _read_table(path, world.images)))
    return survive(tries, watched=str(world.trial))


def _cells(dice: random.Random, content: bytes) -> bytes:
    """Some cells replaced by words that break things."""
    lines = content.decode("utf-8", "replace").splitlines()
    for _ in range(dice.randrange(1, 6) if lines else 0):
        row = dice.randrange(len(lines))
        cells = lines[row].split(",")
        cells[dice.randrange(len(cells))] = dice.choice(TEXTS)
        lines[row] = dice.choice((",", ",", ";", "\t")).join(cells)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _read_table(path: Path, images: Path) -> list[str]:
    from holotype.data.labels import read_csv_table
    from holotype.data.load import load_table
    from holotype.errors import InputError

    by_list = partial(read_csv_table, path, skip_missing=True)
    for work in (partial(load_table, images, path), by_list):
        table = expect((InputError,), work)
        if table is not None:
            if len(set(table.path)) != len(table) or set(table.label) - {""} - set(table.known):
                return ["gave a table that does not hold together"]
            table.fingerprint()
    return []


# fmt: off
NUMBERS = (
    "0", "-0", "-1", "1", "2", "1e9", "1e308", "1e309", "-1e309", "nan", "inf", "-inf", "1e-320", "0.1",
    "0.5", "9" * 30, "2147483648", "-9223372036854775809", "0x10", "1_000", "１", "١", "1,5", "1/2", "+3",
    "true", "null",
)
COMMANDS = (
    "discover", "report", "assign", "write", "estimate-k", "embed", "export", "train", "bench", "methods",
    "data", "--version", "--help", "demo!", "", "-", "--",
)
# fmt: on
QUICK = {"discover": ("--no-progress", "--steps", "2"), "report": ("--no-progress",)}
"""What comes first, so that a line in which nothing is odd takes no minutes; what the line itself says counts."""


def flags(command: str) -> list[str]:
    """Those that a command has, from its own help."""
    from holotype.cli import COMMANDS as KNOWN
    from holotype.cli import options_type
    from holotype.cli.common import Parser
    from holotype.runs.experiment import default_experiment, setting_values

    if command not in KNOWN:
        return ["--help"]
    found = re.findall(r"--[a-z][\w.-]*", Parser(command, options_type(command)).format_help())
    if command == "train":
        found += [f"--{key}" for key, _, _ in setting_values(default_experiment("simgcd", "images"))]
    return sorted(set(found))


def _lines(world: World, seed: int) -> Iterator[Case]:
    dice, own = random.Random(f"words {seed}"), world.trial
    known = {command: flags(command) for command in COMMANDS}
    here = (
        world.images,
        world.listed,
        own / "run",
        world.backbone,
        own / "out" / "new",
        own,
        own / "nowhere",
    )
    places = [*map(str, here), "/dev/null", "/proc/self/mem", str(own / "empty"), ".", "run", "out/x.csv"]
    for number in count():
        command = dice.choice(COMMANDS)
        words = [command]
        for _ in range(dice.randrange(0, 3)):
            words.append(dice.choice([*places, *places, dice.choice(TEXTS), "simgcd", "rpc", "check"]))
        for _ in range(dice.randrange(0, 5)):
            flag = dice.choice(known[command])
            words.append(flag if dice.random() < 0.9 else flag[: dice.randrange(2, len(flag) + 1)])
            if dice.random() < 0.8:
                words.append(dice.choice([*NUMBERS, *TEXTS, *places, "simgcd", "cpu", "auto", "embedded"]))
        words = [word.replace("\x00", "") for word in words]  # no system passes these on
        kept = [word for word in words if word.isprintable() or "\x1b" in word or dice.random() < 0.5]
        yield Case(str(number), kept)


def _line(world: World, case: Case) -> list[str]:
    world.fresh("run")
    (world.trial / "empty").mkdir()
    before, first, rest = snapshot(world.images), case.what[:1], case.what[1:]
    ended = world.run([*first, *QUICK.get("".join(first), ()), *rest])
    problems = unclean(ended)
    # then it was asked where the error comes from; a fault ends with 1
    if "--verbose" in rest and ended.code == 2:
        ended.err = ended.err.rpartition("Traceback (most recent call last)")[2]
    problems += [*ended.troubles(0, 2), *differences(before, snapshot(world.images))]
    return [f"holotype {' '.join(map(repr, case.what))}: {problem}" for problem in problems]


def unclean(ended: Ended) -> list[str]:
    """Signs that a terminal would obey."""
    said = ended.out + ended.err
    signs = sorted({sign for sign in said if (sign < " " and sign not in "\n\t") or "\x7f" <= sign <= "\x9f"})
    return [f"sent {signs!r} to the terminal"] if signs else []


CAMPAIGNS = (
    Campaign("bombs", "small files of enormous pictures", _bombs, _bomb, weight=0.5),
    Campaign("words", "odd command lines", _lines, _line, "command lines"),
    Campaign("images", "broken images", numbered(IMAGES_AT_ONCE), _broken, short=10, weight=0.5),
    Campaign(
        "tables", "spoiled CSV and Parquet files", numbered(TABLES_AT_ONCE), _tables, short=6, weight=0.5
    ),
)
