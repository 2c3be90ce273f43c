"""Image paths relative to the root of a collection, and matching of paths from other machines.

Windows' paths, another base folder, other capitals and other ways to write an accent are seen through where only one
image can be meant. An image that the list names as it stands is never taken for another one.

    photos/fox/1.jpg                       a file
    train.parquet#12                       the image in row 12 (from 0) of a Parquet file
    shard-000.tar#fox-0001                 the image with this key in a tar
    s3://bucket/photos/fox/1.jpg           an object; so are gs://, abfs:// and hf://
    s3://bucket/shard.tar?region=eu#key    what a store must be told stands behind a question mark

A real file whose name looks like one of the others wins.
"""

from __future__ import annotations

import logging
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from holotype.errors import InputError

PathParts = tuple[str, ...]
"""Folders and name of a path, as they are compared."""
MAX_EXAMPLES = 3
"""Rows that a sentence names; the others are counted."""
log = logging.getLogger("holotype")
ROOTED = re.compile(r"[A-Za-z]:[\\/]|[\\/]")
"""What an absolute path of any system begins with."""
DRIVE = re.compile(r"^[A-Za-z]:")
SCHEME = re.compile(r"([a-z][a-z0-9]+)://", re.IGNORECASE)
MEMBER_MARK = re.compile(
    r"(?P<file>.+?\.(?P<kind>parquet|tar)(?:\?[^#]*)?)#(?P<key>.+)", re.IGNORECASE | re.DOTALL
)
UNESCAPED = "/!$&'()*+,;=:@~ -_."
"""Signs of an object's name that stand in an address as they are; letters of all languages do as well."""
MemberAddress = tuple[str, str, str]
"""Kind ("parquet" or "tar"), file and key of an image inside a file."""


def find_images(
    given: Sequence[str],
    starts: Sequence[Path],
    exists: Callable[[str], bool],
    others: Callable[[], Sequence[str]],
) -> tuple[list[str | None], list[int]]:
    """Return the absolute path of the image that each given path means, None where there is none; and the rows that
    were found by their last parts only.

    starts: folders that relative paths may start at. exists: is there an image at this absolute path? others: all
    images that a path may mean by its last parts; asked for only where some path is not found as it stands.
    """
    found: list[str | None] = [_match_exact(path, starts, exists) for path in given]
    missing = [row for row, path in enumerate(found) if path is None]
    if not missing:
        return found, []
    images = set(others())
    # below another root the same image may be named once more; else a folder that is missing is not one that is there
    bare = {row: unquoted(given[row]) for row in missing}
    foreign = {
        row for row, path in bare.items() if ROOTED.match(path) and not path.startswith(str(starts[0]))
    }
    free = images - set(found)
    for rows, choice in (([*foreign], images), ([row for row in missing if row not in foreign], free)):
        guesses = _match_suffix([given[row] for row in sorted(rows)], sorted(choice), starts[0])
        for row, path in zip(sorted(rows), guesses, strict=True):
            found[row] = path
    return found, [row for row in missing if found[row] is not None]


def resolve_images(
    paths: Sequence[str],
    starts: Sequence[Path],
    exists: Callable[[str], bool],
    others: Callable[[], Sequence[str]],
    *,
    file: Path,
    missing: str,
    skip: bool,
    show: Callable[[Sequence[int]], str] | None = None,
) -> list[str | None]:
    """Return the image that each path of a file means, as find_images; what is missing or guessed is reported.

    missing: the words of a complaint about missing images. skip: they are None instead. show: names a few rows.
    """
    found, guessed = find_images(paths, starts, exists, others)
    show = show or (lambda rows: ", ".join(in_quotes(paths[row]) for row in rows[:MAX_EXAMPLES]))
    if absent := [row for row, path in enumerate(found) if path is None]:
        text = f"{len(absent):,} of the {len(paths):,} {missing}, for example {show(absent)}"
        if not skip:
            raise InputError(f"{text}; paths start at {starts[0]}; --skip-missing leaves these out.")
        log.info(f"Left out: {text}.")
    if guessed:
        example = f"{show(guessed[:1])} is {found[guessed[0]]}"
        log.info(f"{len(guessed):,} paths of {file} were found by their last parts, for example {example}.")
    return found


def _match_exact(path: str, starts: Sequence[Path], exists: Callable[[str], bool]) -> str | None:
    bare = unquoted(path)
    for written in dict.fromkeys((path, bare, bare.replace("\\", "/"))):
        for start in starts:
            absolute = written if is_address(written) else os.path.normpath(os.path.join(start, written))
            if written and exists(absolute):
                return absolute
    return None


def _match_suffix(given: Sequence[str], images: Sequence[str], base: Path) -> list[str | None]:
    """Return the one image that shares the most last parts with each path, None where it is not one or shares too few.

    Either path must be the end of the other, or two parts must be the same: fox/1.jpg is not badger/1.jpg.
    """
    ends: dict[PathParts, list[int]] = {}
    of_images = [_parts(os.path.relpath(path, base)) for path in images]
    for number, parts in enumerate(of_images):
        for first in range(len(parts)):
            ends.setdefault(parts[first:], []).append(number)
    found: list[int | None] = []
    wanted: dict[int | None, set[PathParts]] = {}
    for parts in map(_parts, given):
        same = next((parts[i:] for i in range(len(parts)) if parts[i:] in ends), ())
        meant = ends.get(same, [])
        shares = len(meant) == 1 and (len(same) > 1 or len(same) in (len(parts), len(of_images[meant[0]])))
        found.append(meant[0] if shares else None)
        wanted.setdefault(found[-1], set()).add(parts)
    # two paths that mean one image: nobody knows which of them does
    return [images[n] if n is not None and len(wanted[n]) == 1 else None for n in found]


def _parts(path: str) -> PathParts:
    """Return the parts in small letters, with composed accents, without drive and without dots."""
    plain = DRIVE.sub("", unquoted(path)).replace("\\", "/")
    plain = unicodedata.normalize("NFC", plain).casefold()
    return tuple(part for part in PurePosixPath(plain).parts if part not in ("/", "//", ".", ".."))


def unquoted(text: str) -> str:
    """Return text without blanks around it, and without a pair of quotes that a spreadsheet has left."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1].strip()
    return text


@dataclass(frozen=True)
class Paths:
    """The images of a source one after the other, for whoever has no room for all of them. Gone through once."""

    root: str
    """As Table.root."""
    each: Iterator[str]
    """As Table.path, in the same order."""


def relative(paths: Iterable[str], root: str) -> list[str]:
    """Return paths as seen from the root, with slashes, as Table.fingerprint sees them; as they are where there is no
    root. An address (storage.py) is seen from the root where it begins with it, and stays as it is elsewhere."""
    if not root:
        return list(paths)
    if is_address(root):
        return [_below(path, root) for path in paths]
    return [path if is_address(path) else _from_root(path, root) for path in paths]


def _from_root(path: str, root: str) -> str:
    """Return a file as seen from a folder, or as it stands on another drive."""
    try:
        return os.path.relpath(path, root).replace(os.sep, "/")
    except ValueError:
        return path


def common_root(files: Sequence[str]) -> str:
    """Return the folder that all files lie in."""
    bare = [split_query(file) for file in files]
    folder = os.path.commonpath([os.path.dirname(file.partition("://")[2] or file) for file, _ in bare])
    if not is_address(files[0]):
        return folder
    return with_query(f"{files[0].partition('://')[0]}://{folder}", bare[0][1])


def absolute(path: str, root: str) -> str:
    """Return the inverse of `relative` for one path."""
    if is_address(path) or not root:
        return path
    if is_address(root):
        bare, query = split_query(root)
        return with_query(f"{bare.rstrip('/')}/{path}", query)
    return os.path.normpath(os.path.join(root, path))


def in_quotes(path: str) -> str:
    """Return a path that somebody wrote, for a sentence: as repr, but with Windows' backslashes as they stand."""
    return repr(path).replace("\\\\", "\\")


def _below(path: str, root: str) -> str:
    bare, query = split_query(root)
    start = bare.rstrip("/") + "/"
    if not path.startswith(start):
        return path
    rest = path[len(start) :]
    return rest.replace(f"?{query}", "", 1) if query else rest


def is_address(path: str) -> bool:
    """Return whether this is an object on the network, s3://bucket/key, and no file."""
    return SCHEME.match(path) is not None


def is_pattern(source: str) -> bool:
    """Return whether a source means several files, by braces or stars, 'shard-{000..099}.tar'."""
    return ("{" in source or "*" in source) and (is_address(source) or not os.path.exists(source))


def scheme_of(address: str) -> str:
    """Return `s3` of s3://bucket/key; "" of a path."""
    found = SCHEME.match(address)
    return found[1].lower() if found else ""


def split_query(address: str) -> tuple[str, str]:
    """Return the address without what stands behind its question mark, and that."""
    bare, _, query = address.partition("?")
    return (bare, query) if is_address(address) else (address, "")


def with_query(bare: str, query: str) -> str:
    """Return the inverse of split_query; a key behind # stays at the end."""
    file, mark, key = bare.partition("#")
    return f"{file}?{query}{mark}{key}" if query else bare


def object_address(start: str, name: str, query: str) -> str:
    """Return the address of an object. start: s3://bucket; name: as the store calls it."""
    safe = "".join(sign if sign in UNESCAPED or sign.isalnum() else quote(sign) for sign in name)
    return with_query(f"{start.rstrip('/')}/{safe}", query)


def split_member(path: str) -> MemberAddress | None:
    """Return kind, file and key of an image inside a Parquet file or a tar; None for everything else."""
    found = MEMBER_MARK.fullmatch(path)
    if found is None:
        return None
    if not is_address(path) and (os.path.exists(path) or not os.path.isfile(found["file"])):
        return None
    return found["kind"].lower(), found["file"], found["key"]
