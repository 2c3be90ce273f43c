"""How an image is written as text: a file, a part of a file, or an object in a store on the network.

    photos/fox/1.jpg                       a file
    train.parquet#12                       the image in row 12 (from 0) of a Parquet file
    shard-000.tar#fox-0001                 the image with this key in a tar
    s3://bucket/photos/fox/1.jpg           an object; so are gs://, abfs:// and hf://
    s3://bucket/shard.tar?region=eu#key    what a store must be told stands behind a question mark

A real file whose name looks like one of the others wins. No file is opened here.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote

SCHEME = re.compile(r"([a-z][a-z0-9]+)://", re.IGNORECASE)
INSIDE = re.compile(
    r"(?P<file>.+?\.(?P<kind>parquet|tar)(?:\?[^#]*)?)#(?P<key>.+)", re.IGNORECASE | re.DOTALL
)
KEPT = "/!$&'()*+,;=:@~ "
"""Signs of an object's name that stand in an address as they are; letters of all languages do as well."""

Inside = tuple[str, str, str]
"""Kind ("parquet" or "tar"), file and key of an image inside a file."""


def is_address(path: str) -> bool:
    """Is this an object on the network, s3://bucket/key, and no file?"""
    return SCHEME.match(path) is not None


def is_pattern(source: str) -> bool:
    """Does a source mean several files, by braces or stars, 'shard-{000..099}.tar'?"""
    return ("{" in source or "*" in source) and (is_address(source) or not os.path.exists(source))


def scheme_of(address: str) -> str:
    """`s3` of s3://bucket/key; "" of a path."""
    found = SCHEME.match(address)
    return found[1].lower() if found else ""


def split_query(address: str) -> tuple[str, str]:
    """The address without what stands behind its question mark, and that."""
    bare, _, query = address.partition("?")
    return (bare, query) if is_address(address) else (address, "")


def with_query(bare: str, query: str) -> str:
    """The inverse of split_query; a key behind # stays at the end."""
    file, mark, key = bare.partition("#")
    return f"{file}?{query}{mark}{key}" if query else bare


def object_address(start: str, name: str, query: str) -> str:
    """The address of an object. start: s3://bucket; name: as the store calls it."""
    safe = "".join(sign if sign in KEPT or sign.isalnum() or sign in "-_." else quote(sign) for sign in name)
    return with_query(f"{start.rstrip('/')}/{safe}", query)


def object_name(part: str) -> str:
    """The name that a store knows, of what stands behind the scheme of an address."""
    return unquote(part)


def split_inside(path: str) -> Inside | None:
    """Kind, file and key of an image inside a Parquet file or a tar; None for everything else."""
    found = INSIDE.fullmatch(path)
    if found is None:
        return None
    if not is_address(path) and (os.path.exists(path) or not os.path.isfile(found["file"])):
        return None
    return found["kind"].lower(), found["file"], found["key"]
