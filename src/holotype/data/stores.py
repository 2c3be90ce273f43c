"""Files wherever they lie: on this machine, or in S3, Google Cloud Storage, Azure or on the Hugging Face hub.

Stores on the network are pyarrow's file systems. Who may read them is told by the environment as pyarrow reads it
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, ...), never by an address: addresses are written
into records. Whatever goes wrong becomes a StoreProblem, a sentence, within seconds.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

from holotype.data.addresses import is_address, object_address, object_name, scheme_of, split_query
from holotype.data.store_words import in_words

CONNECT, ANSWER = 3.0, 20.0
"""Seconds that a store may take to be reached, and to send the next bytes."""
TRIES = 2
TRUE = ("1", "true", "yes")
READ_AHEAD = 1 << 20
"""Bytes that are asked for at once where a file on the network is read from its beginning to its end."""
OPTIONS = {
    "s3": ("region", "scheme", "endpoint_override", "anonymous"),
    "gs": ("scheme", "endpoint_override", "anonymous"),
}
"""What may stand behind the question mark of an address."""


class StoreProblem(Exception):
    """A file cannot be reached; the message is a sentence."""


@dataclass(frozen=True)
class Found:
    """A file in a store."""

    address: str
    stamp: str
    """Size and time of change, as in stamps.py."""


# -- file systems ---------------------------------------------------------------------------------------


def s3_settings(address: str) -> dict[str, Any]:
    """What the file system of an S3 address is told: by the address, or else by AWS_ENDPOINT_URL, which pyarrow reads
    in some of its ways to open a store and not in others."""
    told: dict[str, Any] = _options(address)
    told["anonymous"] = told.pop("anonymous", "").lower() in TRUE
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in told:
        scheme, _, place = endpoint.rpartition("://")
        told["endpoint_override"] = place.rstrip("/")
        told.setdefault("scheme", scheme or "https")
    return told


def _s3(address: str) -> Any:
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    told = s3_settings(address)
    retry = AwsStandardS3RetryStrategy(max_attempts=TRIES)
    return S3FileSystem(**told, connect_timeout=CONNECT, request_timeout=ANSWER, retry_strategy=retry)


def _google(address: str) -> Any:
    from pyarrow.fs import GcsFileSystem

    told = _options(address)
    anonymous = told.pop("anonymous", "").lower() in TRUE
    return GcsFileSystem(**told, anonymous=anonymous, retry_time_limit=timedelta(seconds=ANSWER))


def _azure(address: str) -> Any:
    from pyarrow.fs import FileSystem

    return FileSystem.from_uri(address)[0]


def _hugging_face(address: str) -> Any:
    from huggingface_hub import HfFileSystem
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    return PyFileSystem(FSSpecHandler(HfFileSystem()))


STORES: dict[str, Callable[[str], Any]] = {
    "s3": _s3,
    "gs": _google,
    "gcs": _google,
    "abfs": _azure,
    "abfss": _azure,
    "hf": _hugging_face,
}
"""Scheme to what opens the file system of an address."""


def _options(address: str) -> dict[str, str]:
    own = OPTIONS["s3" if scheme_of(address) == "s3" else "gs"]
    told = dict(parse_qsl(split_query(address)[1], keep_blank_values=True))
    if odd := sorted(told.keys() - set(own)):
        raise StoreProblem(f"{odd[0]!r} in {address} is no setting of a store; there are {', '.join(own)}.")
    return told


@lru_cache(maxsize=16)
def _connected(scheme: str, place: str, query: str) -> Any:
    """The file system of a bucket; one for all its objects."""
    if scheme not in STORES:
        known = ", ".join(f"{name}://" for name in STORES)
        raise StoreProblem(f"{scheme}:// is no store that can be read; there are {known}.")
    return STORES[scheme](f"{scheme}://{place}" + (f"?{query}" if query else ""))


def connect(address: str) -> tuple[Any, str]:
    """The file system (pyarrow.fs) of an address, and what it calls the object."""
    bare, query = split_query(address.partition("#")[0])
    parts, scheme = urlsplit(bare), scheme_of(address)
    if parts.password is not None or (parts.username and scheme not in ("abfs", "abfss")):
        raise StoreProblem(
            f"The address of {parts.hostname} has a name or a password in it, which would be written into records; "
            "give these in the environment instead, for example AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    place = parts.netloc
    with telling(address):
        system = _connected(scheme, place, query)
    first = place
    if scheme in (
        "abfs",
        "abfss",
    ):  # the host may be the account, and stands in front of the container or behind it
        first = parts.username or ("" if "." in place else place)
    return system, object_name(f"{first}{parts.path}").strip("/")


@contextlib.contextmanager
def telling(address: str) -> Iterator[None]:
    """Whatever a library says of a file becomes a StoreProblem."""
    try:
        yield
    except StoreProblem:
        raise
    except FileNotFoundError as error:
        raise StoreProblem(f"{address} does not exist; check the address.") from error
    except Exception as error:  # pyarrow, fsspec and the hub have many errors of their own
        raise StoreProblem(in_words(address, error)) from error


# -- files ----------------------------------------------------------------------------------------------

_seen: dict[str, str] = {}
"""Address to stamp, as a store told it when it was listed: asking for each object would take a question each."""


def files_below(address: str) -> list[Found]:
    """Every object below an address, sorted; the object itself where it is one."""
    from pyarrow.fs import FileSelector, FileType

    system, name = connect(address)
    bare, query = split_query(address)
    with telling(address):
        info = system.get_file_info(name)
        if info.type == FileType.NotFound:
            raise FileNotFoundError(address)
        every = (
            [info] if info.type == FileType.File else system.get_file_info(FileSelector(name, recursive=True))
        )
    start, first = bare.rstrip("/"), len(name) + bool(name)  # an account itself has no name
    found = []
    for one in every:
        if one.type == FileType.File:
            below = one.path.lstrip("/")[first:]
            there = object_address(start, below, query) if below else address
            found.append(Found(there, _stamp_of(one)))
    _seen.update({one.address: one.stamp for one in found})
    return sorted(found, key=lambda one: one.address)


def stamp_of(file: str) -> str:
    """Size and time of change of a file; "" where it is gone."""
    if is_address(file):
        if file not in _seen:
            from pyarrow.fs import FileType

            system, name = connect(file)
            with telling(file):
                info = system.get_file_info(name)
            if info.type != FileType.File:
                return ""
            _seen[file] = _stamp_of(info)
        return _seen[file]
    try:
        stat = os.stat(file)
    except (OSError, ValueError):
        return ""
    return f"{stat.st_size}-{stat.st_mtime_ns}"


def _stamp_of(info: Any) -> str:
    return f"{info.size}-{info.mtime_ns or 0}"


@lru_cache(maxsize=64)
def _remote(address: str, stamp: str) -> Any:
    """An open file on the network; pyarrow lets threads read it at once. stamp: another file is opened anew."""
    system, name = connect(address)
    return system.open_input_file(name)


def random_access(file: str) -> Any:
    """What pyarrow reads a Parquet file from: the path itself, or an open file on the network."""
    if not is_address(file):
        return file
    with telling(file):
        return _remote(file, stamp_of(file))


def read_part(file: str, offset: int, size: int) -> bytes:
    """`size` bytes from `offset` on; fewer where the file ends."""
    if is_address(file):
        with telling(file):
            return bytes(_remote(file, stamp_of(file)).read_at(size, offset))
    with telling(file), open(file, "rb") as stream:
        stream.seek(offset)
        return stream.read(size)


def read_whole(file: str) -> bytes:
    """All bytes of a file."""
    if is_address(file):
        system, name = connect(file)
        with telling(file), system.open_input_stream(name) as stream:
            return bytes(stream.read())
    with telling(file), open(file, "rb") as stream:
        return stream.read()


@contextlib.contextmanager
def from_the_start(file: str) -> Iterator[IO[bytes]]:
    """A file to go through once; one on the network is read ahead, and what is skipped is not fetched."""
    if not is_address(file):
        with telling(file), open(file, "rb") as stream:
            yield stream
        return
    system, name = connect(file)
    with telling(file), system.open_input_file(name) as stream:
        yield io.BufferedReader(_Raw(stream), READ_AHEAD)


class _Raw(io.RawIOBase):
    """pyarrow's file as Python's buffers want it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self.stream.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self.stream.seek(offset, whence))
