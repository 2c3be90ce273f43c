"""Contents made worse: bytes flipped, cut, doubled and swapped, values of another type, texts that break things."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

# fmt: off
EXTREMES = (
    b"\x00", b"\xff", b"\x7f", b"\x80", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\x00\x00\x00",
    b"\x00" * 8,
)
# fmt: on
"""Numbers at the edges of what fits, in both orders of bytes."""
# fmt: off
TEXTS = (
    "", " ", "\x00", "\n", "\r\n", "\t", "﻿", "‮reversed", "e\u0301", "ß", "İ", "\U0001f9ec", "\ud800",
    "=1+1", "+cmd|' /C calc'!A0", "-2", "@SUM(A1)", "'quoted", '"', "a,b;c", "NA", "null", "nan", "inf",
    "-inf", "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "{{ 7*7 }}", "${jndi:x}",
    "javascript:alert(1)", "../../etc/passwd", "/etc/passwd", "C:\\con", "a/b", "a\\b", ".", "..", "~",
    "-rf", "--help", "%s%n", "%00", "\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "\x9b2J", "\x07", "x" * 300,
    "new-01", "unlabelled", "rejected",
)
# fmt: on
"""Words that somebody, somewhere, trusts."""
# fmt: off
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 1e308, -0.0, float("nan"), float("inf"),
    [], {}, [[]], [None], {"": None}, {"a": {"a": {}}}, "", "x", "1", "nan", [1, "a", None], "x" * 5000,
)
# fmt: on


def worse(dice: random.Random, content: bytes, others: Sequence[bytes] = ()) -> tuple[str, bytes]:
    """How, and what came out. others: contents of which a part may be put in."""
    data = bytearray(content)
    place = dice.randrange(len(data) + 1) if dice.random() < 0.6 else dice.randrange(min(len(data), 64) + 1)
    how = dice.choice(
        ("flip", "flip", "flips", "byte", "extreme", "cut", "drop", "double", "insert", "splice", "zeros")
    )
    if how == "flip":
        _flip(dice, data, 1)
    elif how == "flips":
        _flip(dice, data, dice.randrange(2, 40))
    elif how == "byte" and data:
        data[min(place, len(data) - 1)] = dice.randrange(256)
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
        start = dice.randrange(len(other) + 1)
        data[place:] = other[start:]
    return how, bytes(data)


def _flip(dice: random.Random, data: bytearray, times: int) -> None:
    for _ in range(times if data else 0):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


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
    pairs = (
        value.items() if isinstance(value, dict) else enumerate(value[:6]) if isinstance(value, list) else ()
    )
    for key, inner in list(pairs):
        yield value, key
        yield from _places(inner)


def text(dice: random.Random) -> str:
    """A word that breaks things, or two of them."""
    return dice.choice(TEXTS) + (dice.choice(TEXTS) if dice.random() < 0.3 else "")
